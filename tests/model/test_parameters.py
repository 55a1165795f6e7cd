"""Parameters of public models, exactly as their weights on the Hub count them."""

from __future__ import annotations

import pytest

from areal_conf.model import ModelFacts, read_model
from areal_conf.model.known import known_model, known_models
from areal_conf.model.parameters import model_parameters

TOTALS = {
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen2.5-Math-7B": 7_615_616_512,
    "Qwen/Qwen2.5-Math-1.5B": 1_543_714_304,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": 7_615_616_512,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": 14_770_033_664,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": 32_763_876_352,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "meta-llama/Meta-Llama-3-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": 8_030_261_248,
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": 70_553_706_496,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mistral-7B-v0.3": 7_248_023_552,
    "mistralai/Mistral-Nemo-Base-2407": 12_247_782_400,
    "mistralai/Mistral-Small-24B-Base-2501": 23_572_403_200,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "mistralai/Mixtral-8x22B-v0.1": 140_620_634_112,
    "deepseek-ai/DeepSeek-V3": 671_026_419_200,
    "deepseek-ai/DeepSeek-R1": 671_026_419_200,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "deepseek-ai/DeepSeek-V2": 235_741_434_880,
    "moonshotai/Moonlight-16B-A3B": 15_960_110_208,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai/gpt-oss-120b": 116_829_156_672,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-1b-it": 999_885_952,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "microsoft/phi-4": 14_659_507_200,
    "HuggingFaceTB/SmolLM2-1.7B": 1_711_376_384,
    "meta-llama/Meta-Llama-3-70B": 70_553_706_496,
    "Qwen/QwQ-32B": 32_763_876_352,
    "Qwen/Qwen2-1.5B": 1_543_714_304,
    "Qwen/Qwen2-7B": 7_615_616_512,
    "Qwen/Qwen2-72B": 72_706_203_648,
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": 30_532_122_624,
    "Qwen/Qwen2-0.5B": 494_032_768,
    "Qwen/Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "google/gemma-7b": 8_537_680_896,
    "google/gemma-2b": 2_506_172_416,
    "mistralai/Mistral-Large-Instruct-2407": 122_610_069_504,
    "01-ai/Yi-34B": 34_388_917_248,
    "codellama/CodeLlama-34b-hf": 33_743_970_304,
    "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF": 70_553_706_496,
    "microsoft/Phi-3.5-mini-instruct": 3_821_079_552,
    "microsoft/Phi-4-mini-instruct": 3_836_021_760,
    "HuggingFaceTB/SmolLM3-3B": 3_075_098_624,
    "deepseek-ai/DeepSeek-V3.1": 671_026_419_200,
}
"""Sums over the tensors of the safetensors files, as the Hub shows them."""


@pytest.mark.parametrize("name", TOTALS)
def test_total(name: str) -> None:
    parameters = model_parameters(read_model(name))
    assert parameters is not None
    assert parameters.total == TOTALS[name]


@pytest.mark.parametrize("name", known_models())
def test_every_known_model_can_be_counted(name: str) -> None:
    parameters = model_parameters(read_model(name))
    assert parameters is not None
    assert parameters.dense_layers + parameters.moe_layers > 0


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B"),
        ("qwen/qwen3-8b", "Qwen/Qwen3-8B"),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("llama3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B"),
        ("DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
        ("GLM-4.5-Air", "zai-org/GLM-4.5-Air"),
    ],
)
def test_names(name: str, known: str) -> None:
    found = known_model(name)
    assert found is not None
    assert found[0] == known
    assert read_model(name).source == known


@pytest.mark.parametrize(
    "name", ["Qwen3-8B-FP8", "Qwen3", "", "nothing", "Qwen2.5-7B-Instruct-AWQ"]
)
def test_a_name_that_is_not_known(name: str) -> None:
    assert known_model(name) is None
    with pytest.raises((FileNotFoundError, ValueError)):
        read_model(name or "missing")


def test_sizes_that_are_not_said_are_not_guessed() -> None:
    assert model_parameters(ModelFacts(heads=8, kv_heads=8, layers=4)) is None
    assert model_parameters(ModelFacts(heads=8, kv_heads=8, layers=4, hidden=64)) is None


def test_values_of_strange_types_are_not_known() -> None:
    facts = read_model(
        {
            "num_attention_heads": 8,
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "vocab_size": [1, 2],
            "head_dim": "64",
            "layer_types": [1, 2],
            "quantization_config": "fp8",
            "num_experts_per_tok": True,
        }
    )
    assert (facts.vocabulary, facts.head_dim, facts.experts_per_token) == (None, None, None)
    assert facts.layer_types == ()
    assert facts.quantization is None


def test_dense_and_expert_layers_are_told_apart() -> None:
    parameters = model_parameters(read_model("DeepSeek-V3"))
    assert parameters is not None
    assert (parameters.dense_layers, parameters.moe_layers) == (3, 58)
    assert parameters.mtp_modules == 1
    assert parameters.dense.experts == 0 < parameters.moe.experts


def test_what_is_not_counted_is_said() -> None:
    vision = model_parameters(read_model("Qwen2.5-VL-7B-Instruct"))
    assert vision is not None
    assert "vision" in vision.unknown[0]
