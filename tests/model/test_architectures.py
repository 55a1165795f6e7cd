"""Models that backends treat in their own way: quantised, hybrid, multi-modal, odd sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from areal_conf import ModelAllocation, plan
from areal_conf.model import Settings, check_model, read_model
from areal_conf.model.known import class_defaults, is_known_type

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
QWEN3_30B: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "head_dim": 128,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_hidden_layers": 48,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "vocab_size": 151936,
}
QWEN2_VL_72B: dict[str, Any] = {
    "model_type": "qwen2_vl",
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "intermediate_size": 29568,
    "vocab_size": 152064,
    "vision_config": {"num_heads": 16},
}
QWEN25_1B: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "num_hidden_layers": 28,
    "intermediate_size": 8960,
    "vocab_size": 151936,
}
GLM45V: dict[str, Any] = {
    "model_type": "glm4v_moe",
    "text_config": {
        "model_type": "glm4v_moe_text",
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "num_hidden_layers": 46,
        "hidden_size": 4096,
        "n_routed_experts": 128,
        "moe_intermediate_size": 1408,
        "intermediate_size": 10944,
        "vocab_size": 151552,
    },
    "vision_config": {"model_type": "glm4v_moe_vision", "num_heads": 12},
}
QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next",
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "num_experts": 512,
    "moe_intermediate_size": 512,
    "vocab_size": 151936,
}
FALCON_H1: dict[str, Any] = {
    "model_type": "falcon_h1",
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 24,
    "hidden_size": 2048,
    "intermediate_size": 4096,
    "mamba_n_heads": 32,
    "mamba_n_groups": 2,
    "vocab_size": 65536,
}


def codes(config: dict[str, Any], spec: str, **settings: Any) -> set[str]:
    """Codes of the errors."""
    allocation = ModelAllocation.from_str(spec)
    found = check_model(allocation, read_model(config), settings=Settings(**settings))
    return {one.code for one in found if one.severity == "error"}


@pytest.mark.parametrize(
    ("config", "spec", "settings", "wanted"),
    [
        ({**QWEN3_30B, "quantization_config": FP8}, "vllm:d2t4", {}, {"AC415"}),
        ({**QWEN3_30B, "quantization_config": FP8}, "sglang:d2t4", {}, {"AC415"}),
        ({**QWEN3_30B, "quantization_config": FP8}, "sglang:d2t4", {"expert_groups": 4}, set()),
        ({**QWEN3_30B, "quantization_config": FP8}, "vllm:d2t4", {"expert_groups": 0}, set()),
        ({**QWEN3_30B, "quantization_config": FP8}, "vllm:d2t2", {}, set()),
        (QWEN3_30B, "vllm:d2t4", {}, set()),
        (
            {
                **QWEN2_VL_72B,
                "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},
            },
            "vllm:t8",
            {},
            {"AC415"},
        ),
        (
            {
                **QWEN2_VL_72B,
                "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64},
            },
            "sglang:t8",
            {},
            {"AC415"},
        ),
        (
            {
                **QWEN2_VL_72B,
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}},
                },
            },
            "vllm:t8",
            {},
            {"AC415"},
        ),
        ({**QWEN2_VL_72B, "quantization_config": {"quant_method": "fp8"}}, "vllm:t8", {}, set()),
        (QWEN2_VL_72B, "vllm:t8", {}, set()),
        (QWEN25_1B, "sglang:d2t6", {}, {"AC413"}),
        (QWEN25_1B, "vllm:d2t6", {}, {"AC413", "AC414"}),
        (QWEN25_1B, "vllm:d2t2", {}, set()),
        (GLM45V, "vllm:t8", {}, {"AC416"}),
        (GLM45V, "vllm:t8", {"vision_split": False}, set()),
        (GLM45V, "sglang:t8", {}, set()),
        (GLM45V, "vllm:t4", {}, set()),
        (QWEN3_NEXT, "megatron:d2t2c2", {}, {"AC411"}),
        (QWEN3_NEXT, "megatron:d4t2", {}, set()),
        (FALCON_H1, "vllm:d2t4", {}, {"AC417"}),
        (FALCON_H1, "sglang:d2t4", {}, {"AC417"}),
        (FALCON_H1, "vllm:d4t2", {}, set()),
        ({**FALCON_H1, "mamba_n_groups": 1}, "vllm:d2t4", {}, set()),
        ({**FALCON_H1, "mamba_n_groups": 1, "quantization_config": {}}, "vllm:d2t4", {}, {"AC417"}),
    ],
)
def test_what_backends_refuse(
    config: dict[str, Any], spec: str, settings: dict[str, Any], wanted: set[str]
) -> None:
    assert codes(config, spec, **settings) == wanted


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "intermediate_size": 13824,
    "vocab_size": 128256,
}
MAMBA2: dict[str, Any] = {
    "model_type": "mamba2",
    "hidden_size": 4096,
    "num_heads": 128,
    "n_groups": 8,
    "num_hidden_layers": 64,
}
JAMBA = {**LLAMA, "model_type": "jamba", "intermediate_size": 14336, "mamba_expand": 2}
KIMI_LINEAR = {**LLAMA, "model_type": "kimi_linear", "linear_attn_config": {"num_heads": 32}}
BAILING = {**LLAMA, "model_type": "bailing_hybrid", "group_norm_size": 4}
GRANITE = {**FALCON_H1, "model_type": "granitemoehybrid", "layer_types": ["attention"] * 24}
MOE = {**QWEN3_30B, "shared_expert_intermediate_size": 5636}
SIGLIP = {
    **LLAMA,
    "vision_config": {"model_type": "siglip_vision_model", "num_attention_heads": 12},
}
INTERNVL = {
    "model_type": "internvl_chat",
    "llm_config": LLAMA,
    "vision_config": {"num_attention_heads": 25},
}
MIMO = {**LLAMA, "model_type": "mimo_v2_flash", "swa_num_key_value_heads": 6}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "quantization_config": FP8,
}

SMALL_HEADS = {**LLAMA, "head_dim": 64, "num_attention_heads": 64, "intermediate_size": 16384}
NAS_BLOCKS = [{"attention": {"n_heads_in_group": 4}}, {"attention": {"n_heads_in_group": None}}]
NVFP4 = {**LLAMA, "quantization_config": {"quant_method": "modelopt_fp4"}}
BLOCKS = {"group_0": {"weights": {"num_bits": 8, "block_structure": [128, 128]}}}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
WIDE_VL = {**QWEN2_VL_72B, "intermediate_size": 32768}
NOT_CONVERTED = [
    "visual.blocks.0.attn.qkv",
    "visual.blocks.0.mlp.up_proj",
    "model.layers.0.self_attn.q_norm",
    "model.layers.0.mlp.down_proj",
]


def quantised(**config: Any) -> dict[str, Any]:
    return {**LLAMA, "quantization_config": config}


@pytest.mark.parametrize(
    ("config", "spec", "settings", "wanted"),
    [
        # state spaces and linear attention
        (MAMBA2, "vllm:t8", {}, set()),
        (MAMBA2, "vllm:t16", {}, {"AC417"}),
        (MAMBA2, "megatron:t8", {}, set()),
        ({**MAMBA2, "n_groups": 1}, "megatron:t2", {}, {"AC412"}),
        ({**MAMBA2, "n_groups": 1}, "sglang:t2", {}, set()),
        ({**MAMBA2, "model_type": "falcon_mamba", "hidden_size": 9}, "vllm:t4", {}, {"AC417"}),
        (JAMBA, "vllm:t8", {}, set()),
        ({**JAMBA, "hidden_size": 4098}, "vllm:t8", {}, {"AC417"}),
        ({**KIMI_LINEAR, "num_attention_heads": 64}, "vllm:t64", {}, {"AC417"}),
        (KIMI_LINEAR, "megatron:d2c2", {}, {"AC411"}),
        (BAILING, "sglang:t8", {}, {"AC417"}),
        (BAILING, "sglang:t4", {}, set()),
        (GRANITE, "vllm:d2t4", {}, set()),
        ({**FALCON_H1, "layer_types": ["hybrid"] * 24}, "vllm:d2t4", {}, {"AC417"}),
        ({**MAMBA2, "n_groups": 2}, "megatron:t2c3", {}, {"AC412"}),
        ({**MAMBA2, "n_groups": 2}, "megatron:t2c2", {}, set()),
        # matrices
        (MOE, "vllm:t8", {}, {"AC413"}),
        (MOE, "megatron:t8", {}, {"AC413"}),
        (MOE, "vllm:t4", {}, set()),
        ({**LLAMA, "model_type": "qwen", "intermediate_size": 22008}, "vllm:t8", {}, {"AC413"}),
        ({**QWEN25_1B, "num_key_value_heads": 6}, "megatron:t6", {}, {"AC413"}),
        ({**QWEN25_1B, "num_key_value_heads": 6}, "fsdp:t6", {}, set()),
        # blocks and groups
        ({**SMALL_HEADS, "quantization_config": FP8}, "vllm:t8", {}, {"AC415"}),
        (DEEPSEEK, "sglang:t16", {}, set()),
        (DEEPSEEK, "sglang:t32", {"expert_groups": 32}, {"AC415"}),
        (quantised(quant_method="auto-round", bits=4, group_size=128), "vllm:t8", {}, {"AC415"}),
        (quantised(quant_method="modelopt", quant_algo="NVFP4"), "vllm:t8", {}, set()),
        ({**NVFP4, "intermediate_size": 13816}, "vllm:t8", {}, {"AC415"}),
        (quantised(quant_method="modelopt", quant_algo="FP8"), "vllm:t8", {}, set()),
        (quantised(quant_method="bitsandbytes", load_in_4bit=True), "vllm:t8", {}, set()),
        (quantised(quant_method="mxfp4"), "vllm:t8", {}, set()),
        (quantised(quant_method="gptq", bits=4, group_size=-1), "vllm:t8", {}, set()),
        (
            quantised(
                quant_method="compressed-tensors",
                config_groups=BLOCKS,
            ),
            "vllm:t8",
            {},
            {"AC415"},
        ),
        (
            {**QWEN3_30B, "quantization_config": GPTQ},
            "vllm:t4",
            {},
            set(),  # groups of experts are halved
        ),
        # modules that are left out: of the vision tower and of one layer do not count
        (
            quantised(**FP8, modules_to_not_convert=NOT_CONVERTED),
            "vllm:t8",
            {},
            {"AC415"},
        ),
        (quantised(**FP8, ignored_layers=["re:.*mlp.*down_proj"]), "vllm:t8", {}, set()),
        # vision towers
        (SIGLIP, "vllm:t8", {}, {"AC416"}),
        (SIGLIP, "vllm:t4", {}, set()),
        (INTERNVL, "vllm:t8", {}, set()),
        (WIDE_VL, "sglang:t32", {}, {"AC416"}),
        (WIDE_VL, "sglang:t32", {"vision_split": False}, set()),
        # layers with heads of their own, and layers under another name
        (MIMO, "vllm:t4", {}, {"AC401"}),
        (QWEN3_30B, "sglang:t4", {"expert_groups": 3}, {"AC418"}),
        ({**QWEN3_30B, "model_type": "mixtral", "num_experts": 2}, "vllm:t4", {}, set()),
        ({**MAMBA2, "num_hidden_layers": 2}, "vllm:p2", {}, {"AC419"}),
        ({**MAMBA2, "num_hidden_layers": 2}, "sglang:p2", {}, set()),
        (MIMO, "vllm:t2", {}, set()),
        (
            {**LLAMA, "per_layer_config": {"5": {"num_key_value_heads": 3}}},
            "sglang:t8",
            {},
            {"AC401"},
        ),
        (
            {**LLAMA, "num_key_value_heads": None, "block_configs": NAS_BLOCKS},
            "vllm:t16",
            {},
            set(),
        ),
        ({**LLAMA, "num_attention_heads_per_layer": [32, 36]}, "vllm:t8", {}, {"AC401"}),
        ({**LLAMA, "model_type": "longcat_flash", "num_layers": 28}, "vllm:p32", {}, {"AC403"}),
    ],
)  # fmt: skip
def test_kinds_of_layers(
    config: dict[str, Any], spec: str, settings: dict[str, Any], wanted: set[str]
) -> None:
    assert codes(config, spec, **settings) == wanted


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, (8, 4, 26)),
        ({"model_type": "gemma3", "text_config": {"hidden_size": 2304}}, (8, 4, 26)),
        (
            {"num_attention_heads": 20, "num_hidden_layers": 28, "moe_num_experts": [64, 64]},
            (20, 20, 28),
        ),
        (
            {
                "model_type": "dbrx",
                "n_heads": 48,
                "n_layers": 40,
                "attn_config": {"kv_n_heads": 8},
                "ffn_config": {"moe_num_experts": 16, "ffn_hidden_size": 10752},
            },
            (48, 8, 40),
        ),
        ({"model_type": "falcon", "num_attention_heads": 71, "num_hidden_layers": 32}, (71, 1, 32)),
        (
            {
                "model_type": "falcon",
                "num_attention_heads": 128,
                "num_kv_heads": 8,
                "new_decoder_architecture": True,
                "multi_query": True,
                "num_hidden_layers": 60,
            },
            (128, 8, 60),
        ),
        (
            {
                "model_type": "falcon",
                "num_attention_heads": 64,
                "num_hidden_layers": 2,
                "multi_query": False,
            },
            (64, 64, 2),
        ),
        (
            {"model_type": "gpt_bigcode", "n_head": 48, "n_layer": 40, "multi_query": True},
            (48, 1, 40),
        ),
        ({"model_type": "gpt_bigcode", "n_head": 48, "n_layer": 40}, (48, 1, 40)),
        (
            {"model_type": "mpt", "n_heads": 32, "n_layers": 32, "attn_config": {"kv_n_heads": 8}},
            (32, 8, 32),
        ),
        (
            {"model_type": "mixtral", "num_attention_heads": 32, "num_hidden_layers": 32},
            (32, 8, 32),
        ),
        (
            {
                "model_type": "step3p5",
                "num_attention_heads": 64,
                "num_hidden_layers": 45,
                "num_attention_groups": 8,
            },
            (64, 8, 45),
        ),
        (
            {
                "num_attention_heads": [12, 16],
                "num_key_value_heads": [3, 4],
                "num_hidden_layers": 2,
            },
            (4, 1, 2),
        ),
    ],
)
def test_facts_under_other_names(config: dict[str, Any], wanted: tuple[int, int, int]) -> None:
    facts = read_model(config)
    assert (facts.heads, facts.kv_heads, facts.layers) == wanted


def test_experts_of_lists_and_nested_sections() -> None:
    ernie = {"num_attention_heads": 20, "num_hidden_layers": 28, "moe_num_experts": [64, 64]}
    assert read_model({**ernie, "moe_intermediate_size": [1536, 512]}).expert_intermediate == 1536
    assert read_model(ernie).experts == 64
    dbrx = {
        "n_heads": 48,
        "n_layers": 40,
        "ffn_config": {"moe_num_experts": 16, "ffn_hidden_size": 9},
    }
    facts = read_model(dbrx)
    assert (facts.experts, facts.expert_intermediate) == (16, 9)


def test_layers_that_are_listed_and_not_counted() -> None:
    blocks = ["linear_attention", "moe", "full_attention", "mlp"]
    config = {"model_type": "nemotron_h", "num_attention_heads": 32, "n_routed_experts": 8}
    facts = read_model({**config, "layers_block_type": blocks})
    assert (facts.layers, facts.moe_layers) == (4, 1)
    assert read_model({**config, "hybrid_override_pattern": "M-M*-"}).layers == 5


@pytest.mark.parametrize(
    ("keys", "moe_layers"),
    [
        ({"moe_layer_start_index": 1, "moe_layer_interval": 1}, 31),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, 16),
        ({"moe_layers_enum": "4,5,6"}, 3),
        ({"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 29}, 29),
        ({"moe_layer_freq": [0] + [1] * 31}, 31),
        ({}, 32),
    ],
)
def test_layers_with_experts(keys: dict[str, Any], moe_layers: int) -> None:
    config = {**LLAMA, "model_type": "own", "num_experts": 16, "moe_intermediate_size": 512}
    assert read_model({**config, **keys}).moe_layers == moe_layers


@pytest.mark.parametrize(
    ("keys", "experts"),
    [
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-"}, 0),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MEM*E"}, 8),
        ({"model_type": "nemotron_h", "layers_block_type": ["linear_attention", "mlp"]}, 0),
        ({"model_type": "nemotron_h", "layers_block_type": ["mlp", "moe"]}, 8),
        ({"model_type": "doge", "is_moe": False, "num_experts": 16384}, 0),
        ({"model_type": "gemma4_text", "enable_moe_block": False, "num_experts": 8}, 0),
    ],
)
def test_models_of_a_moe_class_that_have_no_experts(keys: dict[str, Any], experts: int) -> None:
    assert read_model({**LLAMA, **keys}).experts == experts


def test_key_value_heads_of_each_layer() -> None:
    listed = {**LLAMA, "num_key_value_heads_per_layer": [4, 4, 2]}
    del listed["num_key_value_heads"]
    assert read_model(listed).kv_heads == 2


def test_an_unknown_type_is_said_to_be_unknown() -> None:
    config = {"model_type": "qwen99", "num_attention_heads": 8, "num_hidden_layers": 2}
    found = check_model(ModelAllocation.from_str("fsdp:d2t3"), read_model(config))
    assert {(one.severity, one.code) for one in found} >= {
        ("error", "AC401"),
        ("warning", "AC459"),
    }
    for known in ("qwen3", "deepseek_v3", "internvl_chat", "kimi_k2"):
        assert is_known_type(known)


@pytest.mark.parametrize("kind", ["qwen3_5_text", "deepseek_v3", "llama4_text", "bamba", "olmo2"])
def test_every_type_has_the_defaults_of_its_class(kind: str) -> None:
    facts = read_model({"model_type": kind, "num_attention_heads": class_defaults(kind)["heads"]})
    assert facts.layers == class_defaults(kind)["layers"]


def hub(folder: Path, name: str, config: str, main: bool = True) -> None:
    model = folder / f"models--{name.replace('/', '--')}"
    (model / "snapshots" / "abc1").mkdir(parents=True)
    (model / "snapshots" / "abc1" / "config.json").write_text(config)
    if main:
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text("abc1")


CONFIG = '{"model_type": "qwen3", "num_attention_heads": 7, "num_hidden_layers": 2}'


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"])
def test_a_hub_id_is_found_in_the_local_cache(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = {"HF_HUB_CACHE": "", "HF_HOME": "hub", "XDG_CACHE_HOME": "huggingface/hub"}[variable]
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    hub(tmp_path / below, "me/mine-7b", CONFIG)
    assert read_model("me/mine-7b").heads == 7
    cfg = {"actor": {"backend": "fsdp:d2t2", "path": "me/mine-7b"}}
    assert [error.code for error in plan(cfg, model="auto").errors if error.code < "AC5"][:1] == [
        "AC401"
    ]


def test_a_snapshot_without_a_reference_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    hub(tmp_path, "me/mine", CONFIG, main=False)
    assert read_model("me/mine").heads == 7


def test_what_is_not_cached_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    made = plan({"actor": {"backend": "fsdp:d2", "path": "me/mine"}}, model="auto")
    (warning,) = [w for w in made.warnings if w.code == "AC362"]
    assert "hf download me/mine config.json" in warning.hint
    with pytest.raises(FileNotFoundError, match="hf download me/mine"):
        read_model("me/mine")
