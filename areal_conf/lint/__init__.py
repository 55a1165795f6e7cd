"""Check YAML files of others: what is wrong, at its line and column.

Knows text, YAML positions and report formats. Must not change a file or run foreign code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names

if TYPE_CHECKING:
    from areal_conf.lint.linter import files_below, lint_file
    from areal_conf.lint.nodes import FileFinding

_HOMES = {
    "FileFinding": "nodes",
    "files_below": "linter",
    "lint_file": "linter",
}

__all__ = ["FileFinding", "files_below", "lint_file"]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
