"""Memory of one GPU of an inference server: weights, cache, and the requests it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from areal_conf.estimate.activations import head_dim
from areal_conf.estimate.cards import Gpu, usable_memory
from areal_conf.estimate.ranges import GIB, Range, Verdict
from areal_conf.estimate.settings import ServingSettings
from areal_conf.estimate.stages import Stage, pipeline_stages
from areal_conf.estimate.states import padded
from areal_conf.model.facts import ModelFacts
from areal_conf.model.parameters import (
    UNSPLIT_LAYERS,
    LayerParameters,
    ModelParameters,
    model_parameters,
)
from areal_conf.spec.backends import Sizes

if TYPE_CHECKING:
    from areal_conf.spec.allocation import ModelAllocation

SGLANG_RESERVED = 0.3, 1.5
"""GiB that SGLang does not count as free: context, then NCCL's buffers
(sgl-project/sglang@001ccef0 python/sglang/srt/model_executor/model_runner_kv_cache_mixin.py)."""

VLLM_PROFILED: dict[bool, Range] = {False: (0.8, 4.0), True: (0.8, 8.0)}
"""GiB that vLLM's profiling run takes, for dense models and those with experts
(vllm-project/vllm@35d5cda1 vllm/v1/worker/gpu_worker.py, determine_available_memory)."""

VLLM_NCCL = 1.0
"""GiB at most of NCCL's buffers where an instance has several GPUs."""

WEIGHTS_RANGE = 0.97, 1.03
"""How far weights may be off, as factors: scales, padding, modules left in full precision."""

FILLED = 0.97
"""Share of its part of the card that a server takes at least: the cache is whole pages, and what is
free is measured."""


@dataclass(frozen=True, slots=True)
class CacheMemory:
    """The key/value cache of one GPU.

    Attributes:
        bytes_per_token: on one GPU.
        room: GiB for the cache; negative where the weights alone are too much.
        tokens: tokens of all requests that it holds.
        requests: full-length requests at once; None where the length is not known.
    """

    bytes_per_token: float
    room: Range
    tokens: Range
    requests: Range | None


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """The estimate of one inference server. Everything in GiB, but where it says bytes or tokens.

    Attributes:
        verdict: ``fits`` where one full-length request has room for sure, ``no`` where weights or
            one such request cannot have it, ``may`` between.
        gpu: what the card holds; None: no card named.
        step: what weights and cache take together; None without a card.
        weights: of the fullest GPU.
        cache: see `CacheMemory`; None without a card.
        bytes_per_token: of the cache on one GPU.
        stage: the pipeline stage that is fullest.
        parts: ``weights``.
        unknown: what could not be taken into account.
        assumptions: what the estimate rests on.
    """

    verdict: Verdict
    gpu: float | None
    step: Range | None = None
    load: Range | None = None
    weights: float = 0.0
    cache: CacheMemory | None = None
    bytes_per_token: float = 0.0
    stage: int = 0
    parts: Mapping[str, float] | None = None
    unknown: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def serving_memory(
    allocation: ModelAllocation,
    facts: ModelFacts,
    settings: ServingSettings,
    gpu: Gpu = None,
) -> ServingMemory:
    """Estimate weights, cache and requests of the fullest GPU of an inference server.

    Args:
        allocation: backend and layout; each instance has t * p GPUs.
        facts: of the model.
        settings: see `ServingSettings`; `serving_preset` has those of each engine.
        gpu: GiB that the card holds, a card, or its name; None: no room, no verdict.
    """
    gpu = usable_memory(gpu)
    parameters = model_parameters(facts)
    unknown = settings.unknown
    if parameters is None:
        missing = "the model's config does not say its vocabulary, hidden or MLP size"
        return ServingMemory("unknown", gpu, unknown=(*unknown, missing))
    unknown += parameters.unknown
    if UNSPLIT_LAYERS.intersection(facts.layer_types or ()):
        unknown += ("the states of linear-attention and state-space layers",)
    sizes = allocation.parallel.sizes
    stages = pipeline_stages(parameters, sizes.p, 1, balanced=False)
    each = [_weights(facts, parameters, sizes, stage, settings) for stage in stages]
    stage = max(stages, key=lambda stage: each[stage.rank])
    weights = max(0.0, each[stage.rank] / GIB - settings.cpu_offload)
    per_token = cache_bytes(facts, sizes, settings, stage.dense + stage.moe)
    cache = step = None
    verdict: Verdict = "unknown"
    if gpu is not None and settings.fraction is not None:
        room = _room(allocation.backend, facts, sizes, settings, gpu, weights)
        cache = _cache(room, per_token, facts, sizes, settings)
        verdict = _verdict(cache, settings)
        filled = max(weights, gpu * settings.fraction)
        step = (filled * FILLED, filled)
    return ServingMemory(
        verdict=verdict,
        gpu=gpu,
        step=step,
        weights=weights,
        cache=cache,
        bytes_per_token=per_token,
        stage=stage.rank,
        parts={"weights": weights},
        unknown=unknown,
        assumptions=settings.assumptions,
    )


