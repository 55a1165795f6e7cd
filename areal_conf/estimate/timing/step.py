"""Relative time of one training step: what a layout costs beside another of the same engine.

A roofline of the parts of a step: matmuls at an efficiency that falls with the width and the rows
that a GPU has, attention, element-wise passes over memory, collectives inside a layer (tensor,
context, expert), the pipeline and its bubble, the exchange of gradients and weights between data
ranks, the optimizer. It orders layouts. It does not predict seconds: clusters differ by far more
than layouts do, so print `StepTime.total` only as a ratio.

Sources: FLOPs and the parts follow cli99/llm-analysis@d841e40a and calculon@caa4b11f; attention
runs at the share of peak that FlashAttention-2 measures (arXiv 2307.08691, figures 4 to 6). What
no source says is `Fitted`: constants fitted to public A100 runs by `benchmarks/fit_speed.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from areal_conf.estimate.stages import Stage, pipeline_stages
from areal_conf.estimate.timing.layer import Pass, Shape, Work, forward_pass, head_pass, layer_pass
from areal_conf.estimate.timing.speed import FITTED, Fitted, Machine, Speed
from areal_conf.model.parameters import ModelParameters, model_parameters

if TYPE_CHECKING:
    from areal_conf.model.facts import ModelFacts
    from areal_conf.spec.backends import Sizes


@dataclass(frozen=True)
class StepTime:
    """Seconds of each part of a step by the estimate; meaningful beside another layout's alone.

    Attributes:
        matmul: matmuls, the head's too.
        attention: scores and their product with the values.
        elementwise: norms, activations, rotary embedding, residuals, loss.
        tensor: collectives between tensor ranks.
        context: exchanges between context ranks.
        experts: all-to-all between expert ranks.
        overhead: starting kernels.
        pipeline: sends, the bubble, and waiting for the slowest stage.
        data: gradients and weights between data ranks, as far as nothing hides it.
        optimizer: the update of the weights.
        rough: whether experts are dealt over ranks, which this estimate knows roughly.
    """

    matmul: float
    attention: float
    elementwise: float
    tensor: float
    context: float
    experts: float
    overhead: float
    pipeline: float
    data: float
    optimizer: float
    rough: bool = False

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return float(sum(getattr(self, part) for part in PARTS))


PARTS = tuple(field.name for field in fields(StepTime) if field.name != "rough")
"""Names of the parts, in the order of `StepTime`."""


def step_time(
    sizes: Sizes, facts: ModelFacts, work: Work, speed: Speed, fitted: Fitted = FITTED
) -> StepTime | None:
    """The time of one step of a layout, part by part.

    Args:
        sizes: the layout of the training engine.
        facts: the model.
        work: what a step does.
        speed: the GPU and its cluster.
        fitted: other constants, for fitting them.

    Returns:
        None where the config of the model does not say its vocabulary, hidden or MLP size.
    """
    parameters = model_parameters(facts)
    if parameters is None:
        return None
    shape, machine = Shape.of(facts), Machine(speed, fitted, sizes)
    dense = layer_pass(forward_pass(shape, work, machine, moe=False), work, fitted)
    moe = dense
    if parameters.moe_layers:
        moe = layer_pass(forward_pass(shape, work, machine, moe=True), work, fitted)
    head = head_pass(shape, work, machine)
    stages = pipeline_stages(parameters, sizes.p, work.chunks, work.balanced_stages)
    send = _send(shape, work, machine) if sizes.p > 1 else 0.0
    times = [stage.dense * dense.seconds + stage.moe * moe.seconds + send for stage in stages]
    times[-1] += head.seconds
    slowest = max(times)
    computing = work.micro_batches * (sum(times) / len(times) - send)  # of an average stage
    body = work.micro_batches * slowest + (sum(times) - slowest) / work.chunks
    held = _parameters_held(parameters, sizes, stages)
    return StepTime(
        *_per_stage(work.micro_batches / sizes.p, parameters, dense, moe, head),
        pipeline=body - computing,  # all that is over it is sending or waiting
        data=_data_exchange(facts.layers, work, machine, held, computing),
        optimizer=_optimizer(held, work, machine),
        rough=sizes.expert_mesh,
    )


def _per_stage(
    scale: float, parameters: ModelParameters, dense: Pass, moe: Pass, head: Pass
) -> Pass:
    """The parts of an average stage over a whole step."""
    layers = zip(dense, moe, head, strict=True)
    return Pass(
        *(
            scale * (parameters.dense_layers * a + parameters.moe_layers * b + c)
            for a, b, c in layers
        )
    )


def _send(shape: Shape, work: Work, machine: Machine) -> float:
    """Seconds of sending one micro-batch to the next stage and its gradient back."""
    sizes = machine.sizes
    moved = 4 * work.own_tokens(sizes) * shape.hidden * work.chunks
    if sizes.world <= machine.speed.gpus_per_node:
        return moved / (machine.speed.link * machine.fitted.link)
    return moved / (machine.speed.network * machine.fitted.send)


class _Held(NamedTuple):
    """Parameters of the largest stage on one rank before data ranks share them."""

    dense: float
    experts: float


def _parameters_held(parameters: ModelParameters, sizes: Sizes, stages: tuple[Stage, ...]) -> _Held:
    held = []
    for stage in stages:
        layers = stage.dense * parameters.dense.total
        layers += stage.moe * (parameters.moe.total - parameters.moe.experts)
        tables = (stage.first + stage.last) * parameters.embedding
        experts = stage.moe * parameters.moe.experts / (sizes.e * sizes.etp)
        held.append(_Held((layers + tables) / sizes.t, experts))
    return max(held, key=sum)


_STREAMED_SHARE = 0.8
"""Share of the network that FSDP's gathers reach: large messages, layer by layer. Assumed, since no
public run of FSDP was fitted; torchtitan keeps its speed from 8 to 128 GPUs (arXiv 2410.06511)."""


def _data_exchange(
    layers: int, work: Work, machine: Machine, held: _Held, computing: float
) -> float:
    """Seconds of the exchange between data ranks that the step waits for.

    With sharded weights each micro-batch gathers them twice and scatters the gradients, behind
    its computation but for one layer. Otherwise it happens once, at the end of the step.
    """
    sizes = machine.sizes
    ranks = sizes.d * sizes.c
    expert_ranks = max(1, ranks * sizes.t // (sizes.e * sizes.etp)) if sizes.expert_mesh else ranks
    groups = (
        (held.dense, ranks, sizes.t),
        (held.experts, expert_ranks, sizes.e * sizes.etp if sizes.expert_mesh else sizes.t),
    )
    a_parameter = work.gradient_bytes + work.weight_bytes
    if work.sharding == 3:
        a_parameter += work.weight_bytes
    elif work.sharding == 0:
        a_parameter = 2 * work.gradient_bytes
    seconds = 0.0
    for parameters, size, stride in groups:
        if size > 1:
            share, crowd = machine.fitted.network, 1 + machine.fitted.crowd * size
            if work.sharding == 3:
                share, crowd = _STREAMED_SHARE, 1.0
            bandwidth = machine.bandwidth(size, stride, share)
            seconds += (size - 1) / size * parameters * a_parameter / bandwidth * crowd
    if work.sharding < 3:
        return seconds
    seconds *= work.micro_batches
    return max(seconds / layers, seconds - computing)


def _optimizer(held: _Held, work: Work, machine: Machine) -> float:
    """Seconds of Adam: states of 4 bytes read and written, and the gradients and weights cast."""
    parameters = held.dense + held.experts
    own = parameters / (machine.sizes.d * machine.sizes.c if work.sharding else 1)
    cast = 0.0 if work.sharding == 3 else 10 * parameters
    return machine.passes(30 * own + cast)
