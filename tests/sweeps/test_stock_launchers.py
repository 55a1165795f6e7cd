"""Sweeps of layouts on launchers of others that need no cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hydra_app import AREAL_MAIN, HYDRA_MAIN, App
from paths import TESTS

SUBMITIT = find_spec("hydra_plugins.hydra_submitit_launcher") is not None
APP = TESTS / "cluster" / "app" / "train.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "module"), [("joblib", "joblib"), ("submitit_local", "submitit")]
)
def test_layouts_run_in_the_order_of_the_sweep(launcher: str, module: str, tmp_path: Path) -> None:
    if find_spec(f"hydra_plugins.hydra_{module}_launcher") is None:
        pytest.skip(f"no launcher: pip install 'areal-conf[{module}]'")
    done = subprocess.run(
        [
            sys.executable, str(APP), "-m", f"hydra/launcher={launcher}",
            "hydra/sweeper=areal_layouts", f"hydra.sweep.dir={tmp_path}",
            "actor.backend=fsdp:d8,fsdp:d2p2,fsdp:d4", "fails=fsdp:d4",
        ],
        env={**os.environ, "PYTHONWARNINGS": "default"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    ran = [json.loads((tmp_path / job / "process0.json").read_text()) for job in "01"]
    assert [job["backend"] for job in ran] == ["fsdp:d8", "fsdp:d4"], done.stderr
    assert done.returncode == 1
    assert "job 1 failed: actor.backend=fsdp:d4" in done.stdout
    rows = json.loads((tmp_path / "layouts.json").read_text())["jobs"]
    assert [row["state"] for row in rows] == ["completed", "failed"]
    assert all(row["seconds"] is not None for row in rows)


@pytest.mark.skipif(not SUBMITIT, reason="no launcher: pip install 'areal-conf[submitit]'")
@pytest.mark.parametrize("code", [HYDRA_MAIN, AREAL_MAIN])
def test_resources_that_cannot_be_read_are_a_short_error(code: str, tmp_path: Path) -> None:
    config = "defaults:\n  - areal/experiment: sft\n  - override hydra/launcher: areal_submitit\n"
    backend = config + "  - _self_\nactor: {backend: 'fsdp:d8'}\n"
    app = App.create(tmp_path / "app", code, config=config, backend=backend)
    app.warnings = "ignore"
    done = app.run("-m", "actor.backend=fsdp:d8,fsdp:d16")
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("actor.backend: AC301: the launcher asks for what the config says befo")
    assert second.startswith("hint: write hydra/sweeper=areal_layouts")
    nodeless = app.run("-m", "--config-name=backend", "cluster.n_gpus_per_node=1,2")
    assert nodeless.stderr.startswith("cluster.n_gpus_per_node: AC357: the launcher asks for")
