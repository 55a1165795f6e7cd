"""Whose GPUs an engine shares, and what AReaL's schedulers refuse about that."""

from __future__ import annotations

from areal_conf.config.versions import AFTER_2_0
from areal_conf.config.view import View, is_mapping, is_unset
from areal_conf.errors import (
    AllocationError,
    Diagnostic,
    Severity,
    clip,
    counted,
    safe_repr,
    wrong_type,
)
from areal_conf.planning.state import (
    NODE_GRANULAR,
    Engine,
    ResolvedExperiment,
    by_role,
    forks,
    role_of,
    runs_on_v2,
)
from areal_conf.spec.allocation import (
    ModelAllocation,
    SchedulingStrategyType,
    trusted_allocation,
)
from areal_conf.spec.backends import BACKENDS

_IN_TRAINER = ("critic", "ref", "teacher")
_BEFORE_ROLLOUT = ("actor", *_IN_TRAINER)


def colocate(state: ResolvedExperiment, engine: Engine) -> None:
    if state.mode == "spmd":
        _colocate_spmd(state, engine)
        return
    kind, target, path = _strategy(state, engine)
    if kind is SchedulingStrategyType.colocation and _ignores_strategy(state, engine):
        state.findings.append(Diagnostic.of("warning", _not_read(engine)))
        kind = None
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
        engine.colocated_with = by_role(state)[str(target)].name


def _ignores_strategy(state: ResolvedExperiment, engine: Engine) -> bool:
    """The controller v2 of servers asks for GPUs of its own, whatever the strategy says
    (v2/inference_service/controller/controller.py, ``_async_initialize``)."""
    return engine.name == "rollout" and runs_on_v2(state, engine)


def _not_read(engine: Engine) -> AllocationError:
    path = engine.section.view.at("scheduling_strategy")
    return AllocationError(
        "AC364",
        f"the controller v2 does not read it: {engine.name} gets GPUs of its own",
        path=path,
        hint=f"write {path}.type=separation, or _version v1 for actor and rollout",
    )


def _colocate_spmd(state: ResolvedExperiment, engine: Engine) -> None:
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
            Diagnostic.of("warning", AllocationError("AC317", message, path=path, hint=hint))
        )


def shares_by_awex(state: ResolvedExperiment) -> bool:
    """Whether ``weight_update_mode: awex`` puts rollout on the actor's GPUs.

    The train controller v1 means it so whatever the scheduling strategies say (AReaL main:
    trainer/rl_trainer.py, ``_is_v1_awex_colocate``), yet each scheduler still reserves what the
    strategies say: ray and slurm both sides, and local deals out its GPUs round robin, so that
    rollout comes to lie on the actor's where the engines before it end with the last GPU.
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
    if _strategy_type(actor) is SchedulingStrategyType.colocation:
        return False
    return _comes_round(state, actor, rollout)


def _comes_round(state: ResolvedExperiment, actor: Engine, rollout: Engine) -> bool:
    """Whether the scheduler gives rollout the GPUs that it gave the actor before."""
    kind, per_node = state.experiment.scheduler, state.experiment.n_gpus_per_node
    if kind in NODE_GRANULAR:
        return False
    if kind is None or not per_node:
        return True
    before = sum(e.gpus for e in state.engines.values() if e.name in _BEFORE_ROLLOUT)
    return before % per_node == 0 and rollout.world_size == actor.world_size


def _runs_in_trainer(state: ResolvedExperiment, engine: Engine) -> bool:
    """SPMD: critic, ref and a training teacher run in the trainer's ranks."""
    return engine.name in _IN_TRAINER and not engine.serves and "actor" in state.engines


def _strategy(
    state: ResolvedExperiment, engine: Engine
) -> tuple[SchedulingStrategyType | None, object, str]:
    """Type and target of the engine's ``scheduling_strategy``, and the target's path."""
    found = _read_strategy(state, engine)
    return (None, None, engine.section.view.at("scheduling_strategy")) if found is None else found


