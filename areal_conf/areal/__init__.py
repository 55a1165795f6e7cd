"""AReaL itself: configs exported for it, its loader, jobs of its SPMD launchers.

Knows AReaL's files, names and processes. Must not decide what a plan says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names

if TYPE_CHECKING:
    from areal_conf.areal.export import exported, to_areal
    from areal_conf.areal.loader import config_and_overrides, load_expr_config

_HOMES = {
    "config_and_overrides": "loader",
    "exported": "export",
    "load_expr_config": "loader",
    "to_areal": "export",
}

__all__ = ["config_and_overrides", "exported", "load_expr_config", "to_areal"]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
