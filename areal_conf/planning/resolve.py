"""From what a config says to what runs: backends read, inherited, their roles and colocation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Literal

from areal_conf.config.areal_defaults import INHERITS, ROLES
from areal_conf.config.experiment import EngineSection, Experiment
from areal_conf.config.versions import V1_0_4, Version
from areal_conf.config.view import View, is_mapping, is_unset
from areal_conf.errors import AllocationError, Finding, clip, counted, safe_repr, wrong_type
from areal_conf.legacy.carry_over import Carried
from areal_conf.planning.placement import Demand, Placement, place
from areal_conf.spec.allocation import ModelAllocation, SchedulingStrategyType, looks_like_spec
from areal_conf.spec.backends import BACKENDS, Role

Mode = Literal["single_controller", "spmd"]

_IN_TRAINER = ("critic", "ref", "teacher")
_EXAMPLES = {"inference": ("sglang:d2t4", "vllm:d8"), "training": ("fsdp:d8", "megatron:d2p2t2")}


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
    """

    experiment: Experiment
    mode: Mode
    launcher: str | None
    carried: Carried = field(default_factory=Carried)
    engines: dict[str, Engine] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    _order: list[Engine] | None = None
    _active: list[Engine] | None = None

    def error(self, error: AllocationError) -> None:
        """Note an error."""
        self.findings.append(Finding("error", error))

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


def resolve(experiment: Experiment, launcher: str | None, mode: Mode, carried: Carried) -> State:
    """Judge every engine of `experiment`.

    Args:
        experiment: what the config says.
        launcher: the SPMD launcher that was named, if one was.
        mode: who starts the workers.
        carried: what a legacy ``allocation_mode`` does to the config.
    """
    findings = [*experiment.findings, *carried.findings]
    state = State(experiment, mode, launcher, carried, findings=findings)
    for name, section in experiment.engines.items():
        state.engines[name] = Engine(section)
    for engine in state.engines.values():
        _read_backend(state, engine)
    for engine in state.engines.values():
        if engine.active:
            _check_role(state, engine)
    for engine in state.engines.values():
        if engine.active:
            _colocate(state, engine)
    for engine in state.engines.values():
        if engine.active and engine.colocated_with:
            _check_colocation(state, engine)
    return state


# -- backends -----------------------------------------------------------------------------------


def _read_backend(state: State, engine: Engine) -> None:
    section = engine.section
    value = section.backend
    if value is None:
        value = state.carried.filled.get(engine.name)
    if value is None:
        _inherit(state, engine)
        return
    engine.text = value if isinstance(value, str) else ""
    error = _parse(engine, value)
    if error is not None and engine.active and not _is_echo(state, engine):
        state.error(error)


def _parse(engine: Engine, value: object) -> AllocationError | None:
    section = engine.section
    example = _EXAMPLES[section.role or "training"][0]
    if not isinstance(value, str):
        hint = f"write {engine.path}={example}"
        if type(value) is int:
            hint += "; in YAML put the string in quotes"
        return wrong_type(value, "a backend string", hint=hint, path=engine.path)
    try:
        engine.allocation = ModelAllocation.from_str(value)
        engine.world_size = engine.allocation.world_size
    except AllocationError as error:
        if section.raw and not looks_like_spec(value):
            return _masked(section, error)
        return error.at(engine.path)
    return None


def _masked(section: EngineSection, error: AllocationError) -> AllocationError:
    """The error of an interpolated value that may be a secret: it shows the interpolation."""
    return AllocationError(
        error.code,
        "the interpolation does not lead to a backend string",
        text=clip(section.raw or "", 200),
        path=section.backend_path,
        hint=f"let it lead to a string such as {_EXAMPLES[section.role or 'training'][0]}",
    )


def _is_echo(state: State, engine: Engine) -> bool:
    """Whether this engine interpolates a backend that is reported at its own place already."""
    if not engine.section.raw or not engine.text:
        return False
    return any(
        other is not engine and other.text == engine.text and other.allocation is None
        for other in state.engines.values()
        if not other.section.raw
    )


def _inherit(state: State, engine: Engine) -> None:
    parent = state.engines.get(INHERITS.get(engine.name, ""))
    filled = state.carried.filled
    if parent is not None:
        given = parent.section.backend is not None or parent.name in filled
        if given:
            engine.inherited_from = parent.name
            own = parent.section.backend
            value = filled.get(parent.name) if own is None else own
            if isinstance(value, str):
                engine.text = value
                _parse(engine, value)  # what is wrong with it is said at the parent's path
            return
    legacy = state.carried.says.get(engine.name)
    if engine.active and not engine.section.external and (parent is None or legacy):
        state.error(_no_backend(engine, _heirs(state, engine), legacy))


