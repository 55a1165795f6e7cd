"""Jobs for AReaL's launchers on a machine without GPUs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1]

NAMES = {"experiment_name": "${experiment_name}", "trial_name": "${trial_name}"}
"""What AReaL's dataclasses want again in most sections."""


def experiment(folder: Path, **changes: Any) -> dict[str, Any]:
    """The smallest config that AReaL's launchers take: SFT on two ranks."""
    places = {**NAMES, "fileroot": "${cluster.fileroot}"}
    base: dict[str, Any] = {
        "experiment_name": "interop",
        "trial_name": "t",
        "allocation_mode": "",
        "behave": "end",
        "cluster": {
            "n_nodes": 1,
            "n_gpus_per_node": 2,
            "fileroot": str(folder / "root"),
            "name_resolve": {"type": "nfs", "nfs_record_root": str(folder / "names")},
        },
        "recover": {"mode": "disabled", **places},
        "saver": places,
        "evaluator": places,
        "stats_logger": places,
        "scheduler": {"type": None},
        "actor": {"backend": "fsdp:d2", "path": "x", **NAMES, "scheduling_spec": [spec()]},
        "train_dataset": {"path": "x", "batch_size": 2, "type": "sft"},
    }
    return base | changes


def spec(**env_vars: str) -> dict[str, Any]:
    """A scheduling_spec of one GPU, one CPU and one GB.

    On a machine without GPUs the name of AReaL's device variable is empty, which the shell refuses
    to assign; as an argument of ``env`` it is taken.
    """
    return {"gpu": 1, "cpu": 1, "mem": 1, "env_vars": env_vars or {"AREAL_CPU_PAD": "1 env"}}


def served(backend: str, own: dict[str, Any] | None = None) -> dict[str, Any]:
    """Sections of an experiment with servers of `backend`, which are stubs."""
    return {
        "rollout": {"backend": backend, "scheduling_spec": [own or spec()]},
        "sglang": {"model_path": "x", "random_seed": 7},
    }


def write(folder: Path, **changes: Any) -> Path:
    file = folder / "f.yaml"
    file.write_text(yaml.safe_dump(experiment(folder, **changes)))
    return file


def launch(
    folder: Path, kind: str, config: Path, *words: str, env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """``areal-conf launch``, started; its job directory is ``folder/job``."""
    command = [sys.executable, "-m", "areal_conf", "launch", "--launcher", kind]
    return subprocess.Popen(
        [*command, "--dir", str(folder / "job"), str(HERE / "train.py"), str(config), *words],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, **(env or {}), "PYTHONPATH": f"{PACKAGE}:{HERE / 'stub'}"},
        preexec_fn=_takes_interrupts,
    )


def started(output: str) -> set[str]:
    """What each stub server said at its start: tensor parallel size, first GPU, random seed."""
    return set(re.findall(r"stub server \d+ \d+ \d+", output))


def answered(output: str) -> int:
    """How many servers answered rank 0."""
    found = re.search(r"RANK 0 .* SERVERS (\d+)", output)
    assert found, output[-3000:]
    return int(found[1])


def _takes_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def sleeping_ranks(process: subprocess.Popen[str], log: Path, count: int) -> list[int]:
    """Wait until `count` ranks sleep; their process ids."""
    deadline = time.monotonic() + 400
    while True:
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        asleep = [line.partition("SLEEPING")[2].split()[0] for line in lines if "SLEEPING" in line]
        if len(set(asleep)) >= count:
            return [int(pid) for pid in set(asleep)]
        assert process.poll() is None, log.read_text()[-3000:] if log.exists() else "no log"
        assert time.monotonic() < deadline, "\n".join(lines[-30:])
        time.sleep(0.5)


def alive(mark: str) -> list[str]:
    """Command lines of processes that name `mark`, but for those of zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if mark in line and entry.name != str(os.getpid()):
                found.append(f"{entry.name} {line}")
    return found
