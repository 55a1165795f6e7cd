"""Memory of one GPU of a training engine: the fullest moment of a step, with its parts.

The formulas are in docs/reference/estimates.md; `tests/estimate` holds them to published figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from areal_conf.estimate.activations import LayerBytes, layer_bytes
from areal_conf.estimate.cards import Gpu, usable_memory
from areal_conf.estimate.ranges import GIB, Range, Verdict, all_in, allocator_range, verdict_of
from areal_conf.estimate.settings import TrainingSettings
from areal_conf.estimate.stages import Stage, in_flight, pipeline_stages
from areal_conf.estimate.states import RankParameters, States, model_states, padded, rank_parameters
from areal_conf.model.facts import ModelFacts
from areal_conf.model.parameters import ModelParameters, model_parameters
from areal_conf.spec.backends import Sizes

if TYPE_CHECKING:
    from areal_conf.spec.allocation import ModelAllocation

WORKSPACE = 0.105 * GIB
"""cuBLAS and Transformer Engine workspaces: 32 MiB each and what NCCL and torch keep beside them
(PyTorch, aten/src/ATen/cuda/CUDABlas.cpp; TransformerEngine, get_cublas_workspace_size_bytes)."""

PARTS = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "gathered",
    "workspace",
)
"""What the memory of a training GPU is made of."""


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """The estimate of one training engine. Everything in GiB.

    Attributes:
        verdict: ``fits`` where the upper end of `step` (and of `load`) is under the card, ``no``
            where the lower end is over it, ``may`` between, ``unknown`` without a card or an
            estimate.
        gpu: what the card holds; None: no card named.
        step: the fullest moment of a step, all in; None: not estimated.
        load: the same while the weights are loaded; None where loading needs no more than a step.
        stage: the pipeline stage that is fullest.
        parts: what that moment is made of.
        peak: the same as one figure, as torch's allocator counts.
        allocator: the range of that figure.
        reserved: the range of what the allocator reserves, with the pools of other streams.
        static: parameters, gradients and optimizer of that stage.
        unknown: what could not be taken into account.
        assumptions: what the estimate rests on.
    """

    verdict: Verdict
    gpu: float | None
    step: Range | None = None
    load: Range | None = None
    stage: int = 0
    parts: Mapping[str, float] | None = None
    peak: float = 0.0
    allocator: Range | None = None
    reserved: Range | None = None
    static: float = 0.0
    unknown: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


class Moment(NamedTuple):
    """Bytes on one rank at one moment of a step, beside parameters and optimizer."""

    gradients: float
    activations: float
    logits: float
    gathered: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.gradients + self.activations + self.logits + self.gathered


def training_memory(
    allocation: ModelAllocation,
    facts: ModelFacts,
    settings: TrainingSettings,
    gpu: Gpu = None,
) -> TrainingMemory:
    """Estimate the memory of the fullest GPU of a training engine.

    Args:
        allocation: backend and layout.
        facts: of the model.
        settings: see `TrainingSettings`; `training_preset` has those of each engine.
        gpu: GiB that the card holds, a card, or its name; None: no verdict.

    Sources: MEMORY parts of Megatron-LM, Korthikanti et al. 2022 and PyTorch's FSDP2, each named
    where it is used.
    """
    gpu = usable_memory(gpu)
    parameters = model_parameters(facts)
    unknown = settings.unknown
    if parameters is None:
        missing = "the model's config does not say its vocabulary, hidden or MLP size"
        return TrainingMemory("unknown", gpu, unknown=(*unknown, missing))
    unknown += parameters.unknown
    if settings.tokens is None:
        unknown += ("tokens of a micro-batch are not known: activations are not counted",)
    sizes = allocation.parallel.sizes
    stages = pipeline_stages(parameters, sizes.p, settings.chunks, settings.balanced_stages)
    looked_at = _looked_at(stages, settings)
    peaks = [_peak(facts, parameters, sizes, stage, settings) for stage in looked_at]
    fullest = max(peaks, key=lambda peak: peak.total)
    return _result(fullest, facts, parameters, settings, gpu, unknown)


def _looked_at(stages: tuple[Stage, ...], settings: TrainingSettings) -> tuple[Stage, ...]:
    """The stages that may be the fullest: of equal ones the first holds most micro-batches."""
    if settings.stage is not None:
        return (stages[-1] if settings.stage == "last" else stages[settings.stage],)
    different: dict[tuple[int, int, bool, bool], Stage] = {}
    for stage in stages:
        different.setdefault(stage[1:], stage)
    return tuple(different.values())


class Peak(NamedTuple):
    """The fullest moment of one stage, and bytes that other streams' pools hold then."""

    stage: Stage
    states: States
    moment: Moment
    pools: float

    @property
    def total(self) -> float:
        """Bytes, with the workspace."""
        return self.states.parameters + self.states.optimizer + self.moment.total + WORKSPACE


