"""What schedulers and launchers demand of a whole experiment.

`RULES` is the table: each rule reads the resolved experiment and yields what it finds. A rule's
docstring says where it stands in AReaL.
"""

from __future__ import annotations

from collections.abc import Iterator

from areal_conf.config.areal_defaults import LAUNCHERS
from areal_conf.config.versions import AFTER_2_0, V1_0_4
from areal_conf.errors import AllocationError, Diagnostic, Severity, counted
from areal_conf.planning.rules.findings import finding
from areal_conf.planning.rules.scheduling_spec import first_entry, granted
from areal_conf.planning.state import NODE_GRANULAR, Engine, ResolvedExperiment, Rule, runs_on_v2
from areal_conf.spec.backends import divisors


def check(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """What every rule of the table finds."""
    return (found for rule in RULES for found in rule(facts))


def has_engines(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC301: a config in which no engine stands."""
    if not facts.engines and not facts.findings:
        root = facts.experiment.root
        message = "no engine in this config: it has no section rollout, actor, critic, ref, teacher"
        hint = "write actor.backend=fsdp:d8, or name the engines in areal_plan.engines"
        yield finding("error", "AC301", message, root.at("actor.backend"), hint)


# -- the budget ---------------------------------------------------------------------------------


def known_scheduler(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC309: a scheduler that AReaL does not have (trainer/rl_trainer.py)."""
    kind = facts.experiment.scheduler
    if kind is not None and kind not in LAUNCHERS:
        path = facts.experiment.root.at("scheduler.type")
        message = f"unknown scheduler {kind!r}"
        yield finding("error", "AC309", message, path, "write local, ray or slurm", kind)


def budget_known(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC357: nothing says how many GPUs there are."""
    if facts.experiment.cluster_gpus is None:
        path = facts.cluster_path
        hint = f"write {path}.n_nodes=2 {path}.n_gpus_per_node=8"
        yield finding("warning", "AC357", "no GPU budget known", path, hint)


def within_budget(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC306, or AC356 where the scheduler never reads ``n_nodes`` (infra/scheduler/{ray,slurm}.py);
    AC350 where GPUs stay idle."""
    experiment = facts.experiment
    have = experiment.cluster_gpus
    if have is None or (facts.launcher in NODE_GRANULAR and _trains(facts)):
        return
    nodes, per_node, path = experiment.n_nodes, experiment.n_gpus_per_node, facts.cluster_path
    shape = f"{nodes} x {per_node}"
    assert per_node is not None
    needed = -(-facts.total // per_node)
    if facts.total > have and facts.scheduler not in NODE_GRANULAR:
        more = f"{path}.n_nodes={needed}"
        if facts.scheduler == "local":  # it uses one node, whatever n_nodes says
            more = f"{experiment.root.at('scheduler.type')}=slurm {more}"
        hint = f"write {more}, or smaller backends ({counted(have, 'GPU')} in all)"
        if facts.launcher == "local":  # nor does that launcher, which a config cannot change
            hint = f"write smaller backends ({counted(have, 'GPU')} in all), or use launcher ray "
            hint += f"or slurm with {more}"
        apart = [e for e in facts.reserving() if e.name in ("critic", "ref")]
        if "actor" in facts.engines and apart:
            shared = " ".join(_on_actor(e.section.view.at("scheduling_strategy")) for e in apart)
            hint = f"write {shared} to share the actor's GPUs, or {hint.removeprefix('write ')}"
        message = f"more GPUs than the cluster has: {facts.sum_text()} > {shape}"
        yield finding("error", "AC306", message, path, hint)
    elif facts.total < have and facts.total and not facts.unread():
        idle = have - facts.total
        hint = f"{shape} has {have} GPUs, {facts.sum_text()}: raise a d, or reduce n_nodes"
        message = f"{idle} of {have} GPUs {'is' if idle == 1 else 'are'} idle"
        yield finding("warning", "AC350", message, path, hint)


def nodes_ignored(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC356: schedulers that never read ``n_nodes``.

    Local deals out the GPUs of its own machine, round robin; ray and slurm ask for what the engines
    need (infra/scheduler/local.py, ray.py, slurm.py).
    """
    experiment = facts.experiment
    nodes, per_node = experiment.n_nodes, experiment.n_gpus_per_node
    kind = facts.launcher or facts.scheduler
    if nodes is None or not per_node or kind is None:
        return
    path = f"{facts.cluster_path}.n_nodes"
    if kind == "local" and nodes > 1:
        who = "launcher" if facts.launcher else "scheduler"
        what = f"{who} local uses one node of {counted(per_node, 'GPU')}, "
        what += f"whatever n_nodes says ({nodes})"
        if facts.total > per_node:
            what += f"; {facts.total} GPUs would share them"
        hint = f"use {who} ray or slurm for more nodes"
        yield finding("warning", "AC356", what, path, hint)
    elif facts.scheduler in NODE_GRANULAR and facts.placement:
        asked = facts.placement.nodes()
        if asked > nodes:
            what = f"scheduler {kind} ignores n_nodes ({nodes}): it will ask for {asked} nodes"
            hint = f"write {path}={asked} ({facts.sum_text()})"
            yield finding("warning", "AC356", what, path, hint)


def spmd_exact(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC308: the ray and slurm launchers give the trainer every node that the servers leave,
    whatever its world size says; AC307: servers take whole nodes (infra/launcher/ray.py, slurm.py;
    infra/utils/launcher.py, ``validate_config_for_distributed_launcher``)."""
    state, per_node = facts, facts.per_node
    have = state.experiment.cluster_gpus
    if state.launcher not in NODE_GRANULAR or per_node is None:
        return
    if have is not None and facts.total != have and _trains(facts):
        shape = f"{state.experiment.n_nodes} x {per_node} = {have}"
        hint = f"let the engines reserve {have} together, or change {facts.cluster_path}"
        who = f"the {state.launcher} launcher"
        message = f"{who} takes the whole cluster: {facts.sum_text()}, not {shape}"
        yield finding("error", "AC308", message, facts.cluster_path, hint)
    for engine in state.active():
        if engine.serves and engine.gpus % per_node:
            yield _off_node(engine, per_node, f"the {state.launcher} launcher")


def _trains(facts: ResolvedExperiment) -> bool:
    """Whether an engine trains on GPUs of its own."""
    return any(engine.gpus and not engine.serves for engine in facts.active())


def _off_node(engine: Engine, per_node: int, who: str) -> Diagnostic:
    assert engine.allocation is not None
    near = _near(engine.gpus, per_node)
    size = engine.allocation.instance_size
    hint = f"give {engine.name} {near} GPUs, or another multiple of {per_node}"
    if size and near % size == 0:
        p = engine.allocation.parallel
        dims = (
            f"d{near // size}"
            + f"p{p.pp_size}" * (p.pp_size > 1)
            + f"t{p.tp_size}" * (p.tp_size > 1)
        )
        hint += f": {engine.path}={engine.allocation.backend}:{dims}"
    message = f"{who} gives whole nodes of {per_node} GPUs; {engine.name} asks for {engine.gpus}"
    return finding("error", "AC307", message, engine.path, hint, engine.text)


def _near(gpus: int, per_node: int) -> int:
    """The GPUs of whole nodes that come nearest."""
    return max(1, round(gpus / per_node)) * per_node


def whole_nodes(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC307: instances and engines that do not fit whole nodes.

    An instance over a node needs whole nodes. The local scheduler and launcher have one
    (infra/scheduler/local.py, GPUAllocationError). The slurm scheduler gives whole nodes to each
    engine, and as many instances to each node (``ntasks_per_node = replicas // nodes``,
    infra/scheduler/slurm.py): none of one over a node, and too few of one that does not divide it.
    The ray and slurm launchers fill nodes in the same way, and refuse vLLM with t over a node
    (infra/launcher/sglang_server.py; infra/utils/launcher.py).
    """
    per_node = facts.per_node
    if per_node is None:
        return
    for engine in facts.active():
        if not engine.gpus or engine.allocation is None:
            continue
        size = engine.allocation.instance_size
        if size and (why := _bad_instance(facts, engine, size, per_node)):
            message = f"an instance of {engine.name} takes {size} GPUs, which {why}"
            fits = max(x for x in divisors(per_node) if x <= size)
            whole = facts.launcher in NODE_GRANULAR or facts.scheduler == "slurm"
            asked = _near(engine.gpus, per_node) if whole else engine.gpus
            spec = f"{engine.allocation.backend}:d{max(1, asked // fits)}t{fits}"
            hint = f"write an instance that fits, such as {engine.path}={spec.replace('d1t', 't')}"
            yield finding("error", "AC307", message, engine.path, hint, engine.text)
        elif facts.scheduler == "slurm" and engine.gpus % per_node:
            yield _off_node(engine, per_node, "the slurm scheduler")


def _bad_instance(
    facts: ResolvedExperiment, engine: Engine, size: int, per_node: int
) -> str | None:
    """Why instances of `size` GPUs do not fit nodes; None where they do."""
    who = facts.launcher or facts.scheduler
    old_ray = facts.scheduler == "ray" and facts.areal < AFTER_2_0
    if old_ray and first_entry(engine, "ray_placement_strategy") == "deferred":
        return None  # it splits an instance over nodes (infra/utils/ray_placement_group.py)
    if size > per_node and runs_on_v2(facts, engine):
        # A worker for each node of an instance (v2/inference_service/controller/controller.py).
        return f"is no multiple of the {per_node} GPUs of a node" if size % per_node else None
    node = f"{counted(per_node, 'GPU')} of a node"
    if size > per_node:
        if size % per_node:
            return f"is no multiple of the {per_node} GPUs of a node"
        if who == "local" or facts.scheduler == "slurm":
            return f"is over the {node}, which {who} cannot place"
        if old_ray:
            return f"is over the {node}, where ray finds room for none before it is deferred"
        if facts.launcher and engine.allocation and engine.allocation.backend == "vllm":
            return f"is over the {node}, which the launchers refuse for vllm"
    elif per_node % size and (facts.launcher in NODE_GRANULAR or who == "slurm"):
        return f"does not divide the {per_node} GPUs of a node: {who} fills nodes with instances"
    return None


# -- warnings on layout ---------------------------------------------------------------------------


def straddling(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC351: an instance or a tensor group, of dense layers or of experts, lies on more than one
    node: its all-reduces leave the node's own links."""
    if facts.placement is None:
        return
    for engine in facts.active():
        if not engine.gpus or engine.name not in facts.placement.units:
            continue
        count = facts.placement.straddling(engine.name)
        if count:
            assert engine.allocation is not None
            verb = "straddles" if count == 1 else "straddle"
            what = counted(count, "server instance" if engine.serves else "tensor group")
            size = facts.placement.sizes[engine.name]
            message = f"{what} of {engine.name} ({size} GPUs each) {verb} nodes"
            hint = f"choose sizes that divide the {counted(facts.per_node or 0, 'GPU')} of a node"
            yield finding("warning", "AC351", message, engine.path, hint, engine.text)


def _on_actor(path: str) -> str:
    """Overrides that colocate an engine, whether or not its section has the keys."""
    return f"++{path}.type=colocation ++{path}.target=actor"


def helpers_apart(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC352: a critic or ref on GPUs of its own."""
    for engine in facts.active():
        if engine.name in ("critic", "ref") and engine.gpus and "actor" in facts.engines:
            path = engine.section.view.at("scheduling_strategy")
            message = f"{engine.name} is not colocated and adds {counted(engine.gpus, 'GPU')}"
            hint = f"write {_on_actor(path)} to share the actor's GPUs"
            yield finding("warning", "AC352", message, path, hint)


def batch_divides(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC353: the batch is dealt to the data-parallel ranks (trainer/rl_trainer.py): a batch size
    that d does not divide stops the first training step."""
    root = facts.experiment.root
    try:
        section = root.section("train_dataset")
        batch = section.get("batch_size") if section else None
    except AllocationError:
        return
    if type(batch) is not int or batch < 1:
        return
    for engine in facts.active():
        d = engine.allocation.parallel.dp_size if engine.allocation else 1
        if engine.serves or _repeats(engine) or batch % d == 0:
            continue
        message = f"train_dataset.batch_size {batch} is not divisible by d {d} of {engine.name}"
        hint = f"write train_dataset.batch_size={-(-batch // d) * d}"
        yield finding("warning", "AC353", message, engine.path, hint, engine.text)


def _repeats(engine: Engine) -> bool:
    """Whether the backend is another engine's: what is wrong with it is said there."""
    return bool(engine.inherited_from or engine.section.raw)


def worker_counts(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC354: colocation compares workers, one a rank of a trainer, one an instance of servers.

    Local refuses different counts, so do ray and slurm up to 2.0.0; on main ray takes them where
    the granted GPUs are equal, slurm starts another job on the same nodes (infra/scheduler,
    ``create_workers``). Under ``strict`` an error where this scheduler refuses.
    """
    kind = facts.scheduler
    newer = facts.areal >= AFTER_2_0
    if facts.mode == "spmd" or (newer and kind == "slurm"):
        return
    refuses = kind in LAUNCHERS
    for engine in facts.active():
        host = facts.engines.get(engine.colocated_with or "")
        if host is None or not engine.fits or engine.awex or engine.workers == host.workers:
            continue
        if newer and kind == "ray" and granted(engine) == granted(host) > 0:
            continue
        message = (
            f"{engine.name} has {counted(engine.workers, 'worker')} "
            f"and {host.name} has {host.workers}: "
            f"scheduler {kind or 'local'} refuses this"
            + ("" if kind in NODE_GRANULAR else ", so do ray and slurm up to AReaL 2.0.0")
        )
        hint = "give both as many workers, or use scheduler ray or slurm of AReaL's main"
        severity: Severity = "error" if facts.strict and refuses else "warning"
        yield finding(severity, "AC354", message, engine.path, hint, engine.text)


_NO_P = {
    "ray and slurm": "the ray and slurm launchers refuse",
    "local": "the local launcher does not pass to servers before AReaL 1.0.4",
    "ray": "the ray launcher refuses",
    "slurm": "the slurm launcher refuses",
}


def spmd_pipeline(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC355: the ray and slurm launchers refuse servers with p over 1 (infra/utils/launcher.py):
    under ``strict`` an error. Before 1.0.4 the local one starts tensor ranks alone
    (infra/launcher/sglang_server.py, vllm_server.py)."""
    who = facts.launcher
    if facts.mode != "spmd" or (who == "local" and facts.areal >= V1_0_4):
        return
    refuses = facts.strict and who in NODE_GRANULAR
    for engine in facts.active():
        if engine.serves and engine.allocation and engine.allocation.parallel.pp_size > 1:
            message = f"{engine.name} has p > 1, which {_NO_P[who or 'ray and slurm']}"
            hint = "write it with t alone, or use the single controller (scheduler.type=...)"
            severity: Severity = "error" if refuses else "warning"
            yield finding(severity, "AC355", message, engine.path, hint, engine.text)


def names_agree(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC358: the name in brackets is not the engine's."""
    for engine in facts.active():
        name = engine.allocation.name if engine.allocation else None
        if name is not None and name != engine.name and not engine.inherited_from:
            start = engine.text.find("[") + 1
            message = f"the backend of {engine.name} is named {name!r}"
            hint = f"write [{engine.name}], or leave the brackets out"
            error = AllocationError(
                "AC358",
                message,
                path=engine.path,
                hint=hint,
                text=engine.text,
                span=(start, engine.text.find("]")),
            )
            yield Diagnostic.of("warning", error)


RULES: tuple[Rule, ...] = (
    has_engines,
    known_scheduler,
    within_budget,
    spmd_exact,
    whole_nodes,
    budget_known,
    nodes_ignored,
    straddling,
    helpers_apart,
    batch_divides,
    worker_counts,
    spmd_pipeline,
    names_agree,
)
