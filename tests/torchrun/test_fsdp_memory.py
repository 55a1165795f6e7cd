"""Estimates of FSDP engines beside torch's own tracker on real transformers classes.

No GPU and no memory is needed: tensors are fake, and so is the process group.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from areal_conf import ModelAllocation
from areal_conf.estimate import TrainingSettings, training_memory
from areal_conf.estimate.ranges import GIB
from areal_conf.estimate.training import WORKSPACE
from areal_conf.model import read_model

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
]

SCRIPT = Path(__file__).with_name("fsdp_memory.py")


def config(kind: str, hidden: int, layers: int, inner: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 128,
        "num_key_value_heads": hidden // 512,
        "head_dim": 128,
        "intermediate_size": inner,
        "tie_word_embeddings": False,
        **more,
    }


LARGE_VOCABULARY = config("qwen3", 1024, 6, 3072, vocab_size=151936)
DEEP = config("llama", 2048, 12, 8192, vocab_size=8192)
TIED = config("qwen2", 1536, 8, 8960, vocab_size=151936, tie_word_embeddings=True)

CASES: dict[str, dict[str, Any]] = {
    "logits decide": {
        "config": LARGE_VOCABULARY, "storage": "bfloat16", "checkpointing": True,
        "ranks": 4, "tokens": 4096,
    },
    "activations decide": {
        "config": DEEP, "storage": "bfloat16", "checkpointing": False,
        "ranks": 8, "tokens": 4096,
    },
    "states decide": {
        "config": DEEP, "storage": "float32", "checkpointing": True,
        "ranks": 2, "tokens": 2048,
    },
    "tied, in fp32": {
        "config": TIED, "storage": "float32", "checkpointing": True,
        "ranks": 8, "tokens": 8192,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_peak(name: str) -> None:
    case = CASES[name]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), json.dumps(case)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    tracked = float(done.stdout.split()[-1])
    size = {"bfloat16": 2, "float32": 4}[case["storage"]]
    settings = TrainingSettings(
        tokens=case["tokens"],
        recompute="full" if case["checkpointing"] else "none",
        shard="all",
        parameter_bytes=size,
        gradient_bytes=size,
        optimizer_bytes=2 * size,
        kernels="eager",
        # AReaL's 6.25; fake tensors are not summed in place (torch/csrc/autograd/input_buffer.cpp).
        loss_bytes=8.25,
        loss_kept_bytes=2,
        vocabulary_multiple=1,
        padded_by_t=False,
    )
    allocation = ModelAllocation.from_str(f"fsdp:d{case['ranks']}")
    memory = training_memory(allocation, read_model(case["config"]), settings)
    assert memory.peak - WORKSPACE / GIB == pytest.approx(tracked, rel=0.05)
