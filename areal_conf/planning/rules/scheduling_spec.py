"""What ``scheduling_spec`` grants: GPUs, CPUs and memory of the workers of an engine.

AReaL's single controller asks its scheduler for what the first entry says, whatever the backend
string says (infra/controller/train_controller.py and rollout_controller.py, ``initialize``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from areal_conf.config.view import View, is_mapping
from areal_conf.errors import AllocationError, Diagnostic, counted
from areal_conf.planning.state import Engine, ResolvedExperiment, Rule


class SchedulingSpec(NamedTuple):
    """The first entry of a ``scheduling_spec``, with AReaL's defaults (api/cli_args.py).

    Attributes:
        gpu: GPUs of one rank of a trainer; of servers only whether it is over 0.
        cpu: CPU cores of one rank; of servers for each GPU.
        mem: memory in GB, in the same way.
        entries: how many entries there are.
        path: config path of the entry.
    """

    gpu: int = 0
    cpu: int = 8
    mem: int = 32
    entries: int = 0
    path: str = ""


def read_spec(engine: Engine) -> SchedulingSpec | None:
    """The engine's ``scheduling_spec``; None where its section has none that can be read."""
    view = engine.section.view
    try:
        value = view.get("scheduling_spec")
    except AllocationError:
        return None
    path = view.at("scheduling_spec")
    if is_mapping(value):
        return _entry(View(value, path), 1)
    if isinstance(value, str) or not isinstance(value, Sequence) or not len(value):
        return None
    path = f"{path}[0]"
    try:
        first = value[0]
    except Exception:  # an interpolation that leads nowhere: AReaL says so
        return None
    return _entry(View(first, path), len(value)) if is_mapping(first) else None


def first_entry(engine: Engine, key: str) -> Any:
    """A key of an engine's first ``scheduling_spec``; None where it is not there, or not read."""
    try:
        value = engine.section.view.get("scheduling_spec")
        first = value if is_mapping(value) else value[0]
        return View(first).get(key)
    except Exception:
        return None


def granted(engine: Engine) -> int:
    """GPUs that a scheduler gives to the workers of `engine`, whoever shares them."""
    spec = read_spec(engine)
    if spec is None or not spec.gpu:
        return 0
    return engine.world_size if engine.serves else engine.world_size * spec.gpu


def _entry(view: View, entries: int) -> SchedulingSpec:
    default = SchedulingSpec()
    gpu, cpu, mem = (_count(view, key, getattr(default, key)) for key in ("gpu", "cpu", "mem"))
    return SchedulingSpec(gpu, cpu, mem, entries, view.path)


def _count(view: View, key: str, default: int) -> int:
    try:
        value = view.get(key)
    except AllocationError:
        return default
    return value if type(value) is int and value >= 0 else default


def _granted(facts: ResolvedExperiment) -> Iterator[tuple[Engine, SchedulingSpec]]:
    """Engines that a scheduler starts workers for, and their specs."""
    if facts.mode == "spmd" or facts.experiment.own_engines:
        return
    for engine in facts.active():
        spec = read_spec(engine) if engine.gpus else None
        if spec is None and engine.gpus and facts.strict:
            spec = _default(engine)
        if spec is not None:
            yield engine, spec


def _default(engine: Engine) -> SchedulingSpec | None:
    """What AReaL takes where no ``scheduling_spec`` is written; None where one is."""
    view = engine.section.view
    try:
        if view.get("scheduling_spec") is not None:
            return None
    except AllocationError:
        return None
    return SchedulingSpec(entries=1, path=view.at("scheduling_spec"))


# -- rules ----------------------------------------------------------------------------------------


def gpus_granted(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC359: the scheduler grants other GPUs than the backend string says.

    A trainer gets ``gpu`` for each rank (AReaL's default is 0: workers without a GPU). A server
    gets the t * p GPUs of its instance wherever ``gpu`` is over 0 (infra/controller).
    """
    for engine, spec in _granted(facts):
        path = f"{spec.path}.gpu"
        if spec.gpu == 0:
            what = "servers" if engine.serves else "ranks"
            message = f"scheduling_spec grants the {what} of {engine.name} no GPU"
        elif not engine.serves and spec.gpu > 1:
            all_gpus = spec.gpu * engine.world_size
            message = (
                f"scheduling_spec grants {spec.gpu} GPUs to each rank of {engine.name} "
                f"({counted(engine.world_size, 'rank')}): {all_gpus}, not {engine.gpus}"
            )
        else:
            continue
        hint = f"write {path}=1"
        if read_spec(engine) is None:
            path = spec.path
            message = (
                f"no scheduling_spec: AReaL's default grants the workers of {engine.name} no GPU"
            )
            command = "python -m areal.infra.rpc.rpc_server"
            hint = f"write '++{path}=[{{gpu: 1, cmd: \"{command}\"}}]'"
        error = AllocationError("AC359", message, path=path, hint=hint)
        yield Diagnostic.of("warning", error)


def one_entry(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC363: a trainer's ``scheduling_spec`` has one entry, or one for each rank (infra/scheduler,
    ``_prepare_worker_specs``), and AReaL's config at most two (api/cli_args.py)."""
    for engine, spec in _granted(facts):
        if spec.entries == 1 or (spec.entries == 2 and (engine.serves or engine.workers == 2)):
            continue
        path = spec.path.removesuffix("[0]")
        message = f"scheduling_spec of {engine.name} has {spec.entries} entries: AReaL takes one"
        error = AllocationError("AC363", message, path=path, hint=f"give {path} one entry")
        yield Diagnostic.of("error" if facts.strict else "warning", error)


def node_capacity(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC361: ranks of one node ask for more CPUs or memory than it has (AReaL issue 120). Checked
    where the cluster says what a node has: ``cpus_per_node``, ``mem_per_node`` (GB)."""
    experiment = facts.experiment
    if experiment.cpus_per_node is None and experiment.mem_per_node is None:
        return
    cpus, mem = most_of_a_node(facts)
    for need, have, what, key in (
        (cpus, experiment.cpus_per_node, "CPUs", "cpu"),
        (mem, experiment.mem_per_node, "GB of memory", "mem"),
    ):
        if have is not None and need > have:
            path = f"{facts.cluster_path}.{'cpus' if key == 'cpu' else 'mem'}_per_node"
            message = f"the engines ask for {need} {what} on one node, which has {have}"
            hint = f"lower {key} in scheduling_spec: it counts for each GPU"
            error = AllocationError("AC361", message, path=path, hint=hint)
            yield Diagnostic.of("warning", error)


def most_of_a_node(facts: ResolvedExperiment) -> tuple[int, int]:
    """The most CPU cores, and the most memory in GB, that the engines ask of any node."""
    if facts.placement is None:
        return 0, 0
    cpus: dict[int, int] = {}
    mem: dict[int, int] = {}
    for engine in facts.active():
        if not engine.gpus:
            continue
        spec = read_spec(engine) or SchedulingSpec()
        for node, ranks in facts.placement.ranks_by_node(engine.name).items():
            cpus[node] = cpus.get(node, 0) + ranks * spec.cpu
            mem[node] = mem.get(node, 0) + ranks * spec.mem
    return max(cpus.values(), default=0), max(mem.values(), default=0)


RULES: tuple[Rule, ...] = (gpus_granted, one_entry, node_capacity)


def check(facts: ResolvedExperiment) -> list[Diagnostic]:
    """What every rule of the table finds."""
    return [finding for rule in RULES for finding in rule(facts)]
