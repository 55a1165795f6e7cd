"""Configs as AReaL itself takes them.

`to_areal` writes out what AReaL reads and does not work out itself; `load_expr_config` stands in
for AReaL's function of that name. AReaL is imported by the latter alone.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from areal_conf.areal.interpolations import settle
from areal_conf.config.versions import V1_0_4
from areal_conf.config.view import UNSET
from areal_conf.legacy.carry_over import FIELD
from areal_conf.planning.options import PlanOptions
from areal_conf.planning.result import planned
from areal_conf.planning.state import Engine, ResolvedExperiment
from areal_conf.spec.backends import BACKENDS

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.planning.result import Plan
    from areal_conf.spec.allocation import ModelAllocation


ConfigT = TypeVar("ConfigT")

_NOT_AREALS = ("areal_plan", "hydra")
"""Sections that are this package's or Hydra's; AReaL's loader refuses keys it does not know."""

_TEACHER_KEYS = {
    "training": ("rl_loss_weight", "distill_loss_weight"),
    "inference": ("rl_loss_weight", "distill_loss_weight", "path", "offload"),
}
"""Keys of AReaL's ``TeacherConfig`` that do not belong to its engine (api/cli_args.py)."""

_NAMES = {
    role: "|".join(b.name for b in BACKENDS.values() if b.role == role)
    for role in ("inference", "training")
}
_FOLDS = "|".join(b.name for b in BACKENDS.values() if b.folding)
_AREALS_GRAMMAR = re.compile(
    rf"""(?:{_NAMES["inference"]})(?:\[\w+\])?:(?:[dtp]\d+)+
       | (?:{_NAMES["training"]})(?:\[\w+\])?:(?:[dtpce]\d+)+
       | (?:{_FOLDS}):\(attn:(?:[dtpc]\d+)+\|ffn:(?:[dtpe]\d+)+\)""",
    re.ASCII | re.VERBOSE,
)
"""Spellings that AReaL 1.0.4 reads as this package does (api/alloc_mode.py, ALLOCATION_GRAMMAR)."""


def to_areal(
    cfg: Any,
    root: str = "",
    launcher: str | None = None,
    model: Any = None,
    allow: Iterable[str] = (),
    *,
    areal: str | None = None,
    gpu: Any = None,
) -> DictConfig:
    """The composed config `cfg` as AReaL takes it.

    Inherited backends and those of a legacy ``allocation_mode`` are written out, each engine's
    string is spelled as AReaL's parser reads it, and ``allocation_mode`` is filled in where an SPMD
    launcher runs. Interpolations stay, except those that only this process can resolve. Sections
    that AReaL does not know stay too; only ``areal_plan`` and ``hydra`` are left out.

    Args:
        cfg: DictConfig, mapping or dataclass; it is not changed.
        root: dotted path of the package that holds the experiment; found as `areal_conf.plan` does.
        launcher: an SPMD launcher of AReaL: local, ray or slurm.
        model: as `areal_conf.plan` takes it.
        allow: codes (AC3xx, AC4xx) of errors to count as warnings.
        areal: version of AReaL to write for; default is the installed one, else 1.0.4.
        gpu: as `areal_conf.plan` takes it.

    Raises:
        AllocationError: where the plan has errors, those that AReaL stops with at start included.
    """
    made = planned(cfg, PlanOptions(root, launcher, model, allow, areal, strict=True, gpu=gpu))
    made.raise_for_errors()
    return exported(cfg, made)


def exported(cfg: Any, made: Plan) -> DictConfig:
    """`cfg`, or the package of it that holds the experiment, as AReaL takes it, by the plan `made`
    of it."""
    from omegaconf import DictConfig, OmegaConf

    config = OmegaConf.create(_Export(cfg, made).tree())
    assert isinstance(config, DictConfig)
    return config


def spelled_for_areal(allocation: ModelAllocation, text: str) -> str:
    """The user's `text` of a backend string, or the canonical one where AReaL misreads that.

    AReaL 1.0.4 knows no name beside attn and ffn, and no dimension of size 1 that the backend
    lacks.
    """
    if _AREALS_GRAMMAR.fullmatch(text):
        return text
    canonical = str(allocation)
    if _AREALS_GRAMMAR.fullmatch(canonical):
        return canonical
    return str(replace(allocation, name=None))


