"""The package itself: its public names, whatever is imported first."""

from __future__ import annotations

import subprocess
import sys

import pytest


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
