"""The Hydra launchers ``areal_local`` and ``areal_controller`` in a multirun.

Hydra's LauncherTestSuite does not apply: it counts calls of the app's task function in this
process, and these launchers run a script of their own instead. What it holds launchers to (one
JobReturn per job in order, real statuses, a directory for each job) is tested here. The launchers
of AReaL itself are run in ``tests/interop``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.types import HydraContext
from hydra_app import BASE, NEXT
from hypothesis import given
from hypothesis import strategies as st
from launched import experiment
from omegaconf import OmegaConf
from paths import FAKES

from areal_conf.areal.hydra_jobs import JobFailedError, Settings, launch, trial_names

APP = """
import hydra

@hydra.main(version_base=None, config_path=".", config_name="f")
def app(cfg):
    raise AssertionError("the task function of the app is not called")

app()
"""
SCRIPT = """
import os, sys, time
def say(line): # in one write, or lines of two ranks mix
    print(line + "\\n", end="", flush=True)
say(f"rank {os.environ.get('RANK')}")
if "fail" in open(sys.argv[2]).read():
    raise RuntimeError("boom")
if "SLOW" in os.environ:
    say(f"slow {os.getpid()}")
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = experiment(
        tmp_path,
        4,
        trial_name="my-trial",
        scheduler={"type": "local"},
        actor={"backend": "fsdp:d2", "trial_name": "${trial_name}"},
        note="",
    )
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def start(folder: Path, *words: str, kind: str = "local", **env: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(FAKES), *sys.path[1:], os.environ.get("PYTHONPATH", "")])
    launcher = [f"hydra/launcher=areal_{kind}", "hydra.sweep.dir=sweep"]
    return subprocess.Popen(
        [sys.executable, "app.py", "-m", *launcher, *words],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, **env},
        # A shell in the background ignores SIGINT, and what is ignored stays so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


def config_of(folder: Path, number: int) -> Any:
    return OmegaConf.load(folder / "sweep" / str(number) / "areal.yaml")


def test_no_two_jobs_share_a_name() -> None:
    used: set[tuple[str, str]] = set()
    assert trial_names([("e", "t_1"), ("e", "t"), ("e", "t")], 0, used) == ["t_1", "t_1_2", "t_2"]
    assert trial_names([("e", "t"), ("e", "t_1_2")], 3, used) == ["t", "t_1_2_4"]
    assert len(used) == 5


@given(
    batches=st.lists(
        st.lists(
            st.none()
            | st.tuples(st.just("e"), st.sampled_from(["t", "t_0", "t_1", "t_1_2", "a/b"])),
            max_size=6,
        ),
        max_size=3,
    )
)
def test_names_of_every_sweep_are_unique(batches: list[list[tuple[str, str] | None]]) -> None:
    used: set[tuple[str, str]] = set()
    given_names: list[tuple[str, str]] = []
    first = 0
    for pairs in batches:
        for pair, trial in zip(pairs, trial_names(pairs, first, used), strict=True):
            assert (pair is None) == (trial is None)
            if pair is not None and trial is not None:
                given_names.append((pair[0], trial))
        first += len(pairs)
    assert len(given_names) == len(set(given_names))


