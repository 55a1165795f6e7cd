"""From AReaL's own keys to the settings of an estimate.

`keys` is a function from a key of an engine (``mb_spec.max_tokens_per_mb``), or of a server's
section, to its value; None where it is not set: AReaL's default then holds, for the version that is
judged by (areal/api/cli_args.py). Values of the wrong type are not known, and said to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from areal_conf.config.versions import AFTER_2_0, V2_0, Version
from areal_conf.estimate.cards import Gpu
from areal_conf.estimate.presets import CHUNKED_HEAD, LOSSES, state_bytes
from areal_conf.estimate.serving import ServingMemory, serving_memory
from areal_conf.estimate.settings import Recompute, ServingSettings, TrainingSettings
from areal_conf.estimate.training import TrainingMemory, training_memory
from areal_conf.model.facts import ModelFacts
from areal_conf.spec.allocation import ModelAllocation
from areal_conf.spec.backends import Sizes

Keys = Callable[[str], Any]
"""A key -> its value, None where it is not set."""

TRAINING_KEYS = (
    "dtype",
    "optimizer_dtype",
    "grad_reduce_dtype",
    "gradient_checkpointing",
    "optimizer",
    "optimizer.type",
    "mb_spec.max_tokens_per_mb",
    "mb_spec.n_mbs",
    "is_critic",
    "use_lora",
    "enable_tree_training",
    "offload",
    "fsdp.offload_params",
    "fsdp.memory_efficient_load",
    "fsdp.per_layer_optim_step",
    "archon.ac_mode",
    "archon.selective_ac_option",
    "archon.pp_schedule",
    "archon.reshard_after_forward_policy",
    "archon.offload_params",
    "archon.enable_compile",
    "archon.fp8_config.mode",
    "megatron.ddp.grad_reduce_in_fp32",
    "megatron.ddp.use_distributed_optimizer",
    "megatron.virtual_pipeline_parallel_size",
    "megatron.use_precision_aware_optimizer",
    "megatron.exp_avg_dtype",
    "megatron.exp_avg_sq_dtype",
    "megatron.recompute_granularity",
    "megatron.recompute_method",
    "megatron.recompute_num_layers",
    "megatron.bridge_type",
    "megatron.enable_chunked_logits",
    "megatron.lm_head_loss_chunk_size",
    "megatron.enable_mtp",
    "megatron.fp8_config",
)
"""Keys of a training engine that change its memory."""

SERVING_KEYS: dict[str, tuple[str, ...]] = {
    "sglang": (
        "mem_fraction_static",
        "context_length",
        "kv_cache_dtype",
        "enable_dp_attention",
        "dp_size",
        "cpu_offload_gb",
        "quantization",
        "dtype",
    ),
    "vllm": (
        "gpu_memory_utilization",
        "max_model_len",
        "kv_cache_dtype",
        "cpu_offload_gb",
        "quantization",
        "dtype",
    ),
}
"""Keys of the section of a server that change its memory."""

_DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "bf16": 2, "float32": 4, "float": 4}
_MOMENT_BYTES = {"float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2}
_MOMENT_BYTES |= {"uint8": 1, "fp8": 1}

_OTHER_ACTIVATIONS = {
    "enable_tree_training": "activations of tree training",
    "megatron.fp8_config": "weights and activations in 8 bits",
    "archon.fp8_config.mode": "weights and activations in 8 bits",
}

SERVER_CONTEXT = 32768
"""AReaL's default of sglang.context_length and vllm.max_model_len."""


