"""What an estimate of memory needs of a ``config.json`` beside the facts of the rules.

A value of another type than expected is not known (None): no rule depends on it, and estimates say
what they lack. Types of models whose class says what no key does are listed as data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from areal_conf.model.known import class_defaults
from areal_conf.model.quantization import read_quantization

Chain = list[Mapping[str, Any]]
"""The sections of a config that describe the language model, innermost first."""

_MAX = 2**31 - 1

# Source of the lists: transformers 5.3, models/*/configuration_*.py and modeling_*.py.
_NOT_GATED = frozenset(
    {
        "gpt",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "opt",
        "phi",
        "starcoder2",
        "falcon",
        "bloom",
        "mpt",
        "nemotron",
        "nemotron_h",
    }
)
"""Types whose MLP has two matrices."""

_QKV_BIAS = frozenset(
    {
        "qwen",
        "qwen2",
        "qwen2_moe",
        "qwen2_vl",
        "qwen2_vl_text",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen2_5_omni",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "opt",
        "phi",
        "bloom",
    }
)
"""Types whose query, key and value projections always have a bias."""

_QK_NORM = frozenset(
    {
        "qwen3",
        "qwen3_moe",
        "qwen3_vl",
        "qwen3_vl_text",
        "qwen3_vl_moe",
        "qwen3_vl_moe_text",
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_omni_moe",
        "gemma3",
        "gemma3_text",
    }
)
"""Types that norm queries and keys with a weight of one head's size."""

_LEARNED_POSITIONS = frozenset({"gpt", "gpt2", "gpt_bigcode", "gpt_neo", "opt"})