def _weights(
    facts: ModelFacts,
    parameters: ModelParameters,
    sizes: Sizes,
    stage: Stage,
    settings: ServingSettings,
) -> float:
    """Bytes of weights on a GPU of `stage`."""
    full = settings.unquantised_layers
    dense = _layer(parameters.dense, facts, sizes, settings)
    moe = _layer(parameters.moe, facts, sizes, settings)
    total = dense * stage.dense + moe * stage.moe
    if settings.quantised and full:
        plain = parameters.moe if stage.moe else parameters.dense
        quantised = moe if stage.moe else dense
        total += min(full, stage.dense + stage.moe) * (
            _full_layer(plain, facts, sizes, settings) - quantised
        )
    matrix = padded(parameters.vocabulary, settings.vocabulary_multiple) * parameters.hidden
    matrices = int(stage.first) + int(stage.last and not (parameters.tied and stage.first))
    ends = matrix / sizes.t * matrices + (parameters.final if stage.last else 0)
    return total + (ends + parameters.positions * stage.first) * settings.weight_bytes


def _split(
    layer: LayerParameters, facts: ModelFacts, sizes: Sizes, settings: ServingSettings
) -> tuple[float, float, float, float, float]:
    """One layer on one GPU: attention, MLP, shared, replicated, experts."""
    ranks = max(1, sizes.t // settings.attention_dp)
    attention = layer.attention / ranks + layer.kv / min(ranks, facts.kv_heads)
    shared = layer.shared / sizes.t
    return attention, layer.mlp / sizes.t, shared, layer.replicated, layer.experts / sizes.t


def _full_layer(
    layer: LayerParameters, facts: ModelFacts, sizes: Sizes, settings: ServingSettings
) -> float:
    return sum(_split(layer, facts, sizes, settings)) * settings.weight_bytes


def _layer(
    layer: LayerParameters, facts: ModelFacts, sizes: Sizes, settings: ServingSettings
) -> float:
    """Bytes of one layer on one GPU, with the weights that are quantised in their bits."""
    attention, mlp, shared, replicated, experts = _split(layer, facts, sizes, settings)
    full, few = settings.weight_bytes, settings.weight_bits / 8
    if not settings.quantised:
        few = full
    of_linear = few if settings.quantised == "linear" else full
    of_mlp = few if settings.quantised in ("linear", "mlp") else full
    of_experts = few if settings.quantised else full
    latents = _latent_projections(facts)
    return (
        (attention + latents) * of_linear
        + (mlp + shared) * of_mlp
        + (replicated - latents) * full
        + experts * of_experts * settings.expert_padding
    )


def _latent_projections(facts: ModelFacts) -> int:
    """Down-projections of MLA: linear layers that every rank of t holds whole."""
    if not facts.kv_lora_rank:
        return 0
    latents = facts.kv_lora_rank + (facts.qk_rope_head_dim or 0) + (facts.q_lora_rank or 0)
    return (facts.hidden or 0) * latents


def cache_bytes(facts: ModelFacts, sizes: Sizes, settings: ServingSettings, layers: int) -> float:
    """Bytes of cache per token on one GPU that has `layers` layers.

    Key/value heads are split over t and replicated beyond their number; the latent of MLA is on
    every rank. Layers of other kinds than full attention keep no growing cache (sliding windows
    keep their window).
    """
    share = 1.0
    kinds = facts.layer_types or ()
    if kinds:
        growing = sum(1 for kind in kinds if kind not in UNSPLIT_LAYERS)
        share = growing / len(kinds)
    if facts.kv_lora_rank:
        return (
            layers
            * share
            * (facts.kv_lora_rank + (facts.qk_rope_head_dim or 0))
            * settings.kv_bytes
        )
    ranks = max(1, sizes.t // settings.attention_dp)
    heads = max(1, -(-facts.kv_heads // ranks))
    return layers * share * 2 * heads * head_dim(facts) * settings.kv_bytes


def _room(
    backend: str,
    facts: ModelFacts,
    sizes: Sizes,
    settings: ServingSettings,
    gpu: float,
    weights: float,
) -> Range:
    """GiB for the cache, from and to."""
    fraction = settings.fraction or 0.0
    several = sizes.t * sizes.p > 1
    if backend == "sglang":
        reserved = SGLANG_RESERVED if several else (SGLANG_RESERVED[0], SGLANG_RESERVED[0] + 0.5)
        high, low = ((gpu - taken) * fraction - weights for taken in reserved)
        return low - 0.02 * weights, high
    least, most = VLLM_PROFILED[bool(facts.experts)]
    most += VLLM_NCCL if several else 0.0
    return gpu * fraction - weights - most, gpu * fraction - weights - least


def _cache(
    room: Range, per_token: float, facts: ModelFacts, sizes: Sizes, settings: ServingSettings
) -> CacheMemory:
    low, high = (max(0.0, end) * GIB / per_token if per_token else 0.0 for end in room)
    requests = None
    if settings.context_length:
        requests = low / settings.context_length, high / settings.context_length
    return CacheMemory(per_token, room, (low, high), requests)


def _verdict(cache: CacheMemory, settings: ServingSettings) -> Verdict:
    low, high = cache.room
    if cache.requests:
        least, most = cache.requests
        return "no" if most < 1 else "fits" if least >= 1 else "may"
    return "no" if high <= 0 else "fits" if low > 0 else "may"
