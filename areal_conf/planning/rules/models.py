"""Each engine of an experiment held to its model: which model, and with which settings.

The rules are those of `areal_conf.model`; here stands where an engine's config says what they ask
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from areal_conf.config.areal_defaults import ROLES
from areal_conf.config.experiment import Experiment
from areal_conf.config.view import UNSET, View
from areal_conf.errors import AllocationError, Diagnostic, clip
from areal_conf.model import ModelFacts, Settings, check_model, read_model
from areal_conf.model.hub import cached_config, download, is_hub_id
from areal_conf.model.known import known_model
from areal_conf.planning.state import Engine, ResolvedExperiment

AUTO = "auto"
"""As a source: each engine's own model, where it is a local directory."""

OTHERS = "*"
"""As a key beside names of engines: the model of all the others."""

_SERVER_MODELS = {"sglang": ("sglang", "model_path"), "vllm": ("vllm", "model")}
_SERVER_LENGTHS = {"sglang": ("sglang", "context_length"), "vllm": ("vllm", "max_model_len")}


def check(state: ResolvedExperiment, model: Any) -> list[Diagnostic]:
    """What the models have against the layouts.

    Args:
        state: the resolved experiment.
        model: a ``config.json`` (path, directory or mapping) for all engines; ``"auto"``; or a
            mapping from names of engines, and ``"*"`` for the others, to such.

    Raises:
        OSError: a file that was named is missing or cannot be read.
        AllocationError: AC309 for another type of source, or a name that is no engine.
    """
    sources = _sources(state, model)
    models = _Models()
    findings: list[Diagnostic] = []
    seen: set[Any] = set()
    for engine in state.active():
        source = sources.get(engine.name, sources.get(OTHERS))
        if source is None or engine.section.external:
            continue
        facts, notes = models.facts(state.experiment, engine, source)
        findings += notes
        if facts is None or engine.allocation is None:
            continue
        settings = settings_of(state.experiment, engine)
        key = (engine.allocation.backend, engine.allocation.parallel, facts, settings)
        if key in seen and (engine.inherited_from or engine.section.raw):
            continue  # said where the string stands
        seen.add(key)
        findings += check_model(
            engine.allocation, facts, path=engine.path, text=engine.text, settings=settings
        )
    return findings


def engine_models(state: ResolvedExperiment, model: Any) -> dict[str, ModelFacts]:
    """Facts of the model of each engine that runs and whose model can be read.

    Args and exceptions are those of `check`, which says what cannot be read.
    """
    sources = _sources(state, model)
    models = _Models()
    found: dict[str, ModelFacts] = {}
    for engine in state.active():
        source = sources.get(engine.name, sources.get(OTHERS))
        if source is None or engine.section.external:
            continue
        facts, _ = models.facts(state.experiment, engine, source)
        if facts is not None:
            found[engine.name] = facts
    return found


def _sources(state: ResolvedExperiment, model: Any) -> dict[str, Any]:
    """The source of each engine that has one; `OTHERS` for the rest."""
    if not isinstance(model, Mapping) or not _names_engines(state, model):
        return {OTHERS: model}
    for name in model:
        if name != OTHERS and name not in state.engines and name not in ROLES:
            raise AllocationError(
                "AC309",
                f"a model is given for {clip(str(name))!r}, which is no engine",
                text=clip(str(name)),
                hint=f"name one of {', '.join(state.engines)}",
            )
    return dict(model)


def _names_engines(state: ResolvedExperiment, model: Mapping[Any, Any]) -> bool:
    """Whether a mapping is one of engines: every value is a model, and some key an engine's name;
    where every value is a path the names need not be right."""
    known = any(name in state.engines or name in ROLES or name == OTHERS for name in model)
    kinds = (str, Path, Mapping, ModelFacts) if known else (str, Path, ModelFacts)
    return bool(model) and all(isinstance(value, kinds) for value in model.values())


