"""``--cluster`` asks real clusters: the two-node Slurm and Ray of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from .ray_cluster import RayCluster
from .slurm import Lab

COMMAND = [
    sys.executable, "-m", "areal_conf", "suggest", "--model", "Qwen3-8B", "--gpu", "H100",
    "--format", "json",
]  # fmt: skip


def suggested(env: dict[str, str], *words: str, status: int = 0) -> Any:
    done = subprocess.run(
        [*COMMAND, *words], env={**os.environ, **env}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slurm
@pytest.mark.parametrize("cluster", ["slurm", "slurm:gpu", "auto"])
def test_slurm(slurm: Lab, cluster: str) -> None:
    found = suggested(slurm.env, "--cluster", cluster)
    for suggestion in found["suggestions"]:
        assert "cluster.n_nodes=2" in suggestion["overrides"]
        assert "cluster.n_gpus_per_node=8" in suggestion["overrides"]
    assert found["suggestions"]


@pytest.mark.slurm
def test_a_partition_that_slurm_has_not(slurm: Lab) -> None:
    found = suggested(slurm.env, "--cluster", "slurm:nowhere", status=1)
    assert found["errors"][0]["code"] == "AC607"


@pytest.mark.ray
def test_ray(ray_cluster: RayCluster) -> None:
    for cluster in ("ray", f"ray:{ray_cluster.address}"):
        found = suggested(ray_cluster.env, "--cluster", cluster)
        assert "cluster.n_nodes=2" in found["suggestions"][0]["overrides"]


@pytest.mark.ray
def test_a_ray_that_is_not_there(ray_cluster: RayCluster) -> None:
    found = suggested(ray_cluster.env, "--cluster", "ray:127.0.0.1:1", status=1)
    assert found["errors"][0]["code"] == "AC607"