class _Read:
    """Values by type, and what could not be known."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.unknown: list[str] = []
        self.assumptions: list[str] = []

    def number(self, key: str, default: float | None = None) -> float | None:
        value = self.keys(key)
        if value is None:
            return default
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and math.isfinite(value)
            and value > 0
        ):
            return value
        if value != 0:
            self.unknown.append(f"{key} is no number over 0")
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.keys(key)
        if isinstance(value, bool):
            return value
        if value is not None:
            self.unknown.append(f"{key} is neither true nor false")
        return default

    def text(self, key: str, default: str = "") -> str:
        value = self.keys(key)
        if isinstance(value, str) and value:
            return value
        if value is not None and value != "":
            self.unknown.append(f"{key} is no text")
        return default

    def note(self, key: str, what: str) -> bool:
        """Whether something is on that no formula covers, which is then noted."""
        value = self.keys(key)
        if value in (None, False, "", 0, "disabled"):
            return False
        self.unknown.append(f"{key}: {what}")
        return True


def training_settings(
    backend: str, sizes: Sizes, keys: Keys, version: Version, trains: bool | None = None
) -> TrainingSettings:
    """Settings of a training engine.

    Args:
        backend: fsdp, megatron or archon.
        sizes: its layout.
        keys: of the engine's section.
        version: AReaL's.
        trains: whether the engine trains where its ``optimizer`` is not set; None: not known, and
            assumed.
    """
    read = _Read(keys)
    optimizer = _optimizer(read, trains)
    settings = _states(read, backend, version, optimizer)
    settings = replace(
        settings,
        tokens=_tokens(read),
        micro_batches=_micro_batches(read, sizes, bool(optimizer)),
        sequence_parallel=sizes.t > 1,
        gather_saved=backend != "megatron" and sizes.t > 1,
        compute_bytes=_DTYPE_BYTES.get(read.text("dtype", "bfloat16"), 2),
        head=not read.flag("is_critic"),
    )
    settings = _loss(read, settings, backend, sizes, version, bool(optimizer))
    settings = _OF_BACKEND[backend](read, settings, sizes)
    if not optimizer:
        settings = replace(settings, forward_only=True, micro_batches=1)
    if read.flag("use_lora"):
        read.unknown.append("use_lora: adapters, their gradients and states are not counted")
        settings = replace(settings, gradient_bytes=0.0, optimizer_bytes=0.0)
    for key, what in _OTHER_ACTIVATIONS.items():
        if read.note(key, what):
            settings = replace(settings, other_activations=True)
    read.note("offload", "what the engine moves to the host between its steps")
    return replace(
        settings, assumptions=tuple(read.assumptions), unknown=tuple(dict.fromkeys(read.unknown))
    )


def _optimizer(read: _Read, trains: bool | None) -> str:
    """The type of the optimizer; empty where nothing is trained."""
    kind = read.text("optimizer.type")
    if kind or read.keys("optimizer") is not None:
        return kind or "adam"
    if trains is False:
        return ""
    read.assumptions.append("optimizer adam: none is set")
    return "adam"


def _tokens(read: _Read) -> int | None:
    value = read.number("mb_spec.max_tokens_per_mb")
    return int(value) if value else None


def _micro_batches(read: _Read, sizes: Sizes, trains: bool) -> int:
    """At least `n_mbs`, and 2p under a pipeline (AReaL engine/megatron_engine.py:2706, main)."""
    least = int(read.number("mb_spec.n_mbs", 1) or 1)
    if sizes.p > 1:
        return max(least, 2 * sizes.p)
    if trains and least == 1:
        read.assumptions.append("several micro-batches a step: gradients of earlier ones stay")
    return max(least, 2 if trains else 1)


def _states(read: _Read, backend: str, version: Version, optimizer: str) -> TrainingSettings:
    """Bytes a parameter."""
    dtype = read.text("optimizer_dtype") if version >= V2_0 else ""
    found = state_bytes(backend, optimizer or "adam", version, dtype)
    if found is None:
        read.unknown.append(f"optimizer.type {optimizer} of {backend}: counted as adam")
        found = state_bytes(backend, "adam", version, dtype)
    assert found is not None
    settings = TrainingSettings(
        parameter_bytes=found.parameters,
        gradient_bytes=found.gradients if optimizer else 0.0,
        optimizer_bytes=found.optimizer if optimizer else 0.0,
        shard="optimizer" if backend == "megatron" else "all",
        kernels="fused" if backend == "megatron" else "eager",
    )
    if backend == "fsdp" and version >= V2_0 and found.parameters == 4:
        read.assumptions.append("weights are stored in fp32 (AReaL 2.0; bf16 in 1.0.4)")
    return settings


def _loss(
    read: _Read,
    settings: TrainingSettings,
    backend: str,
    sizes: Sizes,
    version: Version,
    trains: bool,
) -> TrainingSettings:
    loss = LOSSES[backend, sizes.t > 1]
    if backend == "megatron" and version >= AFTER_2_0:
        chunked = read.flag("megatron.enable_chunked_logits")
        if chunked or read.number("megatron.lm_head_loss_chunk_size"):
            loss = CHUNKED_HEAD
    if not trains:
        return replace(settings, loss_bytes=loss.forward)
    return replace(settings, loss_bytes=loss.peak, loss_kept_bytes=loss.kept)


def _fsdp(read: _Read, settings: TrainingSettings, sizes: Sizes) -> TrainingSettings:
    recompute: Recompute = "full" if read.flag("gradient_checkpointing") else "none"
    whole = 0.0 if read.flag("fsdp.memory_efficient_load") else settings.parameter_bytes
    return replace(
        settings,
        recompute=recompute,
        vocabulary_multiple=1,
        padded_by_t=False,
        experts_split=False,
        load_bytes=whole if sizes.world > 1 else 0.0,
        offload_parameters=read.flag("fsdp.offload_params"),
        offload_optimizer=read.flag("fsdp.per_layer_optim_step"),
    )


def _archon(read: _Read, settings: TrainingSettings, sizes: Sizes) -> TrainingSettings:
    piped = sizes.p > 1
    policy = read.text("archon.reshard_after_forward_policy", "default")
    reshard = policy == "always" or (policy == "default" and not piped)
    schedule = read.text("archon.pp_schedule", "Interleaved1F1B")
    return replace(
        settings,
        recompute=_archon_recompute(read),
        vocabulary_multiple=1,
        padded_by_t=False,
        chunks=1 if schedule in ("1F1B", "GPipe") or not piped else 2,
        root_gathered=True,
        reshard=reshard,
        unsharded_gradients=piped,
        compiled=read.flag("archon.enable_compile"),
        offload_parameters=read.flag("archon.offload_params"),
    )


def _archon_recompute(read: _Read) -> Recompute:
    if not read.flag("gradient_checkpointing"):
        return "none"
    mode = read.text("archon.ac_mode", "selective")
    if mode in ("full", "none"):
        return "full" if mode == "full" else "none"
    option = read.keys("archon.selective_ac_option")
    if mode != "selective" or option not in (None, "op"):
        read.unknown.append(f"archon.ac_mode {mode}: counted as selective with option op")
    return "op"


def _megatron(read: _Read, settings: TrainingSettings, sizes: Sizes) -> TrainingSettings:
    gradients, optimizer = settings.gradient_bytes, settings.optimizer_bytes
    if gradients and not read.flag("megatron.ddp.grad_reduce_in_fp32", True):
        gradients = 2.0
    if optimizer and read.flag("megatron.use_precision_aware_optimizer"):
        moments = (
            _MOMENT_BYTES.get(read.text(f"megatron.{name}", "float32"), 4)
            for name in ("exp_avg_dtype", "exp_avg_sq_dtype")
        )
        optimizer = 2.0 + sum(moments)
    sharded = read.flag("megatron.ddp.use_distributed_optimizer", True)
    chunks = read.number("megatron.virtual_pipeline_parallel_size", 1)
    return replace(
        settings,
        gradient_bytes=gradients,
        optimizer_bytes=optimizer,
        shard="optimizer" if sharded else "nothing",
        recompute=_megatron_recompute(read),
        balanced_stages=True,
        chunks=int(chunks or 1) if sizes.p > 1 else 1,
        mtp=read.flag("megatron.enable_mtp"),
    )


def _megatron_recompute(read: _Read) -> Recompute:
    bridge = read.text("megatron.bridge_type", "mbridge")
    if bridge == "megatron-bridge":
        read.assumptions.append("megatron-bridge recomputes everything, whatever is set")
        return "full"
    if not read.flag("gradient_checkpointing"):
        return "none"
    granularity = read.text("megatron.recompute_granularity", "full")
    if granularity == "selective":
        return "selective"
    method = read.text("megatron.recompute_method", "uniform")
    layers = read.number("megatron.recompute_num_layers", 1)
    if method != "uniform" or layers != 1:
        read.unknown.append("megatron.recompute_method, recompute_num_layers: counted as 1 layer")
    return "full"


_OF_BACKEND: dict[str, Callable[[_Read, TrainingSettings, Sizes], TrainingSettings]] = {
    "fsdp": _fsdp,
    "archon": _archon,
    "megatron": _megatron,
}


def serving_settings(backend: str, facts: ModelFacts, keys: Keys) -> ServingSettings:
    """Settings of a server: sglang or vllm.

    Args:
        backend: the server.
        facts: of the model, whose weights may be quantised.
        keys: of the server's section.
    """
    read = _Read(keys)
    if backend == "sglang":
        fraction, length = "mem_fraction_static", "context_length"
    else:
        fraction, length = "gpu_memory_utilization", "max_model_len"
    share = read.number(fraction, 0.9)
    if share is not None and share > 1:
        read.unknown.append(f"{fraction} is over 1")
        share = 0.9
    attention_dp = 1
    if backend == "sglang" and read.flag("enable_dp_attention"):
        attention_dp = int(read.number("dp_size", 1) or 1)
    context = read.number(length, SERVER_CONTEXT)
    settings = ServingSettings(
        fraction=share,
        context_length=int(context) if context else None,
        weight_bytes=_DTYPE_BYTES.get(read.text("dtype", "bfloat16"), 2),
        kv_bytes=1 if read.text("kv_cache_dtype", "auto").startswith("fp8") else 2,
        attention_dp=attention_dp,
        cpu_offload=float(read.number("cpu_offload_gb", 0) or 0) / 1.073741824,
    )
    settings = _quantised(read, settings, facts, backend)
    return replace(
        settings, assumptions=tuple(read.assumptions), unknown=tuple(dict.fromkeys(read.unknown))
    )


def _quantised(
    read: _Read, settings: ServingSettings, facts: ModelFacts, backend: str
) -> ServingSettings:
    """Weights that are quantised in the checkpoint, or when they are loaded."""
    asked = read.text("quantization")
    if asked == "fp8" and facts.quantization is None:
        return replace(settings, quantised="linear", weight_bits=8.0)
    found = facts.quantization
    if found is None:
        if asked:
            read.unknown.append(f"quantization {asked}: weights are counted in full")
        return settings
    if found.bits is None:
        read.unknown.append(f"quantisation {found.method}: weights are counted in full")
        return settings
    padding = 1.0
    if found.method == "mxfp4":  # 2880 is padded to 3072 by Triton's kernels, more by Marlin's
        padding = 1.09 if backend == "vllm" else 1.067
    few: Literal["linear", "experts", "mlp"] = "linear"
    if found.experts_only:
        few = "experts"
    elif not found.covers("attention"):
        few = "mlp"
    return replace(
        settings,
        quantised=few,
        weight_bits=found.bits,
        expert_padding=padding,
    )


@dataclass(frozen=True)
class EngineKeys:
    """What an engine of AReaL says about its memory, whatever its layout.

    Attributes:
        keys: of its section, or of the server's.
        version: AReaL's.
        trains: see `training_settings`.
    """

    keys: Keys
    version: Version
    trains: bool | None = None

    def memory(
        self, allocation: ModelAllocation, facts: ModelFacts, gpu: Gpu = None
    ) -> TrainingMemory | ServingMemory:
        """The estimate of one layout."""
        backend = allocation.backend
        if allocation.role == "inference":
            settings = serving_settings(backend, facts, self.keys)
            return serving_memory(allocation, facts, settings, gpu)
        sizes = allocation.parallel.sizes
        training = training_settings(backend, sizes, self.keys, self.version, self.trains)
        return training_memory(allocation, facts, training, gpu)


def nothing_set(key: str) -> None:
    """Keys of a config that sets none: AReaL's defaults."""


def fitting(
    layouts: Iterable[ModelAllocation], facts: ModelFacts, engine: EngineKeys, gpu: Gpu
) -> Iterator[tuple[ModelAllocation, TrainingMemory | ServingMemory]]:
    """Those of `layouts` that may fit a card of `gpu` GiB, each with its estimate.

    Only what surely does not fit is left out.
    """
    for allocation in layouts:
        memory = engine.memory(allocation, facts, gpu)
        if memory.verdict != "no":
            yield allocation, memory
