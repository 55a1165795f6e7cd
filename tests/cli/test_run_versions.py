"""`areal-conf run` hands the file over as it is: what that AReaL does not read is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
experiment_name: e
trial_name: t
actor: {backend: "fsdp:d8"}
rollout: {backend: "sglang:d8"}
teacher: {backend: "fsdp:d8"}
cluster: {n_nodes: 3, n_gpus_per_node: 8}
scheduler: {type: slurm}
"""


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (["--areal", "1.0.4"], False),
        (["--areal", "1.0.3"], True),
        (["--areal", "1.0.4", "--allow", "AC324"], True),
    ],
)
@pytest.mark.slow
def test_a_flat_teacher(tmp_path: Path, options: list[str], runs: bool) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text("print('it runs')\n")
    command = [sys.executable, "-m", "areal_conf", "run", *options, "--"]
    command += [sys.executable, "train.py", "--config", "config.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ("it runs" in done.stdout) is runs
    assert (done.returncode == 0) is runs
    assert ("AC324" in done.stderr) is ("1.0.4" in options)
