"""What SGLang and vLLM demand of single model types. Versions read: vLLM 0.33 and SGLang 0.5.23."""

from __future__ import annotations

from areal_conf.model.facts import ModelFacts
from areal_conf.model.rule import TABLE, Settings, rule
from areal_conf.spec.backends import Sizes

_FIRST = len(TABLE)

_MOE = "qwen2_moe qwen3_moe cohere2_moe exaone_moe ernie4_5_moe_vl ernie4_5_vl_moe lfm2_moe "
_MOE += "minimax_m2 mimo_v2 mimo_v2_flash step3p5 step3_text"
FEWER_RANKS_THAN_EXPERTS = {
    "vllm": frozenset((_MOE + " qwen3_next qwen3_5_moe ernie4_5_moe hy_v3 laguna").split()),
    "sglang": frozenset(
        (
            _MOE + " afmoe deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 glm4_moe glm4_moe_lite "
            "hunyuan hunyuan_v1_moe longcat_flash minimax_m3_vl sarvam_moe xverse zaya"
        ).split()
    ),
}
"""Model types whose MoE layer raises a ValueError where t is over the number of experts."""

WITHOUT_STAGES = frozenset(
    [
        "aria",
        "dory",
        "gemma3n",
        "hrm_text",
        "idefics3",
        "mamba2",
        "paddleocr_vl",
        "phi4mm",
        "smolvlm",
        "zamba2",
    ]
)
"""Model types whose class in vLLM does not implement SupportsPP."""


@rule(
    "AC418",
    "t",
    "t is at most the experts (by model type)",
    message="t{s.t} is over the {m.experts} experts",
    advice="t may be {m.experts} at most",
    sources={
        "vllm": "vllm/model_executor/models/qwen3_moe.py, Qwen3MoeSparseMoeBlock.__init__, ..."
    },
)
def _ranks_over_experts_vllm(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """The MoE layers of these types compare t and the experts first of all."""
    return 0 < m.experts < s.t and m.model_type in FEWER_RANKS_THAN_EXPERTS["vllm"]


@rule(
    "AC418",
    "t",
    "t is at most the experts (by model type), and ep_size divides the experts",
    message="{m.experts} experts do not fit t{s.t} with ep_size {x.expert_groups}",
    advice="t may be {m.experts} at most, and ep_size must divide them",
    sources={
        "sglang": "sglang/srt/models/deepseek_v2.py, DeepseekV2MoE.__init__, ...; "
        "sglang/srt/layers/moe/fused_moe_triton/layer.py, FusedMoE.__init__"
    },
)
def _ranks_over_experts_sglang(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """The MoE layers of these types compare t and the experts; all assert that ep_size divides."""
    if m.experts and m.experts % max(1, x.expert_groups):
        return True
    return 0 < m.experts < s.t and m.model_type in FEWER_RANKS_THAN_EXPERTS["sglang"]


@rule(
    "AC419",
    "p",
    "p is 1 on a model type that vLLM cannot cut into stages",
    message="p{s.p} on {m.model_type}, which vLLM does not cut into stages",
    advice="use t and d, or another server",
    sources={"vllm": "vllm/config/model.py, ModelConfig.verify_with_parallel_config"},
)
def _stages_of_vllm(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """vLLM raises NotImplementedError for classes without ``SupportsPP``."""
    return m.model_type in WITHOUT_STAGES


@rule(
    "AC420",
    "t",
    "dp_size divides t where enable_dp_attention is on",
    message="dp_size {x.attention_dp} does not divide t{s.t}",
    advice="with sglang.enable_dp_attention, dp_size must divide t",
    sources={"sglang": "sglang/srt/arg_groups/parallel_hook.py"},
)
def _attention_groups_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Attention runs over t / dp_size ranks; SGLang asserts that the division is even."""
    return s.t % x.attention_dp != 0


RULES_OF_TYPES = tuple(TABLE[_FIRST:])
"""The rules of this module."""
