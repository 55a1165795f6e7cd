"""The time of a training step of one job, as the estimates know it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf.estimate.areal_keys import training_settings
from areal_conf.estimate.timing.areal import Workload, training_work
from areal_conf.estimate.timing.speed import speed_of
from areal_conf.estimate.timing.step import step_time

if TYPE_CHECKING:
    from areal_conf.planning.memory import ExperimentMemory
    from areal_conf.planning.state import ResolvedExperiment

_NO_STEP = ("ref", "teacher")
"""Engines that take no training step."""

_WORKLOAD = Workload()


def training_time(facts: ResolvedExperiment, memory: ExperimentMemory) -> float | None:
    """Seconds of one step of all trainers, meaningful beside those of another layout alone.

    None where a trainer's model, or the speed of the card, is not known.
    """
    speed = speed_of(memory.card, facts.per_node or 8)
    total = 0.0
    for name, estimated in memory.engines.items():
        engine = estimated.engine
        if engine.serves or name in _NO_STEP or engine.allocation is None:
            continue
        if estimated.facts is None:
            return None
        backend, sizes = engine.allocation.backend, engine.allocation.parallel.sizes
        settings = training_settings(backend, sizes, estimated.keys.keys, estimated.keys.version)
        work = training_work(backend, sizes, settings, _WORKLOAD)
        found = step_time(sizes, estimated.facts, work, speed)
        if found is None:
            return None
        total += found.total
    return total or None
