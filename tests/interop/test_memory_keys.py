"""The keys that estimates read are fields of AReaL's own dataclasses, with the defaults assumed."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from areal_conf.estimate.areal_keys import SERVER_CONTEXT, SERVING_KEYS, TRAINING_KEYS

AFTER_1_0_4 = {
    "optimizer_dtype",
    "megatron.enable_chunked_logits",
    "megatron.lm_head_loss_chunk_size",
    "megatron.enable_mtp",
}
"""Keys of 2.0 and of the main branch."""

NOT_AREALS = {"sglang.quantization", "vllm.quantization", "vllm.kv_cache_dtype"}
"""Arguments of the servers that AReaL's sections lack: other apps have them."""

HOMES = {
    "": "TrainEngineConfig",
    "optimizer": "OptimizerConfig",
    "mb_spec": "MicroBatchSpec",
    "fsdp": "FSDPEngineConfig",
    "archon": "ArchonEngineConfig",
    "megatron": "MegatronEngineConfig",
    "megatron.ddp": "DistributedDataParallelConfig",
    "archon.fp8_config": "ArchonFP8Config",
    "sglang": "SGLangConfig",
    "vllm": "vLLMConfig",
}
DEFAULTS = {
    "dtype": "bfloat16",
    "gradient_checkpointing": False,
    "mb_spec.max_tokens_per_mb": None,
    "mb_spec.n_mbs": 1,
    "is_critic": False,
    "use_lora": False,
    "optimizer.type": "adam",
    "fsdp.offload_params": False,
    "fsdp.memory_efficient_load": False,
    "fsdp.per_layer_optim_step": False,
    "archon.ac_mode": "selective",
    "archon.selective_ac_option": "op",
    "archon.pp_schedule": "Interleaved1F1B",
    "archon.reshard_after_forward_policy": "default",
    "megatron.ddp.grad_reduce_in_fp32": True,
    "megatron.ddp.use_distributed_optimizer": True,
    "megatron.virtual_pipeline_parallel_size": 1,
    "megatron.use_precision_aware_optimizer": False,
    "megatron.exp_avg_dtype": "float32",
    "megatron.recompute_granularity": "full",
    "megatron.recompute_method": "uniform",
    "megatron.recompute_num_layers": 1,
    "megatron.bridge_type": "mbridge",
    "sglang.mem_fraction_static": 0.9,
    "sglang.context_length": SERVER_CONTEXT,
    "sglang.kv_cache_dtype": "auto",
    "sglang.enable_dp_attention": False,
    "vllm.gpu_memory_utilization": 0.9,
    "vllm.max_model_len": SERVER_CONTEXT,
}


@pytest.fixture(scope="module")
def classes() -> dict[str, dict[str, Any]]:
    """The dataclasses of cli_args.py: fields and defaults, read without importing AReaL."""
    spec = importlib.util.find_spec("areal")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).with_name("api") / "cli_args.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {node.name: fields(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def fields(node: ast.ClassDef) -> dict[str, Any]:
    return {
        line.target.id: default(line.value)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }


def default(value: ast.expr | None) -> Any:
    """The default of a field, bare or in ``field(default=...)``; ... where it is made."""
    if isinstance(value, ast.Call):
        given = [word.value for word in value.keywords if word.arg == "default"]
        value = given[0] if given else None
    try:
        return ast.literal_eval(value) if value is not None else ...
    except ValueError:
        return ...


def found(classes: dict[str, dict[str, Any]], key: str) -> Any:
    home, _, name = key.rpartition(".")
    return classes[HOMES[home]][name]


@pytest.mark.parametrize("key", [key for key in TRAINING_KEYS if key not in AFTER_1_0_4])
def test_keys_of_training_engines(classes: dict[str, dict[str, Any]], key: str) -> None:
    found(classes, key)


@pytest.mark.parametrize(
    "key",
    sorted({f"{name}.{key}" for name, keys in SERVING_KEYS.items() for key in keys} - NOT_AREALS),
)
def test_keys_of_servers(classes: dict[str, dict[str, Any]], key: str) -> None:
    found(classes, key)


@pytest.mark.parametrize("key", DEFAULTS)
def test_defaults(classes: dict[str, dict[str, Any]], key: str) -> None:
    assert found(classes, key) == DEFAULTS[key]
