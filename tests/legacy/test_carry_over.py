"""The shim: what an `allocation_mode` does to a config, and the warning."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from areal_conf.errors import CODES
from areal_conf.legacy.allocation_mode import AllocationMode
from areal_conf.legacy.carry_over import (
    AllocationModeDeprecationWarning,
    Carried,
    carry_over,
    warn_once,
)
from areal_conf.planning.result import plan

MODE = "sglang.d4p1t1+d4p1t1"
UNSET: dict[str, str | None] = {"rollout": "", "actor": None, "ref": ""}


def codes(carried: Carried) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in carried.findings]


@pytest.mark.parametrize("mode", [None, "", " \n"])
@pytest.mark.parametrize("spmd", [True, False])
def test_nothing_where_the_mode_is_unset(mode: str | None, spmd: bool) -> None:
    assert carry_over(mode, UNSET, spmd=spmd) == Carried()


def test_unset_backends_are_filled() -> None:
    carried = carry_over(MODE, UNSET, spmd=True)
    assert carried.filled == {"rollout": "sglang:d4p1t1", "actor": "fsdp:d4p1t1"}
    assert codes(carried) == [("warning", "AC512")]
    assert carried.warning is not None
    assert "rollout.backend=sglang:d4p1t1 actor.backend=fsdp:d4p1t1" in carried.warning
    assert carried.says == carried.filled
    error = carried.findings[0]
    assert (error.path, error.text) == ("allocation_mode", MODE)


def test_set_and_the_same_in_meaning_is_a_note() -> None:
    carried = carry_over(MODE, {"rollout": "sglang:d4", "actor": ""}, spmd=True)
    assert carried.filled == {"actor": "fsdp:d4p1t1"}
    assert codes(carried) == [("warning", "AC512"), ("warning", "AC511")]
    error = carried.findings[1]
    assert (error.path, error.text) == ("rollout.backend", "sglang:d4")


def test_set_and_different_is_an_error_that_shows_both() -> None:
    carried = carry_over(MODE, {"rollout": "", "actor": "fsdp:d8"}, spmd=True)
    (_, conflict) = carried.findings
    assert conflict.severity == "error"
    assert conflict.code == "AC510"
    assert conflict.path == "actor.backend"
    assert "fsdp:d4p1t1" in conflict.message
    assert "fsdp:d8" in conflict.message


def test_a_backend_that_cannot_be_read_is_told_elsewhere() -> None:
    assert codes(carry_over("fsdp:d4", {"actor": "fsdp:d4p2"}, spmd=True)) == [("warning", "AC512")]


def test_engine_without_a_section() -> None:
    carried = carry_over("sglang[gen]:d4+fsdp:d4", {"rollout": "", "actor": ""}, spmd=True)
    assert carried.filled == {"actor": "fsdp:d4"}
    assert codes(carried)[1] == ("warning", "AC514")
    error = carried.findings[1]
    assert (error.path, error.text) == ("allocation_mode", "")
    assert "gives gen sglang:d4, " in error.message


def test_old_defaults_are_told() -> None:
    carried = carry_over("d4t2e2p1", {"actor": ""}, spmd=True)
    assert codes(carried)[-1] == ("warning", "AC515")
    assert carried.mode is not None
    assert [carried.findings[-1].message] == list(carried.mode.notes)


def test_who_shares_gpus() -> None:
    backends = dict.fromkeys(("rollout", "actor", "critic"), "")
    mode = "sglang[rollout]:d2+fsdp[actor]:d4|fsdp[critic]:d4"
    carried = carry_over(mode, backends, spmd=True)
    hosts = {engine: carried.host_of(engine) for engine in backends}
    assert hosts == {"rollout": None, "actor": None, "critic": "actor"}
    assert Carried().host_of("actor") is None


def test_the_single_controller_ignores_it_and_the_warning_says_so() -> None:
    carried = carry_over(MODE, {"rollout": "", "actor": "fsdp:d8"}, spmd=False)
    assert carried.filled == {}
    assert carried.says["rollout"] == "sglang:d4p1t1"
    assert carried.mode == AllocationMode.from_str(MODE)
    assert codes(carried) == [("warning", "AC513")]
    assert carried.warning is not None
    assert "ignored" in carried.warning
    assert "rollout.backend=sglang:d4p1t1" in carried.warning


def test_findings_of_a_plan_have_the_paths_of_its_config() -> None:
    teacher = {"engine_type": "train", "train": {"backend": "fsdp:d8"}}
    config = {"rl": {"allocation_mode": "fsdp[teacher]:d4", "teacher": teacher}}
    made = plan(config, root="rl")
    assert [(one.code, one.path) for one in made.errors] == [("AC510", "rl.teacher.train.backend")]
    assert ("AC512", "rl.allocation_mode") in [(one.code, one.path) for one in made.warnings]


def test_a_mode_that_cannot_be_read() -> None:
    refused = carry_over("manual", UNSET, spmd=True, path="rl.allocation_mode")
    assert codes(refused) == [("error", "AC501")]
    assert refused.findings[0].path == "rl.allocation_mode"
    assert refused.warning is None
    ignored = carry_over("manual", UNSET, spmd=False)
    assert codes(ignored) == [("warning", "AC513")]
    assert "(AC501: it cannot be read either)" in ignored.findings[0].hint
    assert ignored.warning is not None
    assert "AC501" in ignored.warning


def test_backends_that_stand_elsewhere() -> None:
    carried = carry_over(
        "sglang:d2+fsdp[teacher]:d2",
        {"rollout": "", "teacher": ""},
        spmd=True,
        paths={"teacher": "teacher.train.backend"},
    )
    assert carried.warning is not None
    assert "teacher.train.backend=fsdp:d2" in carried.warning


@settings(deadline=None)
@given(mode=st.text(), own=st.none() | st.text(), spmd=st.booleans())
def test_nothing_is_raised(mode: str, own: str | None, spmd: bool) -> None:
    for one in carry_over(mode, {"actor": own}, spmd=spmd).findings:
        assert one.severity in ("error", "warning")
        assert one.code in CODES
        assert one.hint
        assert one.path


# -- the warning --------------------------------------------------------------------------------


def test_one_text_is_one_warning() -> None:
    carried = carry_over("fsdp:d5", {"actor": ""}, spmd=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warn_once(carried)
        warn_once(carried)
        warn_once(Carried())
    assert [str(w.message) for w in seen] == [carried.warning]
    assert [w.category for w in seen] == [AllocationModeDeprecationWarning]


def test_the_warning_is_issued_once() -> None:
    carried = carry_over("fsdp:d3", {"actor": ""}, spmd=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            warn_once(carried)
    assert [w.category for w in seen] == [AllocationModeDeprecationWarning]
    assert issubclass(AllocationModeDeprecationWarning, DeprecationWarning)
    assert seen[0].filename == __file__
    warn_once(Carried())


HELPER = """
from areal_conf.legacy.carry_over import carry_over, warn_once

