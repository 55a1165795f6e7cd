"""docs/architecture.md: no folder of the package is missing from it."""

from __future__ import annotations

import pkgutil

import pytest
from paths import ROOT

import areal_conf

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
