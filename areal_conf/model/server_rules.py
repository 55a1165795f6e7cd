"""What SGLang and vLLM refuse besides heads: matrices, vocabularies, blocks, vision towers.

Both divide each matrix of a layer over t and stop where a size does not split. Versions read: vLLM
0.33 and SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from areal_conf.model.facts import ModelFacts
from areal_conf.model.rule import TABLE, Settings, rule
from areal_conf.spec.backends import Sizes

VOCABULARY_PADDING = 64
"""vLLM pads the vocabulary to a multiple of this before it splits it."""

SMALLEST_GROUP = 32
"""Groups of experts are halved down to this where they do not fit (vllm/.../moe_wna16.py)."""

_FIRST = len(TABLE)

_BOTH = "qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe llama4 mistral3 pixtral "
_BOTH += "gemma3 kimi_vl ernie4_5_moe_vl ernie4_5_vl_moe paddleocr_vl"
_VLLM = "qwen2_5_omni glm4v glm4v_moe glm46v glm_ocr dots_ocr exaone4_5 isaac keye paligemma "
_VLLM += "idefics3 smolvlm cohere2_vision mimo_v2_omni opencua aria minicpmv"
VISION_BY_HEADS = {
    "sglang": frozenset(_BOTH.split()),
    "vllm": frozenset(_BOTH.split()) | frozenset(_VLLM.split()),
}
"""Model types whose vision tower a server splits by heads, each of which ends in a ``divide`` of
the heads. Others pad (InternVL; GLM under SGLang: layers/attention/vision_utils.py), hold a whole
tower on each rank where heads do not split (Kimi-K2.5), or were not read."""

VISION_TOWERS = frozenset({"siglip_vision_model", "clip_vision_model", "pixtral"})
"""Types of towers that vLLM splits by heads whatever model they are part of (siglip.py, clip.py,
pixtral.py)."""


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
    return any(matrix.size % matrix.ranks for matrix in _mlp(s, m, x))


class Matrix(NamedTuple):
    """A matrix of a layer that ranks share, by its inner size."""

    size: int
    ranks: int
    part: str


def _mlp(s: Sizes, m: ModelFacts, x: Settings) -> Iterator[Matrix]:
    """The MLPs of a server."""
    yield from dense_matrices(s, m)
    if m.experts and m.expert_intermediate:
        yield Matrix(m.expert_intermediate, x.expert_ranks(s), "experts")


def dense_matrices(s: Sizes, m: ModelFacts) -> Iterator[Matrix]:
    """The MLPs that each token passes: those of dense layers, and shared experts."""
    if m.intermediate and (m.moe_layers is None or m.moe_layers < m.layers):
        halves = 2 if m.model_type == "qwen" else 1  # Qwen 1 counts gate and up together
        yield Matrix(m.intermediate // halves, s.t, "mlp")
    if m.experts and m.shared_intermediate:
        yield Matrix(m.shared_intermediate, s.t, "shared")


@rule(
    "AC414",
    "t",
    "t divides the vocabulary, padded to a multiple of 64",
    message="a vocabulary of {m.vocabulary}, padded to 64, does not split over t{s.t}",
    advice="t must divide the padded vocabulary",
    sources={
        "vllm": "vllm/model_executor/layers/vocab_parallel_embedding.py, "
        "VocabParallelEmbedding.__init__",
    },
)
def _vocabulary_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Each rank holds the same number of rows. SGLang pads to a multiple of 64 x t where it must
    (sglang/srt/layers/vocab_parallel_embedding.py), so that every vocabulary splits there."""
    if not m.vocabulary:
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
        "validate_fp8_block_shape; auto_gptq.py, auto_awq.py and modelopt.py, create_weights",
    },
)
def _quantised_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """A block (or a group along the input) has one scale, which two ranks cannot share.

    Groups of GPTQ and AWQ in experts are halved until they fit; blocks are not. vLLM from 0.33
    (AReaL 1.0.4 pins 0.19.1) refines the scales of experts to blocks of 32 and more in its Triton
    kernels (fused_moe/oracle/fp8.py, refine_fp8_moe_block_shape): allow the code there. MXFP4 pads
    its experts.
    """
    quantised = m.quantization
    if quantised is None or not quantised.block:
        return False
    rows, columns = quantised.block
    split = (*_outputs(s, m, x, rows), *_inputs(s, m, x, rows, columns))
    return any(
        matrix.ranks > 1
        and matrix.size % matrix.ranks == 0
        and quantised.covers(matrix.part)
        and matrix.size // matrix.ranks % unit != 0
        for matrix, unit in split
    )


