"""The command line: one module a command, and one for what they share.

Knows words, streams and exit statuses. Must not hold logic that a library user would miss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names

if TYPE_CHECKING:
    from areal_conf.cli.entry import main

_HOMES = {
    "main": "entry",
}

__all__ = ["main"]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
