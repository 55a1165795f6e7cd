"""Estimates of memory as a plan prints them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from areal_conf.estimate.serving import ServingMemory
from areal_conf.estimate.training import TrainingMemory
from areal_conf.planning.memory import Estimate, ExperimentMemory

_DIGITS = 2
"""Decimals of GiB that are printed."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


Ends = tuple[float, float]
Verdict = Literal["fits", "may", "no", "unknown"]


class Cache(_Frozen):
    """The key/value cache of one GPU of a server.

    Attributes:
        bytes_per_token: on one GPU.
        room: GiB for the cache.
        tokens: tokens that it holds.
        requests: full-length requests at once.
    """

    bytes_per_token: int
    room: Ends
    tokens: tuple[int, int]
    requests: Ends | None


class EngineMemory(_Frozen):
    """The memory of one GPU of an engine.

    Attributes:
        unit: of every size: GiB.
        gpu: what the card holds.
        verdict: whether it fits: ``fits``, ``may``, ``no``, ``unknown``.
        step: the fullest moment of a step, from and to; None where not estimated.
        load: the same while weights are loaded; None where that needs no more.
        stage: the pipeline stage that is fullest.
        parts: what that moment is made of; of a server its weights.
        kv_cache: of a server.
        unknown: what could not be taken into account.
        assumptions: what the estimate rests on.
    """

    unit: Literal["GiB"] = "GiB"
    gpu: float
    verdict: Verdict
    step: Ends | None
    load: Ends | None
    stage: int
    parts: dict[str, float]
    kv_cache: Cache | None = None
    unknown: list[str]
    assumptions: list[str]

    @model_serializer(mode="wrap")
    def _without_cache(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        if fields.get("kv_cache", ...) is None:
            del fields["kv_cache"]
        return fields


class SharedMemory(_Frozen):
    """What the engines on the same GPUs need together on each of them.

    Attributes:
        engines: their names.
        gpus: how many GPUs they share.
        step: GiB, from and to.
        verdict: whether that fits.
    """

    engines: list[str]
    gpus: int
    step: Ends
    verdict: Verdict


class PlanMemory(_Frozen):
    """The memory of a GPU over all engines.

    Attributes:
        unit: of every size: GiB.
        card: name of the card.
        gpu: what it holds.
        gpus: one entry for each set of GPUs.
    """

    unit: Literal["GiB"] = "GiB"
    card: str
    gpu: float
    gpus: list[SharedMemory]


def _ends(ends: tuple[float, float] | None) -> Ends | None:
    return None if ends is None else (round(ends[0], _DIGITS), round(ends[1], _DIGITS))


def engine_memory(estimated: Estimate, gpu: float) -> EngineMemory:
    """The estimate of one engine, in the form of a plan."""
    memory = estimated.memory
    if memory is None:
        return EngineMemory(
            gpu=gpu,
            verdict="unknown",
            step=None,
            load=None,
            stage=0,
            parts={},
            unknown=[estimated.why],
            assumptions=[],
        )
    return EngineMemory(
        gpu=gpu,
        verdict=memory.verdict,
        step=_ends(memory.step),
        load=_ends(memory.load),
        stage=memory.stage,
        parts={name: round(size, _DIGITS) for name, size in (memory.parts or {}).items()},
        kv_cache=_cache(memory),
        unknown=list(memory.unknown),
        assumptions=list(memory.assumptions),
    )


def _cache(memory: TrainingMemory | ServingMemory) -> Cache | None:
    if not isinstance(memory, ServingMemory) or memory.cache is None:
        return None
    cache = memory.cache
    return Cache(
        bytes_per_token=round(cache.bytes_per_token),
        room=(round(cache.room[0], _DIGITS), round(cache.room[1], _DIGITS)),
        tokens=(int(cache.tokens[0]), int(cache.tokens[1])),
        requests=_ends(cache.requests),
    )


def plan_memory(memory: ExperimentMemory) -> PlanMemory:
    """The sums over engines, in the form of a plan."""
    return PlanMemory(
        card=memory.card.name,
        gpu=memory.card.usable,
        gpus=[
            SharedMemory(
                engines=list(shared.engines),
                gpus=shared.gpus,
                step=(round(shared.step[0], _DIGITS), round(shared.step[1], _DIGITS)),
                verdict=shared.verdict,
            )
            for shared in memory.shared
        ],
    )
