"""What type checkers make of the public names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT, TESTS


def test_public_names_are_typed_strictly(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    # In a process of its own: mypy raises the limit of recursion for good.
    command = [
        *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-version=3.10"),
        *(f"--cache-dir={tmp_path}", "--no-error-summary", str(TESTS / "typed_api.py")),
    ]
    env = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