def _peak(
    facts: ModelFacts,
    parameters: ModelParameters,
    sizes: Sizes,
    stage: Stage,
    settings: TrainingSettings,
) -> Peak:
    rank = rank_parameters(facts, parameters, sizes, stage, settings)
    states = model_states(rank, sizes, settings)
    layers = layer_bytes(facts, sizes, settings)
    tokens = (settings.tokens or 0) / sizes.c
    work = _Work(facts, parameters, sizes, stage, settings, rank, states, layers, tokens)
    moments = _sharded_moments(work) if settings.shard == "all" else _replicated_moments(work)
    moment = max(moments, key=lambda moment: moment.total)
    return Peak(stage, states, moment, _other_pools(work, moment))


def _other_pools(work: _Work, moment: Moment) -> float:
    """Bytes that FSDP2's own streams keep reserved, which the computing stream cannot use.

    Sharded gradients are allocated by the stream that reduces, the flat buffers of two gathered
    groups by the one that gathers (PyTorch, torch/distributed/fsdp/_fully_shard/
    _fsdp_collectives.py); torch's allocator has a pool for each stream (c10/cuda/
    CUDACachingAllocator.cpp).
    """
    if work.settings.shard != "all" or work.sizes.d * work.sizes.c == 1:
        return 0.0
    gathered = max(work.rank.embedding, work.rank.head) + work.rank.layer
    gradients = max(0.0, work.states.gradients - moment.gradients)
    return gradients + gathered * work.settings.compute_bytes


class _Work(NamedTuple):
    """What the moments of one stage are computed from."""

    facts: ModelFacts
    parameters: ModelParameters
    sizes: Sizes
    stage: Stage
    settings: TrainingSettings
    rank: RankParameters
    states: States
    layers: LayerBytes
    tokens: float

    @property
    def kept(self) -> float:
        """Bytes of activations that the stage's layers keep, of every micro-batch in flight."""
        stage, layers = self.stage, self.layers
        if self.settings.forward_only:
            return max(layers.dense if stage.dense else 0, layers.moe if stage.moe else 0) * (
                self.tokens
            )
        each = stage.dense * layers.kept_dense + stage.moe * layers.kept_moe
        if stage.last and self.settings.mtp and self.parameters.mtp:
            each += self.parameters.mtp_modules * layers.kept_moe
        return each * self.tokens * self.held

    @property
    def around_head(self) -> float:
        """Bytes that the final norm and the head keep: their inputs (Megatron-LM,
        megatron/training/theoretical_memory_usage.py); in torch's tensor parallelism the gathered
        input of the head."""
        settings, t = self.settings, self.sizes.t
        if not (self.stage.last and settings.head):
            return 0.0
        per_token = settings.compute_bytes * self.parameters.hidden
        if settings.kernels == "fused":
            return 2 * per_token * self.tokens / (t if settings.sequence_parallel else 1)
        return per_token * (1 - 1 / t) * self.tokens if settings.gather_saved else 0.0

    @property
    def pipeline_buffers(self) -> float:
        """Bytes of hidden states that torch's pipeline holds beside its layers' inputs.

        A buffer to receive into for every micro-batch and direction, and the outputs of those in
        flight (PyTorch, torch/distributed/pipelining/stage.py, _prepare_forward_infra,
        _prepare_backward_infra, fwd_cache).
        """
        settings, stage = self.settings, self.stage
        split = self.sizes.t if settings.sequence_parallel else 1
        one = settings.compute_bytes * self.parameters.hidden * self.tokens / split
        inner = settings.chunks > 1
        received = 0.0 if stage.first and not inner else settings.micro_batches - self.held
        returned = 0.0 if stage.last and not inner else settings.micro_batches + self.held
        return one * settings.chunks * (received + returned)

    @property
    def held(self) -> float:
        """Micro-batches in flight on the stage."""
        settings = self.settings
        return in_flight(self.stage.rank, self.sizes.p, settings.chunks, settings.micro_batches)

    @property
    def one_layer(self) -> float:
        """Bytes of the whole layer that is computed again in the backward pass."""
        if self.settings.recompute not in ("full", "op") or self.settings.forward_only:
            return 0.0
        layers, stage = self.layers, self.stage
        whole = max(layers.dense if stage.dense else 0, layers.moe if stage.moe else 0)
        return max(0.0, whole - layers.kept_dense) * self.tokens

    def logits(self, per_entry: float) -> float:
        """Bytes of logits and loss at `per_entry` bytes a token and vocabulary entry."""
        if not (self.stage.last and self.settings.head):
            return 0.0
        t = self.sizes.t
        multiple = self.settings.vocabulary_multiple * (t if self.settings.padded_by_t else 1)
        heads = 1
        if self.settings.mtp:
            heads += self.parameters.mtp_modules
        entries = padded(self.parameters.vocabulary, multiple) / t
        # One head computes its loss while the others keep all but their logits (2 bytes).
        others = (heads - 1) * max(self.settings.loss_kept_bytes, self.settings.loss_bytes - 2)
        return self.tokens * entries * (per_entry + others)


def _replicated_moments(work: _Work) -> list[Moment]:
    """Moments of an engine whose ranks hold whole layers and their gradients (Megatron)."""
    gradients, settings = work.states.gradients, work.settings
    at_loss = Moment(gradients, work.kept + work.around_head, work.logits(settings.loss_bytes), 0)
    backward = Moment(
        gradients, work.kept + work.one_layer, work.logits(settings.loss_kept_bytes), 0
    )
    return [at_loss, backward]


