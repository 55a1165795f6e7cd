"""The resolved experiment: engines with their backends, and whose GPUs they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from areal_conf.config.areal_defaults import ROLES
from areal_conf.config.experiment import EngineSection, Experiment
from areal_conf.config.versions import V1_0_4, Version
from areal_conf.errors import AllocationError, Diagnostic
from areal_conf.legacy.carry_over import Carried
from areal_conf.planning.placement import Demand, Placement, place
from areal_conf.spec.allocation import ModelAllocation
from areal_conf.spec.backends import Role

Mode = Literal["single_controller", "spmd"]

NODE_GRANULAR = ("ray", "slurm")
"""Schedulers and launchers that give an engine whole nodes."""


@dataclass(slots=True)
class Engine:
    """One engine, resolved.

    Attributes:
        section: what the config says.
        allocation: backend and layout; None where the string is missing or wrong.
        world_size: number of ranks; 0 where the layout is not known.
        text: the backend string as it was given.
        inherited_from: the engine whose backend it took.
        colocated_with: the engine whose GPUs it shares.
        fits: whether a colocated engine has as many ranks as its target.
        guest: whether its strategy is colocation, even with a target that is wrong.
        awex: whether it shares its target's GPUs by weight_update_mode, not by its strategy.
    """

    section: EngineSection
    allocation: ModelAllocation | None = None
    world_size: int = 0
    text: str = ""
    inherited_from: str | None = None
    colocated_with: str | None = None
    fits: bool = True
    guest: bool = False
    awex: bool = False

    @property
    def name(self) -> str:
        """Name of the engine."""
        return self.section.name

    @property
    def path(self) -> str:
        """Config path of its backend string."""
        return self.section.backend_path

    @property
    def active(self) -> bool:
        """Whether it runs."""
        return self.section.inactive is None

    @property
    def role(self) -> Role | None:
        """Role of its backend, or the one it must have."""
        return self.allocation.role if self.allocation else self.section.role

    @property
    def serves(self) -> bool:
        """Whether it is made of server instances."""
        return self.role == "inference"

    @property
    def gpus(self) -> int:
        """GPUs it reserves for itself."""
        section = self.section
        if section.inactive or section.external or self.colocated_with or self.guest:
            return 0
        return self.world_size

    @property
    def workers(self) -> int:
        """Workers that AReaL's schedulers count: one a rank, for servers one an instance."""
        if self.allocation is None:
            return 0
        return self.allocation.instances or self.world_size


@dataclass
class ResolvedExperiment:
    """The whole experiment, resolved, and what follows from it; rules read it.

    Attributes:
        experiment: what the config says.
        mode: who starts the workers.
        launcher: the SPMD launcher that was named.
        carried: what a legacy ``allocation_mode`` does to the config.
        engines: by name, as the config lists them.
        findings: what is wrong with the config, the engines and their colocation.
        areal: the AReaL to judge by.
        strict: whether what AReaL refuses at start is an error (something is launched or exported)
            or a warning.
        allowed: codes of errors that count as warnings.
        memory: the `planning.memory.ExperimentMemory`, where a card is named.
    """

    experiment: Experiment
    mode: Mode
    launcher: str | None
    carried: Carried = field(default_factory=Carried)
    engines: dict[str, Engine] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    areal: Version = V1_0_4
    strict: bool = False
    allowed: frozenset[str] = frozenset()
    memory: Any = None
    _order: list[Engine] | None = None
    _active: list[Engine] | None = None

    def error(self, error: AllocationError) -> None:
        """Note an error and its companions."""
        self.findings += Diagnostic.all_of("error", error)

    def active(self) -> list[Engine]:
        """The engines that run and whose layout is known, in the order of `engines`."""
        if self._active is None:
            self._active = [e for e in self.engines.values() if e.active and e.allocation]
        return self._active

    def host(self, engine: Engine) -> Engine:
        """The engine whose GPUs `engine` sits on: itself, or the one it is colocated with."""
        seen = {engine.name}
        while engine.colocated_with in self.engines and engine.colocated_with not in seen:
            engine = self.engines[engine.colocated_with]
            seen.add(engine.name)
        return engine

    def creation_order(self) -> list[Engine]:
        """The engines in the order AReaL gives them GPUs.

        Single controller (trainer/rl_trainer.py): trainers, then servers, then other engines as
        written. SPMD (infra/launcher): servers, then the trainer.
        """
        if self._order is not None:
            return self._order
        standard = list(ROLES)
        last = len(standard)

        def key(engine: Engine) -> tuple[int, int]:
            if engine.name not in ROLES:
                return (1 if self.mode == "spmd" and not engine.serves else 2, 0)
            place = standard.index(engine.name)
            if engine.name == "teacher" and engine.serves:
                place = last
            if self.mode == "spmd":
                return (0 if engine.serves else 1, place)
            return (0, place)

        self._order = sorted(self.engines.values(), key=key)
        return self._order

    @cached_property
    def placement(self) -> Placement | None:
        """Where the GPUs of each engine lie; None where no cluster is known."""
        return _place(self)

    @property
    def per_node(self) -> int | None:
        """GPUs of a node; None where not known."""
        return self.experiment.n_gpus_per_node or None

    @property
    def scheduler(self) -> str | None:
        """The single controller's scheduler; None under SPMD, or where none is set."""
        return self.experiment.scheduler if self.mode == "single_controller" else None

    @property
    def cluster_path(self) -> str:
        """Config path of the cluster section."""
        return self.experiment.root.at("cluster")

    @cached_property
    def total(self) -> int:
        """GPUs that all engines reserve together."""
        return sum(engine.gpus for engine in self.engines.values())

    def nodes(self, per_node: int) -> int:
        """Nodes of `per_node` GPUs that the ranks take, however many the cluster has."""
        placed = self.placement
        if placed is not None and not any(None in units for units in placed.units.values()):
            return placed.nodes()
        return place(demands(self), per_node, None).nodes()

    def reserving(self) -> list[Engine]:
        """Engines that reserve GPUs, rollout first: the order of sums in messages."""
        engines = [e for e in self.engines.values() if e.gpus]
        return sorted(engines, key=lambda e: (e.name not in ROLES, e.name != "rollout"))

    def unread(self) -> bool:
        """Whether the layout of an engine is not known, so that sums say little."""
        engines = self.engines.values()
        return any(e.active and not e.allocation and not e.section.external for e in engines)

    def sum_text(self) -> str:
        """``rollout 8 + actor 8 = 16``; of one engine ``actor 8``."""
        parts = [f"{e.name} {e.gpus}" for e in self.reserving()]
        if len(parts) > 12:
            parts = [*parts[:11], f"{len(parts) - 11} more"]
        return " + ".join(parts) + (f" = {self.total}" if len(parts) > 1 else "")


