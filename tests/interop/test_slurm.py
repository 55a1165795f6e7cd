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

from .jobs import (
    HERE,
    NAMES,
    PACKAGE,
    alive,
    answered,
    launch,
    served,
    sleeping_ranks,
    spec,
    started,
    write,
)


@pytest.fixture
def job(slurm: Lab, tmp_path: Path) -> Iterator[Any]:
    """Starts a job of eight ranks on one node of the lab; with servers, on both nodes."""

    def start(behave: str, rollout: str = "", mem: int = 1) -> subprocess.Popen[str]:
        """`mem` GB a rank."""
        own = spec(
            PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            HOME=os.environ.get("HOME", "/"),
            PYTHONPATH=f"{PACKAGE}:{HERE / 'stub'}",
        )
        own |= {"container_type": "none", "srun_additional_args": "--overlap -K"}
        config = write(
            tmp_path,
            behave=behave,
            **(served(rollout, own) if rollout else {}),
            cluster={
                "n_nodes": 2 if rollout else 1,
                "n_gpus_per_node": 8,
                "fileroot": str(tmp_path / "root"),
                "name_resolve": {"type": "nfs", "nfs_record_root": str(tmp_path / "names")},
            },
            actor={
                "backend": "fsdp:d8",
                "path": "x",
                **NAMES,
                "scheduling_spec": [own | {"mem": mem}],
            },
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


def test_slurm_with_servers(job: Any, slurm: Lab, tmp_path: Path) -> None:
    """A node of servers and a node of ranks, each a job of its own; SGLang itself is a stub."""
    process = job("end", "sglang:d2t4")
    out, _ = process.communicate(timeout=590)
    assert process.returncode == 0, out[-3000:]
    assert started(out) == {"stub server 4 0 7", "stub server 4 4 8"}
    assert answered(out) == 2
    assert not slurm.run("squeue", "--noheader").strip()
    assert not alive(str(tmp_path / "job" / "rank.py"))


def test_ranks_that_slurm_refuses(job: Any, slurm: Lab) -> None:
    """AReaL would wait for them for ever, on a node of servers."""
    process = job("end", "sglang:d2t4", mem=1_000_000)
    out, _ = process.communicate(timeout=590)
    assert process.returncode == 1, out[-3000:]
    assert "sbatch refused a job" in out
    assert not slurm.run("squeue", "--noheader").strip()


def test_slurm_stopped_halfway(job: Any, slurm: Lab, tmp_path: Path) -> None:
    process = job("sleep")
    sleeping_ranks(process, tmp_path / "job" / "areal.log", 8)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert not slurm.run("squeue", "--noheader").strip()
    assert not alive(str(tmp_path / "job" / "rank.py"))
