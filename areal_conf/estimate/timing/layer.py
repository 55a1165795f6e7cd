"""Time of one layer, and of the head, for one micro-batch on one rank, part by part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from areal_conf.estimate.timing.speed import FLASH1_SLOWER, FLASH_SHARE, Fitted, Machine

if TYPE_CHECKING:
    from areal_conf.model.facts import ModelFacts
    from areal_conf.spec.backends import Sizes

Attention = Literal["flash2", "flash1", "fused_softmax", "eager"]
Projection = tuple[int, int, Literal["in", "out", "none"]]
"""A matmul around attention: inner size, outer size, which of them t divides."""


@dataclass(frozen=True)
class Work:
    """What one step does.

    Attributes:
        tokens: tokens of a micro-batch on one data rank, before context parallelism divides them.
        micro_batches: micro-batches of a step on one data rank.
        sequence: tokens of one sequence; at most `tokens`.
        chunks: virtual pipeline chunks of a rank.
        recompute: what the backward pass computes again.
        sharding: what data ranks share: 0 nothing, 1 the optimizer, 3 weights and gradients too.
        weight_bytes: bytes of a weight that is exchanged.
        gradient_bytes: bytes of a gradient that is exchanged.
        sequence_parallel: whether ranks of a tensor group divide what no matmul divides.
        attention: the kernel.
        eager_norm: whether norms run as single operations instead of one kernel.
        eager_mlp: whether the activation of the MLP does.
        gathered_logits: whether each tensor rank holds the logits of the whole vocabulary.
        expert_split: whether t splits routed experts' tokens (no: each rank computes all of them).
        context: how context ranks exchange keys and values.
        balanced_stages: whether stages are balanced by parameters or by the number of layers.
    """

    tokens: int
    micro_batches: float
    sequence: int
    chunks: int = 1
    recompute: Literal["none", "selective", "full"] = "full"
    sharding: int = 1
    weight_bytes: float = 2
    gradient_bytes: float = 4
    sequence_parallel: bool = True
    attention: Attention = "flash2"
    eager_norm: bool = False
    eager_mlp: bool = False
    gathered_logits: bool = False
    expert_split: bool = True
    context: Literal["ring", "all_to_all"] = "ring"
    balanced_stages: bool = True

    def own_tokens(self, sizes: Sizes) -> float:
        """Tokens of a rank in all that no matmul divides."""
        rows = self.tokens / sizes.c
        return rows / sizes.t if self.sequence_parallel else rows


class Pass(NamedTuple):
    """Seconds of one micro-batch in one layer, or of the head, part by part as in `StepTime`."""

    matmul: float = 0.0
    attention: float = 0.0
    elementwise: float = 0.0
    tensor: float = 0.0
    context: float = 0.0
    experts: float = 0.0
    overhead: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(self)


@dataclass(frozen=True)
class Shape:
    """Sizes of a model as this estimate needs them."""

    hidden: int
    layers: int
    moe_layers: int
    vocabulary: int
    heads: int
    query: int
    key_value: int
    projections: tuple[Projection, ...]
    intermediate: int
    matrices: int
    experts: int
    experts_per_token: int
    expert_intermediate: int
    shared_intermediate: int

    @classmethod
    def of(cls, facts: ModelFacts) -> Shape:
        """The shape of a model; unknown inner sizes are taken as four times the hidden size."""
        return _shape(facts)


def _shape(facts: ModelFacts) -> Shape:
    hidden = facts.hidden or 4096
    head_dim = facts.head_dim or hidden // facts.heads
    query, key_value = facts.heads * head_dim, facts.kv_heads * head_dim
    moe_layers = (facts.moe_layers or facts.layers) if facts.experts else 0
    return Shape(
        hidden=hidden,
        layers=facts.layers,
        moe_layers=moe_layers,
        vocabulary=facts.vocabulary or 0,
        heads=facts.heads,
        query=query,
        key_value=key_value,
        projections=_projections(facts, hidden, query, key_value),
        intermediate=facts.intermediate or 4 * hidden,
        matrices=3 if facts.gated_mlp else 2,
        experts=facts.experts,
        experts_per_token=facts.experts_per_token or 1,
        expert_intermediate=facts.expert_intermediate or facts.intermediate or 4 * hidden,
        shared_intermediate=facts.shared_intermediate or 0,
    )


def _projections(
    facts: ModelFacts, hidden: int, query: int, key_value: int
) -> tuple[Projection, ...]:
    """Matmuls around attention; with latents (MLA) what goes down to them is split by nothing."""
    output: Projection = (query, hidden, "in")
    if not facts.kv_lora_rank:
        return ((hidden, query + 2 * key_value, "out"), output)
    down = facts.kv_lora_rank
    latent: list[Projection] = [(hidden, down, "none"), (down, 2 * query, "out"), output]
    if facts.q_lora_rank:
        rank = facts.q_lora_rank
        return ((hidden, rank, "none"), (rank, query, "out"), *latent)
    return ((hidden, query, "out"), *latent)


def forward_pass(shape: Shape, work: Work, machine: Machine, *, moe: bool) -> Pass:
    """The forward pass of one micro-batch through one layer on one rank."""
    sizes = machine.sizes
    t, c = sizes.t, sizes.c
    rows, own = work.tokens / c, work.own_tokens(sizes)
    inner = shape.shared_intermediate if moe else shape.intermediate
    matmul = _projection_time(shape, machine, rows, own)
    if inner:
        matmul += _mlp(shape, machine, rows, inner / t)
    attention, moved = _attention(shape, work, machine)
    moved += (
        _elementwise_bytes(shape, work, rows, own, t) + _activation(shape, work) * rows * inner / t
    )
    experts = 0.0
    if moe:
        seconds, routed, experts = _routed(shape, work, machine)
        matmul += seconds
        moved += routed
    return Pass(
        matmul=matmul,
        attention=attention,
        elementwise=machine.passes(moved),
        # Two all-reduces, each as two passes; with sequence parallelism a gather and a scatter.
        tensor=machine.collective(4 * rows * shape.hidden * 2, t, 1),
        context=_context(shape, work, machine, attention),
        experts=experts,
    )


def _projection_time(shape: Shape, machine: Machine, rows: float, own: float) -> float:
    t, total = machine.sizes.t, 0.0
    for inner, outer, split in shape.projections:
        if split == "out":
            total += machine.matmul(rows, inner, outer / t, outer / t)
        elif split == "in":
            total += machine.matmul(rows, inner / t, outer, inner / t)
        else:
            total += machine.matmul(own, inner, outer, min(inner, outer))
    return total


def _mlp(shape: Shape, machine: Machine, rows: float, inner: float) -> float:
    """Up (with the gate, in one matmul) and down."""
    wide = (shape.matrices - 1) * inner
    hidden = shape.hidden
    return machine.matmul(rows, hidden, wide, wide) + machine.matmul(rows, inner, hidden, inner)


def _elementwise_bytes(shape: Shape, work: Work, rows: float, own: float, t: int) -> float:
    """Bytes that norms, residuals and the rotary embedding move.

    A norm in one kernel reads and writes bf16 once. As single operations, in fp32: cast 6, square
    8, mean 4, multiply 8, cast 6, weight 2 bytes a value.
    """
    norm, residual = (34 if work.eager_norm else 4), 6
    rotary = 12 * (shape.query + shape.key_value) / t
    return 2 * (norm + residual) * shape.hidden * own + rotary * rows


def _activation(shape: Shape, work: Work) -> int:
    """Bytes moved for each value inside an MLP: the gate times what it gates, or one function."""
    if shape.matrices == 2:
        return 4
    return 10 if work.eager_mlp else 6


def _attention(shape: Shape, work: Work, machine: Machine) -> tuple[float, float]:
    """Seconds of the forward, and the bytes of scores that a kernel without tiles moves."""
    sizes = machine.sizes
    sequence = min(work.sequence, work.tokens)
    scores = work.tokens / sizes.c * sequence / sizes.t  # of one head's width
    if work.attention in ("flash2", "flash1"):
        slower = FLASH1_SLOWER if work.attention == "flash1" else 1.0
        # Two matmuls of 2 FLOPs, half of them masked.
        return 2 * scores * shape.query * slower / (machine.speed.flops * FLASH_SHARE), 0.0
    each = 8 if work.attention == "fused_softmax" else 16
    matmul = 4 * scores * shape.query / (machine.speed.flops * machine.fitted.matmul)
    return matmul, each * scores * shape.heads


def _context(shape: Shape, work: Work, machine: Machine, attention: float) -> float:
    """Seconds of the exchange between context ranks that attention does not hide."""
    t, c = machine.sizes.t, machine.sizes.c
    if c == 1:
        return 0.0
    rows = work.tokens / c / t
    if work.context == "all_to_all":  # of queries, keys, values and the output
        return machine.all_to_all(4 * (shape.query + shape.key_value) * rows, c, t)
    moved = 4 * shape.key_value * rows * (c - 1)
    return max(0.0, moved / machine.bandwidth(c, t, machine.fitted.send) - attention)


def _routed(shape: Shape, work: Work, machine: Machine) -> tuple[float, float, float]:
    """Of routed experts, balanced: seconds of matmuls, bytes moved, seconds of the all-to-all."""
    sizes = machine.sizes
    own = work.tokens / sizes.c / (sizes.t if work.expert_split else 1)
    copies = own * shape.experts_per_token
    here = shape.experts / sizes.e
    rows, inner = copies * sizes.etp / here, shape.expert_intermediate / sizes.etp
    sent = 2 * copies * shape.hidden * 2  # there and back
    seconds = machine.all_to_all(sent, sizes.e, sizes.etp)
    seconds += machine.collective(sent * sizes.etp, sizes.etp, 1)
    moved = rows * here * (16 * shape.hidden + _activation(shape, work) * inner)
    return here * _mlp(shape, machine, rows, inner), moved, seconds


def layer_pass(forward: Pass, work: Work, fitted: Fitted) -> Pass:
    """Forward and backward of one layer: matmuls take twice as long backward, attention 2.5 times.

    Collectives take as long backward as forward. Full recomputation adds one forward, selective
    recomputation one attention. The backward pass starts twice the kernels.
    """
    again = 1.0 if work.recompute == "full" else 0.0
    backward = 2.5 if work.attention in ("flash2", "flash1") else 2.0
    core = 1.0 if work.recompute != "none" else 0.0
    whole = Pass(
        matmul=forward.matmul * (3 + again),
        attention=forward.attention * (1 + backward + core),
        elementwise=forward.elementwise * (3 + again),
        tensor=forward.tensor * (2 + again),
        context=forward.context * (3 + again),
        experts=forward.experts * (2 + again),
    )
    first = forward.seconds
    rest = whole.seconds - (1 + again) * first
    waiting = (1 + again) * _waiting(first, fitted.launch) + _waiting(rest, 2 * fitted.launch)
    return whole._replace(overhead=waiting + fitted.replay * again)


def _waiting(computing: float, launching: float) -> float:
    """Seconds that a GPU waits for its host: next to none where kernels take longer than to start.

    Each bounds the other from below; the root of squares is between both bounds and their sum, and
    orders sources that were left out of the fit better than the sum does.
    """
    return math.hypot(computing, launching) - computing


def head_pass(shape: Shape, work: Work, machine: Machine) -> Pass:
    """The output head and the loss, forward and backward."""
    t = machine.sizes.t
    rows = work.tokens / machine.sizes.c
    if not shape.vocabulary:
        return Pass()
    logits = rows * shape.vocabulary
    gathered = machine.collective(4 * logits, t, 1) if work.gathered_logits else 0.0
    # The loss reads and writes the logits some ten times, in fp32 where they are gathered.
    moved = 30 * logits if work.gathered_logits else 20 * logits / t
    width = shape.vocabulary / t
    return Pass(
        matmul=3 * machine.matmul(rows, shape.hidden, width, width),
        elementwise=machine.passes(moved),
        tensor=gathered,
    )
