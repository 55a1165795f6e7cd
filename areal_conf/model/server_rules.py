"""What SGLang and vLLM refuse besides heads: matrices, vocabularies, blocks, vision towers.

Both divide each matrix of a layer over t and stop where a size does not split. Versions read: vLLM
0.33 and SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterator

from areal_conf.model.facts import ModelFacts
from areal_conf.model.rule import TABLE, Settings, rule
from areal_conf.spec.backends import Sizes

VOCABULARY_PADDING = 64
"""Both pad the vocabulary to a multiple of this before they split it."""

_FIRST = len(TABLE)

VISION_BY_HEADS = {
    "glm4v": "glm4_1v.py",
    "glm4v_moe": "glm4_1v.py",
    "qwen2_vl": "qwen2_vl.py",
    "qwen2_5_vl": "qwen2_5_vl.py",
    "qwen3_vl": "qwen3_vl.py",
    "qwen3_vl_moe": "qwen3_vl.py",
    "qwen3_5": "qwen3_vl.py",
    "qwen3_5_moe": "qwen3_vl.py",
}
"""Model types whose vision tower vLLM splits by heads, with its file in vllm/model_executor/models;
towers of other types pad their heads (InternVL), are copied, or were not read."""


@rule(
    "AC413",
    "t",
    "t divides the inner size of the MLP (of experts: over t / expert groups)",
    message="{m.mlp_sizes} do not split over t{s.t}",
    advice="t must divide {m.mlp_sizes}",
    sources={
        "sglang": "sglang/srt/layers/linear.py, MergedColumnParallelLinear.__init__; "
        "sglang/srt/layers/moe/fused_moe_triton/layer.py, FusedMoE.__init__",
        "vllm": "vllm/model_executor/layers/linear.py, MergedColumnParallelLinear.__init__; "
        "vllm/model_executor/layers/fused_moe/layer.py, FusedMoE.__init__",
    },
)
def _mlp_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Each rank holds the same number of columns of gate and up; an assertion otherwise."""
    return any(size % ranks for size, ranks, _ in _mlp(s, m, x))


def _mlp(s: Sizes, m: ModelFacts, x: Settings) -> Iterator[tuple[int, int, bool]]:
    """Inner sizes of the MLPs, the ranks each is split over, and whether it is of experts."""
    if m.intermediate and (m.moe_layers is None or m.moe_layers < m.layers):
        yield m.intermediate, s.t, False
    if m.experts and m.expert_intermediate:
        yield m.expert_intermediate, x.expert_ranks(s), True


@rule(
    "AC414",
    "t",
    "t divides the vocabulary, padded to a multiple of 64",
    message="a vocabulary of {m.vocabulary}, padded to 64, does not split over t{s.t}",
    advice="t must divide the padded vocabulary",
    sources={
        "sglang": "sglang/srt/layers/vocab_parallel_embedding.py, VocabParallelEmbedding.__init__",
        "vllm": "vllm/model_executor/layers/vocab_parallel_embedding.py, "
        "VocabParallelEmbedding.__init__",
    },
)
def _vocabulary_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Each rank holds the same number of rows; SGLang copies the table under attention DP."""
    if not m.vocabulary or x.attention_dp > 1:
        return False
    return -(-m.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING % s.t != 0


@rule(
    "AC415",
    "t",
    "the part of each quantised matrix on a rank is a multiple of the block, or of the group",
    message="weights quantised in {m.quantised_blocks} do not split over t{s.t} in whole blocks",
    advice="a rank must hold whole blocks of each quantised matrix",
    sources={
        "sglang": "sglang/srt/layers/quantization/fp8.py, validate_block_quant_shapes",
        "vllm": "vllm/model_executor/layers/quantization/utils/fp8_utils.py, "
        "validate_fp8_block_shape; gptq.py and awq.py, create_weights",
    },
)
def _quantised_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """A block (or a group along the input) has one scale, which two ranks cannot share.

    Groups of GPTQ and AWQ in experts are halved until they fit; blocks are not.
    """
    quantised = m.quantization
    if quantised is None or not quantised.block:
        return False
    rows, columns = quantised.block
    for size, ranks, of_experts in _mlp(s, m, x):
        if ranks > 1 and size % ranks == 0 and quantised.covers("mlp"):
            part = size // ranks
            if part % columns and not (of_experts and rows == 1):
                return True
            if part % rows:
                return True
    return quantised.covers("attention") and _attention_breaks(s, m, x, rows, columns)


def _attention_breaks(s: Sizes, m: ModelFacts, x: Settings, rows: int, columns: int) -> bool:
    ranks = x.attention_ranks(s)
    head = m.head_dim or (m.hidden // m.heads if m.hidden else None)
    if head is None or m.kv_lora_rank is not None or ranks == 1 or m.heads % ranks:
        return False
    queries = m.heads // ranks * head
    return queries % columns != 0 or queries % rows != 0


@rule(
    "AC416",
    "t",
    "t divides the heads of the vision tower",
    message="{m.vision_heads} vision heads do not split over t{s.t}",
    advice="t must divide the {m.vision_heads} vision heads, or set vllm.mm_encoder_tp_mode=data",
    sources={"vllm": "vllm/model_executor/models/glm4_1v.py, qwen2_vl.py, qwen2_5_vl.py, ..."},
)
def _vision_heads_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """vLLM divides the heads of these towers; SGLang adds empty heads where they do not split."""
    split = x.vision_split and m.model_type in VISION_BY_HEADS and m.vision_heads is not None
    return split and (m.vision_heads or s.t) % s.t != 0


@rule(
    "AC417",
    "t",
    "t divides the heads of linear attention and state-space layers; their groups too, unless 1",
    message="{m.recurrent_heads} do not split over t{s.t}",
    advice="t must divide {m.recurrent_heads} (one group alone is copied)",
    sources={
        "sglang": "sglang/srt/layers/attention/mamba/mamba.py, MambaMixer2.__init__",
        "vllm": "vllm/model_executor/layers/mamba/mamba_mixer2.py, MambaMixer2.__init__",
    },
)
def _recurrent_heads_of_servers(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """A rank computes whole heads; a group is copied only where it is the only one, and then only
    where the weights are not quantised."""
    ranks = x.attention_ranks(s)
    sizes = [m.linear_key_heads, m.linear_value_heads, m.mamba_heads]
    if m.mamba_groups and (m.mamba_groups > 1 or m.quantization is not None):
        sizes.append(m.mamba_groups)
    return any(size % ranks for size in sizes if size)


RULES_OF_SERVERS = tuple(TABLE[_FIRST:])
"""The rules of this module."""
