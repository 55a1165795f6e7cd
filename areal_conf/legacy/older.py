"""What an ``allocation_mode`` meant in AReaL's first generation (realhf).

It had no other training backend than Megatron (realhf/api/cli_args.py, ``ModelTrainEvalConfig``).
"""

from __future__ import annotations

from dataclasses import replace

from areal_conf.errors import AllocationError
from areal_conf.legacy.carry_over import Carried
from areal_conf.spec.allocation import ModelAllocation
from areal_conf.spec.backends import BACKENDS


def of_first_generation(carried: Carried) -> Carried:
    """`carried` where Megatron trained whatever was trained."""
    says = {engine: _on_megatron(spec) for engine, spec in carried.says.items()}
    filled = {engine: says.get(engine, spec) for engine, spec in carried.filled.items()}
    return replace(carried, says=says, filled=filled)


def _on_megatron(spec: str) -> str:
    """The sizes of a training backend on Megatron; `spec` itself where it serves."""
    backend, _, dims = spec.partition(":")
    row = BACKENDS.get(backend.partition("[")[0])
    if row is None or row.role != "training":
        return spec
    try:
        ModelAllocation.from_str(f"megatron:{dims}")
    except AllocationError:
        return spec
    return f"megatron:{dims}"