def _outputs(s: Sizes, m: ModelFacts, x: Settings, rows: int) -> Iterator[tuple[Matrix, int]]:
    """What a rank computes: queries, keys (copied where ranks are more), gate and up."""
    ranks, head = x.attention_ranks(s), _head(m)
    if m.kv_lora_rank and m.qk_nope_head_dim:
        query = m.qk_nope_head_dim + (m.qk_rope_head_dim or 0)
        yield Matrix(m.heads * query, ranks, "attention"), rows
    elif head:
        yield Matrix(m.heads * head, ranks, "attention"), rows
        yield Matrix(max(m.kv_heads, ranks) * head, ranks, "attention"), rows
    for matrix in _mlp(s, m, x):
        yield matrix, rows


def _inputs(
    s: Sizes, m: ModelFacts, x: Settings, rows: int, columns: int
) -> Iterator[tuple[Matrix, int]]:
    """What a rank gives on: the input of the output projection, and of the down projection."""
    head = m.v_head_dim if m.kv_lora_rank else _head(m)
    if head:
        yield Matrix(m.heads * head, x.attention_ranks(s), "attention"), columns
    for matrix in _mlp(s, m, x):
        halved = matrix.part == "experts" and rows == 1
        yield matrix, min(columns, SMALLEST_GROUP) if halved else columns


def _head(m: ModelFacts) -> int | None:
    """Size of a head; None where it is not known, or a latent stands for it."""
    if m.kv_lora_rank or not m.heads:
        return None
    return m.head_dim or (m.hidden // m.heads if m.hidden else None)


@rule(
    "AC416",
    "t",
    "t divides the heads of the vision tower",
    message="{m.vision_heads} vision heads do not split over t{s.t}",
    advice="t must divide the {m.vision_heads} vision heads, or set vllm.mm_encoder_tp_mode=data",
    sources={
        "vllm": "vllm/model_executor/models/glm4_1v.py, qwen2_5_vl.py, qwen3_vl.py, siglip.py, "
        "clip.py, pixtral.py, mllama4.py, idefics2_vision_model.py, moonvit.py, ..."
    },
)
def _vision_heads_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """vLLM divides the heads of these towers, or copies them under ``mm_encoder_tp_mode: data``."""
    known = m.model_type in VISION_BY_HEADS["vllm"] or m.vision_type in VISION_TOWERS
    return known and x.vision_split and (m.vision_heads or s.t) % s.t != 0


@rule(
    "AC416",
    "t",
    "t divides the heads of the vision tower",
    message="{m.vision_heads} vision heads do not split over t{s.t}",
    advice="t must divide them, or set sglang.mm_enable_dp_encoder=true",
    sources={"sglang": "sglang/srt/layers/attention/vision.py, VisionAttention.__init__"},
)
def _vision_heads_over_t_sglang(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """SGLang divides the heads of these towers, and adds empty ones to others."""
    known = m.model_type in VISION_BY_HEADS["sglang"] and x.vision_split
    return known and (m.vision_heads or s.t) % x.attention_ranks(s) != 0


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
    where the weights are not quantised. The norm of Bailing's linear attention has groups of its
    own (vllm/.../linear/bailing_linear_attn.py)."""
    ranks = x.attention_ranks(s)
    sizes = [m.linear_key_heads, m.linear_value_heads, m.mamba_heads, m.mamba_inner]
    sizes.append(m.linear_norm_groups)
    if m.mamba_groups and (m.mamba_groups > 1 or m.quantization is not None):
        sizes.append(m.mamba_groups)
    return any(size % ranks for size in sizes if size)


@rule(
    "AC401",
    "t",
    "t fits the heads of layers that have others than most do",
    message="some layers have heads that do not fit t{s.t}: {m.other_heads_in_words}",
    advice="t must divide the heads of every layer, and its key/value heads likewise",
    sources={
        "sglang": "sglang/srt/layers/linear.py, QKVParallelLinear.__init__",
        "vllm": "vllm/model_executor/layers/linear.py, QKVParallelLinear.__init__",
    },
)
def _other_heads_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Layers with a sliding window, or those without, may have heads of their own."""
    ranks = x.attention_ranks(s)
    return any(
        heads % ranks != 0 or (kv_heads % ranks != 0 and ranks % kv_heads != 0)
        for heads, kv_heads in m.other_heads
    )


RULES_OF_SERVERS = tuple(TABLE[_FIRST:])
"""The rules of this module."""
