"""Memory of every engine of an experiment: estimates, the sum on shared GPUs, and what is found.

The formulas are in `areal_conf.estimate`; here is where an experiment's config says what they ask
for. Nothing here is an error: a plan whose engines do not fit is still a plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from areal_conf.config.experiment import Experiment
from areal_conf.config.view import View, is_mapping, is_unset
from areal_conf.errors import AllocationError, Diagnostic
from areal_conf.estimate.areal_keys import SERVING_KEYS, TRAINING_KEYS, EngineKeys
from areal_conf.estimate.cards import Card, read_card
from areal_conf.estimate.ranges import CONTEXT, STATIC_RANGE, Range, Verdict, verdict_of
from areal_conf.estimate.serving import ServingMemory
from areal_conf.estimate.training import TrainingMemory
from areal_conf.model import ModelFacts, read_model
from areal_conf.model.known import known_model
from areal_conf.planning.rules.models import AUTO, engine_models, own_model
from areal_conf.planning.state import Engine, ResolvedExperiment

_NEVER_TRAIN = ("ref", "teacher")
"""Engines that AReaL builds without an optimizer where their config sets none."""


@dataclass(frozen=True)
class Estimate:
    """The estimate of one engine, with what it was made from.

    Attributes:
        engine: the engine.
        facts: of its model; None where that is not known.
        keys: what its config says.
        memory: the estimate; None where there is none.
        why: why there is none.
    """

    engine: Engine
    facts: ModelFacts | None
    keys: EngineKeys
    memory: TrainingMemory | ServingMemory | None
    why: str = ""


@dataclass(frozen=True)
class Shared:
    """What the engines on the same GPUs need together.

    Attributes:
        engines: their names, the host first.
        gpus: how many GPUs they share.
        step: GiB of one of them.
        verdict: whether that fits.
    """

    engines: tuple[str, ...]
    gpus: int
    step: Range
    verdict: Verdict


@dataclass(frozen=True)
class ExperimentMemory:
    """Estimates of all engines that run.

    Attributes:
        card: what every GPU is.
        engines: by name.
        shared: one entry for each set of GPUs.
    """

    card: Card
    engines: dict[str, Estimate] = field(default_factory=dict)
    shared: tuple[Shared, ...] = ()


def estimate(facts: ResolvedExperiment, model: Any, gpu: Any) -> ExperimentMemory:
    """The memory of every engine that runs.

    Args:
        facts: the resolved experiment.
        model: a model, as `areal_conf.plan` takes it; None or ``"auto"``: each engine's own, a
            directory or the name of a known model.
        gpu: a card, as `areal_conf.estimate.read_card` takes it.

    Raises:
        AllocationError: AC710 or AC309 where there is no such card.
        OSError: a model config that was named is missing or cannot be read.
    """
    card = read_card(gpu)
    models = _models(facts, AUTO if model is None else model)
    engines = {
        engine.name: _of_engine(facts, engine, models.get(engine.name), card)
        for engine in facts.active()
        if not engine.section.external
    }
    return ExperimentMemory(card, engines, tuple(_shared(facts, engines, card.usable)))


def _models(facts: ResolvedExperiment, model: Any) -> dict[str, ModelFacts]:
    """Facts of the model of each engine; of its own also where it is only known by name."""
    found = engine_models(facts, model)
    if model != AUTO:
        return found
    for engine in facts.active():
        if engine.name not in found:
            path, _ = own_model(facts.experiment, engine)
            known = known_model(path) if path else None
            if known is not None:
                found[engine.name] = read_model(known[0])
    return found


def _of_engine(
    facts: ResolvedExperiment, engine: Engine, model: ModelFacts | None, card: Card
) -> Estimate:
    keys = engine_keys(facts, engine)
    if model is None:
        return Estimate(engine, None, keys, None, "its model is not known")
    assert engine.allocation is not None
    memory = keys.memory(engine.allocation, model, card.usable)
    if memory.step is None:
        return Estimate(engine, model, keys, None, "; ".join(memory.unknown))
    return Estimate(engine, model, keys, memory)


# -- what the config says --------------------------------------------------------------------------


def engine_keys(facts: ResolvedExperiment, engine: Engine) -> EngineKeys:
    """The keys of an engine's memory: ``areal_plan.engines.NAME.settings`` first, then AReaL's."""
    experiment = facts.experiment
    views = [_own_settings(experiment, engine.name), engine.section.view]
    serves = engine.allocation is not None and engine.serves
    if serves and engine.allocation:
        backend = engine.allocation.backend
        inner = _section(engine.section.view, backend)
        views = [views[0], inner, engine.section.view, _section(experiment.root, backend)]
    trains = False if engine.name in _NEVER_TRAIN else None
    return EngineKeys(_Keys(tuple(view for view in views if view is not None)), facts.areal, trains)


class _Keys:
    """The first value that some sections have under a dotted key."""

    def __init__(self, views: tuple[View, ...]) -> None:
        self.views = views
        self.known: dict[str, Any] = {}

    def __call__(self, key: str) -> Any:
        if key not in self.known:
            values = (_select(view, key) for view in self.views)
            self.known[key] = next((value for value in values if not is_unset(value)), None)
        return self.known[key]


def _own_settings(experiment: Experiment, name: str) -> View | None:
    view: View | None = experiment.root
    for part in ("areal_plan", "engines", name, "settings"):
        view = _section(view, part)
    return view


def _section(view: View | None, key: str) -> View | None:
    try:
        return view.section(key) if view is not None else None
    except AllocationError:
        return None


def _select(view: View, dotted: str) -> Any:
    """The value at a dotted key, or under that key as written; None where it is unreadable."""
    try:
        found = view.select(dotted)
        return view.get(dotted) if found is None and "." in dotted else found
    except AllocationError:
        return None


def needed_tokens(facts: ResolvedExperiment) -> int | None:
    """Tokens of the longest sequence of the experiment: prompt and answer; None where not said.

    ``gconfig.max_tokens``, or ``train_dataset.max_length`` and ``gconfig.max_new_tokens`` (AReaL
    docs/en/best_practices/handling_oom.md).
    """
    experiment = facts.experiment
    if "rollout" not in experiment.engines:
        return _whole(experiment.value("train_dataset.max_length"))
    prompt = _whole(experiment.value("train_dataset.max_length"))
    answer = _whole(experiment.value("gconfig.max_new_tokens"))
    if prompt is None and answer is None:
        return None
    return (prompt or 0) + (answer or 0)


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def unknown_settings(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC364: keys of ``areal_plan.engines.NAME.settings`` that no estimate reads."""
    for engine in facts.active():
        settings = _own_settings(facts.experiment, engine.name)
        if settings is None or engine.allocation is None:
            continue
        serves = engine.allocation.role == "inference"
        known = SERVING_KEYS[engine.allocation.backend] if serves else TRAINING_KEYS
        for key in _dotted(settings):
            if key not in known:
                yield Diagnostic.of(
                    "warning",
                    AllocationError(
                        "AC364",
                        f"no estimate reads {key!r}",
                        path=settings.at(key),
                        hint=f"the keys are {', '.join(known)}",
                    ),
                )