def _heirs(state: State, parent: Engine) -> list[str]:
    """The engines that would take the backend of `parent`."""
    unset = [e for e in state.engines.values() if e.active and e.section.backend is None]
    says = state.carried.says
    return [e.name for e in unset if INHERITS.get(e.name) == parent.name and e.name not in says]


def _no_backend(engine: Engine, heirs: list[str], legacy: str | None) -> AllocationError:
    first, second = _EXAMPLES[engine.section.role or "training"]
    if legacy:
        hint = f"write {engine.path}={legacy} (allocation_mode says so, but is ignored here)"
    else:
        hint = f"write {engine.path}={first} or {engine.path}={second}"
    if misspelt := _misspelt(engine):
        hint = f"did you mean {engine.path} by {misspelt}? Otherwise {hint}"
    if heirs:
        hint += f" ({' and '.join(heirs)} will take it too)"
    return AllocationError(
        "AC301", f"{engine.name} has no backend and inherits none", path=engine.path, hint=hint
    )


def _misspelt(engine: Engine) -> str | None:
    """The path of a key of the engine that looks like a slip for its backend; None: there is none.

    AReaL's sections take any key, so that nobody else says so.
    """
    view = engine.section.view
    try:
        keys = [key for key in view.keys() if key != "backend"]  # noqa: SIM118
    except AllocationError:
        return None
    near = get_close_matches("backend", keys, n=1, cutoff=0.8)
    return view.at(near[0]) if near else None


def _check_role(state: State, engine: Engine) -> None:
    needed, allocation = engine.section.role, engine.allocation
    if needed is None or allocation is None or allocation.role == needed:
        return
    parent = state.engines.get(engine.inherited_from or "")
    if parent is not None and parent.section.role == needed:
        return  # said at the parent's path
    start = engine.text.find(allocation.backend)
    rows = [b.name for b in BACKENDS.values() if b.role == needed]
    dims = str(allocation.parallel)
    fixes = [f"{engine.path}={name}:{dims}" for name in rows if _parses(f"{name}:{dims}")]
    fixes = fixes or [f"{engine.path}={spec}" for spec in _EXAMPLES[needed]]
    state.error(
        AllocationError(
            "AC302",
            f"{allocation.backend} is for {allocation.role}; {engine.name} needs a backend "
            f"for {needed}: {', '.join(rows)}",
            text=engine.text,
            span=(start, start + len(allocation.backend)),
            path=engine.path,
            hint=f"write {' or '.join(fixes[:2])}",
        )
    )


def _parses(spec: str) -> bool:
    try:
        ModelAllocation.from_str(spec)
    except AllocationError:
        return False
    return True


# -- colocation ---------------------------------------------------------------------------------


def _colocate(state: State, engine: Engine) -> None:
    if state.mode == "spmd":
        _colocate_spmd(state, engine)
        return
    kind, target, path = _strategy(state, engine)
    if kind is not SchedulingStrategyType.colocation:
        if engine.name == "rollout" and shares_by_awex(state):
            engine.colocated_with, engine.awex = "actor", True
        return
    engine.guest = True
    error = _bad_target(state, engine, target, path)
    if error:
        engine.fits = False
        state.error(error)
    else:
        engine.colocated_with = str(target)


def _colocate_spmd(state: State, engine: Engine) -> None:
    """Who shares GPUs under an SPMD launcher: what runs in the trainer's ranks, and what ``|`` of
    the ``allocation_mode`` joins; the launchers do not read ``scheduling_strategy``."""
    if _runs_in_trainer(state, engine):
        engine.colocated_with = "actor"
        return
    host = state.carried.host_of(engine.name)
    if host in state.engines:
        engine.colocated_with = host
    elif _strategy_type(engine) is SchedulingStrategyType.colocation:
        path = engine.section.view.at("scheduling_strategy")
        message = f"SPMD launchers do not read it: {engine.name} gets GPUs of its own"
        hint = f"write {path}.type=separation, or use the single controller"
        state.findings.append(
            Finding("warning", AllocationError("AC317", message, path=path, hint=hint))
        )


