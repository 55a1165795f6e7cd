"""Facts of real model configs, and every rule that holds a layout to them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_conf import AllocationError, ModelAllocation
from areal_conf.errors import CODES
from areal_conf.model import (
    MAX_CONFIG_BYTES,
    RULES,
    ModelFacts,
    Settings,
    check_model,
    fits,
    read_model,
)
from areal_conf.spec.backends import BACKENDS
from areal_conf.spec.parser import dimension_span

QWEN25_7B: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
QWEN3_06B: dict[str, Any] = {
    "model_type": "qwen3",
    "head_dim": 128,
    "hidden_size": 1024,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}
QWEN3_235B: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 94,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
QWEN25_VL_7B: dict[str, Any] = {
    **QWEN25_7B,
    "model_type": "qwen2_5_vl",
    "vision_config": {"depth": 32},
}
QWEN3_VL_30B: dict[str, Any] = {
    "model_type": "qwen3_vl_moe",
    "text_config": {
        "model_type": "qwen3_vl_moe_text",
        "hidden_size": 2048,
        "max_position_embeddings": 262144,
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
    },
    "tie_word_embeddings": False,
    "vision_config": {"depth": 27, "num_heads": 16},
}
LLAMA3_70B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8192,
    "max_position_embeddings": 8192,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
}
MIXTRAL_8X7B: dict[str, Any] = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
}
GLM45: dict[str, Any] = {
    "model_type": "glm4_moe",
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "num_attention_heads": 96,
    "num_hidden_layers": 92,
    "num_key_value_heads": 8,
}
GPT_OSS_120B: dict[str, Any] = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "num_local_experts": 128,
}
INTERNVL: dict[str, Any] = {
    "model_type": "internvl_chat",
    "llm_config": QWEN25_7B,
    "vision_config": {"hidden_size": 1024},
}
OMNI: dict[str, Any] = {
    "model_type": "qwen2_5_omni",
    "thinker_config": {"text_config": QWEN25_7B, "vision_config": {"depth": 32}},
}
GPT2: dict[str, Any] = {"model_type": "gpt2", "n_head": 12, "n_layer": 12, "n_embd": 768}


@pytest.mark.parametrize(
    ("config", "heads", "kv_heads", "layers", "experts", "expert_intermediate", "vision"),
    [
        (QWEN25_7B, 28, 4, 28, 0, None, False),
        (QWEN3_06B, 16, 8, 28, 0, None, False),
        (QWEN3_235B, 64, 4, 94, 128, 1536, False),
        (QWEN25_VL_7B, 28, 4, 28, 0, None, True),
        (QWEN3_VL_30B, 32, 4, 48, 128, 768, True),
        (LLAMA3_70B, 64, 8, 80, 0, None, False),
        (MIXTRAL_8X7B, 32, 8, 32, 8, 14336, False),
        (DEEPSEEK_V3, 128, 128, 61, 256, 2048, False),
        (GLM45, 96, 8, 92, 160, 1536, False),
        (GPT_OSS_120B, 64, 8, 36, 128, 2880, False),
        (INTERNVL, 28, 4, 28, 0, None, True),
        (OMNI, 28, 4, 28, 0, None, True),
        (GPT2, 12, 12, 12, 0, None, False),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else "",
)
def test_real_configs(
    config: dict[str, Any],
    heads: int,
    kv_heads: int,
    layers: int,
    experts: int,
    expert_intermediate: int | None,
    vision: bool,
) -> None:
    facts = read_model(config)
    assert (facts.heads, facts.kv_heads, facts.layers) == (heads, kv_heads, layers)
    assert (facts.experts, facts.expert_intermediate) == (experts, expert_intermediate)
    assert facts.vision is vision
    assert facts.model_type == config["model_type"]


def test_other_facts() -> None:
    assert read_model(DEEPSEEK_V3).kv_lora_rank == 512
    assert read_model(QWEN25_7B).kv_lora_rank is None
    assert read_model(QWEN3_06B).tied_embeddings
    assert not read_model(LLAMA3_70B).tied_embeddings
    assert read_model({**GPT2, "model_type": "gemma2"}).tied_embeddings
    assert read_model(QWEN3_VL_30B).max_positions == 262144
    assert read_model(QWEN3_VL_30B).hidden == 2048


@pytest.mark.parametrize(
    ("model_type", "kv_heads", "experts"),
    [("llama", 64, 0), ("mixtral", 8, 8), ("qwen3_moe", 4, 128), ("gpt_oss", 8, 128), ("", 64, 0)],
)
def test_what_is_left_out_has_the_default_of_the_model_type(
    model_type: str, kv_heads: int, experts: int
) -> None:
    facts = read_model(
        {"model_type": model_type, "num_attention_heads": 64, "num_hidden_layers": 32}
    )
    assert (facts.kv_heads, facts.experts) == (kv_heads, experts)


def test_null_key_value_heads_mean_no_groups() -> None:
    assert read_model({**MIXTRAL_8X7B, "num_key_value_heads": None}).kv_heads == 32


def test_a_default_that_cannot_be_is_not_used() -> None:
    assert read_model({"model_type": "qwen2", "n_head": 28, "n_layer": 4}).kv_heads == 28


def test_file_and_directory(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA3_70B), encoding="utf-8")
    for source in (file, str(file), tmp_path, str(tmp_path)):
        facts = read_model(source)
        assert (facts.heads, facts.source) == (64, str(file))


@pytest.mark.parametrize("name", ["gone.json", "", "a\0b", "nobody/Nothing-8B"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        read_model(str(tmp_path / name))


@pytest.mark.parametrize(
    "content",
    [b"", b"heads: 28", b"[1]", b"null", b"\xff\xfe\x00", b"[" * 100_000, b"1" * 5000, b"{" * 9],
)
def test_no_json_object(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(AllocationError) as caught:
        read_model(file)
    assert caught.value.code == "AC421"
    assert caught.value.hint


def test_hostile_size(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as out:
        out.truncate(MAX_CONFIG_BYTES + 1)
    with pytest.raises(AllocationError, match="larger than 16 MiB"):
        read_model(file)
    text = json.dumps(QWEN25_7B).encode()
    file.write_bytes(text + b" " * (MAX_CONFIG_BYTES - len(text)))
    assert read_model(file).heads == 28


@pytest.mark.parametrize(
    ("outer", "inner", "tied"),
    [(True, False, True), (False, True, False), (None, True, True), (None, None, False)],
)
def test_the_outermost_config_says_whether_embeddings_are_tied(
    outer: bool | None, inner: bool | None, tied: bool
) -> None:
    text = {**QWEN25_7B, "tie_word_embeddings": inner}
    facts = read_model({"tie_word_embeddings": outer, "text_config": text})
    assert facts.tied_embeddings is tied


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_attention_heads", "28"),
        ("num_attention_heads", 28.0),
        ("num_attention_heads", True),
        ("num_attention_heads", -28),
        ("num_attention_heads", 0),
        ("num_attention_heads", 10**30),
        ("num_hidden_layers", [28]),
        ("num_key_value_heads", {"a": 1}),
        ("num_experts", -1),
        ("tie_word_embeddings", "yes"),
        ("model_type", 3),
    ],
)
def test_wrong_types(field: str, value: object) -> None:
    with pytest.raises(AllocationError) as caught:
        read_model({**QWEN25_7B, field: value})
    error = caught.value
    assert error.code == "AC422"
    assert field in error.message
    assert error.text[slice(*error.span)] == json.dumps(value)


@pytest.mark.parametrize(
    "value", [10**5000, {(1, 2): 3}, "\ud800" * 9999], ids=["huge", "keys", "surrogates"]
)
def test_values_that_cannot_be_shown(value: object) -> None:
    with pytest.raises(AllocationError, match="num_hidden_layers") as caught:
        read_model({**QWEN25_7B, "num_hidden_layers": value})
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize("field", ["num_attention_heads", "num_hidden_layers"])
def test_missing_fields(field: str) -> None:
    config = {key: value for key, value in QWEN25_7B.items() if key not in (field, "model_type")}
    with pytest.raises(AllocationError, match=field) as caught:
        read_model(config)
    assert caught.value.code == "AC423"


@pytest.mark.parametrize("source", [None, 8, ["config.json"], b"config.json"])
def test_source_of_another_type(source: Any) -> None:
    with pytest.raises(AllocationError) as caught:
        read_model(source)
    assert caught.value.code == "AC309"


_values = (
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | st.text("a0é", max_size=5)
)
_names = st.sampled_from(
    [
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "num_experts",
        "text_config",
        "thinker_config",
        "vision_config",
        "model_type",
        "tie_word_embeddings",
        "kv_lora_rank",
    ]
)
_json = st.recursive(
    _values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=8),
    max_leaves=20,
)


@given(st.dictionaries(_names, _json, max_size=10))
@pytest.mark.slow
def test_any_mapping_is_read_or_refused(config: dict[str, Any]) -> None:
    try:
        facts = read_model(config)
    except AllocationError as error:
        code = error.code
    else:
        code = "read" if facts.heads > 0 and facts.layers > 0 else "wrong"
    assert code in ("read", "AC422", "AC423")


# -- rules: a spec that breaks one, and one next to it that does not -------------------------------

FP8 = {"quant_method": "fp8", "weight_block_size": [256, 256]}
HYBRID = {**QWEN25_7B, "model_type": "qwen3_next", "linear_num_key_heads": 16}
STATE_SPACE = {**QWEN25_7B, "model_type": "falcon_h1", "mamba_n_heads": 32, "mamba_n_groups": 2}
TOWER = {
    **QWEN25_7B,
    "num_attention_heads": 96,
    "model_type": "glm4v",
    "vision_config": {"num_heads": 12},
}
RULE_CASES = [
    ("AC401", "sglang:t8", "t8", QWEN25_7B, "sglang:t4", {}),
    ("AC401", "vllm:d2t3", "t3", LLAMA3_70B, "vllm:d2t4", {}),
    ("AC401", "fsdp:d2t8", "t8", QWEN25_7B, "fsdp:d2t4", {}),
    ("AC401", "megatron:d2p2t8", "t8", QWEN25_7B, "megatron:d2p2t7", {}),
    ("AC401", "archon:t8", "t8", QWEN25_7B, "archon:t4", {}),
    ("AC402", "fsdp:t8", "t8", QWEN3_235B, "fsdp:t4", {}),
    ("AC402", "archon:t16", "t16", QWEN3_06B, "archon:t8", {}),
    ("AC402", "sglang:t7", "t7", QWEN25_7B, "sglang:t4", {}),
    ("AC402", "megatron:t6", "t6", {**GLM45, "num_key_value_heads": 4}, "megatron:t8", {}),
    ("AC403", "megatron:p32", "p32", QWEN25_7B, "megatron:p28", {}),
    ("AC403", "sglang:p64", "p64", DEEPSEEK_V3, "sglang:p61", {}),
    ("AC403", "archon:p16", "p16", QWEN25_7B, "archon:p15", {}),
    ("AC404", "megatron:d3t2e3", "e3", QWEN3_235B, "megatron:d4t2e4", {}),
    ("AC404", "archon:d3e3", "e3", QWEN3_235B, "archon:d4e4", {}),
    ("AC405", "megatron:d8e4", "e4", QWEN25_7B, "megatron:d8", {}),
    ("AC405", "archon:d8e4", "e4", QWEN25_7B, "archon:d8", {}),
    (
        "AC406",
        "megatron:(attn:d7|ffn:t7)",
        "t7",
        QWEN3_235B,
        "megatron:(attn:d8|ffn:t8)",
        {},
    ),
    ("AC407", "fsdp:c8", "c8", QWEN25_7B, "fsdp:c4", {}),
    ("AC407", "archon:t2c28", "c28", QWEN25_7B, "archon:t2c14", {}),
    ("AC408", "fsdp:c7", "c7", QWEN25_7B, "fsdp:c4", {}),
    ("AC408", "archon:c6", "c6", {**GLM45, "num_key_value_heads": 4}, "archon:c8", {}),
    ("AC409", "archon:p2", "p2", QWEN3_06B, "archon:d2", {}),
    ("AC410", "megatron:c2", "c2", QWEN25_VL_7B, "megatron:d2", {}),
    ("AC451", "sglang:t8", "t8", QWEN3_235B, "sglang:t4", {}),
    ("AC451", "megatron:t16", "t16", LLAMA3_70B, "megatron:t8", {}),
    ("AC451", "fsdp:c8", "c8", QWEN3_235B, "fsdp:c4", {}),
    ("AC452", "megatron:p12", "p12", QWEN3_235B, "megatron:p47", {}),
    ("AC452", "vllm:p3", "p3", QWEN25_7B, "vllm:p4", {}),
    ("AC453", "megatron:t2c2", "c2", QWEN25_7B, "megatron:t2", {"context_length": 1004}),
    ("AC453", "fsdp:t2c2", "c2", QWEN25_7B, "fsdp:t2", {"context_length": 1002}),
    ("AC454", "sglang:d1", "sglang:d1", QWEN25_7B, None, {"context_length": 32769}),
    (
        "AC455",
        "megatron:(attn:t4|ffn:t2)",
        "t2",
        QWEN25_7B,
        "megatron:t4",
        {},
    ),
    ("AC456", "archon:d8", "archon:d8", LLAMA3_70B, None, {}),
    (
        "AC457",
        "archon:(attn:t7|ffn:t7)",
        "t7",
        {**QWEN25_7B, "num_key_value_heads": 28, "num_experts": 8, "moe_intermediate_size": 768},
        "archon:t7",
        {},
    ),
    (
        "AC458",
        "archon:t2",
        "archon:t2",
        {**QWEN25_7B, "model_type": "qwen3_5_text"},
        "archon:d2",
        {},
    ),
    ("AC411", "megatron:d2t2c2", "c2", HYBRID, "megatron:d4t2", {}),
    ("AC412", "megatron:d2t4", "t4", STATE_SPACE, "megatron:d4t2", {}),
    ("AC413", "sglang:d2t3", "t3", {**QWEN25_7B, "intermediate_size": 8960}, "sglang:d2t2", {}),
    ("AC413", "vllm:d2t3", "t3", {**QWEN25_7B, "intermediate_size": 8960}, "vllm:d2t2", {}),
    ("AC413", "megatron:d2t3", "t3", {**QWEN25_7B, "intermediate_size": 8960}, "megatron:t2", {}),
    ("AC414", "vllm:d2t3", "t3", {**QWEN25_7B, "vocab_size": 151936}, "vllm:d2t2", {}),
    ("AC415", "vllm:d2t4", "t4", {**QWEN3_235B, "quantization_config": FP8}, "vllm:d2t2", {}),
    ("AC416", "vllm:t8", "t8", TOWER, "vllm:d2t4", {}),
    (
        "AC416",
        "sglang:t32",
        "t32",
        {**QWEN25_VL_7B, "vision_config": {"num_heads": 16}},
        "sglang:t2",
        {},
    ),
    ("AC417", "vllm:d2t4", "t4", STATE_SPACE, "vllm:d4t2", {}),
    ("AC418", "vllm:t16", "t16", {**QWEN3_235B, "num_experts": 8}, "vllm:t8", {}),
    ("AC418", "sglang:t16", "t16", {**QWEN3_235B, "num_experts": 8}, "sglang:t8", {}),
    ("AC419", "vllm:p2", "p2", {**QWEN25_7B, "model_type": "zamba2"}, "vllm:t2", {}),
    ("AC420", "sglang:t4", "t4", QWEN25_7B, "sglang:d4", {"attention_dp": 3}),
    ("AC459", "fsdp:d8", "fsdp:d8", {**QWEN25_7B, "model_type": "brand_new"}, None, {}),
]


@pytest.mark.parametrize(
    ("code", "spec", "marked", "config", "good", "settings"),
    RULE_CASES,
    ids=[f"{case[0]}-{case[1]}" for case in RULE_CASES],
)
def test_rules(
    code: str,
    spec: str,
    marked: str,
    config: dict[str, Any],
    good: str | None,
    settings: dict[str, int],
) -> None:
    facts = read_model(config)
    held_to = Settings(**settings)
    findings = check_model(
        ModelAllocation.from_str(spec), facts, path="actor.backend", settings=held_to
    )
    found = {finding.code: finding for finding in findings}
    assert code in found
    error = found[code]
    assert found[code].severity == ("warning" if code >= "AC451" else "error")
    assert error.text[slice(*error.span)] == marked
    assert error.path == "actor.backend"
    if good:
        after = check_model(ModelAllocation.from_str(good), facts, settings=held_to)
        assert code not in {finding.code for finding in after}


def test_every_rule_has_a_case() -> None:
    assert {rule.code for rule in RULES} == {case[0] for case in RULE_CASES}
    tried = {(case[0], case[1].split(":")[0]) for case in RULE_CASES}
    for rule in RULES:
        assert any((rule.code, backend) in tried for backend in rule.sources), rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.code}-{'-'.join(rule.sources)}")
def test_every_rule_is_documented(rule: Any) -> None:
    assert rule.code in CODES
    assert rule.breaks.__doc__
    assert set(rule.sources) <= set(BACKENDS)


def _spoken(spec: str, config: dict[str, Any], **more: Any) -> dict[str, str]:
    findings = check_model(ModelAllocation.from_str(spec), read_model(config), **more)
    return {finding.code: finding.hint for finding in findings}


def test_hints_are_whole_specs_of_as_many_gpus() -> None:
    hint = _spoken("sglang:t8", QWEN25_7B)["AC401"]
    assert hint.startswith("write sglang:d2t4 or sglang:d4t2 or sglang:d8")
    hint = _spoken("megatron[actor]:d3t2e3", QWEN3_235B)["AC404"]
    assert hint.startswith("write megatron[actor]:d3t2e2 or megatron[actor]:d3t2")


def test_hints_mend_what_else_is_wrong() -> None:
    hint = _spoken("archon:d2p16t8e8", {**QWEN25_7B, "tie_word_embeddings": True})["AC401"]
    spec = hint.split()[1]
    allocation = ModelAllocation.from_str(spec)
    assert allocation.world_size == 256
    assert fits(
        allocation.parallel.sizes, "archon", read_model({**QWEN25_7B, "tie_word_embeddings": True})
    )


def test_all_that_is_wrong_is_found_at_once() -> None:
    assert list(_spoken("megatron:d2p32t8e2", QWEN25_7B)) == ["AC401", "AC403", "AC405"]


def test_the_span_is_in_the_text_as_written() -> None:
    (finding,) = check_model(
        ModelAllocation.from_str(" sglang[t8] : t8 d2"),
        read_model(QWEN25_7B),
        text=" sglang[t8] : t8 d2",
        path="gen.backend",
    )
    assert finding.span == (14, 16)
    assert finding.path == "gen.backend"


@pytest.mark.parametrize(
    ("text", "dim", "span"),
    [
        ("megatron:(attn:d4t2|ffn:d2t4e2)", "t", (17, 19)),
        ("megatron:(attn:d4t2|ffn:d2t4e2)", "etp", (26, 28)),
        ("megatron:(attn:d4t2|ffn:d2t4e2)", "e", (28, 30)),
        ("megatron:(attn:d4t2|ffn:d2t4e2)", "c", (0, 31)),
        ("megatron:d4t 2e2", "t", (11, 14)),
        ("megatron:d4e2", "e", (11, 13)),
        ("megatron:d4e2", "etp", (0, 13)),
        ("megatron:d4e2", "", (0, 13)),
    ],
)
def test_dimension_span(text: str, dim: str, span: tuple[int, int]) -> None:
    assert dimension_span(text, dim) == span


def test_mla_has_no_key_value_heads_to_split() -> None:
    config = {**DEEPSEEK_V3, "num_key_value_heads": 1}
    assert "AC451" not in _spoken("sglang:t16", config)
    assert "AC451" in _spoken("sglang:t16", {**config, "kv_lora_rank": None})


def test_attention_under_sglang_dp() -> None:
    """Attention over t8 with dp_size 4 is split two ways only: 28 heads run."""
    assert "AC401" not in _spoken("sglang:t8", QWEN25_7B, settings=Settings(attention_dp=4))


def test_stages_per_rank() -> None:
    assert "AC403" not in _spoken("archon:p16", QWEN25_7B, settings=Settings(stages_per_rank=1))
    assert "AC403" in _spoken("megatron:p16", QWEN25_7B, settings=Settings(stages_per_rank=2))


def test_archon_ignores_what_qwen35_does_not_split() -> None:
    config = {**QWEN25_7B, "model_type": "qwen3_5_text"}
    assert list(_spoken("archon:d8t8e64", config)) == ["AC458"]
    assert "AC405" in _spoken("megatron:d8t4e4", config)


def test_real_models_run_as_their_owners_run_them() -> None:
    for spec, config in [
        ("megatron:(attn:d4p8t4|ffn:d1p8t1e16)", QWEN3_235B),
        ("sglang:d4t4", QWEN3_235B),
        ("sglang:t16", DEEPSEEK_V3),
        ("megatron:d4p16t8e32", DEEPSEEK_V3),
        ("fsdp:d8", QWEN25_VL_7B),
        ("fsdp:d4c2", QWEN25_VL_7B),
        ("megatron:d2p2t4", LLAMA3_70B),
        ("vllm:d2t4", QWEN3_VL_30B),
        ("megatron:d2p4t8e16", GLM45),
    ]:
        codes = _spoken(spec, config)
        assert all(code >= "AC451" for code in codes), (spec, codes)


_SPECS = [
    ModelAllocation.from_str(f"{backend}:d2{dims}")
    for backend, options in {
        "sglang": ["", "t3", "t8", "t8p3", "p64"],
        "vllm": ["t5", "t16p7"],
        "fsdp": ["t8", "c8", "t4c7", "t2c2"],
        "megatron": ["t8", "t4c3", "p5e2", "t8e4", "p48"],
        "archon": ["t8", "c2e2", "p2", "c8"],
    }.items()
    for dims in options
]


@pytest.mark.parametrize(
    "config",
    [QWEN25_7B, QWEN3_235B, QWEN25_VL_7B, DEEPSEEK_V3, GLM45, MIXTRAL_8X7B, QWEN3_06B],
    ids=lambda config: config["model_type"],
)
def test_fits_agrees_with_check_model(config: dict[str, Any]) -> None:
    facts = read_model(config)
    for allocation in _SPECS:
        findings = check_model(allocation, facts)
        wrong = any(finding.severity == "error" for finding in findings)
        assert fits(allocation.parallel.sizes, allocation.backend, facts) is not wrong
        for finding in findings:
            for word in finding.hint.replace("not so with ", "write ").split():
                if word.startswith(f"{allocation.backend}:"):
                    offered = ModelAllocation.from_str(word)
                    assert offered.world_size == allocation.world_size
                    assert fits(offered.parallel.sizes, offered.backend, facts)


def test_what_is_not_split_breaks_no_rule() -> None:
    facts = [
        ModelFacts(heads=h, kv_heads=h, layers=n, experts=e, tied_embeddings=True, vision=True)
        for h, n, e in product([1, 7], [1, 5], [0, 3])
    ]
    for backend, model in product(BACKENDS, facts):
        assert check_model(ModelAllocation.from_str(f"{backend}:d64"), model) == []
