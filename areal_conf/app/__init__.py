"""What happens before a job starts: plan, report, refuse; drop-ins for Hydra's own functions.

Knows Hydra apps. Must not know a file format, a sweep or a launcher of AReaL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names

if TYPE_CHECKING:
    from areal_conf.app.callbacks import PlanCallback, ResourcesCallback
    from areal_conf.app.preflight import PlanRefused, prepared
    from areal_conf.app.wrappers import compose, main

_HOMES = {
    "PlanCallback": "callbacks",
    "PlanRefused": "preflight",
    "ResourcesCallback": "callbacks",
    "compose": "wrappers",
    "main": "wrappers",
    "prepared": "preflight",
}

__all__ = ["PlanCallback", "PlanRefused", "ResourcesCallback", "compose", "main", "prepared"]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