def check(mode):
    warn_once(carry_over(mode, {"rollout": "", "actor": ""}, spmd=True))
"""
APP = """
import hydra
from omegaconf import OmegaConf
import helper

@hydra.main(version_base=None, config_path=".", config_name="app")
def app(cfg):
    helper.check(cfg.allocation_mode)
    helper.check(cfg.allocation_mode)
    print("ran")

app()
"""


def run_app(folder: Path, *args: str, python: tuple[str, ...] = ()) -> str:
    (folder / "helper.py").write_text(HELPER)
    (folder / "app.py").write_text(APP)
    (folder / "app.yaml").write_text("allocation_mode: ''\njob: 0\n")
    here = str(ROOT)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"}
    done = subprocess.run(
        [sys.executable, *python, "app.py", *args, "hydra.output_subdir=null"],
        cwd=folder,
        env={**environment, "PYTHONPATH": here},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_python_shows_it_by_default_once_per_process(tmp_path: Path) -> None:
    shown = run_app(tmp_path, "-m", "job=1,2", f"allocation_mode={MODE}")
    assert shown.count("AllocationModeDeprecationWarning") == 1
    assert "rollout.backend=sglang:d4p1t1 actor.backend=fsdp:d4p1t1" in shown


@pytest.mark.slow
def test_it_is_not_shown_where_the_mode_is_empty(tmp_path: Path) -> None:
    shown = run_app(tmp_path)
    assert "ran" in shown
    assert "Deprecation" not in shown


@pytest.mark.slow
def test_the_users_filters_come_first(tmp_path: Path) -> None:
    mode = f"allocation_mode={MODE}"
    for option in ("ignore", "ignore::DeprecationWarning"):
        shown = run_app(tmp_path, mode, python=("-W", option))
        assert "ran" in shown
        assert "AllocationModeDeprecationWarning" not in shown
    shown = run_app(tmp_path, mode, python=("-W", "error::DeprecationWarning"))
    assert "ran" not in shown
