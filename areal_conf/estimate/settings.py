"""What an estimate needs to know beside model and layout, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Recompute = Literal["none", "selective", "full", "op"]
"""What is computed again in the backward pass. ``selective``: attention scores alone (Megatron's
core_attn). ``op``: all but the outputs of attention and every second matrix product (torchtitan's
and Archon's selective/op)."""

Shard = Literal["nothing", "optimizer", "all"]
"""What is dealt over the data ranks (d * c): ZeRO's stages 0, 1 and 3."""

Kernels = Literal["fused", "eager"]
"""Which tensors a layer keeps: Transformer Engine's, or those of Hugging Face's eager layers."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of one training engine. Sizes are bytes; counts of tokens are per GPU.

    Attributes:
        tokens: tokens of one micro-batch, before it is divided over c; None: not known.
        micro_batches: micro-batches of one step. Gradients of earlier ones stay.
        chunks: pipeline chunks of one rank (virtual pipeline stages).
        recompute: activation checkpointing.
        sequence_parallel: whether norms and residuals are split over t.
        shard: what is dealt over the data ranks.
        parameter_bytes, gradient_bytes, optimizer_bytes: bytes a parameter that stay.
        compute_bytes: bytes a parameter as it is gathered for computing.
        reduce_bytes: bytes a parameter of the gradients that are being reduced.
        kernels: which tensors a layer keeps.
        loss_bytes: peak bytes per token and vocabulary entry of logits and loss.
        loss_kept_bytes: those that stay until the backward pass ends.
        head: whether there is a language-model head (a critic has none).
        vocabulary_multiple: the vocabulary is padded to a multiple of this; times t for Megatron.
        padded_by_t: whether that multiple is times t.
        balanced_stages: whether pipeline stages are balanced by parameters, as AReaL does, or by
            the number of layers.
        experts_split: whether experts are split by e * etp (FSDP of AReaL: only over d * c).
        root_gathered: whether head and last layer stay gathered between the passes.
        reshard: whether gathered layers are freed after the forward pass.
        unsharded_gradients: whether gradients pile up unsharded, in `reduce_bytes`.
        gather_saved: whether inputs that t gathers are kept gathered (torch's tensor parallelism).
        dropout: whether dropout keeps masks.
        attention_scores: whether attention keeps its scores; needs `sequence_length`.
        sequence_length: tokens of one sequence; only for attention scores.
        compiled: whether torch.compile drops what the backward pass does not need.
        fp8: whether matrix products keep their inputs in 8 bits.
        stage: the pipeline stage to look at: a number, ``last``, or None for the fullest.
        load_bytes: bytes a parameter of the whole model that every GPU holds while it loads.
        offload_parameters, offload_optimizer: kept in the memory of the host.
        mtp: whether multi-token-prediction modules are trained.
        forward_only: whether nothing is trained (a reference model): one layer at a time is kept.
        other_activations: whether something is on that no formula covers and that changes the
            activations: only the states can then be too much.
        assumptions: what the settings rest on, in words.
        unknown: what is not known about them, in words.
    """

    tokens: int | None = None
    micro_batches: int = 1
    chunks: int = 1
    recompute: Recompute = "none"
    sequence_parallel: bool = True
    shard: Shard = "optimizer"
    parameter_bytes: float = 2
    gradient_bytes: float = 4
    optimizer_bytes: float = 12
    compute_bytes: float = 2
    reduce_bytes: float = 4
    kernels: Kernels = "fused"
    loss_bytes: float = 6
    loss_kept_bytes: float = 0
    head: bool = True
    vocabulary_multiple: int = 128
    padded_by_t: bool = True
    balanced_stages: bool = False
    experts_split: bool = True
    root_gathered: bool = False
    reshard: bool = True
    unsharded_gradients: bool = False
    gather_saved: bool = False
    dropout: bool = False
    attention_scores: bool = False
    sequence_length: int | None = None
    compiled: bool = False
    fp8: bool = False
    stage: int | Literal["last"] | None = None
    load_bytes: float = 0
    offload_parameters: bool = False
    offload_optimizer: bool = False
    mtp: bool = False
    forward_only: bool = False
    other_activations: bool = False
    assumptions: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """Settings of one inference server.

    Attributes:
        fraction: share of the card that weights and cache may take (SGLang's mem_fraction_static,
            vLLM's gpu_memory_utilization).
        context_length: longest request in tokens; None: not known.
        weight_bytes: bytes of a weight that is not quantised.
        kv_bytes: bytes of one number in the cache.
        attention_dp: ranks of t that hold attention whole (SGLang's dp_size with DP attention).
        expert_parallel: whether experts are dealt whole instead of split; the same bytes.
        quantised: which weights have `weight_bits`: all linear layers, experts or MLPs alone.
        weight_bits: bits of a quantised weight, scales included.
        unquantised_layers: how many layers are left in full precision.
        expert_padding: how much larger the kernel's padding makes expert weights.
        vocabulary_multiple: the vocabulary is padded to a multiple of this.
        cpu_offload: GiB of weights that are kept in the memory of the host.
        assumptions: what the settings rest on, in words.
        unknown: what is not known about them, in words.
    """

    fraction: float | None = 0.9
    context_length: int | None = None
    weight_bytes: float = 2
    kv_bytes: float = 2
    attention_dp: int = 1
    quantised: Literal["", "linear", "experts", "mlp"] = ""
    weight_bits: float = 16
    unquantised_layers: int = 0
    expert_padding: float = 1.0
    vocabulary_multiple: int = 64
    cpu_offload: float = 0
    assumptions: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
