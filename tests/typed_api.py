"""The public names as a type checker sees them: read by mypy (test_typing.py), never run."""

from __future__ import annotations

from collections.abc import Iterator

from omegaconf import DictConfig
from typing_extensions import assert_type

import areal_conf
from areal_conf import (
    AllocationError,
    AllocationMode,
    ModelAllocation,
    ParallelStrategy,
    Plan,
    SchedulingStrategy,
    SchedulingStrategyType,
)

allocation = ModelAllocation.from_str("fsdp:d4t2", name="ref", scheduling_strategy=None)
assert_type(allocation, ModelAllocation)
assert_type(allocation.backend, str)
assert_type(allocation.name, str | None)
assert_type(allocation.parallel, ParallelStrategy)
assert_type(allocation.parallel.dp_size, int)
assert_type(allocation.parallel.expert_data_parallel_size, int)
assert_type(allocation.scheduling_strategy, SchedulingStrategy)
assert_type(allocation.scheduling_strategy.type, SchedulingStrategyType)
assert_type(allocation.world_size, int)
assert_type(allocation.gpus, int)
assert_type(allocation.instances, int | None)
assert_type(str(allocation), str)

ModelAllocation.from_str(8)  # type: ignore[arg-type]
allocation.backend = "megatron"  # type: ignore[misc]
ParallelStrategy(data_parallel_size="4")  # type: ignore[arg-type]
SchedulingStrategy(SchedulingStrategyType.colocation, "actor", fork=False)
areal_conf.nothing()  # type: ignore[attr-defined]


def faults(error: AllocationError) -> Iterator[tuple[str, tuple[int, int], str | None]]:
    assert_type(error.errors, tuple[AllocationError, ...])
    for one in error.errors:
        yield one.code, one.span, one.path


plan = areal_conf.plan({"actor": {"backend": "fsdp:d8"}}, root="", allow=["AC306"])
assert_type(plan, Plan)
assert_type(plan.total_gpus, int)
for engine in plan.engines.values():
    assert_type(engine.devices, list[tuple[int, int] | None])
for layout in areal_conf.layouts("fsdp:d*t*@8"):
    assert_type(layout, ModelAllocation)
assert_type(AllocationMode.from_str("sglang:d4+fsdp:d4"), AllocationMode)


@areal_conf.main(config_path=None, version_base="1.3")
def main(cfg: DictConfig) -> None: ...


assert_type(areal_conf.compose("config", ["actor.backend=fsdp:d8"]), DictConfig)
