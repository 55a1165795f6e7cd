"""What AReaL's single controller and its schedulers refuse when they start the workers.

`RULES` is the table, as in `areal_conf.planning.rules.trainer`: a warning in a plan, an error where
something is launched or exported (``strict``). What counts whole nodes (AC307) and workers (AC354)
is in `areal_conf.planning.rules.cluster`.
"""

from __future__ import annotations

from collections.abc import Iterator

from areal_conf.config.versions import AFTER_2_0, V1_0_4
from areal_conf.config.view import is_mapping, is_unset
from areal_conf.errors import AllocationError, Diagnostic, clip, safe_repr
from areal_conf.planning.rules.findings import refused
from areal_conf.planning.rules.scheduling_spec import first_entry, granted, read_spec
from areal_conf.planning.state import Engine, ResolvedExperiment, Rule, forks, runs_on_v2

_RAY_SHARE = 9
"""Tenths of its GPUs that an actor of the ray scheduler takes up to 2.0.0, so that colocated ones
find room (infra/utils/ray_placement_group.py, ``MAIN_WORKER_GPU_FRAC_FOR_COLOCATION``)."""


def check(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """What every rule finds; nothing under SPMD, and where the engines are an app's own."""
    if facts.mode == "single_controller" and not facts.experiment.own_engines:
        for rule in RULES:
            yield from rule(facts)


def _entry(engine: Engine) -> str:
    """Config path of the first entry of the engine's ``scheduling_spec``."""
    spec = read_spec(engine)
    return spec.path if spec else engine.section.view.at("scheduling_spec")


def command_given(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC325: scheduler local starts what ``cmd`` says, and an entry that is written has none by
    itself (infra/scheduler/local.py, ``create_workers``; the default entry has one,
    api/cli_args.py). The controller v2 sets it."""
    if facts.scheduler != "local":
        return
    for engine in facts.active():
        if engine.guest or runs_on_v2(facts, engine) or read_spec(engine) is None:
            continue
        if is_unset(first_entry(engine, "cmd")):
            path = f"{_entry(engine)}.cmd"
            message = f"scheduler local needs the command of the workers of {engine.name}"
            hint = f'write ++{path}="python -m areal.infra.rpc.rpc_server"'
            yield refused(facts, "AC325", message, path, hint)


def local_has_them(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC306: trainers whose ``scheduling_spec`` asks for several GPUs a rank share GPUs, though the
    backend strings fit (infra/scheduler/local.py, ``_allocate_gpus``: round robin)."""
    have = facts.per_node
    if facts.scheduler != "local" or have is None or facts.total > have:
        return
    asked = sum(granted(engine) for engine in facts.active() if engine.gpus)
    if asked > have:
        path = facts.cluster_path
        message = f"scheduling_spec asks scheduler local for {asked} GPUs, which has {have}"
        yield refused(facts, "AC306", message, path, "write gpu: 1 for each rank")


def ray_without_setup(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC325: the ray scheduler of main takes no ``additional_bash_cmds`` (infra/scheduler/ray.py,
    ``_prepare_worker_specs``)."""
    if facts.scheduler != "ray" or facts.areal < AFTER_2_0:
        return
    for engine in facts.active():
        if not is_unset(first_entry(engine, "additional_bash_cmds")):
            path = f"{_entry(engine)}.additional_bash_cmds"
            message = f"scheduler ray runs no additional_bash_cmds for the workers of {engine.name}"
            yield refused(facts, "AC325", message, path, "set what they need by env_vars")


def ray_fractions(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC325: up to 2.0.0 a worker of the ray scheduler takes 0.9 of its GPUs, which Ray refuses for
    more than one, and a colocated one may have one GPU (infra/utils/ray_placement_group.py,
    ``SharedRayPlacementStrategy``; infra/scheduler/ray.py, ``_create_forked_workers_internal``).

    Servers of the controller v1 are placed by another strategy.
    """
    if facts.scheduler != "ray" or facts.areal >= AFTER_2_0:
        return
    for engine in facts.active():
        gpus = _of_a_worker(facts, engine)
        if gpus < 2 or engine.section.external:
            continue
        path = _entry(engine)
        if engine.guest:
            if forks(engine):
                message = f"{engine.name} is colocated with {gpus} GPUs a worker: ray takes one"
                hint = "give it GPUs of its own, or one GPU to each worker"
                yield refused(facts, "AC325", message, path, hint)
        elif _shared_placement(facts, engine) and gpus * _RAY_SHARE % 10:
            share = gpus * _RAY_SHARE / 10
            message = f"a worker of {engine.name} would take {share} GPUs, which Ray refuses"
            hint = f"write ++{path}.ray_placement_strategy=separate"
            yield refused(facts, "AC325", message, path, hint)


def _of_a_worker(facts: ResolvedExperiment, engine: Engine) -> int:
    """GPUs that one worker of `engine` asks its scheduler for."""
    spec = read_spec(engine)
    if spec is None or not spec.gpu or engine.allocation is None:
        return 0
    size = engine.allocation.instance_size
    if not size:
        return spec.gpu
    nodes = size // facts.per_node if facts.per_node and runs_on_v2(facts, engine) else 0
    return size // max(1, nodes)


def _shared_placement(facts: ResolvedExperiment, engine: Engine) -> bool:
    if engine.serves and not runs_on_v2(facts, engine):
        return False  # RolloutController makes separate of it
    return first_entry(engine, "ray_placement_strategy") in (None, "", "shared")


def teacher_on_one_node(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC325: the ray scheduler of main starts servers over several nodes for rollout alone
    (infra/scheduler/ray.py, ``prepare_launch_server``)."""
    teacher, per_node = facts.engines.get("teacher"), facts.per_node
    if facts.scheduler != "ray" or facts.areal < AFTER_2_0 or teacher is None or not per_node:
        return
    if teacher.active and _of_a_worker(facts, teacher) > per_node and teacher.serves:
        message = "scheduler ray starts servers over several nodes for rollout, not for teacher"
        hint = f"write a t of at most {per_node}"
        yield refused(facts, "AC325", message, teacher.path, hint, teacher.text)


def one_entry_of_v2(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC363: a trainer of the controller v2 has one entry
    (v2/training_service/controller/controller.py, ``_async_initialize``)."""
    for engine in facts.active():
        spec = read_spec(engine)
        if spec and spec.entries == 2 and not engine.serves and runs_on_v2(facts, engine):
            path = spec.path.removesuffix("[0]")
            message = f"the controller v2 takes one scheduling_spec for {engine.name}, not 2"
            yield refused(facts, "AC363", message, path, f"give {path} one entry")


def rollout_forks(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC305: the servers of the evaluation are colocated with rollout, which has no workers of its
    own where it is colocated without a fork (trainer/rl_trainer.py, ``_init_rollout``)."""
    rollout = facts.engines.get("rollout")
    if rollout is None or not rollout.guest or forks(rollout):
        return
    host = facts.engines.get(rollout.colocated_with or "")
    if host is None or host.workers != rollout.workers:
        return  # refused (AC354), or started as workers of its own
    if facts.experiment.value("rollout.agent.mode") != "online":
        path = rollout.section.view.at("scheduling_strategy.fork")
        message = "rollout without workers of its own has none for the evaluation"
        yield refused(facts, "AC305", message, path, f"write {path}=true")


def api_url_read(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC364: only the controller v2 reads ``rollout.api_url``."""
    rollout = facts.engines.get("rollout")
    if rollout is None or rollout.section.external:
        return
    if facts.experiment.value("rollout.api_url") is not None:
        view = rollout.section.view
        message = "the controller v1 does not read it: rollout starts servers of its own"
        hint = f"write {view.at('_version')}=v2 for rollout and actor, or leave it out"
        error = AllocationError("AC364", message, path=view.at("api_url"), hint=hint)
        yield Diagnostic.of("warning", error)


_DELTA = {
    "rollout.scheduling_strategy.type": ("separation", "separation"),
    "actor.weight_update_delta_method": ("adamw", "adamw"),
    "actor._version": ("v2", "v1"),
    "rollout._version": ("v2", "v1"),
    "actor.weight_update_mode": ("awex", "xccl"),
    "actor.use_lora": (False, False),
    "actor.ppo_n_minibatches": (1, 1),
}
"""Keys that delta weight updates need, the value of each, and AReaL's default of it."""


def delta_weight_update(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC311: what ``actor.enable_delta_weight_update`` needs (main: utils/dte.py,
    ``apply_dte_config_envvars``; api/cli_args.py, ``PPOActorConfig``)."""
    experiment = facts.experiment
    if facts.areal < AFTER_2_0 or experiment.value("actor.enable_delta_weight_update") is not True:
        return
    for key, (needed, default) in _DELTA.items():
        value = experiment.value(key, default)
        if value != needed:
            shown = clip(value if isinstance(value, str) else safe_repr(value))
            path = experiment.root.at(key)
            message = f"enable_delta_weight_update needs {needed} for {key}, which is {shown}"
            written = str(needed).lower() if isinstance(needed, bool) else needed
            hint = f"write ++{path}={written}, or actor.enable_delta_weight_update=false"
            yield refused(facts, "AC311", message, path, hint, shown)
    for name, backend in (("actor", "megatron"), ("rollout", "sglang")):
        engine = facts.engines.get(name)
        if engine and engine.allocation and engine.allocation.backend != backend:
            message = f"enable_delta_weight_update needs {backend} for {name}"
            hint = f"write {engine.path} with {backend}, or actor.enable_delta_weight_update=false"
            yield refused(facts, "AC311", message, engine.path, hint, engine.text)


def teacher_nested(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC324: from the wheel of 1.0.4 on the engine of a teacher is a section of its own
    (api/cli_args.py, ``TeacherConfig``); a backend beside it is a key that the class lacks.

    Always a warning: what is exported or launched is written in the new form. ``areal-conf run``,
    which hands over the file as it is, refuses it.
    """
    root = facts.experiment.root
    try:
        section = root.section("teacher")
        flat = section is not None and not is_unset(section.get("backend"))
    except AllocationError:
        return
    if section is None or not flat or facts.areal < V1_0_4:
        return
    teacher = facts.engines.get("teacher")
    kind = "rollout" if teacher is not None and teacher.serves else "train"
    message = f"AReaL reads the backend of a teacher from teacher.{kind}, and refuses it here"
    hint = f"write teacher: {{engine_type: {kind}, {kind}: {{backend: ...}}}} (export does it)"
    if is_mapping(section.get(kind)):
        hint = f"delete it: teacher.{kind} is there"
    error = AllocationError("AC324", message, path=section.at("backend"), hint=hint)
    yield Diagnostic.of("warning", error)


RULES: tuple[Rule, ...] = (
    command_given,
    local_has_them,
    ray_without_setup,
    ray_fractions,
    teacher_on_one_node,
    one_entry_of_v2,
    rollout_forks,
    api_url_read,
    delta_weight_update,
    teacher_nested,
)
