"""Rules against the checks of the engines themselves, as far as they need no GPU (stage `models`).

Functions of vLLM and SGLang are taken out of their files; each is asked about random models, and
its answer is the rule's.
"""

from __future__ import annotations

import random
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from model.sources import package, parts

from areal_conf import ModelAllocation
from areal_conf.model import check_model, read_model
from areal_conf.model.facts import ModelFacts

pytestmark = pytest.mark.models

CASES = range(400)
BLOCK = [128, 128]


def model(seed: int) -> dict[str, Any]:
    """Heads that split over every t that is tried, and all other sizes at random."""
    chance = random.Random(seed)
    kv_heads = chance.choice([1, 2, 4, 8, 16])
    config: dict[str, Any] = {
        "model_type": "qwen3",
        "num_attention_heads": 16 * chance.choice([1, 2, 4]),
        "num_key_value_heads": kv_heads,
        "head_dim": chance.choice([64, 80, 96, 128, 192, 256]),
        "hidden_size": 4096,
        "num_hidden_layers": 4,
        "intermediate_size": 16 * chance.choice([704, 768, 864, 1024, 1184, 1216]),
        "vocab_size": chance.choice([32000, 50257, 151936, 152064, 128257, 131073]),
    }
    return config


def codes(config: dict[str, Any] | ModelFacts, spec: str) -> set[str]:
    found = check_model(ModelAllocation.from_str(spec), read_model(config))
    return {error.code for severity, error in found if severity == "error"}


def raises(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except (ValueError, AssertionError):
        return True
    return False


def linears(config: dict[str, Any], t: int) -> list[tuple[int, int, int, list[int]]]:
    """Input, output, input of a rank and outputs of a rank, of each linear layer of a layer."""
    head, heads, hidden = config["head_dim"], config["num_attention_heads"], config["hidden_size"]
    query = heads * head // t
    keys = max(config["num_key_value_heads"], t) * head // t
    inner = config["intermediate_size"] // t
    return [
        (hidden, t * (query + 2 * keys), hidden, [query, keys, keys]),
        (heads * head, hidden, query, [hidden]),
        (hidden, 2 * config["intermediate_size"], hidden, [inner, inner]),
        (config["intermediate_size"], hidden, inner, [hidden]),
    ]


def ranks_of(monkeypatch: pytest.MonkeyPatch, t: int) -> None:
    """vLLM's functions ask their package for the number of ranks."""
    module = ModuleType("vllm.distributed")
    module.get_tensor_model_parallel_world_size = lambda: t  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.distributed", module)


@pytest.mark.parametrize("backend", ["vllm", "sglang"])
def test_blocks_of_dense_layers(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "vllm":
        file = package("vllm") / "model_executor/layers/quantization/utils/fp8_utils.py"
        name = "validate_fp8_block_shape"
    else:
        file = package("sglang") / "srt/layers/quantization/fp8_utils.py"
        name = "validate_fp8_block_shape"
    check = parts(file, name, torch=None, logger=None)[name]
    told = 0
    for seed in CASES:
        config = {**model(seed), "quantization_config": {"quant_method": "fp8"}}
        config["quantization_config"]["weight_block_size"] = BLOCK
        t = random.Random(seed).choice([2, 4, 8, 16])
        ranks_of(monkeypatch, t)
        layer = SimpleNamespace(tp_size=t, tp_group=SimpleNamespace(world_size=t))
        refused = any(
            raises(check, layer, full, out, part, outs, BLOCK)
            for full, out, part, outs in linears(config, t)
        )
        assert ("AC415" in codes(config, f"{backend}:t{t}")) == refused, config
        told += refused
    assert 0 < told < len(CASES)


def test_blocks_of_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    file = package("vllm") / "model_executor/layers/quantization/utils/fp8_utils.py"
    check = parts(file, "validate_fp8_block_shape_moe")["validate_fp8_block_shape_moe"]
    for inner in range(512, 4096, 64):
        for t in (2, 4, 8):
            ranks_of(monkeypatch, t)
            config = {**model(1), "model_type": "qwen3_moe", "num_experts": 64, "head_dim": 128}
            config |= {"moe_intermediate_size": inner, "num_attention_heads": 64}
            config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": BLOCK}
            refused = raises(check, inner // t, BLOCK)
            assert ("AC415" in codes(config, f"vllm:t{t}")) == refused, (inner, t)


def test_vocabularies() -> None:
    """vLLM divides what it has padded; SGLang pads until t divides."""
    names = {}
    for name in ("vllm", "sglang"):
        folder = package(name) / ("model_executor" if name == "vllm" else "srt") / "layers"
        file = folder / "vocab_parallel_embedding.py"
        names[name] = parts(file, "DEFAULT_VOCAB_PADDING_SIZE", "pad_vocab_size")["pad_vocab_size"]
    for seed in CASES:
        config = model(seed)
        t = random.Random(seed).choice([2, 3, 6, 7, 12, 96])
        padded = names["vllm"](config["vocab_size"], 64)
        assert ("AC414" in codes(config, f"vllm:t{t}")) == (padded % t != 0)
        wider = 64 * t if names["sglang"](config["vocab_size"], 64) % t else 64
        assert names["sglang"](config["vocab_size"], wider) % t == 0
        assert "AC414" not in codes(config, f"sglang:t{t}")


def test_facts_are_those_of_vllm() -> None:
    """vLLM's own readers of configs, over the classes of transformers."""
    pytest.importorskip("transformers")
    from model.test_transformers import CLASSES, LANGUAGE, NOT_READ, OF_THEIR_OWN

    folder = package("vllm")
    aliases = parts(folder / "transformers_utils/config.py", "CONFIG_FIELD_ALIASES")
    file = folder / "transformers_utils/model_arch_config_convertor.py"
    made = parts(
        file,
        "ModelArchConfigConvertorBase",
        "FalconModelArchConfigConvertor",
        "DbrxModelArchConfigConvertor",
        "LongCatFlashModelArchConfigConvertor",
        final=lambda method: method,
        CONFIG_FIELD_ALIASES=aliases["CONFIG_FIELD_ALIASES"],
        getattr_iter=parts(folder / "config/utils.py", "getattr_iter")["getattr_iter"],
    )
    own = {"falcon": "Falcon", "dbrx": "Dbrx", "longcat_flash": "LongCatFlash"}
    compared = 0
    for kind in LANGUAGE:
        config = CLASSES[kind]()
        text = config.get_text_config()
        name = f"{own[kind]}ModelArchConfigConvertor" if kind in own else None
        read = made[name or "ModelArchConfigConvertorBase"](config, text)
        try:
            heads, kv_heads = read.get_total_num_attention_heads(), read.get_total_num_kv_heads()
            layers, experts = read.get_num_hidden_layers(), read.get_num_experts()
        except Exception:  # layers that differ, which vLLM reads one by one
            continue
        if kind in OF_THEIR_OWN | NOT_READ or not isinstance(heads, int) or not heads:
            continue
        facts = read_model(config.to_dict())
        assert (facts.heads, facts.layers) == (heads, layers), kind
        assert facts.kv_heads == (kv_heads or heads), kind
        off = (
            getattr(text, "enable_moe_block", True) is False or getattr(text, "is_moe", 1) is False
        )
        if isinstance(experts, int) and experts and not off:  # vLLM does not see those of DBRX
            assert facts.experts == (experts if experts > 1 else 0), kind
        compared += 1
    assert compared > 150