_DEFAULTS: dict[str, dict[str, int]] = {
    "gemma2": {"head_dim": 256},
    "gemma3": {"head_dim": 256},
    "gemma3_text": {"head_dim": 256},
    "mixtral": {"experts_per_token": 2},
    "qwen2_moe": {"experts_per_token": 4, "shared_intermediate": 5632},
    "qwen3_moe": {"experts_per_token": 8},
    "gpt_oss": {"experts_per_token": 4, "head_dim": 64},
    "deepseek_v3": {
        "experts_per_token": 8,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "shared_experts": 1,
        "first_dense": 3,
    },
    "deepseek_v2": {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    "glm4_moe": {"experts_per_token": 8, "shared_experts": 1, "first_dense": 1},
}
"""What a key left out means."""

_NAMES: dict[str, tuple[str, ...]] = {
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "intermediate": (
        "intermediate_size_mlp",  # Llama 4 and those below: intermediate_size is an expert's
        "dense_intermediate_size",
        "prefix_dense_intermediate_size",
        "intermediate_size",
        "ffn_hidden_size",
        "n_inner",
        "ffn_dim",
    ),
    "experts_per_token": (
        "num_experts_per_tok",
        "num_experts_per_token",
        "moe_top_k",
        "moe_topk",
        "moe_k",
        "num_experts_per_topk",
        "top_k_experts",
    ),
    "shared_experts": (
        "n_shared_experts",
        "num_shared_experts",
        "moe_num_shared_experts",
        "num_shared_expert",
    ),
    "shared_intermediate": (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "shared_experts_intermediate_size",
        "share_expert_dim",
    ),
    "first_dense": ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"),
    "q_lora_rank": ("q_lora_rank",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "sliding_window": ("sliding_window",),
    "mtp_layers": ("num_nextn_predict_layers", "mtp_num_layers", "mtp_num_hidden_layers"),
    "moe_every": (
        "decoder_sparse_step",
        "interleave_moe_layer_step",
        "moe_layer_freq",
        "moe_layer_interval",
        "moe_layer_frequency",
        "expert_layer_period",
    ),
    "full_every": ("full_attention_interval",),
}


def read_sizes(chain: Chain, layers: int, experts: int, expert_inner: int | None) -> dict[str, Any]:
    """The fields of `ModelFacts` that estimates need, by name."""
    types = {part["model_type"] for part in chain if isinstance(part.get("model_type"), str)}
    numbers = {name: _number(chain, name, types) for name in _NAMES}
    shared = numbers["shared_intermediate"]
    if shared is None and numbers["shared_experts"] and expert_inner:
        shared = numbers["shared_experts"] * expert_inner
    kinds = _layer_types(chain, layers, numbers["full_every"])
    return {
        **{name: numbers[name] for name in _PLAIN},
        "shared_intermediate": shared if experts else None,
        "moe_layers": _moe_layers(chain, layers, numbers) if experts else None,
        "gated_mlp": not types & _NOT_GATED,
        "qk_norm": bool(types & _QK_NORM) or _flag(chain, "use_qk_norm"),
        "attention_bias": bool(types & _QKV_BIAS)
        or any(_flag(chain, key) for key in ("attention_bias", "add_qkv_bias", "qkv_bias")),
        "mlp_bias": bool(types & (_LEARNED_POSITIONS | {"gpt_oss", "phi", "gpt_neox", "bloom"}))
        or _flag(chain, "mlp_bias"),
        "layer_types": kinds,
        "learned_positions": bool(types & _LEARNED_POSITIONS),
        "quantization": read_quantization(chain),
        "vision_heads": _vision_heads(chain, types),
        "vision_type": _vision_type(chain),
        **_recurrent(chain, types, kinds),
        "dtype": _dtype(chain),
    }


_PLAIN = (
    "vocabulary",
    "head_dim",
    "intermediate",
    "experts_per_token",
    "shared_experts",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "sliding_window",
    "mtp_layers",
)


def _find(chain: Chain, names: Iterable[str]) -> Any:
    for part in chain:
        for name in names:
            if part.get(name) is not None:
                return part[name]
    return None


def _number(chain: Chain, fact: str, types: set[str]) -> int | None:
    value = _find(chain, _NAMES[fact])
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX:
        return value
    if value is not None or any(name in part for part in chain for name in _NAMES[fact]):
        return None  # written, and not a number of something: null and 0 mean "none"
    found = [_DEFAULTS[kind][fact] for kind in sorted(types) if fact in _DEFAULTS.get(kind, {})]
    if not found and fact == "head_dim":
        found = [size for kind in sorted(types) if (size := class_defaults(kind).get(fact))]
    return found[0] if found else None


def _flag(chain: Chain, name: str) -> bool:
    return _find(chain, (name,)) is True


def _moe_layers(chain: Chain, layers: int, numbers: Mapping[str, int | None]) -> int:
    """How many layers have routed experts."""
    kinds = _find(chain, ("mlp_layer_types",))
    if isinstance(kinds, list) and kinds:
        return min(layers, sum(1 for kind in kinds if kind != "dense"))
    named = _find(chain, ("moe_layers_enum",))  # Step: "4,5,6"
    if isinstance(named, str) and named:
        return min(layers, named.count(",") + 1)
    listed = _find(chain, ("moe_layers", "mlp_only_layers"))
    blocks = _find(chain, ("layers_block_type",))
    if isinstance(blocks, list) and "moe" in blocks:
        return min(layers, blocks.count("moe"))
    pattern = _find(chain, ("moe_layer_freq",))
    if isinstance(pattern, list):
        return min(layers, sum(1 for entry in pattern if entry))
    count = layers - min(layers, numbers["first_dense"] or 0)
    every = numbers["moe_every"] or 1
    if every > 1:
        count //= every
    if isinstance(listed, list):
        names = [part for part in chain if isinstance(part.get("moe_layers"), list)]
        count = len(listed) if names else count - len(listed)
    return max(0, min(layers, count))


def _layer_types(chain: Chain, layers: int, full_every: int | None) -> tuple[str, ...]:
    listed = _find(chain, ("layer_types", "layers_block_type"))
    if isinstance(listed, list) and all(isinstance(kind, str) for kind in listed):
        return tuple(listed)
    if full_every:
        return tuple(
            "linear_attention" if (index + 1) % full_every else "full_attention"
            for index in range(layers)
        )
    return ()


NO_ATTENTION = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"})
"""Types of which no layer attends."""

_MAMBA_1 = frozenset({"mamba", "falcon_mamba", "jamba"})
"""Types whose state space has no heads: what is split are the ``expand * hidden`` columns."""

_RECURRENT: dict[str, tuple[str, ...]] = {
    "linear_key_heads": ("linear_num_key_heads", "linear_num_heads"),
    "linear_value_heads": ("linear_num_value_heads", "linear_num_heads"),
    "linear_norm_groups": ("group_norm_size",),
    "mamba_heads": ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"),
    "mamba_groups": ("mamba_n_groups", "mamba_ngroups", "n_groups"),
}
_STATE = re.compile("linear|mamba|recurrent|hybrid|delta|kda")
"""What the layer types that are no attention are called."""


def _recurrent(chain: Chain, types: set[str], kinds: tuple[str, ...]) -> dict[str, int | None]:
    """Heads and groups of layers that are no attention, where the model has such layers."""
    names = {**_RECURRENT, "mamba_inner": ("mamba_d_inner",)}
    if kinds and not any(_STATE.search(kind) for kind in kinds):
        return dict.fromkeys(names)
    out = {fact: _state_size(chain, types, fact, names[fact]) for fact in names}
    if "mamba2" in types:  # the plain names are those of its state space
        out["mamba_heads"] = _state_size(chain, types, "heads", ("num_heads",))
    nested = _find(chain, ("linear_attn_config",))  # Kimi
    if isinstance(nested, Mapping) and type(nested.get("num_heads")) is int:
        out["linear_key_heads"] = out["linear_value_heads"] = nested["num_heads"] or None
    if out["mamba_heads"] is None:
        out["mamba_groups"] = None
    if not types & _MAMBA_1:
        out["mamba_inner"] = None
    elif out["mamba_inner"] is None:
        hidden, expand = _find(chain, ("hidden_size",)), _find(chain, ("mamba_expand", "expand"))
        known = type(hidden) is int and 0 < hidden <= _MAX
        out["mamba_inner"] = hidden * (expand if type(expand) is int else 2) if known else None
    if kinds and not any("linear" in kind for kind in kinds):
        out["linear_key_heads"] = out["linear_value_heads"] = None
    return out


def _state_size(chain: Chain, types: set[str], fact: str, names: tuple[str, ...]) -> int | None:
    value = _find(chain, names)
    if type(value) is int and 0 < value <= _MAX:
        return value
    found = [class_defaults(kind).get(fact) for kind in sorted(types)]
    return next((one for one in found if one), None)


def _vision_heads(chain: Chain, types: set[str]) -> int | None:
    tower = _find(chain[::-1], ("vision_config",))
    if not isinstance(tower, Mapping):
        return None
    for name in ("num_heads", "num_attention_heads", "vt_num_attention_heads"):
        value = tower.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX:
            return value
    kinds = [tower.get("model_type"), *(f"{kind}_vision" for kind in sorted(types))]
    found = [class_defaults(kind).get("heads") for kind in kinds if isinstance(kind, str)]
    return next((one for one in found if one), None)


def _vision_type(chain: Chain) -> str:
    tower = _find(chain[::-1], ("vision_config",))
    kind = tower.get("model_type") if isinstance(tower, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _dtype(chain: Chain) -> str:
    value = _find(chain[::-1], ("dtype", "torch_dtype"))
    return value if isinstance(value, str) else ""
