"""Whatever a config or a model says, an estimate is a figure or a word, and never a traceback."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from areal_conf import ModelAllocation
from areal_conf.config.versions import AFTER_2_0, V1_0_4, V2_0
from areal_conf.estimate import EngineKeys
from areal_conf.estimate.areal_keys import SERVING_KEYS, TRAINING_KEYS
from areal_conf.model import ModelFacts, read_model
from areal_conf.model.quantization import Quantization

SPECS = (
    "fsdp:d8", "fsdp:d2t2c2", "megatron:d4p2t2", "megatron:(attn:d4t2|ffn:t2e4)", "megatron:p16",
    "archon:d4p2", "archon:d2t4", "sglang:d2t4", "vllm:t2p2", "sglang:d1",
)  # fmt: skip
KEYS = sorted({*TRAINING_KEYS, *(key for keys in SERVING_KEYS.values() for key in keys)})
LIKELY = st.sampled_from(
    ["full", "selective", "op", "adam", "adam_bf16", "sgd", "bfloat16", "fp8", "float32", "1F1B",
     "megatron-bridge", "always", "never", "auto", "disabled", True, False, 0, 1, 2, 8, 4096, 0.5]
)  # fmt: skip
VALUES = st.one_of(
    LIKELY,
    st.none(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)
SIZES = st.one_of(st.none(), st.integers(1, 2**20))
FACTS = st.builds(
    ModelFacts,
    heads=st.integers(1, 256),
    kv_heads=st.integers(1, 256),
    layers=st.integers(1, 130),
    experts=st.sampled_from([0, 2, 7, 256]),
    expert_intermediate=SIZES,
    hidden=SIZES,
    max_positions=SIZES,
    tied_embeddings=st.booleans(),
    vision=st.booleans(),
    kv_lora_rank=st.one_of(st.none(), st.integers(1, 1024)),
    vocabulary=SIZES,
    head_dim=st.one_of(st.none(), st.integers(1, 512)),
    intermediate=SIZES,
    gated_mlp=st.booleans(),
    experts_per_token=st.one_of(st.none(), st.integers(1, 16)),
    shared_intermediate=SIZES,
    moe_layers=st.one_of(st.none(), st.integers(0, 200)),
    q_lora_rank=SIZES,
    qk_nope_head_dim=SIZES,
    qk_rope_head_dim=SIZES,
    v_head_dim=SIZES,
    qk_norm=st.booleans(),
    attention_bias=st.booleans(),
    mlp_bias=st.booleans(),
    layer_types=st.sampled_from([(), ("mamba",), ("linear_attention", "full_attention")]),
    mtp_layers=st.one_of(st.none(), st.integers(0, 3)),
    learned_positions=st.booleans(),
    quantization=st.sampled_from([None, Quantization("fp8", 8.0), Quantization("odd", None)]),
)


@settings(max_examples=300, deadline=None)
@given(
    spec=st.sampled_from(SPECS),
    facts=FACTS,
    keys=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
    version=st.sampled_from([V1_0_4, V2_0, AFTER_2_0]),
    gpu=st.one_of(st.none(), st.floats(0.1, 300)),
    trains=st.sampled_from([None, False]),
)
@pytest.mark.slow
def test_a_figure_or_a_word(
    spec: str,
    facts: ModelFacts,
    keys: dict[str, Any],
    version: tuple[int, ...],
    gpu: float | None,
    trains: bool | None,
) -> None:
    memory = EngineKeys(keys.get, version, trains).memory(
        ModelAllocation.from_str(spec), facts, gpu
    )
    assert memory.verdict in ("fits", "may", "no", "unknown")
    if memory.step is None:
        assert memory.unknown or gpu is None
    else:
        low, high = memory.step
        assert 0 <= low <= high
        assert math.isfinite(high)
        assert all(size >= 0 for size in (memory.parts or {}).values())


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
def test_more_ranks_never_need_more(keys: dict[str, Any]) -> None:
    """Twice the data ranks at the same micro-batch hold no more on each GPU."""
    facts = read_model("Qwen3-8B")
    engine = EngineKeys(keys.get, V1_0_4)
    for small, large in (("fsdp:d4", "fsdp:d8"), ("megatron:d2t2", "megatron:d4t2")):
        few, many = (
            engine.memory(ModelAllocation.from_str(spec), facts, 80).step for spec in (small, large)
        )
        assert few is not None
        assert many is not None
        assert many[1] <= few[1] + 1e-6
