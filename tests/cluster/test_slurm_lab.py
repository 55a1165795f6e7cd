"""The lab itself: a Slurm that is worth testing on, and gone when it is stopped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .slurm import GPUS, NODES, Lab, missing

pytestmark = pytest.mark.slurm


def submit(lab: Lab, script: str, *options: str) -> str:
    return lab.run("sbatch", "--parsable", *options, f"--wrap={script}").strip()


def wait_for(lab: Lab, job: str, *states: str) -> None:
    end = time.monotonic() + 30
    while (state := state_of(lab, job)) not in states:
        assert time.monotonic() < end, f"job {job} is {state}"
        time.sleep(0.1)


def state_of(lab: Lab, job: str) -> str:
    return lab.run("sacct", "-n", "-X", "-P", "-j", job, "-o", "State").partition(" ")[0].strip()


def test_job_has_the_gpus_it_asked_for(slurm: Lab, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = "srun sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"
    job = submit(slurm, script, "--nodes=2", "--gpus-per-node=3", "-n2", f"--output={out}")
    wait_for(slurm, job, "COMPLETED")
    assert sorted(out.read_text().splitlines()) == [f"{node} 0,1,2" for node in NODES]


def test_more_gpus_than_a_node_has_are_refused(slurm: Lab) -> None:
    with pytest.raises(RuntimeError, match="Requested node configuration is not available"):
        submit(slurm, "true", f"--gpus-per-node={GPUS + 1}")


def test_killed_job_is_known_to_have_ended(slurm: Lab) -> None:
    job = submit(slurm, "kill -9 $$", "--gpus-per-node=1", "--output=/dev/null")
    wait_for(slurm, job, "FAILED")


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_nothing_is_left_of_a_stopped_lab(tmp_path: Path) -> None:
    lab = Lab.create()
    started = tmp_path / "started"
    # The job's child has left its session and its environment of submission behind.
    submit(lab, f"setsid sleep 600 & touch {started}; sleep 600", "--export=NONE", "--chdir=/")
    end = time.monotonic() + 30
    while not started.exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert len(list(lab.processes())) > len(NODES) + 4
    lab.stop()
    assert not list(lab.processes())
    assert not lab.directory.exists()