def _sharded_moments(work: _Work) -> list[Moment]:
    """Moments of an engine that deals everything over the data ranks (FSDP2).

    Layers are gathered in turn, the next one while one computes. The head (and a tied embedding),
    which is of FSDP's root, stays gathered to the end, and so do its gradients. Sharded gradients
    come into being in the backward pass; those of earlier micro-batches are there already (PyTorch,
    torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py).
    """
    settings, rank = work.settings, work.rank
    compute, reduce = settings.compute_bytes, settings.reduce_bytes
    if settings.unsharded_gradients and not settings.forward_only:
        return _unsharded_moments(work)
    tied = work.parameters.tied and work.stage.first
    head = rank.head + (rank.embedding if tied else 0.0) if work.stage.last else 0.0
    embedding = 0.0 if tied else rank.embedding
    stays = head * compute
    two_layers = 2 * rank.layer * compute
    after_forward = rank.layer * compute if settings.root_gathered else 0.0
    if not settings.reshard:
        two_layers = after_forward = (rank.layers + rank.experts) * compute
    earlier = work.states.gradients if settings.micro_batches > 1 else 0.0
    share = (rank.layers + rank.experts) / rank.total if rank.total else 0.0
    grown = max(earlier, work.states.gradients * share)
    training = settings.gradient_bytes > 0
    layer_gradients = rank.layer * (compute + reduce) if training else 0.0
    head_gradients = head * compute if training else 0.0
    loss_stays = work.logits(settings.loss_kept_bytes)
    kept = work.kept + work.around_head
    loss = Moment(earlier, kept, work.logits(settings.loss_bytes), stays + after_forward)
    at_work = stays + two_layers + layer_gradients + head_gradients
    first = Moment(earlier, work.kept + work.one_layer, loss_stays, at_work)
    one_kept = work.kept / max(1, work.stage.dense + work.stage.moe)
    last = Moment(grown, one_kept + work.one_layer, loss_stays, at_work)
    ends = (embedding + head) * 2 * compute + max(embedding, head) * reduce
    end = Moment(work.states.gradients, 0.0, 0.0, ends if training else stays)
    return [loss] if settings.forward_only else [loss, first, last, end]


def _unsharded_moments(work: _Work) -> list[Moment]:
    """Under a pipeline Archon and torchtitan keep parameters gathered, and gradients unsharded.

    They pile up in the type of reduction over the micro-batches (AReaL docs/en/tutorial/archon.md,
    A.3, A.4, A.7; torchtitan, distributed/pipeline_parallel.py).
    """
    settings, rank = work.settings, work.rank
    whole = rank.total * (settings.compute_bytes + settings.reduce_bytes)
    kept = work.kept + work.pipeline_buffers
    loss = Moment(0, kept + work.around_head, work.logits(settings.loss_bytes), whole)
    backward = Moment(0, kept + work.one_layer, work.logits(settings.loss_kept_bytes), whole)
    return [loss, backward]


def _verdict(
    gpu: float | None, step: Range, load: Range | None, peak: Peak, settings: TrainingSettings
) -> Verdict:
    if settings.other_activations:
        states = peak.states.total / GIB
        low = allocator_range(states, 0.0, WORKSPACE / GIB)[0]
        return verdict_of(gpu, (low, low), load, sure=False)
    return verdict_of(gpu, step, load, sure=settings.tokens is not None)


def _result(
    peak: Peak,
    facts: ModelFacts,
    parameters: ModelParameters,
    settings: TrainingSettings,
    gpu: float | None,
    unknown: tuple[str, ...],
) -> TrainingMemory:
    static = peak.states.parameters + peak.states.optimizer + peak.moment.gradients
    dynamic = peak.total - WORKSPACE - static
    allocator = allocator_range(static / GIB, dynamic / GIB, WORKSPACE / GIB)
    pools = peak.pools / GIB
    reserved = allocator_range(static / GIB, dynamic / GIB + pools, WORKSPACE / GIB)
    high = allocator_range(static / GIB, dynamic / GIB, WORKSPACE / GIB, pools)[1]
    step = all_in((allocator[0], high))
    load = None
    if settings.load_bytes:
        whole = parameters.total * settings.load_bytes / GIB
        load = all_in((whole, whole * 1.07))
    parts = dict(
        zip(
            PARTS,
            (
                peak.states.parameters / GIB,
                peak.moment.gradients / GIB,
                peak.states.optimizer / GIB,
                peak.moment.activations / GIB,
                peak.moment.logits / GIB,
                peak.moment.gathered / GIB,
                WORKSPACE / GIB,
            ),
            strict=True,
        )
    )
    return TrainingMemory(
        verdict=_verdict(gpu, step, load, peak, settings),
        gpu=gpu,
        step=step,
        load=load,
        stage=peak.stage.rank,
        parts=parts,
        peak=peak.total / GIB,
        allocator=allocator,
        reserved=reserved,
        static=peak.states.total / GIB,
        unknown=unknown,
        assumptions=settings.assumptions,
    )
