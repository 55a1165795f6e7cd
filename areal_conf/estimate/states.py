"""Parameters, gradients and optimizer states that one rank of a training engine holds."""

from __future__ import annotations

from typing import NamedTuple

from areal_conf.estimate.settings import TrainingSettings
from areal_conf.estimate.stages import Stage
from areal_conf.model.facts import ModelFacts
from areal_conf.model.parameters import LayerParameters, ModelParameters
from areal_conf.spec.backends import Sizes


class RankParameters(NamedTuple):
    """Parameters on one rank before anything is dealt over the data ranks.

    Attributes:
        layers: of its layers, without routed experts, after t.
        experts: of routed experts, after e * etp.
        embedding: the input embedding, after t (and a copy for a tied head on another stage).
        head: head and final norm, after t.
        layer: the largest single layer, experts included.
    """

    layers: float
    experts: float
    embedding: float
    head: float
    layer: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.layers + self.experts + self.embedding + self.head


class States(NamedTuple):
    """Bytes that stay on one rank."""

    parameters: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.parameters + self.gradients + self.optimizer


def padded(vocabulary: int, multiple: int) -> int:
    """`vocabulary` rounded up to `multiple`."""
    return -(-vocabulary // multiple) * multiple


def split_layer(
    layer: LayerParameters, t: int, kv_heads: int, expert_ranks: int, shared_t: int
) -> tuple[float, float]:
    """One layer on one rank: everything but routed experts, and those."""
    kv = layer.kv / min(t, kv_heads)
    rest = (layer.attention + layer.mlp) / t + layer.shared / shared_t + layer.replicated
    return rest + kv, layer.experts / expert_ranks


def rank_parameters(
    facts: ModelFacts,
    parameters: ModelParameters,
    sizes: Sizes,
    stage: Stage,
    settings: TrainingSettings,
) -> RankParameters:
    """Parameters on a rank of `stage`."""
    t = sizes.t
    expert_ranks = sizes.e * sizes.etp if settings.experts_split else 1
    shared_t = t if settings.experts_split else 1
    dense, _ = split_layer(parameters.dense, t, facts.kv_heads, 1, shared_t)
    moe, experts = split_layer(parameters.moe, t, facts.kv_heads, expert_ranks, shared_t)
    layers = dense * stage.dense + moe * stage.moe
    routed = experts * stage.moe
    multiple = settings.vocabulary_multiple * (t if settings.padded_by_t else 1)
    matrix = padded(parameters.vocabulary, multiple) * parameters.hidden / t
    embedding = matrix + parameters.positions if stage.first else 0.0
    head = 0.0
    if stage.last:
        head = parameters.final
        if settings.head and not (parameters.tied and stage.first):
            head += matrix
        if settings.mtp and parameters.mtp:
            rest, more = split_layer(parameters.mtp, t, facts.kv_heads, expert_ranks, shared_t)
            layers += rest * parameters.mtp_modules
            routed += more * parameters.mtp_modules
    largest = max(dense if stage.dense else 0.0, moe + experts if stage.moe else 0.0)
    return RankParameters(layers, routed, embedding, head, largest)


def data_ranks(sizes: Sizes, settings: TrainingSettings) -> tuple[int, int]:
    """Ranks over which a parameter is dealt: of all but experts, and of experts."""
    if settings.shard == "nothing":
        return 1, 1
    dense = sizes.d * sizes.c
    if not settings.experts_split:
        return dense, dense
    return dense, max(1, dense * sizes.t // (sizes.e * sizes.etp))


def model_states(rank: RankParameters, sizes: Sizes, settings: TrainingSettings) -> States:
    """Bytes of parameters, gradients and optimizer on one rank."""
    dense_ranks, expert_ranks = data_ranks(sizes, settings)
    dense, experts = rank.total - rank.experts, rank.experts
    dealt = dense / dense_ranks + experts / expert_ranks
    whole = dealt if settings.shard == "all" else rank.total
    optimizer = 0.0 if settings.offload_optimizer else dealt * settings.optimizer_bytes
    parameters = whole * settings.parameter_bytes
    gradients = whole * settings.gradient_bytes
    if settings.offload_parameters:
        parameters = gradients = optimizer = 0.0
    return States(parameters, gradients, optimizer)
