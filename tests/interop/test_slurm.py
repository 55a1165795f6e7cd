"""Real runs through AReaL's slurm launcher, on a Slurm cluster of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.slurm import Lab

from .jobs import NAMES, PACKAGE, alive, launch, sleeping_ranks, spec, write


@pytest.fixture
def job(slurm: Lab, tmp_path: Path) -> Iterator[Any]:
    """Starts a job of eight ranks on one node of the lab."""

    def start(behave: str) -> subprocess.Popen[str]:
        own = spec(
            PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            HOME=os.environ.get("HOME", "/"),
            PYTHONPATH=str(PACKAGE),
        )
        own |= {"container_type": "none", "srun_additional_args": "--overlap -K"}
        config = write(
            tmp_path,
            behave=behave,
            cluster={
                "n_nodes": 1,
                "n_gpus_per_node": 8,
                "fileroot": str(tmp_path / "root"),
                "name_resolve": {"type": "nfs", "nfs_record_root": str(tmp_path / "names")},
            },
            actor={"backend": "fsdp:d8", "path": "x", **NAMES, "scheduling_spec": [own]},
        )
        return launch(tmp_path, "slurm", config, env=slurm.env)

    yield start
    slurm.run("scancel", "--user", os.environ.get("USER", "root"))


@pytest.mark.parametrize("behave", ["end", "raise"])
def test_slurm(job: Any, tmp_path: Path, behave: str) -> None:
    process = job(behave)
    out, _ = process.communicate(timeout=590)
    assert process.returncode == (0 if behave == "end" else 1), out[-3000:]
    assert "RANK 7 SUM 255" in (tmp_path / "job" / "areal.log").read_text()
    if behave == "raise":
        assert "rank 1 failed: RuntimeError: boom" in out
    assert not alive(str(tmp_path / "job" / "rank.py"))


def test_slurm_stopped_halfway(job: Any, slurm: Lab, tmp_path: Path) -> None:
    process = job("sleep")
    sleeping_ranks(process, tmp_path / "job" / "areal.log", 8)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert not slurm.run("squeue", "--noheader").strip()
    assert not alive(str(tmp_path / "job" / "rank.py"))
