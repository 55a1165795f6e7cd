"""The package itself: its public names, whatever is imported first."""

from __future__ import annotations

import importlib
import pkgutil
import re

import hydra.utils
import pytest
from paths import ROOT

import areal_conf

PACKAGES = [areal_conf.__name__] + [
    module.name
    for module in pkgutil.walk_packages(areal_conf.__path__, "areal_conf.")
    if module.ispkg
]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_hides_a_module(package: str) -> None:
    module = importlib.import_module(package)
    modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
    assert not modules & set(getattr(module, "__all__", ()))


@pytest.mark.parametrize("name", ["plan", "Plan", "EnginePlan", "layouts", "app.PlanCallback"])
def test_hydra_finds_what_a_config_names(name: str) -> None:
    assert callable(hydra.utils.get_object(f"areal_conf.{name}"))


@pytest.mark.parametrize("name", areal_conf.__all__)
def test_every_public_name_is_there_and_on_the_page_of_the_api(name: str) -> None:
    assert getattr(areal_conf, name) is not None
    assert name in dir(areal_conf)
    page = ROOT / "docs" / "reference" / "python.md"
    documented = re.findall(r"^::: \S+\.(\w+)$", page.read_text(encoding="utf-8"), re.M)
    assert name in [*documented, "__version__"]


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = areal_conf.nothing  # type: ignore[attr-defined]
