"""A first config, with the layout that is suggested for a model and a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areal_conf.areal.starter_text import ENGINES, Start, starter_config
from areal_conf.errors import AllocationError, clip
from areal_conf.spec.allocation import ModelAllocation

if TYPE_CHECKING:
    from areal_conf.planning.result import Plan

_MOST_TRIED = 12
"""Suggestions whose plan is made in search of one without a warning."""

_LARGE = 20e9
"""Parameters from which the actor is Megatron's: it splits layers and experts."""


def start(kind: str, model: str, gpu: str, n_nodes: int, per_node: int, scheduler: str) -> Start:
    """What a first config says, layouts included.

    Args:
        kind: ppo, grpo, sft, rw, dpo or distill.
        model: as ``--model`` takes it.
        gpu: as ``--gpu`` takes it.
        n_nodes: nodes.
        per_node: GPUs of a node.
        scheduler: local, ray or slurm.

    Raises:
        AllocationError: AC602 where no layout fits; the exceptions of a model and a card.
        OSError: the model cannot be read.
    """
    backends = _placeholders(kind, model)
    begun = Start(kind, _weights(model), backends, n_nodes, per_node, scheduler, gpu, model)
    if kind == "distill":
        begun = _with_teacher(begun)
    chosen = _suggested(begun)
    return _without_doubts(replace(begun, backends={**begun.backends, **chosen}))


def plan_of(begun: Start) -> Plan:
    """The plan of a first config."""
    from areal_conf.planning.result import plan

    return plan(_config(begun), model=begun.plan_model, gpu=begun.gpu)


def _weights(model: str) -> str:
    """What AReaL is to load the weights from: a directory, or a Hub id."""
    from areal_conf.model.known import hub_id

    given = Path(model)
    if given.is_file():
        return str(given.resolve().parent)
    return model if given.exists() else hub_id(model)


def _placeholders(kind: str, model: str) -> dict[str, str]:
    """A backend of one GPU for each engine; the actor's says which kind is suggested first."""
    trainer = "megatron" if _is_large(model) else "fsdp"
    backends = {"actor": f"{trainer}:d1"}
    if "rollout" in ENGINES[kind]:
        backends["rollout"] = "sglang:d1"
    if "teacher" in ENGINES[kind]:
        backends["teacher"] = "sglang:d1"
    return backends


def _is_large(model: str) -> bool:
    from areal_conf.model import read_model
    from areal_conf.model.parameters import model_parameters

    facts = read_model(model)
    counted = model_parameters(facts)
    return bool(facts.experts) or (counted is not None and counted.total > _LARGE)


def _config(begun: Start) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.create(starter_config(begun))


def _with_teacher(begun: Start) -> Start:
    """Servers of the teacher on the last node, or on half of the only one, as small as they fit."""
    gpus = _of_teacher(begun)
    doubtful = None
    for size in (size for size in range(1, gpus + 1) if gpus % size == 0):
        servers = str(ModelAllocation.from_str(f"sglang:d{gpus // size}t{size}"))
        tried = replace(begun, backends={**begun.backends, "teacher": servers})
        memory = plan_of(tried).engines["teacher"].memory
        if memory is None or memory.verdict == "fits":
            return tried
        if memory.verdict != "no":
            doubtful = doubtful or tried
    if doubtful is None:
        raise _nothing(begun)
    return doubtful


def _of_teacher(begun: Start) -> int:
    if begun.n_nodes > 1:
        return begun.n_gpus_per_node
    return begun.n_gpus_per_node // 2


def _left_by_teacher(begun: Start) -> Start:
    """The experiment without its teacher, on the GPUs that the teacher leaves."""
    student = replace(begun, kind="grpo")
    if begun.n_nodes > 1:
        return replace(student, n_nodes=begun.n_nodes - 1)
    return replace(student, n_gpus_per_node=begun.n_gpus_per_node - _of_teacher(begun))


def _suggested(begun: Start) -> dict[str, str]:
    """The layouts of the suggestion whose servers have the share nearest to one half."""
    from areal_conf.planning.options import PlanOptions
    from areal_conf.suggest.experiment import Gpus
    from areal_conf.suggest.suggestions import suggest

    whole = begun
    if begun.kind == "distill":
        begun = _left_by_teacher(begun)
    gpus = Gpus(begun.n_nodes, begun.n_gpus_per_node, begun.gpu)
    options = PlanOptions(model=begun.plan_model, gpu=begun.gpu)
    found = suggest(_config(begun), options, gpus).suggestions
    if not found:
        raise _nothing(whole)
    half = gpus.count / 2

    def cost(number: int) -> tuple[bool, float, int]:
        engines = found[number].engines
        verdicts = {(engine.get("memory") or {}).get("verdict") for engine in engines.values()}
        servers = engines.get("rollout", {}).get("gpus", 0)
        return bool(verdicts & {"may", "no"}), abs(servers - half), number

    names = [name for name in ("rollout", "actor") if name in begun.backends]
    tried = [
        {name: str(found[number].engines[name]["spec"]) for name in names}
        for number in sorted(range(len(found)), key=cost)[:_MOST_TRIED]
    ]
    good = (one for one in tried if not _warned(replace(begun, backends=one)))
    return next(good, tried[0])


def _warned(begun: Start) -> bool:
    """Whether the plan of a layout doubts that it fits."""
    return any(warning.code in ("AC701", "AC702", "AC703") for warning in plan_of(begun).warnings)


def _without_doubts(begun: Start) -> Start:
    """`begun` with as many requests at once as the servers hold."""
    plan = plan_of(begun)
    rollout = plan.engines.get("rollout")
    cache = rollout.memory.kv_cache if rollout and rollout.memory else None
    requests = cache.requests if cache is not None else None
    if requests is not None and any(warning.code == "AC709" for warning in plan.warnings):
        return replace(begun, concurrent=max(1, int(requests[0])))
    return begun


def _nothing(begun: Start) -> AllocationError:
    gpus = begun.n_nodes * begun.n_gpus_per_node
    whole = ", or use --cluster ray: slurm gives each engine whole nodes"
    return AllocationError(
        "AC602",
        f"no layout of {clip(begun.plan_model)} for {begun.kind} fits {gpus} x {clip(begun.gpu)}",
        text=clip(begun.plan_model),
        hint=f"give more GPUs, or a card with more memory{whole * (begun.scheduler == 'slurm')}",
    )
