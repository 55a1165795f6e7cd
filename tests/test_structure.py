"""The house: folders that a stranger can walk through, and modules read in one sitting."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from paths import ROOT

PACKAGE = ROOT / "areal_conf"
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py")})
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 600
MOST_MODULES = 12
BY_COMMAND = "cli"
"""The folder with one module for each command: `areal-conf X` is cli/X.py."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_folder_has_at_most_a_dozen_modules(folder: Path) -> None:
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__", "_version"}
    if folder.name == BY_COMMAND:
        from areal_conf.cli.commands import COMMANDS

        modules -= {module for module, _ in COMMANDS.values()}
    assert len(modules) <= MOST_MODULES


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f != PACKAGE], ids=name_of)
def test_a_folder_says_what_it_knows_and_what_it_must_not(folder: Path) -> None:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert "Knows " in said
    assert "ust not " in said


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_a_module_is_read_in_one_sitting(module: Path) -> None:
    lines = len(module.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES
