"""The resolved experiment: engines with their backends, and whose GPUs they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from areal_conf.config.areal_defaults import ROLES
from areal_conf.config.experiment import EngineSection, Experiment
from areal_conf.config.versions import V1_0_4, Version
from areal_conf.errors import AllocationError, Diagnostic
from areal_conf.legacy.carry_over import Carried
from areal_conf.spec.allocation import ModelAllocation
from areal_conf.spec.backends import Role

Mode = Literal["single_controller", "spmd"]


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
class State:
    """The whole experiment, resolved; rules read it and add to `findings`.

    Attributes:
        carried: what a legacy ``allocation_mode`` does to the config.
        areal: the AReaL to judge by.
    """

    experiment: Experiment
    mode: Mode
    launcher: str | None
    carried: Carried = field(default_factory=Carried)
    engines: dict[str, Engine] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    areal: Version = V1_0_4
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


# -- controllers ----------------------------------------------------------------------------------
# AReaL has two controllers for trainers and two for servers; ``_version`` of an engine says which.
# A scheduler knows workers by the name of their role (infra/controller/train_controller.py;
# v2/training_service/controller/controller.py, ``_GUARD_SUFFIX``;
# v2/inference_service/controller/controller.py, ``_INF_SUFFIX``; 1.0.4: under experimental).

_SUFFIXES = {"training": "-guard", "inference": "-inf"}


def runs_on_v2(state: State, engine: Engine) -> bool:
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


def role_of(state: State, engine: Engine) -> str:
    """The role under which the scheduler knows the workers of `engine`."""
    suffix = _SUFFIXES.get(engine.role or "", "") if runs_on_v2(state, engine) else ""
    return engine.name + suffix


def by_role(state: State) -> dict[str, Engine]:
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