def _dotted(view: View, head: str = "") -> Iterator[str]:
    for key in view.keys():  # noqa: SIM118 - a View is no mapping
        try:
            value = view.get(key)
        except AllocationError:
            continue
        if is_mapping(value):
            yield from _dotted(View(value, view.at(key)), f"{head}{key}.")
        else:
            yield f"{head}{key}"


# -- engines on the same GPUs ----------------------------------------------------------------------


def _shared(
    facts: ResolvedExperiment, engines: dict[str, Estimate], gpu: float
) -> Iterator[Shared]:
    by_host: dict[str, list[Estimate]] = {}
    for estimated in engines.values():
        if estimated.memory is not None:
            host = facts.host(estimated.engine).name
            by_host.setdefault(host, []).append(estimated)
    offload = facts.experiment.value("enable_offload") is True
    for host, guests in by_host.items():
        names = sorted((one.engine.name for one in guests), key=lambda name: name != host)
        step = _together([one.memory for one in guests if one.memory], offload)
        world = facts.engines[host].world_size
        yield Shared(tuple(names), world, step, verdict_of(gpu, step))


def _together(memories: list[TrainingMemory | ServingMemory], offload: bool) -> Range:
    """GiB of engines on one GPU: the sum of what stays and the largest of what comes and goes.

    With ``enable_offload`` the engine that does not work leaves the GPU.
    """
    steps = [memory.step for memory in memories if memory.step is not None]
    if offload or len(steps) == 1:
        return max(low for low, _ in steps), max(high for _, high in steps)
    stays = [_stays(memory) for memory in memories]
    low = sum(one[0] for one in stays) + max(s[0] - r[0] for s, r in zip(steps, stays, strict=True))
    high = sum(one[1] for one in stays) + max(
        s[1] - r[1] for s, r in zip(steps, stays, strict=True)
    )
    return low, high


def _stays(memory: TrainingMemory | ServingMemory) -> Range:
    """What an engine holds between its turns, with its context."""
    if isinstance(memory, ServingMemory):
        assert memory.step is not None
        return memory.step
    static = memory.static
    return static * STATIC_RANGE[0] + CONTEXT[0], static * STATIC_RANGE[1] + CONTEXT[0]
