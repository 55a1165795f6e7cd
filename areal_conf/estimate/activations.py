"""Bytes that one layer keeps for the backward pass, per token of the GPU.

Counts of tensors that the kernels save; bf16 has 2 bytes. Sources: Korthikanti et al. 2022 (arXiv
2205.05198, whose 34*s*b*h the Megatron rows give again); TransformerEngine
(pytorch/module/layernorm_linear.py, layernorm_mlp.py: input, norm's output); transformers 5.3
(models/llama, qwen3, qwen3_moe/modeling_*.py: every tensor that an eager operation saves).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from areal_conf.estimate.settings import TrainingSettings
from areal_conf.model.facts import ModelFacts
from areal_conf.spec.backends import Sizes

_BF16 = 2
_TE_NORMS = 8  # input and output of two norms, in bytes per hidden unit
_EAGER_NORMS = 16  # the same with the fp32 copies of eager norms and residuals
_SOFTMAX_STATISTICS = 4  # one fp32 a head
_SCORES = 5  # softmax, dropout's mask, its output (Korthikanti et al., 5*a*s)


class LayerBytes(NamedTuple):
    """Bytes per token of one dense layer and one layer with experts.

    Attributes:
        dense: what a dense layer keeps.
        moe: what a layer with routed experts keeps.
        checkpoint: what a recomputed layer keeps (its input).
        kept_dense: what a dense layer keeps under the recompute setting.
        kept_moe: the same for a layer with experts.
    """

    dense: float
    moe: float
    checkpoint: float
    kept_dense: float
    kept_moe: float


@lru_cache(maxsize=1024)
def layer_bytes(facts: ModelFacts, sizes: Sizes, settings: TrainingSettings) -> LayerBytes:
    """What the layers of a model keep on one rank, per token after division by c."""
    hidden = facts.hidden or 0
    split = sizes.t if settings.sequence_parallel else 1
    attention = _attention(facts, sizes, settings)
    norms = _norms(facts, hidden, settings) / split
    if settings.gather_saved and split > 1:
        norms += 2 * _BF16 * hidden * (1 - 1 / split)
    dense = norms + attention + _dense_mlp(facts, sizes, settings)
    moe = norms + attention + _moe_mlp(facts, hidden, sizes, settings) if facts.experts else dense
    checkpoint = _BF16 * hidden / split
    kept = {
        "none": (dense, moe),
        "selective": (dense, moe),  # the scores are left out in `_attention`
        "full": (checkpoint, checkpoint),
        "op": _op_list(facts, sizes, settings, split),
    }[settings.recompute]
    return LayerBytes(dense, moe, checkpoint, *kept)


def _norms(facts: ModelFacts, hidden: int, settings: TrainingSettings) -> float:
    per_unit = _TE_NORMS if settings.kernels == "fused" else _EAGER_NORMS
    if settings.dropout:
        per_unit += 2  # two masks of one byte
    return per_unit * hidden


def head_dim(facts: ModelFacts) -> int:
    """Size of one head; hidden / heads where the config does not say."""
    return facts.head_dim or (facts.hidden or 0) // facts.heads


def _attention(facts: ModelFacts, sizes: Sizes, settings: TrainingSettings) -> float:
    if facts.kv_lora_rank:
        return _latent_attention(facts, sizes, settings)
    size = head_dim(facts)
    query, value = facts.heads * size, facts.kv_heads * size
    kept = _BF16 * (query + 2 * value) + _BF16 * query + _SOFTMAX_STATISTICS * facts.heads
    if facts.qk_norm:
        # Eager: the fp32 copy and the norm's input; fused: the norm's input alone.
        kept += (3 if settings.kernels == "eager" else 1) * _BF16 * (query + value)
    if settings.fp8 and settings.kernels == "fused":
        kept += query - 2 * (facts.hidden or 0)  # 8-bit inputs; attention's output twice
    return (kept + _scores(facts, settings)) / sizes.t


def _scores(facts: ModelFacts, settings: TrainingSettings) -> float:
    if not settings.attention_scores or settings.recompute == "selective":
        return 0.0
    return _SCORES * facts.heads * (settings.sequence_length or 0)


def _latent_attention(facts: ModelFacts, sizes: Sizes, settings: TrainingSettings) -> float:
    """Latents are on every rank of t, expanded heads are split (Megatron-LM,
    core/transformer/multi_latent_attention.py)."""
    rope, nope = facts.qk_rope_head_dim or 0, facts.qk_nope_head_dim or head_dim(facts)
    value = facts.v_head_dim or head_dim(facts)
    latent = 2 * (facts.kv_lora_rank or 0) + rope + 2 * (facts.q_lora_rank or 0)
    heads = facts.heads * (
        _BF16 * 2 * (nope + rope) + _BF16 * 2 * value + _SOFTMAX_STATISTICS
    ) + _scores(facts, settings)
    return _BF16 * latent + heads / sizes.t


def _inner_bytes(facts: ModelFacts, settings: TrainingSettings) -> int:
    """Bytes per unit of an MLP's inner size."""
    if settings.kernels == "fused":
        kept = 6 if facts.gated_mlp else 4
        return kept - 1 if settings.fp8 else kept
    return 8 if facts.gated_mlp else 4


def _dense_mlp(facts: ModelFacts, sizes: Sizes, settings: TrainingSettings) -> float:
    return _inner_bytes(facts, settings) * (facts.intermediate or 0) / sizes.t


def _moe_mlp(facts: ModelFacts, hidden: int, sizes: Sizes, settings: TrainingSettings) -> float:
    """Copies of a token that its experts keep, where experts get equal numbers of tokens.

    With sequence parallelism each rank of t routes its share of the tokens; expert tensor
    parallelism gathers them over etp, where each rank keeps 1/etp of the inner size
    (Megatron-LM, core/transformer/moe/token_dispatcher.py, experts.py).
    """
    inner = facts.expert_intermediate or 0
    copies = float(facts.experts_per_token or 1)
    around = 2 * _BF16 if settings.kernels == "fused" else 3 * _BF16
    etp = 1
    if settings.experts_split:
        etp = sizes.etp
        copies *= etp / (sizes.t if settings.sequence_parallel else 1)
    routed = copies * (around * hidden + _inner_bytes(facts, settings) * inner / etp)
    split = sizes.t if settings.experts_split else 1
    shared = _inner_bytes(facts, settings) * (facts.shared_intermediate or 0) / split
    return routed + shared


def _op_list(
    facts: ModelFacts, sizes: Sizes, settings: TrainingSettings, split: int
) -> tuple[float, float]:
    """The layer's input, attention's output, and the 1st, 3rd, 5th, 7th matrix product.

    Those are q, v, gate and down of q, k, v, o, gate, up, down (AReaL,
    experimental/models/archon/activation_checkpoint.py, _apply_op_sac). The output of the last is
    not needed by the backward pass: torch.compile drops it. Experts are computed again.
    """
    hidden = facts.hidden or 0
    size = head_dim(facts)
    query, value = facts.heads * size, facts.kv_heads * size
    kept = _BF16 * (2 * query + value) + _SOFTMAX_STATISTICS * facts.heads
    last = 0 if settings.compiled else _BF16 * hidden
    around = (_BF16 * hidden + last) / split
    dense = around + (kept + _BF16 * (facts.intermediate or 0)) / sizes.t
    return dense, around + (kept + _BF16 * (facts.shared_intermediate or 0)) / sizes.t
