"""Real runs: AReaL's local and ray launchers, and the Hydra launcher over the local one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

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

RAY = {"RAY_OVERRIDE_RESOURCES": '{"GPU": 4, "CPU": 8, "memory": 8000000000}'}
"""Ray's own way to pretend that a machine has GPUs."""


def test_local_success(tmp_path: Path) -> None:
    process = launch(tmp_path, "local", write(tmp_path))
    out, _ = process.communicate(timeout=500)
    assert process.returncode == 0, out[-3000:]
    log = (tmp_path / "job" / "areal.log").read_text()
    for rank in (0, 1):
        assert f"RANK {rank} SUM 3 OF fsdp:d2 SERVERS" in log
        assert f"RANK {rank} SUM 3" in out
    assert not alive(str(tmp_path))


def test_local_failure(tmp_path: Path) -> None:
    process = launch(tmp_path, "local", write(tmp_path, behave="raise"))
    out, _ = process.communicate(timeout=500)
    assert process.returncode == 1
    assert "rank 1 failed: RuntimeError: boom" in out
    assert not alive(str(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_local_stopped_halfway(tmp_path: Path, number: signal.Signals) -> None:
    process = launch(tmp_path, "local", write(tmp_path, behave="sleep"))
    ranks = sleeping_ranks(process, tmp_path / "job" / "areal.log", 2)
    process.send_signal(number)
    process.communicate(timeout=120)
    killed = number is signal.SIGKILL
    assert process.returncode == (-number if killed else 128 + number)
    deadline = time.monotonic() + 90
    while killed and alive(str(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
    assert not alive(str(tmp_path))


def test_local_with_servers(tmp_path: Path) -> None:
    """As many servers as the plan says, each with its GPUs; SGLang itself is a stub.

    Without GPUs AReaL starts ``n_gpus_per_node // (t * p)`` servers, hence nodes of two.
    """
    config = write(tmp_path, **served("sglang:d2"))
    process = launch(tmp_path, "local", config, "cluster.n_nodes=2")
    out, _ = process.communicate(timeout=500)
    assert process.returncode == 0, out[-3000:]
    assert started(out) == {"stub server 1 0 7", "stub server 1 1 8"}
    assert answered(out) == 2
    assert not alive(str(tmp_path))


@pytest.mark.parametrize("behave", ["end", "raise"])
def test_ray(tmp_path: Path, behave: str) -> None:
    pytest.importorskip("ray")
    actor = {"backend": "fsdp:d2", "path": "x", **NAMES, "scheduling_spec": [spec(A="1")]}
    process = launch(tmp_path, "ray", write(tmp_path, behave=behave, actor=actor), env=RAY)
    out, _ = process.communicate(timeout=500)
    assert process.returncode == (0 if behave == "end" else 1), out[-3000:]
    assert "RANK 0 SUM 3" in out
    assert "RANK 1 SUM 3" in out
    if behave == "raise":
        assert "rank 1 failed: RuntimeError: boom" in out
    assert not alive(str(tmp_path))


def test_ray_with_servers(tmp_path: Path) -> None:
    """A node of servers and a node of ranks; SGLang itself is a stub."""
    own = spec(PYTHONPATH=f"{PACKAGE}:{HERE / 'stub'}")
    config = write(
        tmp_path,
        **served("sglang:d2", own),
        actor={"backend": "fsdp:d2", "path": "x", **NAMES, "scheduling_spec": [own]},
    )
    process = launch(tmp_path, "ray", config, "cluster.n_nodes=2", env=RAY)
    out, _ = process.communicate(timeout=500)
    assert process.returncode == 0, out[-3000:]
    assert started(out) == {"stub server 1 0 7", "stub server 1 1 8"}
    assert answered(out) == 2
    assert not alive(str(tmp_path))


def test_ray_stopped_halfway(tmp_path: Path) -> None:
    actor = {"backend": "fsdp:d2", "path": "x", **NAMES, "scheduling_spec": [spec(A="1")]}
    process = launch(tmp_path, "ray", write(tmp_path, behave="sleep", actor=actor), env=RAY)
    ranks = sleeping_ranks(process, tmp_path / "job" / "areal.log", 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]


APP = """
import areal_conf

@areal_conf.main(version_base=None, config_path=".", config_name="f")
def app(cfg):
    raise AssertionError

app()
"""


def test_a_sweep_of_three_layouts(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    words = [
        "hydra/launcher=areal_local",
        f"hydra.launcher.script={HERE / 'train.py'}",
        "hydra.sweep.dir=sweep",
        "actor.backend=fsdp:d2,fsdp:t2,megatron:(attn:d2|ffn:e2)",
    ]
    done = subprocess.run(
        [sys.executable, "app.py", "-m", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    names = set()
    for number, backend in enumerate(["fsdp:d2", "fsdp:t2", "megatron:(attn:d2|ffn:e2)"]):
        job = tmp_path / "sweep" / str(number)
        assert f"RANK 1 SUM 3 OF {backend}" in (job / "areal.log").read_text()
        names.add(OmegaConf.load(job / "areal.yaml").trial_name)
    assert names == {"t_0", "t_1", "t_2"}
    assert not alive(str(tmp_path))
