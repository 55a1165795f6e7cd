"""The deprecated ``allocation_mode``: its dialects, what it means, how it is carried over.

Knows old strings and the engines they mean. Must not know files, plans or launchers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names

if TYPE_CHECKING:
    from areal_conf.legacy.allocation_mode import AllocationMode, AllocationType
    from areal_conf.legacy.carry_over import AllocationModeDeprecationWarning, warn_once

_HOMES = {
    "AllocationMode": "allocation_mode",
    "AllocationModeDeprecationWarning": "carry_over",
    "AllocationType": "allocation_mode",
    "warn_once": "carry_over",
}

__all__ = ["AllocationMode", "AllocationModeDeprecationWarning", "AllocationType", "warn_once"]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