def _read_strategy(
    state: ResolvedExperiment, engine: Engine
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
                state.findings.append(Diagnostic.of("warning", _no_type(engine, section, target)))
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


def _bad_target(
    state: ResolvedExperiment, engine: Engine, target: object, path: str
) -> AllocationError | None:
    order = [e.name for e in state.creation_order() if e.active]
    good = order[: order.index(engine.name)]
    host = by_role(state).get(target) if isinstance(target, str) else None
    joins = host is not None and host.guest and not forks(host)
    if host is not None and host.name in good and not joins:
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
    if host is None and target in order:
        return _other_role(state, engine, state.engines[target], path)
    if host is None:
        what = "does not run" if target in state.engines else "is not an engine of this experiment"
        return error("AC303", f"{engine.name} is colocated with {shown}, which {what}")
    if joins:
        message = f"{engine.name} is colocated with {target}, itself colocated without a fork"
        return error("AC305", f"{message}: it has no workers of its own")
    return error(
        "AC303", f"{engine.name} is colocated with {target}, which is initialised after it"
    )


def _other_role(
    state: ResolvedExperiment, engine: Engine, host: Engine, path: str
) -> AllocationError:
    """AC303: the scheduler finds no workers of that name (``WorkerNotFoundError``)."""
    role = role_of(state, host)
    return AllocationError(
        "AC303",
        f"{engine.name} is colocated with {host.name}, whose workers are called {role} "
        "by the controller v2",
        text=host.name,
        path=path,
        hint=f"write {path}={role}, or _version v1 for actor and rollout",
    )


def _strategy_type(engine: Engine) -> SchedulingStrategyType | None:
    try:
        section = engine.section.view.section("scheduling_strategy")
        kind = section.get("type") if section else None
    except AllocationError:
        return None
    return SchedulingStrategyType.__members__.get(kind) if isinstance(kind, str) else None


def check_colocation(state: ResolvedExperiment, engine: Engine) -> None:
    host = state.engines[engine.colocated_with or ""]
    if engine.allocation is None or host.allocation is None:
        engine.fits = False
        return
    if engine.world_size == host.world_size:
        return
    engine.fits = False
    severity: Severity = "warning" if _submits_another_job(state) else "error"
    state.findings.append(Diagnostic.of(severity, _other_size(engine, host)))


def _submits_another_job(state: ResolvedExperiment) -> bool:
    """Main's slurm scheduler starts a colocated engine of other counts as a job of its own on the
    nodes of its target, without GPUs of its own (infra/scheduler/slurm.py, ``create_workers``)."""
    return state.experiment.scheduler == "slurm" and state.areal >= AFTER_2_0


def _other_size(engine: Engine, host: Engine) -> AllocationError:
    assert engine.allocation is not None
    return AllocationError(
        "AC304",
        f"{engine.name} has {counted(engine.world_size, 'GPU')} and shares those of "
        f"{host.name}, which has {host.world_size}",
        text=engine.text,
        path=engine.path,
        hint=f"write a backend of {counted(host.world_size, 'GPU')}, such as "
        f"{engine.path}={_of_size(engine.allocation, host)}",
    )


def _of_size(allocation: ModelAllocation, host: Engine) -> str:
    """A spec of the allocation's backend with as many ranks as `host` has."""
    if host.allocation and host.allocation.role == allocation.role:
        return str(host.allocation)
    rest = allocation.world_size // allocation.parallel.data_parallel_size
    world = host.world_size
    sizes = allocation.parallel.sizes
    if sizes.etp == 1 and world % rest == 0:
        wanted = sizes._replace(d=world // rest)
        if BACKENDS[allocation.backend].takes(wanted):
            return str(trusted_allocation(allocation.backend, None, wanted))
    return f"{allocation.backend}:d{world}"
