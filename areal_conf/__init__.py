"""Backend strings, GPU plans and layout sweeps for Hydra apps that train language models with RL.

Everything public is imported from here. Names are loaded when they are first used, so that the
plugin, which Hydra imports at the start of every app, costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names
from areal_conf._version import __version__

if TYPE_CHECKING:
    from areal_conf.app.preflight import PlanRefused
    from areal_conf.app.wrappers import compose, main
    from areal_conf.areal.export import to_areal
    from areal_conf.errors import AllocationError, Diagnostic
    from areal_conf.legacy.allocation_mode import AllocationMode, AllocationType
    from areal_conf.planning.result import EnginePlan, Plan, plan
    from areal_conf.search_space import joint_layouts, layouts
    from areal_conf.spec.allocation import (
        ModelAllocation,
        ParallelStrategy,
        SchedulingStrategy,
        SchedulingStrategyType,
    )

_HOMES = {
    "AllocationError": "errors",
    "AllocationMode": "legacy.allocation_mode",
    "AllocationType": "legacy.allocation_mode",
    "Diagnostic": "errors",
    "EnginePlan": "planning.result",
    "ModelAllocation": "spec.allocation",
    "ParallelStrategy": "spec.allocation",
    "Plan": "planning.result",
    "PlanRefused": "app.preflight",
    "SchedulingStrategy": "spec.allocation",
    "SchedulingStrategyType": "spec.allocation",
    "compose": "app.wrappers",
    "joint_layouts": "search_space",
    "layouts": "search_space",
    "main": "app.wrappers",
    "plan": "planning.result",
    "to_areal": "areal.export",
}

__all__ = [
    "AllocationError",
    "AllocationMode",
    "AllocationType",
    "Diagnostic",
    "EnginePlan",
    "ModelAllocation",
    "ParallelStrategy",
    "Plan",
    "PlanRefused",
    "SchedulingStrategy",
    "SchedulingStrategyType",
    "__version__",
    "compose",
    "joint_layouts",
    "layouts",
    "main",
    "plan",
    "to_areal",
]


if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