def allocation_mode(state: ResolvedExperiment) -> str:
    """The ``allocation_mode`` that AReaL's SPMD launchers start rollout and actor by.

    They know one component of each role, and read every other engine's own backend
    (infra/launcher/local.py, ray.py, slurm.py).
    """
    parts = [state.engines[n] for n in ("rollout", "actor") if n in state.engines]
    parts = [e for e in parts if e.active and e.allocation and not e.section.external]
    specs = {e.name: spelled_for_areal(_unnamed(e), str(_unnamed(e))) for e in parts}
    shared = next((e for e in parts if e.colocated_with in specs), None)
    if shared is None:
        return "+".join(specs.values())
    # The second of two that share GPUs needs a name, which a string with attn and ffn cannot have.
    first, second = sorted(specs, key=lambda name: ("(" not in specs[name], name == shared.name))
    backend, _, dims = specs[second].partition(":")
    return f"{specs[first]}|{backend}[{second}]:{dims}"


def _unnamed(engine: Engine) -> ModelAllocation:
    assert engine.allocation is not None
    return replace(engine.allocation, name=None)


class _Export:
    """One export: the config as plain mappings and lists, changed step by step."""

    def __init__(self, cfg: Any, made: Plan) -> None:
        from omegaconf import OmegaConf

        root = made.facts.experiment.root.path
        self.state = made.facts
        self.areal = made.facts.areal
        whole: Any = copy.deepcopy(cfg) if OmegaConf.is_config(cfg) else OmegaConf.create(cfg)
        OmegaConf.set_readonly(whole, False)
        OmegaConf.set_struct(whole, False)
        self.write_backends(whole)
        self.source: Any = OmegaConf.select(whole, root) if root else whole
        self.prefix = f"{root}." if root else ""
        self.plain: Any = OmegaConf.to_container(self.source, resolve=False, enum_to_str=True)
        self.moved: str | None = None

    def tree(self) -> Any:
        self.write_mode()
        for key in _NOT_AREALS:
            self.plain.pop(key, None)
        self.drop_unset()
        if not self.state.experiment.own_engines and self.areal >= V1_0_4:
            self.nest_teacher()
        settle(self.plain, self.source, self.origin, self.prefix)
        return self.plain

    def origin(self, path: tuple[Any, ...]) -> tuple[Any, ...]:
        """Where the value at `path` of the export stands in its source."""
        if self.moved is not None and path[:2] == ("teacher", self.moved):
            return ("teacher", *path[2:])
        return path

    def write_backends(self, cfg: DictConfig) -> None:
        """Each engine's string, where AReaL would find none or read another."""
        from omegaconf import OmegaConf

        for engine in self.state.engines.values():
            if engine.allocation is None:
                continue
            wanted = spelled_for_areal(engine.allocation, engine.text)
            try:
                written = OmegaConf.select(cfg, engine.path) == wanted
            except Exception:
                written = False
            if not written:
                OmegaConf.update(cfg, engine.path, wanted, force_add=True)

    def write_mode(self) -> None:
        if self.state.mode == "spmd":
            self.plain["allocation_mode"] = allocation_mode(self.state)
        elif self.plain.get("allocation_mode", "") is None:
            self.plain["allocation_mode"] = ""

    # -- unset -------------------------------------------------------------------------------

    def drop_unset(self) -> None:
        """Leave out what says nothing here and is no value of AReaL's field."""
        for key in ("cluster", "scheduler"):
            if self.plain.get(key, "") is None:
                del self.plain[key]
        cluster = self.plain.get("cluster")
        if isinstance(cluster, dict):
            for key in ("n_nodes", "n_gpus_per_node"):
                if cluster.get(key, "") is None:
                    del cluster[key]
        for engine in self.state.engines.values():
            self.drop_strategy(engine)

    def drop_strategy(self, engine: Engine) -> None:
        section: Any = self.plain
        for head in engine.section.view.path.removeprefix(self.prefix).split("."):
            section = section.get(head) if isinstance(section, dict) else None
        if not isinstance(section, dict) or "scheduling_strategy" not in section:
            return
        strategy = section["scheduling_strategy"]
        if strategy in UNSET:
            del section["scheduling_strategy"]
        elif isinstance(strategy, dict) and strategy.get("type", "separation") in UNSET:
            strategy["type"] = "separation"

    # -- teacher -----------------------------------------------------------------------------

    def nest_teacher(self) -> None:
        """``teacher.backend`` to ``teacher.train.backend`` or ``teacher.rollout.backend``."""
        teacher = self.state.engines.get("teacher")
        paths = [f"{self.prefix}teacher.{key}" for key in ("backend", FIELD)]
        if teacher is None or teacher.path not in paths:
            return
        section, role = self.plain["teacher"], teacher.role or "training"
        if not isinstance(section, dict):
            return
        if FIELD in section:  # of AReaL 1.0.2
            section.setdefault("backend", section.pop(FIELD))
        kind = "rollout" if role == "inference" else "train"
        outer = {k: section[k] for k in _TEACHER_KEYS[role] if k in section}
        inner = {k: v for k, v in section.items() if k not in outer and k != "engine_type"}
        self.moved = kind
        self.plain["teacher"] = {"engine_type": kind, kind: inner, **outer}
