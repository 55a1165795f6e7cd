"""Carry files of others from ``allocation_mode`` to per-engine backends.

Knows YAML, shell and Python text as people wrote it. Must not touch what it does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names

if TYPE_CHECKING:
    from areal_conf.migrate.config import migrate_yaml
    from areal_conf.migrate.files import FileMigration, find_files, migrate_file

_HOMES = {
    "FileMigration": "files",
    "find_files": "files",
    "migrate_file": "files",
    "migrate_yaml": "config",
}

__all__ = ["FileMigration", "find_files", "migrate_file", "migrate_yaml"]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
