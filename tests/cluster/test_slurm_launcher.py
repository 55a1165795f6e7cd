"""hydra/launcher=areal_submitit on a real Slurm of two nodes with eight pretended GPUs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .slurm import Lab

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        find_spec("submitit") is None, reason="no submitit: pip install 'areal-conf[submitit]'"
    ),
]

Done = subprocess.CompletedProcess[str]
APP = Path(__file__).parent / "app" / "train.py"


def sweep(lab: Lab, directory: Path, *arguments: str) -> Done:
    return subprocess.run(
        [
            sys.executable, str(APP), "-m", *arguments, "hydra/launcher=areal_submitit",
            f"hydra.sweep.dir={directory}",
        ],
        env=lab.env,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=180,
    )  # fmt: skip


def found(directory: Path, job: int) -> dict[str, Any]:
    """What the first process of a job saw."""
    return json.loads((directory / str(job) / "process0.json").read_text())  # type: ignore[no-any-return]


def granted(lab: Lab, job_id: str) -> tuple[int, int]:
    """Nodes and GPUs (all nodes together) that Slurm gave a job."""
    shown = lab.run("scontrol", "show", "job", job_id)
    nodes = re.search(r"NumNodes=(\d+)", shown)
    gpus = re.search(r"TRES=\S*gres/gpu=(\d+)", shown)
    assert nodes
    assert gpus
    return int(nodes[1]), int(gpus[1])


def test_jobs_of_one_layout_get_its_nodes_and_gpus(slurm: Lab, tmp_path: Path) -> None:
    layout = "actor.backend=megatron:(attn:d2t4|ffn:d4e2)"  # as typed
    done = sweep(slurm, tmp_path, "hydra/sweeper=basic", layout, "lr=1,2")
    assert done.returncode == 0, done.stderr
    for job in range(2):
        seen = found(tmp_path, job)
        assert seen["gpus"] == list("01234567")
        assert granted(slurm, seen["job_id"]) == (1, 8)


def test_jobs_of_several_layouts_get_each_its_own(slurm: Lab, tmp_path: Path) -> None:
    done = sweep(
        slurm,
        tmp_path,
        "hydra/sweeper=areal_layouts",
        "actor.backend=fsdp:d8,fsdp:d2p2,fsdp:d4,fsdp:d8t2",
        "lr=1,2",
    )
    assert done.returncode == 0, done.stderr
    assert "AC104" in done.stdout  # fsdp:d2p2 was never submitted
    layouts = {"fsdp:d8": (1, 8), "fsdp:d4": (1, 4), "fsdp:d8t2": (2, 16)}
    seen = [found(tmp_path, job) for job in range(2 * len(layouts))]
    for each in seen:
        nodes, gpus = layouts[each["backend"]]
        assert granted(slurm, each["job_id"]) == (nodes, gpus)
        assert int(each["nnodes"]) == nodes
        assert len(each["gpus"]) == gpus // nodes
        assert int(each["ntasks"]) == nodes
    assert sorted(each["backend"] for each in seen) == sorted([*layouts, *layouts])


def test_processes_per_node_are_those_that_the_config_says(slurm: Lab, tmp_path: Path) -> None:
    one_a_gpu = "hydra.launcher.tasks_per_node=${areal.gpus_per_node:}"
    layouts = "actor.backend=fsdp:d2,fsdp:d4"
    done = sweep(slurm, tmp_path, "hydra/sweeper=areal_layouts", layouts, one_a_gpu)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "0").glob("process*.json"))) == 2
    assert len(list((tmp_path / "1").glob("process*.json"))) == 4


def test_job_on_the_nodes_of_another_layout_is_refused(slurm: Lab, tmp_path: Path) -> None:
    # The basic sweeper launches all jobs on what the config says before the sweep: one node.
    options = ("--config-name=train_d8", "hydra/sweeper=basic")
    done = sweep(slurm, tmp_path, *options, "actor.backend=fsdp:d8,fsdp:d8t2")
    assert done.returncode == 1
    assert found(tmp_path, 0)["backend"] == "fsdp:d8"
    assert not (tmp_path / "1" / "process0.json").exists()
    (log,) = (tmp_path / ".submitit").glob("*_1/*_1_0_log.err")
    expected = "AC308: Slurm gave this job 1 node of 8 GPUs, its layout needs 2 nodes of 8 GPUs"
    assert expected in log.read_text()


def test_failing_job_is_told_with_its_layout(slurm: Lab, tmp_path: Path) -> None:
    layouts = "actor.backend=fsdp:d4,fsdp:d2,fsdp:t4"  # the first and the last in one group
    done = sweep(slurm, tmp_path, "hydra/sweeper=areal_layouts", layouts, "fails=fsdp:d2")
    assert done.returncode == 1
    (told,) = [line for line in done.stdout.splitlines() if "failed" in line]
    assert "job 2 failed: actor.backend=fsdp:d2" in told
    assert "this layout fails" in told
    ran = [found(tmp_path, job)["backend"] for job in range(3)]
    assert ran == ["fsdp:d4", "fsdp:t4", "fsdp:d2"]  # as they were numbered: group by group
