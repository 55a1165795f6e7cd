"""The package itself: its public names, whatever is imported first."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import areal_conf


@pytest.mark.parametrize(
    "script",
    [
        "import areal_conf.plan, areal_conf as a; print(a.plan({}).total_gpus)",
        "import areal_conf; print(areal_conf.plan({}).total_gpus)",
        "import areal_conf.plan; from areal_conf import plan; print(plan({}).total_gpus)",
        "import importlib; print(importlib.import_module('areal_conf.plan').plan({}).total_gpus)",
    ],
)
def test_a_module_does_not_hide_the_name_it_holds(script: str) -> None:
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout == "0\n"


@pytest.mark.parametrize("name", areal_conf.__all__)
def test_every_public_name_is_there_and_on_the_page_of_the_api(name: str) -> None:
    assert getattr(areal_conf, name) is not None
    assert name in dir(areal_conf)
    page = Path(__file__).parent.parent / "docs" / "reference" / "python.md"
    documented = re.findall(r"^::: \S+\.(\w+)$", page.read_text(encoding="utf-8"), re.M)
    assert name in [*documented, "__version__"]


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = areal_conf.nothing  # type: ignore[attr-defined]