class _Models:
    """Facts of models, each source read once."""

    def __init__(self) -> None:
        self.read: dict[str, ModelFacts | None] = {}

    def facts(
        self, experiment: Experiment, engine: Engine, source: Any
    ) -> tuple[ModelFacts | None, list[Diagnostic]]:
        """Facts of the engine's model, and what is to say of where they come from."""
        if isinstance(source, ModelFacts):
            return source, []
        if source == AUTO:
            return self.own(experiment, engine)
        key = str(source) if isinstance(source, (str, Path)) else f"mapping {id(source)}"
        return self.once(key, source, None)

    def own(
        self, experiment: Experiment, engine: Engine
    ) -> tuple[ModelFacts | None, list[Diagnostic]]:
        path, where = own_model(experiment, engine)
        if path is None:
            return None, []
        if not _is_directory(path) and not _is_at_hand(path):
            message = (
                f"{engine.name} is not checked against its model: {clip(path)} is neither a "
                "directory nor in the local Hugging Face cache"
            )
            hint = f"give the model's config.json: --model {engine.name}=FILE"
            if is_hub_id(path):
                hint = f"run {download(path)}, or {hint}"
            error = AllocationError("AC362", message, path=where, hint=hint, text=clip(path))
            return None, self.first(path, Diagnostic.of("warning", error))
        try:
            return self.once(path, path, where)
        except OSError as failed:
            message = f"{engine.name} is not checked: {clip(str(failed), 200)}"
            error = AllocationError(
                "AC362", message, path=where, hint="let the directory hold a config.json"
            )
            return None, self.first(path, Diagnostic.of("warning", error))

    def first(self, key: str, finding: Diagnostic) -> list[Diagnostic]:
        """The finding, where it is the first about `key`."""
        if key in self.read:
            return []
        self.read[key] = None
        return [finding]

    def once(
        self, key: str, source: Any, where: str | None
    ) -> tuple[ModelFacts | None, list[Diagnostic]]:
        if key in self.read:
            return self.read[key], []
        try:
            self.read[key] = read_model(source)
        except AllocationError as error:
            if error.code == "AC309":
                raise
            error = error.at(where) if where else error
            return None, self.first(key, Diagnostic.of("error", error))
        return self.read[key], []


def _is_directory(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False


def _is_at_hand(name: str) -> bool:
    """Whether a Hub id is in the local cache, or a model whose sizes are known."""
    return cached_config(name) is not None or (is_hub_id(name) and known_model(name) is not None)


def own_model(experiment: Experiment, engine: Engine) -> tuple[str | None, str]:
    """Where the config says the engine's model is, and the config path of that.

    A trainer has a ``path`` of its own; servers share ``sglang.model_path`` or ``vllm.model``; a
    teacher that serves overrides it by ``teacher.path`` (trainer/rl_trainer.py).
    """
    places: list[tuple[View | None, str]] = [(engine.section.view, "path")]
    if engine.name == "teacher":
        places.append((_section(experiment.root, "teacher"), "path"))
    if engine.serves and engine.allocation:
        section, key = _SERVER_MODELS[engine.allocation.backend]
        places += [(engine.section.view, key), (_section(experiment.root, section), key)]
    for view, key in places:
        value = _get(view, key)
        if view is not None and isinstance(value, str) and value not in UNSET:
            return value, view.at(key)
    return None, ""


def settings_of(experiment: Experiment, engine: Engine) -> Settings:
    """What the engine's config says that the rules of a model ask for.

    The length of a sequence: of servers ``sglang.context_length`` or ``vllm.max_model_len``, of
    trainers ``gconfig.max_tokens`` (prompt and answer) or, without a rollout,
    ``train_dataset.max_length``.
    """
    if engine.allocation is None:
        return Settings()
    backend, root = engine.allocation.backend, experiment.root
    if engine.serves:
        section, key = _SERVER_LENGTHS[backend]
        length = _number(_section(root, section), key)
        if backend == "sglang":
            sglang = _section(root, "sglang")
            groups = _number(sglang, "ep_size") or 1
            split = _get(sglang, "mm_enable_dp_encoder") is not True
            return Settings(length, _attention_dp(root), expert_groups=groups, vision_split=split)
        vllm = _section(root, "vllm")
        groups = 0 if _get(vllm, "enable_expert_parallel") is True else 1
        split = _get(vllm, "mm_encoder_tp_mode") != "data"
        return Settings(length, expert_groups=groups, vision_split=split)
    if "rollout" in experiment.engines:
        length = _number(_section(root, "gconfig"), "max_tokens")
    else:
        length = _number(_section(root, "train_dataset"), "max_length")
    return Settings(length, stages_per_rank=_stages(engine.section.view, backend))


def _attention_dp(root: View) -> int:
    sglang = _section(root, "sglang")
    if _get(sglang, "enable_dp_attention") is not True:
        return 1
    return _number(sglang, "dp_size") or 1


def _stages(view: View, backend: str) -> int | None:
    if backend == "megatron":
        return _number(_section(view, "megatron"), "virtual_pipeline_parallel_size")
    if backend == "archon":
        schedule = _get(_section(view, "archon"), "pp_schedule")
        if isinstance(schedule, str) and schedule not in UNSET:
            return 1 if schedule == "1F1B" else 2
    return None


def _get(view: View | None, key: str) -> Any:
    """The value under `key`; None where it is absent or cannot be resolved."""
    try:
        return view.get(key) if view else None
    except AllocationError:
        return None


def _section(view: View, key: str) -> View | None:
    try:
        return view.section(key)
    except AllocationError:
        return None


def _number(view: View | None, key: str) -> int | None:
    value = _get(view, key)
    return value if type(value) is int and value > 0 else None