def shares_by_awex(state: State) -> bool:
    """Whether ``weight_update_mode: awex`` puts rollout on the actor's GPUs.

    The train controller v1 does so whatever the scheduling strategies say, and asks for as many
    ranks on both sides (AReaL main: trainer/rl_trainer.py, ``_is_v1_awex_colocate``;
    engine/awex/colocate_reader.py).
    """
    actor, rollout = state.engines.get("actor"), state.engines.get("rollout")
    if actor is None or rollout is None or state.experiment.own_engines:
        return False
    view = actor.section.view
    try:
        mode, version = view.get("weight_update_mode"), view.get("_version")
    except AllocationError:
        return False
    if mode != "awex" or version not in (None, "", "v1") or rollout.section.external:
        return False
    return _strategy_type(actor) is not SchedulingStrategyType.colocation


def _runs_in_trainer(state: State, engine: Engine) -> bool:
    """SPMD: critic, ref and a training teacher run in the trainer's ranks."""
    return engine.name in _IN_TRAINER and not engine.serves and "actor" in state.engines


def _strategy(state: State, engine: Engine) -> tuple[SchedulingStrategyType | None, object, str]:
    """Type and target of the engine's ``scheduling_strategy``, and the target's path."""
    known = state.experiment.strategies
    if engine.name not in known:
        found = _read_strategy(state, engine)
        if found is None:
            return None, None, engine.section.view.at("scheduling_strategy")
        known[engine.name] = found
    strategy: tuple[SchedulingStrategyType | None, object, str] = known[engine.name]
    return strategy


def _read_strategy(
    state: State, engine: Engine
) -> tuple[SchedulingStrategyType | None, object, str] | None:
    """What `_strategy` says; None, and a finding, where it cannot be read."""
    view = engine.section.view
    path = view.at("scheduling_strategy")
    hint = "write {type: separation} or {type: colocation, target: actor}"
    try:
        value = view.get("scheduling_strategy")
        if is_unset(value):
            return None, None, path
        if not is_mapping(value):
            raise wrong_type(value, "a mapping with type and target", hint=hint, path=path)
        section = view.section("scheduling_strategy")
        assert section is not None
        kind, target = section.get("type"), section.get("target")
        path = section.at("type")
        if is_unset(kind):
            if not is_unset(target):
                state.findings.append(Finding("warning", _no_type(engine, section, target)))
            return None, None, path
        if not isinstance(kind, str) or kind not in SchedulingStrategyType.__members__:
            raise wrong_type(kind, "separation or colocation", hint=hint, path=path)
        return SchedulingStrategyType(kind), target, section.at("target")
    except AllocationError as error:
        state.error(error)
        return None


def _no_type(engine: Engine, section: View, target: object) -> AllocationError:
    """AC364: AReaL's default of ``type`` is separation (api/cli_args.py), which has no target."""
    return AllocationError(
        "AC364",
        f"target has no effect without type: {engine.name} gets GPUs of its own",
        text=clip(safe_repr(target)),
        path=section.at("target"),
        hint=f"write {section.at('type')}=colocation, or leave the target out",
    )


def _bad_target(state: State, engine: Engine, target: object, path: str) -> AllocationError | None:
    order = [e.name for e in state.creation_order() if e.active]
    good = order[: order.index(engine.name)]
    host = state.engines.get(target) if isinstance(target, str) else None
    joins = host is not None and _strategy_type(host) is SchedulingStrategyType.colocation
    if isinstance(target, str) and target in good and not joins:
        return None
    hint = f"write {path}={good[0]}" if good else f"write {path.rpartition('.')[0]}.type=separation"
    shown = clip(target) if isinstance(target, str) else ""

    def error(code: str, message: str) -> AllocationError:
        return AllocationError(code, message, text=shown, path=path, hint=hint)

    if target is None or target == "":
        return error("AC303", f"{engine.name} is colocated with no engine: target is missing")
    if not isinstance(target, str):
        return wrong_type(target, "the name of an engine", hint=hint, path=path)
    if target == engine.name:
        return error("AC303", f"{engine.name} is colocated with itself")
    if target not in order:
        what = "does not run" if target in state.engines else "is no engine of this experiment"
        return error("AC303", f"{engine.name} is colocated with {shown}, which {what}")
    if joins:
        return error("AC305", f"{engine.name} is colocated with {target}, itself colocated")
    return error(
        "AC303", f"{engine.name} is colocated with {target}, which is initialised after it"
    )


def _strategy_type(engine: Engine) -> SchedulingStrategyType | None:
    try:
        section = engine.section.view.section("scheduling_strategy")
        kind = section.get("type") if section else None
    except AllocationError:
        return None
    return SchedulingStrategyType.__members__.get(kind) if isinstance(kind, str) else None