def test_a_sweep_of_layouts(folder: Path) -> None:
    """Good jobs run, the bad ones (a layout, a script that raises) make the sweep fail."""
    process = start(
        folder,
        "hydra.launcher.script=train.py",
        "actor.backend=fsdp:d2,fsdp:d2p2,fsdp:d1t2",
        "note='',fail",
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert (out.count("rank 0\n"), out.count("rank 1\n")) == (4, 4)
    assert "AC104" in err
    assert NEXT or "Traceback" not in err
    configs = [config_of(folder, number) for number in (0, 1, 4, 5)]
    assert [c.trial_name for c in configs] == [f"my_trial_{n}" for n in (0, 1, 4, 5)]
    assert configs[0].actor.trial_name == "my_trial_0"
    assert not (folder / "sweep" / "2" / "areal.yaml").exists()
    assert "rank 0" in (folder / "sweep" / "0" / "areal.log").read_text()
    assert "boom" in (folder / "sweep" / "1" / "areal.log").read_text()


def test_the_controller_runs_the_script_itself(folder: Path) -> None:
    process = start(folder, "hydra.launcher.script=train.py", "note='',fail", kind="controller")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "the script ended with status 1" in err
    assert out.count("rank None") == 2
    assert config_of(folder, 0).allocation_mode == ""


def test_a_model_is_found_by_jobs_in_directories_of_their_own(folder: Path) -> None:
    (folder / "tiny.json").write_text('{"num_attention_heads": 4, "num_hidden_layers": 2}')
    process = start(
        folder,
        "hydra.launcher.script=train.py",
        "hydra.launcher.model=tiny.json",
        "hydra.job.chdir=true",
        "actor.backend=fsdp:d1t2,fsdp:d2",
    )
    out, err = process.communicate(timeout=120)
    assert "No such file" not in err
    assert out.count("rank 0\n") == 2


def test_a_script_must_be_named(folder: Path) -> None:
    process = start(folder, "note=1,2")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "write hydra.launcher.script=train.py" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_stops_the_sweep(folder: Path, number: signal.Signals) -> None:
    process = start(folder, "hydra.launcher.script=train.py", "note=1,2", SLOW="1")
    log = folder / "sweep" / "0" / "areal.log"
    deadline = time.monotonic() + 60
    while not log.exists() or log.read_text().count("slow") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(number)
    process.communicate(timeout=60)
    killed = number is signal.SIGKILL
    assert process.returncode == (-number if killed else 128 + number)
    assert not (folder / "sweep" / "1").exists()
    for line in log.read_text().splitlines():
        if line.startswith("slow"):
            while killed and Path(f"/proc/{line.split()[1]}").exists():
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert not Path(f"/proc/{line.split()[1]}").exists()


def test_statuses_and_names_of_batches(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKES), *sys.path[1:]]))
    settings = Settings("controller", str(folder / "train.py"))
    with initialize_config_dir(str(folder), **BASE):
        cfg = compose(
            "f",
            overrides=[f"hydra.sweep.dir={folder}/sweep", "hydra.job.name=app"],
            return_hydra_config=True,
        )
        from hydra._internal.callbacks import Callbacks
        from hydra.core.global_hydra import GlobalHydra

        context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())
        used: set[tuple[str, str]] = set()
        batches = [[["note=1"], ["note=fail"]], [["note=2"]]]
        results = launch(settings, context, cfg, batches[0], 0, used)
        results += launch(settings, context, cfg, batches[1], 2, used)
    assert [r.status for r in results] == [
        JobStatus.COMPLETED,
        JobStatus.FAILED,
        JobStatus.COMPLETED,
    ]
    assert results[0].return_value == 0
    assert results[0].working_dir == os.getcwd()
    with pytest.raises(JobFailedError):
        _ = results[1].return_value
    names = [config_of(folder, number).trial_name for number in range(3)]
    assert names == ["my_trial_0", "my_trial_1", "my-trial"]


def test_trial_names_are_changed_only_where_they_clash() -> None:
    used: set[tuple[str, str]] = set()
    pairs = [("e", "a"), ("e", "b/c"), ("e", "b/c"), ("f", "b/c")]
    assert trial_names(pairs, 0, used) == ["a", "b_c_1", "b_c_2", "b/c"]
    assert trial_names([("e", "a"), None], 4, used) == ["a_4", None]


@pytest.mark.parametrize(
    "trials", [["t_1", "t", "t"], ["t", "t", "t_0", "t_1"], ["t", "t", "t_0", "t_0", "t_0_0"]]
)
def test_a_name_that_is_made_up_is_no_other_jobs(trials: list[str]) -> None:
    used: set[tuple[str, str]] = set()
    first = trial_names([("e", trial) for trial in trials], 0, used)
    second = trial_names([("e", trial) for trial in trials], len(trials), used)
    assert len({*first, *second}) == 2 * len(trials)


def test_every_launcher_is_discovered() -> None:
    found = {cls.__name__ for cls in Plugins.instance().discover()}
    assert {f"Areal{k}Launcher" for k in ("Local", "Ray", "Slurm", "Controller")} <= found
