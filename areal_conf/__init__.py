"""Backend strings, GPU plans and layout sweeps for Hydra apps that train language models with RL.

Everything public is imported from here. Names are loaded when they are first used, so that the
plugin, which Hydra imports at the start of every app, costs next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from areal_conf._version import __version__

if TYPE_CHECKING:
    from areal_conf.allocation import (
        ModelAllocation,
        ParallelStrategy,
        SchedulingStrategy,
        SchedulingStrategyType,
    )
    from areal_conf.app import PlanRefused, compose, main
    from areal_conf.areal import to_areal
    from areal_conf.dialects import AllocationMode, AllocationType
    from areal_conf.errors import AllocationError
    from areal_conf.layouts import joint_layouts, layouts
    from areal_conf.plan import Plan, plan

_HOMES = {
    "AllocationError": "errors",
    "Plan": "plan",
    "PlanRefused": "app",
    "joint_layouts": "layouts",
    "layouts": "layouts",
    "plan": "plan",
    "compose": "app",
    "main": "app",
    "to_areal": "areal",
    "AllocationMode": "dialects",
    "AllocationType": "dialects",
    "ModelAllocation": "allocation",
    "ParallelStrategy": "allocation",
    "SchedulingStrategy": "allocation",
    "SchedulingStrategyType": "allocation",
}

__all__ = [
    "AllocationError",
    "AllocationMode",
    "AllocationType",
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

    def __getattr__(name: str) -> Any:
        if home := _HOMES.get(name):
            value = getattr(importlib.import_module(f"areal_conf.{home}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


class _Package(ModuleType):
    """The package. Importing a module sets it as an attribute here; one that is named like the
    public name it holds (``areal_conf.plan``) must not hide that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _HOMES.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
