"""``layouts.json``: what it holds while a sweep runs, after it, and after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.utils import JobReturn, JobStatus
from hydra_app import App

from areal_conf.sweeps.record import FILE, NOTES, Record, RecordCallback, gather, plain

APP = """
import logging, os, sys, time
from pathlib import Path
import hydra
from hydra.core.hydra_config import HydraConfig

@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def main(cfg):
    out = Path(HydraConfig.get().runtime.output_dir)
    line = "Memory-Usage ppo update: memory allocated (GB): 1.00, memory reserved (GB): 2.00, "
    (out / "areal.log").write_text(line + "device memory used/total (GB): 3.00/79.10\\n")
    if cfg.note == "oom":
        raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")
    if cfg.note == "slow":
        print("slow", flush=True)
        time.sleep(60)
    return {"reward": 0.5, "note": cfg.note}

main()
"""
CONFIG = """
defaults:
  - areal/experiment: ppo
  - override hydra/sweeper: areal_layouts
  - _self_
cluster: {n_nodes: 1, n_gpus_per_node: 8}
rollout: {backend: "sglang:d4"}
actor: {backend: "fsdp:d4", mb_spec: {max_tokens_per_mb: 4096}}
critic: null
ref: {mb_spec: {max_tokens_per_mb: 4096}}
note: ""
hydra: {sweep: {dir: out}}
"""
LAYOUTS = "actor.backend=fsdp:d4,fsdp:d2t2"


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App.create(tmp_path / "app", APP, config=CONFIG)


def record_of(app: App) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((app.directory / "out" / FILE).read_text())
    return found


@pytest.mark.slow
def test_a_sweep_is_recorded(app: App) -> None:
    done = app.run("-m", f"{LAYOUTS},fsdp:d9", "note='',oom")
    assert done.returncode == 1
    found = record_of(app)
    assert found["left_out"] == {"AC306": 2}
    rows = found["jobs"]
    assert [row["state"] for row in rows] == [
        "completed",
        "out_of_memory",
        "completed",
        "out_of_memory",
    ]
    assert [row["job"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["layouts"] == {
        "actor": "fsdp:d4",
        "ref": "fsdp:d4",
        "rollout": "sglang:d4",
    }
    assert rows[0]["return_value"] == {"reward": 0.5, "note": ""}
    assert "CUDA out of memory" in rows[1]["error"]
    assert rows[2]["directory"] == "2"
    assert rows[2]["memory"]["used"] == 3.0
    assert all(row["seconds"] >= 0 for row in rows)
    assert gather(app.directory / "out") == found


@pytest.mark.slow
def test_what_had_ended_is_there_after_a_kill(app: App) -> None:
    process = subprocess.Popen(
        [sys.executable, "app.py", "-m", LAYOUTS, "note='',slow"],
        cwd=app.directory,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:  # the first job has ended when the second says so
        if line == "slow\n":
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    rows = record_of(app)["jobs"]
    assert rows[0]["state"] == "completed"
    assert rows[0]["return_value"] == {"reward": 0.5, "note": ""}
    assert [row["state"] for row in rows[2:]] == ["waiting", "waiting"]
    assert [row["state"] for row in gather(app.directory / "out")["jobs"]] == [
        "completed",
        "stopped",
        "waiting",
        "waiting",
    ]


@pytest.mark.slow
def test_dry_starts_nothing(app: App) -> None:
    (app.directory / "tiny.json").write_text(
        '{"model_type": "llama", "num_attention_heads": 8, "num_hidden_layers": 4, '
        '"hidden_size": 512, "intermediate_size": 1024, "vocab_size": 1000}'
    )
    words = ("hydra.sweeper.dry=true", "hydra.sweeper.model=tiny.json", "hydra.sweeper.gpu=H100")
    out = app.output("-m", LAYOUTS, *words, "hydra.sweeper.order=time", "hydra.sweeper.best=1")
    assert "the best 1 of 2 to run" in out
    (row,) = [line for line in out.splitlines() if line.startswith("  0 ")]
    assert row.split()[1] == "fits", out
    assert "actor.backend=fsdp:d" in row
    assert "of 79" in row or "of 80" in row
    assert not (app.directory / "out").exists()


# -- parts ----------------------------------------------------------------------------------------


def job(number: int, directory: Path) -> Any:
    hydra = SimpleNamespace(
        job=SimpleNamespace(num=number), runtime=SimpleNamespace(output_dir=str(directory))
    )
    return SimpleNamespace(hydra=hydra)


def row() -> dict[str, Any]:
    return {"state": "waiting", "overrides": []}


def test_jobs_of_other_processes_are_taken_over(tmp_path: Path) -> None:
    record = Record(tmp_path, {}, [row(), row()])
    with record.kept():
        record.number(0, 1)
        record.number(1, 0)
        code = (
            "import sys; sys.path.insert(0, {0!r})\n"
            "from test_record import job, RecordCallback, JobReturn, JobStatus, Path\n"
            "c = RecordCallback({1!r}); c.on_job_start(job(1, Path({1!r}) / '1'))\n"
            "c.on_job_end(job(1, Path({1!r}) / '1'), JobReturn(status=JobStatus.COMPLETED, "
            "_return_value=7))"
        ).format(str(Path(__file__).parent), str(tmp_path))
        paths = os.pathsep.join(sys.path)
        subprocess.run(
            [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": paths}
        )
        deadline = time.monotonic() + 30
        while json.loads((tmp_path / FILE).read_text())["jobs"][0]["state"] != "completed":
            assert time.monotonic() < deadline
            time.sleep(0.05)
    found = json.loads((tmp_path / FILE).read_text())["jobs"]
    assert (found[0]["return_value"], found[1]["state"]) == (7, "waiting")


def test_notes_of_an_earlier_sweep_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / NOTES).mkdir()
    (tmp_path / NOTES / "0.json").write_text('{"job": 0, "state": "completed"}')
    record = Record(tmp_path, {}, [row()])
    with record.kept():
        record.number(0, 0)
    assert gather(tmp_path)["jobs"][0]["state"] == "waiting"


def test_launchers_that_run_no_callback_tell_by_what_they_return(tmp_path: Path) -> None:
    record = Record(tmp_path, {}, [row(), row()])
    with record.kept():
        record.end(0, JobReturn(status=JobStatus.COMPLETED, _return_value=3))
        record.end(1, JobReturn(status=JobStatus.FAILED, _return_value=ValueError("x")))
    rows = gather(tmp_path)["jobs"]
    assert (rows[0]["return_value"], rows[1]["error"]) == (3, "ValueError: x")


def test_only_the_first_process_of_a_job_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    RecordCallback(str(tmp_path)).on_job_start(job(0, tmp_path))
    assert not (tmp_path / NOTES).exists()


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    record = Record(tmp_path / "file", {}, [row()])
    with record.kept():
        RecordCallback(str(tmp_path / "file")).on_job_start(job(0, tmp_path))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (float("nan"), "nan"),
        ((1, 2.5), [1, 2.5]),
        ({1: {"a": None}}, {"1": {"a": None}}),
        (SimpleNamespace(item=lambda: 3.5), 3.5),
        (b"x", "b'x'"),
        ("a" * 9000, None),
    ],
)
def test_return_values_become_json(value: Any, kept: Any) -> None:
    found = plain(value)
    assert len(json.dumps(found)) < 2100
    assert kept is None or found == kept
