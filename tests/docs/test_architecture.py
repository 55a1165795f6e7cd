"""docs/architecture.md: no folder of the package is missing from it."""

from __future__ import annotations

import pkgutil
import re

import pytest
from paths import ROOT

import areal_conf
from areal_conf.errors import CODES

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = [
    module.name.removeprefix("areal_conf.").replace(".", "/")
    for module in pkgutil.walk_packages(areal_conf.__path__, "areal_conf.")
    if module.ispkg
]
MODULES = [
    module.name
    for module in pkgutil.iter_modules(areal_conf.__path__)
    if not module.ispkg and not module.name.startswith("_")
]


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_folder_is_in_the_table(folder: str) -> None:
    assert f"| `{folder}/` |" in PAGE


@pytest.mark.parametrize("module", MODULES)
def test_every_module_beside_the_folders_is_named(module: str) -> None:
    assert f"`{module}`" in PAGE


def test_every_feature_is_where_the_page_says() -> None:
    rows = PAGE.partition("## Find a feature")[2].partition("\n## ")[0].splitlines()[6:]
    places = [place for row in rows for place in re.findall(r"`([\w/.]+)`", row.split("|")[-2])]
    assert len(places) > 30
    for place in places:
        if place != "cli/X.py":
            assert (ROOT / place).exists() or (ROOT / "areal_conf" / place).exists(), place


@pytest.mark.parametrize("code", CODES)
def test_each_code_is_named_where_it_is_reported(code: str) -> None:
    files = [path for path in (ROOT / "areal_conf").rglob("*.py") if path.name != "errors.py"]
    assert any(code in path.read_text(encoding="utf-8") for path in files)
