"""Random experiments: AReaL's own trainer, controllers and schedulers against the plan.

The AReaL that is installed, and the checkout that AREAL_SOURCE names. The answers of main are kept
in data/ and held by tests/planning/test_agreement.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter

import pytest

from .differential import answers, experiments, kept, ours, verdict

COUNT = 120
SEED = 20
LEAST = 0.95  # of so few; the kept 900 are held to 0.97

ENTERS = ["unshare", "--pid", "--fork", "--mount-proc", "true"]


def may_enter() -> bool:
    """Whether a PID namespace can be had here: without one no stub may run."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(ENTERS, check=False, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not may_enter(), reason="needs a PID namespace (unshare, root)")


@pytest.mark.parametrize("version", ["1.0.4", "main"])
def test_verdicts_and_gpus_agree(version: str) -> None:
    source = os.environ.get("AREAL_SOURCE") if version == "main" else None
    if version == "main" and source is None:
        pytest.skip("AREAL_SOURCE names no checkout of AReaL")
    configs = list(experiments(SEED, COUNT))
    found = answers(configs, source)
    differ: Counter[str] = Counter()
    for config, answer in zip(configs, found, strict=True):
        difference = verdict(config, answer, ours(config, version))
        if difference:
            differ[difference] += 1
    assert not any(key.startswith("broken") for key in differ), differ
    assert sum(differ.values()) <= COUNT * (1 - LEAST), differ


def test_the_kept_answers_are_those_of_the_installed_areal() -> None:
    rows = [row for row in kept() if "1.0.4" in row][:60]
    found = answers(row["config"] for row in rows)
    for row, answer in zip(rows, found, strict=True):
        assert answer.keys() == row["1.0.4"].keys(), row["config"]
        assert answer.get("gpus") == row["1.0.4"].get("gpus"), row["config"]
