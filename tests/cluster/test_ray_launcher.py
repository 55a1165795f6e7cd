"""hydra/launcher=areal_ray_cluster on a real Ray cluster of two nodes with eight pretended GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .ray_cluster import RayCluster

pytestmark = pytest.mark.ray

Done = subprocess.CompletedProcess[str]
APP = Path(__file__).parent / "app" / "train.py"


def sweep(cluster: RayCluster, directory: Path, *arguments: str) -> Done:
    return subprocess.run(
        [
            sys.executable, str(APP), "-m", "hydra/launcher=areal_ray_cluster",
            f"hydra.sweep.dir={directory}", *arguments,
        ],
        env=cluster.env,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=180,
    )  # fmt: skip


def found(directory: Path, job: int) -> dict[str, Any]:
    return json.loads((directory / str(job) / "process0.json").read_text())  # type: ignore[no-any-return]


def test_each_job_has_the_nodes_and_gpus_of_its_own_plan(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    done = sweep(ray_cluster, tmp_path, "actor.backend=fsdp:d4,fsdp:d8,fsdp:d8t2")
    assert done.returncode == 0, done.stderr
    four, eight, sixteen = (found(tmp_path, job) for job in range(3))
    assert [f["backend"] for f in (four, eight, sixteen)] == ["fsdp:d4", "fsdp:d8", "fsdp:d8t2"]
    assert [len(f["gpus"]) for f in (four, eight, sixteen)] == [4, 8, 8]
    assert [b["GPU"] for b in four["bundles"]] == [4]
    assert [b["GPU"] for b in sixteen["bundles"]] == [8, 8]
    # What a job of two nodes starts itself finds the GPUs of the second node.
    assert sixteen["other_node"] != sixteen["node"]


def test_bad_and_failing_jobs_are_told_apart_and_the_others_run(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    layouts = "actor.backend=fsdp:d2p2,fsdp:d3,fsdp:d2"
    done = sweep(ray_cluster, tmp_path, layouts, "fails=fsdp:d3")
    assert done.returncode == 1
    assert "#0 : actor.backend=fsdp\\:d2p2 fails=fsdp\\:d3 : actor.backend: AC104" in done.stdout
    assert "Traceback" not in done.stderr
    assert found(tmp_path, 2)["backend"] == "fsdp:d2"


def test_stopped_sweep_leaves_nothing_running(ray_cluster: RayCluster, tmp_path: Path) -> None:
    command = [
        sys.executable, str(APP), "-m", "hydra/launcher=areal_ray_cluster",
        f"hydra.sweep.dir={tmp_path}", "actor.backend=fsdp:d8", "sleeps=300",
    ]  # fmt: skip
    app = subprocess.Popen(command, env=ray_cluster.env, cwd=tmp_path, stderr=subprocess.DEVNULL)
    started = tmp_path / "0" / "process0.json"
    wait_until(started.exists)
    app.send_signal(2)  # Ctrl-C
    assert app.wait(30) != 0
    # All GPUs are free again: a job that needs them all runs.
    (tmp_path / "next").mkdir()
    done = sweep(ray_cluster, tmp_path / "next", "actor.backend=fsdp:d8t2")
    assert done.returncode == 0, done.stderr


def wait_until(true: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)