Rule = Callable[[ResolvedExperiment], Iterator[Diagnostic]]


# -- what is placed -------------------------------------------------------------------------------


def _place(state: ResolvedExperiment) -> Placement | None:
    experiment = state.experiment
    per_node = experiment.n_gpus_per_node
    if experiment.n_nodes is None or not per_node:
        return None
    unlimited = state.mode == "single_controller" and experiment.scheduler in NODE_GRANULAR
    return place(demands(state), per_node, None if unlimited else experiment.n_nodes)


def demands(state: ResolvedExperiment) -> list[Demand]:
    """What each engine reserves, in the order in which AReaL gives out GPUs."""
    spmd = state.mode == "spmd"
    slurm = not spmd and state.experiment.scheduler == "slurm"
    out: list[Demand] = []
    trainers = False
    for engine in state.creation_order():
        allocation = engine.allocation
        if not engine.gpus or allocation is None:
            continue
        sizes = allocation.parallel.sizes
        size = allocation.instance_size or max(sizes.t, sizes.etp)
        first_trainer = spmd and not engine.serves and not trainers
        trainers = trainers or not engine.serves
        fresh = slurm or (first_trainer and state.launcher in NODE_GRANULAR)
        out.append(Demand(engine.name, engine.gpus // size, size, engine.serves, fresh))
    return out


# -- controllers ----------------------------------------------------------------------------------
# AReaL has two controllers for trainers and two for servers; ``_version`` of an engine says which.
# A scheduler knows workers by the name of their role (infra/controller/train_controller.py;
# v2/training_service/controller/controller.py, ``_GUARD_SUFFIX``;
# v2/inference_service/controller/controller.py, ``_INF_SUFFIX``; 1.0.4: under experimental).

_SUFFIXES = {"training": "-guard", "inference": "-inf"}


def runs_on_v2(state: ResolvedExperiment, engine: Engine) -> bool:
    """Whether the controller v2 runs `engine`; a teacher that serves always runs on v1
    (trainer/rl_trainer.py, ``_init_teacher_rollout``)."""
    if state.mode == "spmd" or state.experiment.own_engines:
        return False
    if engine.name == "teacher" and engine.serves:
        return False
    try:
        return bool(engine.section.view.get("_version") == "v2")
    except AllocationError:
        return False


def role_of(state: ResolvedExperiment, engine: Engine) -> str:
    """The role under which the scheduler knows the workers of `engine`."""
    suffix = _SUFFIXES.get(engine.role or "", "") if runs_on_v2(state, engine) else ""
    return engine.name + suffix


def by_role(state: ResolvedExperiment) -> dict[str, Engine]:
    """The engines that run, by the roles of their workers."""
    return {role_of(state, engine): engine for engine in state.engines.values() if engine.active}


def forks(engine: Engine) -> bool:
    """Whether a colocated engine starts workers of its own on its target's GPUs (the default), so
    that others can be colocated with it (infra/scheduler, ``create_workers``)."""
    try:
        strategy = engine.section.view.section("scheduling_strategy")
        return strategy is None or strategy.get("fork", True) is not False
    except AllocationError:
        return True