def _check_colocation(state: State, engine: Engine) -> None:
    host = state.engines[engine.colocated_with or ""]
    if engine.allocation is None or host.allocation is None:
        engine.fits = False
        return
    if engine.world_size == host.world_size:
        return
    engine.fits = False
    state.error(
        AllocationError(
            "AC304",
            f"{engine.name} has {counted(engine.world_size, 'GPU')} and shares those of "
            f"{host.name}, which has {host.world_size}",
            text=engine.text,
            path=engine.path,
            hint=f"write a backend of {counted(host.world_size, 'GPU')}, such as "
            f"{engine.path}={_of_size(engine.allocation, host)}",
        )
    )


def _of_size(allocation: ModelAllocation, host: Engine) -> str:
    """A spec of the allocation's backend with as many ranks as `host` has."""
    if host.allocation and host.allocation.role == allocation.role:
        return str(host.allocation)
    rest = allocation.world_size // allocation.parallel.data_parallel_size
    world = host.world_size
    sizes = allocation.parallel.sizes
    if sizes.etp == 1 and world % rest == 0:
        from areal_conf.spec.allocation import trusted_allocation

        candidate = str(
            trusted_allocation(allocation.backend, None, sizes._replace(d=world // rest))
        )
        if _parses(candidate):
            return candidate
    return f"{allocation.backend}:d{world}"


NODE_GRANULAR = ("ray", "slurm")


@dataclass
class Facts:
    """The resolved experiment and what follows from it.

    Attributes:
        state: engines and mode.
        total: GPUs that all engines reserve together.
        areal: the AReaL to judge by.
        strict: whether what AReaL refuses at start is an error (something is launched or exported)
            or a warning.
        allowed: codes of errors that count as warnings.
    """

    state: State
    total: int
    areal: Version = V1_0_4
    strict: bool = False
    allowed: frozenset[str] = frozenset()

    @cached_property
    def placement(self) -> Placement | None:
        """Where the GPUs of each engine lie; None where no cluster is known."""
        return _place(self.state)

    @property
    def per_node(self) -> int | None:
        """GPUs of a node; None where not known."""
        return self.state.experiment.n_gpus_per_node or None

    @property
    def scheduler(self) -> str | None:
        """The single controller's scheduler; None under SPMD, or where none is set."""
        return self.state.experiment.scheduler if self.state.mode == "single_controller" else None

    @property
    def cluster_path(self) -> str:
        """Config path of the cluster section."""
        return self.state.experiment.root.at("cluster")

    def reserving(self) -> list[Engine]:
        """Engines that reserve GPUs, rollout first: the order of sums in messages."""
        engines = [e for e in self.state.engines.values() if e.gpus]
        return sorted(engines, key=lambda e: (e.name not in ROLES, e.name != "rollout"))

    def unread(self) -> bool:
        """Whether the layout of an engine is not known, so that sums say little."""
        engines = self.state.engines.values()
        return any(e.active and not e.allocation and not e.section.external for e in engines)

    def sum_text(self) -> str:
        """``rollout 8 + actor 8 = 16``; of one engine ``actor 8``."""
        parts = [f"{e.name} {e.gpus}" for e in self.reserving()]
        if len(parts) > 12:
            parts = [*parts[:11], f"{len(parts) - 11} more"]
        return " + ".join(parts) + (f" = {self.total}" if len(parts) > 1 else "")


Rule = Callable[[Facts], Iterator[Finding]]


def gather(state: State, areal: Version = V1_0_4, strict: bool = False) -> Facts:
    """Totals of a resolved experiment."""
    total = sum(engine.gpus for engine in state.engines.values())
    return Facts(state, total, areal, strict)


def _place(state: State) -> Placement | None:
    experiment = state.experiment
    per_node = experiment.n_gpus_per_node
    if experiment.n_nodes is None or not per_node:
        return None
    unlimited = state.mode == "single_controller" and experiment.scheduler in NODE_GRANULAR
    return place(demands(state), per_node, None if unlimited else experiment.n_nodes)


def demands(state: State) -> list[Demand]:
    """What each engine reserves, in the order in which AReaL gives out GPUs."""
    spmd = state.mode == "spmd"
    slurm = not spmd and state.experiment.scheduler == "slurm"
    out: list[Demand] = []
    trainers = False
    for engine in state.creation_order():
        allocation = engine.allocation
        if not engine.gpus or allocation is None:
            continue
        size = allocation.instance_size or allocation.parallel.tensor_parallel_size
        first_trainer = spmd and not engine.serves and not trainers
        trainers = trainers or not engine.serves
        fresh = slurm or (first_trainer and state.launcher in NODE_GRANULAR)
        out.append(Demand(engine.name, engine.gpus // size, size, engine.serves, fresh))
    return out
