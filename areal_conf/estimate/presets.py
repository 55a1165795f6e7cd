"""What AReaL's engines keep, by engine and version: data, each row with its source.

Sources without another name: areal-project/AReaL, v1.0.4=37d6c640, v2.0.0=fee938ea, main=cbff54d6.
"""

from __future__ import annotations

from typing import NamedTuple

from areal_conf.config.versions import V2_0, Version


class StateBytes(NamedTuple):
    """Bytes a parameter that stay."""

    parameters: float
    gradients: float
    optimizer: float


class States(NamedTuple):
    """One row: states of an engine with one optimizer.

    Attributes:
        backend: the engine.
        optimizer: AReaL's ``optimizer.type``.
        since: first version that it holds for.
        dtype: the ``optimizer_dtype`` that it holds for; empty: the default.
        states: bytes a parameter.
        source: where that is said.
    """

    backend: str
    optimizer: str
    since: Version
    dtype: str
    states: StateBytes
    source: str


_FSDP_1 = "areal/engine/fsdp_engine.py:1011 (v1.0.4): weights are stored in dtype"
_FSDP_2 = "areal/engine/fsdp_engine.py:1019 (v2.0.0): weights are stored in optimizer_dtype"
_MEGATRON = "Megatron-LM docs/user-guide/features/dist_optimizer.md: 18 bytes, 6 + 12/d sharded"
_ARCHON = "areal/experimental/engine/archon_engine.py:1096 (main)"
_BF16 = "bfloat16"

STATES: tuple[States, ...] = (
    States("fsdp", "adam", (0,), "", StateBytes(2, 2, 4), _FSDP_1),
    States("fsdp", "adam_bf16", (0,), "", StateBytes(2, 2, 6), _FSDP_1),
    States("fsdp", "sgd", (0,), "", StateBytes(2, 2, 0), _FSDP_1),
    States("fsdp", "adam", V2_0, "", StateBytes(4, 4, 8), _FSDP_2),
    States("fsdp", "adam_bf16", V2_0, "", StateBytes(4, 4, 6), _FSDP_2),
    States("fsdp", "sgd", V2_0, "", StateBytes(4, 4, 0), _FSDP_2),
    States("fsdp", "adam", V2_0, _BF16, StateBytes(2, 2, 4), _FSDP_2),
    States("fsdp", "adam_bf16", V2_0, _BF16, StateBytes(2, 2, 6), _FSDP_2),
    States("fsdp", "sgd", V2_0, _BF16, StateBytes(2, 2, 0), _FSDP_2),
    States("megatron", "adam", (0,), "", StateBytes(2, 4, 12), _MEGATRON),
    States("megatron", "adam_bf16", (0,), "", StateBytes(2, 4, 6), _MEGATRON),
    States("megatron", "sgd", (0,), "", StateBytes(2, 4, 4), _MEGATRON),
    States("archon", "adam", (0,), "", StateBytes(2, 2, 4), _ARCHON),
    States("archon", "sgd", (0,), "", StateBytes(2, 2, 0), _ARCHON),
)
"""Rows of one engine and optimizer are sorted by version; the last one that holds counts."""


class LossBytes(NamedTuple):
    """Bytes of logits and loss per token and vocabulary entry of a rank.

    Attributes:
        peak: at the fullest moment.
        kept: until the backward pass ends.
        forward: where nothing is trained.
    """

    peak: float
    kept: float
    forward: float


LOSSES: dict[tuple[str, bool], LossBytes] = {
    ("fsdp", False): LossBytes(6.25, 2, 2.5),
    ("fsdp", True): LossBytes(9.25, 2, 4.5),
    ("archon", False): LossBytes(6.25, 2, 2.5),
    ("archon", True): LossBytes(9.25, 2, 4.5),
    ("megatron", False): LossBytes(12.5, 4, 6.5),
    ("megatron", True): LossBytes(15, 4, 8.5),
}
"""By engine, and whether t is over 1. areal/utils/functional/vocab_parallel.py: logits in bf16
(fp32 in Megatron), slices of 1024 tokens, each slice's gradient added into one of full size;
measured on a CPU with code of the same structure."""

CHUNKED_HEAD = LossBytes(0.4, 0.2, 0.4)
"""With megatron.enable_chunked_logits (main): the head works on slices of the sequence."""


def state_bytes(
    backend: str, optimizer: str, version: Version, optimizer_dtype: str = ""
) -> StateBytes | None:
    """Bytes a parameter that an engine keeps; None for an optimizer that it does not have."""
    of_default: StateBytes | None = None
    of_dtype: StateBytes | None = None
    for row in STATES:
        if (row.backend, row.optimizer) == (backend, optimizer) and row.since <= version:
            if not row.dtype:
                of_default = row.states
            elif row.dtype == optimizer_dtype:
                of_dtype = row.states
    return of_dtype or of_default
