"""How many parameters a model has, by the way each of them is split over ranks.

`model_parameters` counts them from `ModelFacts`. What a config does not say is listed in
`ModelParameters.unknown`; it is never guessed without a word.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from areal_conf.model.facts import ModelFacts

# Facts about architectures that no field of a config says; source: transformers 5.3,
# models/*/modeling_*.py, unless another one is named.
_NO_OUTPUT_BIAS = frozenset(
    {
        "chatglm",
        "glm",
        "glm4",
        "glm4_moe",
        "glm4v",
        "glm4v_moe",
        "glm4v_moe_text",
        "qwen",
        "qwen2",
        "qwen2_moe",
        "qwen2_vl",
        "qwen2_vl_text",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen2_5_omni_text",
    }
)
"""Types whose `attention_bias` means query, key and value, and not the output projection."""

_FOUR_NORMS = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4", "glm4v", "glm4v_text"})
"""Types with a norm after attention and after the MLP too."""

_LAYER_NORM = frozenset(
    {"gpt2", "gpt_bigcode", "gpt_neox", "gpt_neo", "opt", "phi", "starcoder2", "falcon", "bloom"}
)
"""Types whose norms have a bias beside their weight."""

_ROUTER_BIAS = frozenset({"gpt_oss", "deepseek_v3", "glm4_moe", "glm4v_moe", "glm4v_moe_text"})
"""Types whose router has a number for each expert beside its weight (a bias, or the correction
without auxiliary loss of arXiv 2412.19437, section 2.1.2)."""

_EXPERT_BIAS = frozenset({"gpt_oss"})
_SINKS = frozenset({"gpt_oss"})
_SHARED_GATE = frozenset({"qwen2_moe", "qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text"})

UNSPLIT_LAYERS = frozenset({"linear_attention", "mamba", "mamba2", "conv", "recurrent"})
"""Layer types whose sizes a `ModelFacts` does not hold."""


class LayerParameters(NamedTuple):
    """Parameters of one layer by class of sharding.

    Attributes:
        attention: split by t (query and output projections, MLA up-projections).
        kv: split by min(t, key/value heads) (key and value projections).
        mlp: split by t (the dense MLP).
        shared: split by t (shared experts).
        replicated: on every rank of t (norms, router, MLA down-projections, shared-expert gate).
        experts: all routed experts together, split by e * etp.
    """

    attention: int
    kv: int
    mlp: int
    shared: int
    replicated: int
    experts: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


class ModelParameters(NamedTuple):
    """Parameters of a whole model.

    Attributes:
        dense: one layer without routed experts.
        moe: one layer with routed experts; `dense` again where there are none.
        dense_layers: how many layers are dense. They come first.
        moe_layers: how many layers have routed experts.
        vocabulary: rows of the embedding, not padded.
        hidden: columns of the embedding.
        positions: learned position embeddings.
        final: the norm before the head.
        tied: whether the head is the embedding.
        mtp: one multi-token-prediction module (0 where there is none), and how many there are.
        mtp_modules: how many.
        unknown: what could not be counted, in words.
    """

    dense: LayerParameters
    moe: LayerParameters
    dense_layers: int
    moe_layers: int
    vocabulary: int
    hidden: int
    positions: int
    final: int
    tied: bool
    mtp: LayerParameters | None
    mtp_modules: int
    unknown: tuple[str, ...]

    @property
    def embedding(self) -> int:
        """The input embedding, not padded."""
        return self.vocabulary * self.hidden

    @property
    def total(self) -> int:
        """All parameters, without modules for multi-token prediction, as model cards count."""
        layers = self.dense.total * self.dense_layers + self.moe.total * self.moe_layers
        matrices = 1 if self.tied else 2
        return layers + self.embedding * matrices + self.positions + self.final


def _attention(facts: ModelFacts, hidden: int, head_dim: int) -> tuple[int, int, int]:
    """Parameters of attention: split by t, split by key/value heads, replicated."""
    heads = facts.heads
    query, value = heads * head_dim, facts.kv_heads * head_dim
    if facts.kv_lora_rank:
        return _latent_attention(facts, hidden, head_dim)
    split, kv, replicated = 2 * hidden * query, 2 * hidden * value, 0
    if facts.attention_bias:
        split += query
        kv += 2 * value
        replicated += 0 if facts.model_type in _NO_OUTPUT_BIAS else hidden
    if facts.qk_norm:
        replicated += 2 * head_dim
    if facts.model_type in _SINKS:
        split += heads
    return split, kv, replicated


def _latent_attention(facts: ModelFacts, hidden: int, head_dim: int) -> tuple[int, int, int]:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    latent, heads = facts.kv_lora_rank or 0, facts.heads
    rope, nope = facts.qk_rope_head_dim or 0, facts.qk_nope_head_dim or head_dim
    value = facts.v_head_dim or head_dim
    query = heads * (nope + rope)
    replicated = hidden * (latent + rope) + latent
    if facts.q_lora_rank:
        replicated += facts.q_lora_rank * (hidden + 1)
        split = facts.q_lora_rank * query
    else:
        split = hidden * query
    split += latent * heads * (nope + value) + heads * value * hidden
    return split, 0, replicated


def _mlp(facts: ModelFacts, hidden: int, inner: int, bias: bool) -> int:
    matrices = 3 if facts.gated_mlp else 2
    return matrices * hidden * inner + ((matrices - 1) * inner + hidden if bias else 0)


def _norms(facts: ModelFacts, hidden: int) -> int:
    count = 4 if facts.model_type in _FOUR_NORMS else 2
    return count * norm_parameters(facts, hidden)


def norm_parameters(facts: ModelFacts, hidden: int) -> int:
    """Parameters of one norm."""
    with_bias = facts.learned_positions or facts.model_type in _LAYER_NORM
    return 2 * hidden if with_bias else hidden


@lru_cache(maxsize=256)
def model_parameters(facts: ModelFacts) -> ModelParameters | None:
    """Count the parameters of a model; None where a size without which nothing holds is missing.

    The classes are those of Megatron-LM (megatron/training/theoretical_memory_usage.py) and of
    SGLang and vLLM, which replicate key/value heads where t is over their number.
    """
    hidden, vocabulary = facts.hidden, facts.vocabulary
    if not hidden or not vocabulary:
        return None
    inner = facts.intermediate
    if inner is None and (not facts.experts or (facts.moe_layers or 0) < facts.layers):
        inner = 0 if facts.experts else None
    if inner is None and not facts.experts:
        return None
    if facts.experts and not facts.expert_intermediate:
        return None
    head_dim = facts.head_dim or hidden // facts.heads
    split, kv, replicated = _attention(facts, hidden, head_dim)
    replicated += _norms(facts, hidden)
    dense = LayerParameters(
        split, kv, _mlp(facts, hidden, inner or 0, facts.mlp_bias), 0, replicated, 0
    )
    moe = _moe_layer(facts, hidden, dense) if facts.experts else dense
    moe_layers = _count_moe_layers(facts)
    return ModelParameters(
        dense=dense,
        moe=moe,
        dense_layers=facts.layers - moe_layers,
        moe_layers=moe_layers,
        vocabulary=vocabulary,
        hidden=hidden,
        positions=(facts.max_positions or 0) * hidden if facts.learned_positions else 0,
        final=norm_parameters(facts, hidden),
        tied=facts.tied_embeddings,
        mtp=_mtp_module(facts, hidden, moe) if facts.mtp_layers else None,
        mtp_modules=facts.mtp_layers or 0,
        unknown=_not_counted(facts),
    )


def _count_moe_layers(facts: ModelFacts) -> int:
    if not facts.experts:
        return 0
    return facts.layers if facts.moe_layers is None else min(facts.layers, facts.moe_layers)


def _moe_layer(facts: ModelFacts, hidden: int, dense: LayerParameters) -> LayerParameters:
    bias = facts.mlp_bias and facts.model_type in _EXPERT_BIAS
    router = facts.experts * hidden + (facts.experts if facts.model_type in _ROUTER_BIAS else 0)
    gate = hidden if facts.model_type in _SHARED_GATE and facts.shared_intermediate else 0
    return dense._replace(
        mlp=0,
        shared=_mlp(facts, hidden, facts.shared_intermediate or 0, bias=False),
        replicated=dense.replicated + router + gate,
        experts=facts.experts * _mlp(facts, hidden, facts.expert_intermediate or 0, bias),
    )


def _mtp_module(facts: ModelFacts, hidden: int, layer: LayerParameters) -> LayerParameters:
    """One layer, a projection of two hidden states to one, three norms (arXiv 2412.19437, 2.2)."""
    return layer._replace(replicated=layer.replicated + 2 * hidden * hidden + 3 * hidden)


def _not_counted(facts: ModelFacts) -> tuple[str, ...]:
    unknown = []
    if facts.vision:
        unknown.append("the vision tower: its parameters and activations are not counted")
    kinds = UNSPLIT_LAYERS.intersection(facts.layer_types or ())
    if kinds:
        unknown.append(
            f"{', '.join(sorted(kinds))} layers: counted as if they were attention layers"
        )
    return tuple(unknown)
