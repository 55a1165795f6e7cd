"""Servers: weights by their bits, caches by their heads, room by the server's rule."""

from __future__ import annotations

from typing import Any

import pytest

from areal_conf import ModelAllocation
from areal_conf.config.versions import V1_0_4
from areal_conf.estimate import EngineKeys, ServingMemory, ServingSettings, serving_memory
from areal_conf.model import read_model
from areal_conf.model.known import known_model

GIB = 2**30


def server(spec: str, model: Any, **settings: Any) -> ServingMemory:
    return serving_memory(
        ModelAllocation.from_str(spec), read_model(model), ServingSettings(**settings), 79.1
    )


def by_keys(spec: str, model: Any, **keys: Any) -> ServingMemory:
    found = EngineKeys(keys.get, V1_0_4).memory(ModelAllocation.from_str(spec), read_model(model))
    assert isinstance(found, ServingMemory)
    return found


def test_bf16_weights_are_two_bytes_a_parameter() -> None:
    assert server("vllm:t1", "Qwen3-30B-A3B").weights == pytest.approx(30.532e9 * 2 / GIB, 0.001)


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_weights_are_split_over_t(t: int) -> None:
    whole = server("sglang:d8", "Llama-3.1-8B").weights
    assert server(f"sglang:t{t}", "Llama-3.1-8B").weights == pytest.approx(whole / t, rel=0.01)


def test_key_value_heads_are_replicated_beyond_their_number() -> None:
    """Qwen3-235B has 4 of them: t8 caches as much on each GPU as t4."""
    four, eight = (server(f"sglang:t{t}", "Qwen3-235B-A22B").bytes_per_token for t in (4, 8))
    assert four == eight == 94 * 2 * 128 * 2


def test_the_latent_is_on_every_rank() -> None:
    for spec in ("sglang:t2", "sglang:t8"):
        assert server(spec, "DeepSeek-V3").bytes_per_token == 61 * (512 + 64) * 2
    assert server("sglang:t8", "DeepSeek-V3", kv_bytes=1).bytes_per_token == 61 * 576


def test_quantised_checkpoints_are_seen() -> None:
    """DeepSeek-V3 comes in FP8: about a byte a parameter, embedding, head and norms in two."""
    eight_bits = by_keys("sglang:t8", "DeepSeek-V3")
    assert eight_bits.weights == pytest.approx(671e9 / 8 / GIB, rel=0.03)
    assert server("sglang:t8", "DeepSeek-V3").weights > 1.9 * eight_bits.weights


def test_mxfp4_has_four_bits_and_scales_for_experts_alone() -> None:
    few = by_keys("vllm:t1", "gpt-oss-120b").weights
    assert few == pytest.approx(65.97, rel=0.015)  # vllm-project/vllm issue 23278


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4 + 20 / 64),
        ({"quant_method": "fp8"}, 8.0),
    ],
)
def test_bits_of_quantised_weights(quantization: dict[str, Any], bits: float) -> None:
    found = known_model("Qwen2.5-32B")
    assert found is not None
    plain = server("vllm:t1", "Qwen2.5-32B").weights
    few = by_keys("vllm:t1", {**found[1], "quantization_config": quantization}).weights
    ends = 2 * 152064 * 5120 * 2 / GIB
    assert few - ends == pytest.approx((plain - ends) * bits / 16, rel=0.01)


def test_an_unknown_quantisation_is_said() -> None:
    found = known_model("Qwen2.5-7B")
    assert found is not None
    odd = by_keys("vllm:t1", {**found[1], "quantization_config": {"quant_method": "odd"}})
    assert any("odd" in text for text in odd.unknown)


def test_room_by_the_rule_of_each_server() -> None:
    sglang = server("sglang:t1", "Meta-Llama-3-8B", fraction=0.88).cache
    vllm = server("vllm:t1", "Meta-Llama-3-8B", fraction=0.88).cache
    assert sglang is not None
    assert vllm is not None
    assert sglang.room[0] < (79.1 - 0.3) * 0.88 - 14.96 < sglang.room[1] + 0.1
    assert vllm.room[1] == pytest.approx(79.1 * 0.88 - 14.96 - 0.8, abs=0.05)
    assert vllm.room[0] < vllm.room[1]


def test_attention_data_parallel_holds_attention_whole() -> None:
    split, whole = (server("sglang:t8", "Qwen3-32B", attention_dp=n) for n in (1, 8))
    assert whole.weights > split.weights
    assert whole.bytes_per_token == 8 * split.bytes_per_token


def test_requests_at_once() -> None:
    short, long = (server("sglang:t2", "Qwen3-32B", context_length=n) for n in (1024, 8192))
    assert short.cache is not None
    assert long.cache is not None
    assert short.cache.requests is not None
    assert long.cache.requests is not None
    assert short.cache.requests[0] == pytest.approx(8 * long.cache.requests[0])


@pytest.mark.parametrize(
    ("spec", "verdict"), [("vllm:d8", "no"), ("vllm:t2", "no"), ("vllm:t4", "fits")]
)
def test_verdict(spec: str, verdict: str) -> None:
    assert server(spec, "Llama-3.1-70B", context_length=32768).verdict == verdict
