"""The plan of an experiment: engines resolved, GPUs placed, rules asked, the result.

Knows engines, clusters and AReaL's rules. Must not print, launch or read files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names

if TYPE_CHECKING:
    from areal_conf.planning.checks import check_only
    from areal_conf.planning.result import EnginePlan, Plan, plan

_HOMES = {
    "EnginePlan": "result",
    "Plan": "result",
    "check_only": "checks",
    "plan": "result",
}

__all__ = ["EnginePlan", "Plan", "check_only", "plan"]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
