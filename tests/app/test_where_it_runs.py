"""What surrounds an app: variables of a cluster, warnings, other processes, what Hydra lists."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra.core.plugins import Plugins
from hydra_app import AREAL_MAIN, NEXT, App

from areal_conf.cli.entry import main

PPO = {
    "rollout": {"backend": "sglang:d4"},
    "actor": {"backend": "fsdp:d4"},
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    "scheduler": {"type": "local"},
    "sglang": {"random_seed": 1},
    "experiment_name": "e",
    "trial_name": "t",
    "recover": {"mode": "disabled"},
}
KUBEFLOW = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "pod-0", "PET_NNODES": "2"}
GOOD = ("rollout.backend=sglang:d4", "actor.backend=fsdp:d4")
BAD = ("rollout.backend=sglang:d4", "actor.backend=fsdp:d4p2")


def write(file: Path, data: object) -> Path:
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    return file


# -- ranks ----------------------------------------------------------------------------------------


def test_a_job_of_the_single_controller_is_no_rank(tmp_path: Path) -> None:
    """Kubeflow sets RANK and WORLD_SIZE in every container."""
    app = App.create(tmp_path, AREAL_MAIN)
    assert "task" in app.output(*GOOD, "scheduler.type=ray", **KUBEFLOW)
    done = app.run(*BAD, "scheduler.type=ray", **KUBEFLOW)
    assert done.returncode == 1
    assert "AC104" in done.stderr  # though its RANK is 1


@pytest.mark.parametrize("extra", [{}, {"AREAL_SPMD_MODE": "1"}, {"TORCHELASTIC_RUN_ID": "x"}])
def test_ranks_of_an_spmd_run_are_counted(tmp_path: Path, extra: dict[str, str]) -> None:
    app = App.create(tmp_path, AREAL_MAIN)
    words = [*GOOD, *(["scheduler.type=local"] if extra else [])]
    assert "AC308" in app.run(*words, RANK="0", WORLD_SIZE="2", **extra).stderr
    assert app.run(*words, RANK="1", WORLD_SIZE="2", **extra).stderr == ""


def test_commands_are_no_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "f.yaml", PPO)
    for key, value in KUBEFLOW.items():
        monkeypatch.setenv(key, value)
    assert main(["plan", str(file)]) == 0
    assert main(["export", str(file)]) == 0
    assert main(["export", str(file), "--launcher", "local", "scheduler.type=null"]) == 0
    words = [sys.executable, "-m", "areal_conf", "run", "--", "echo", "ran", "--config", str(file)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:3]) == (0, "ran"), done.stderr
    capfd.readouterr()
    assert main(["export", str(file), "actor.backend=fsdp:d9"]) == 1
    assert "AC306" in capfd.readouterr().err


def test_an_app_started_by_hand_in_an_allocation(tmp_path: Path) -> None:
    """No launcher submitted it, so that no launcher's nodes are its own."""
    app = App.create(tmp_path, AREAL_MAIN)
    (tmp_path / "conf" / "hydra" / "launcher").mkdir(parents=True)
    (tmp_path / "conf" / "hydra" / "launcher" / "mine.yaml").write_text(
        "_target_: hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher\n"
        "nodes: 1\ngpus_per_node: 8\n"
    )
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_PER_NODE": "8"}
    assert "task" in app.output(*GOOD, "hydra/launcher=mine", **slurm)


# -- warnings -------------------------------------------------------------------------------------


def test_the_mode_is_told_once_and_never_with_a_traceback(tmp_path: Path) -> None:
    data = {k: v for k, v in PPO.items() if k not in ("rollout", "actor", "scheduler")}
    data |= {"rollout": {"path": "x"}, "actor": {"path": "x"}, "allocation_mode": "sglang:d4+d4"}
    data |= {"cluster": {"n_nodes": 1, "n_gpus_per_node": 8, "fileroot": str(tmp_path)}}
    file = write(tmp_path / "f.yaml", data)
    both = {**data, "allocation_mode": "sglang:d4+fsdp:d4"}  # as AReaL 1.0.4 reads it
    both |= {"rollout": {"backend": "sglang:d4"}, "actor": {"backend": "fsdp:d4"}}
    run = write(tmp_path / "both.yaml", both)
    (tmp_path / "train.py").touch()
    for words in (
        ["export", str(file), "--launcher", "local"],
        ["launch", "--launcher", "local", "--dry-run", str(tmp_path / "train.py"), str(file)],
        ["run", "--", "true", "areal.infra.launcher.local", "--config", str(run)],
    ):
        for filters in (["-W", "error"], ["-W", "default"]):
            done = subprocess.run(
                [sys.executable, *filters, "-m", "areal_conf", *words],
                capture_output=True,
                text=True,
                cwd=tmp_path,
            )
            assert done.returncode == 0, done.stderr
            assert done.stderr.count("AC512: ") == 1, done.stderr
            assert "Traceback" not in done.stderr


def test_warnings_name_the_users_line(tmp_path: Path) -> None:
    """Hydra counts stack levels up to its caller, which is not this package."""
    code = AREAL_MAIN if NEXT else AREAL_MAIN.replace(', version_base="1.3"', "")
    app = App.create(
        tmp_path,
        AREAL_MAIN,
    )
    (tmp_path / "app.py").write_text(code)
    app.warnings = "default"
    done = app.run(*GOOD)
    assert done.returncode == 0
    told = [line for line in done.stderr.splitlines() if "Warning: " in line]
    (of_base,) = [line for line in told if "version_base" in line or line.endswith("Warning: ")]
    assert re.match(r"(\S*/)?app\.py:4: ", of_base)
    assert not [line for line in told if "/areal_conf/" in line]


# -- other processes ------------------------------------------------------------------------------

CHILD = """
import multiprocessing, sys
from omegaconf import OmegaConf
import areal_conf{module}

def read(cfg):
    print(cfg.tp)

if __name__ == "__main__":
    cfg = OmegaConf.create({{"tp": "${{areal.tp:fsdp:d2t4}}"}})
    process = multiprocessing.get_context("spawn").Process(target=read, args=(cfg,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def test_a_child_of_a_spawn_knows_the_resolvers(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(CHILD.format(module=".resolvers"))
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, env=os.environ
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


# -- what is in sight -----------------------------------------------------------------------------


def test_lists_show_what_can_be_chosen_and_nothing_else(tmp_path: Path) -> None:
    app = App.create(tmp_path, AREAL_MAIN)
    text = app.output("--help")
    assert "areal/layout:" in text
    assert not [line for line in text.splitlines() if line.startswith("areal:")]
    text = app.output("--hydra-help")
    assert "areal_plan" in text
    assert "areal_resources" not in text
    names = {one.__name__ for one in Plugins.instance().discover()}
    assert {"ArealLocalLauncher", "ArealLayoutsSweeper"} <= names
    assert not [name for name in names if name.startswith("_Areal")]


def test_every_group_that_is_offered_composes(tmp_path: Path) -> None:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.object_type import ObjectType
    from hydra_app import BASE

    (tmp_path / "c.yaml").write_text("x: 1\n")
    with initialize_config_dir(str(tmp_path), **BASE):
        loader = GlobalHydra.instance().config_loader()
        assert loader.get_group_options("areal", ObjectType.CONFIG) == []
        for group in ("areal/experiment", "areal/layout"):
            for name in loader.get_group_options(group, ObjectType.CONFIG):
                assert compose("c", overrides=[f"+{group}={name}"])


# -- what Hydra refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "column", "pasted"),
    [
        ("++trial_name=run#1", 16, "'++trial_name=\"run#1\"'"),
        ("++trial_name=训练", 13, "'++trial_name=\"训练\"'"),
        ("++trial_name=a&b", 14, "'++trial_name=\"a&b\"'"),
    ],
)
def test_an_override_that_needs_quotes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    override: str,
    column: int,
    pasted: str,
) -> None:
    import shlex

    file = write(tmp_path / "f.yaml", PPO)
    assert main(["plan", str(file), override]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == f"  {override}"
    assert lines[2].startswith("  " + " " * column + "^")
    assert lines[3] == f"hint: quote the value: {pasted}"
    assert main(["plan", str(file), *shlex.split(pasted)]) == 0
    app = App.create(tmp_path / "app", AREAL_MAIN)
    assert f"Quote the value: {pasted}" in app.run(*GOOD, override).stderr
    assert "task" in app.output(*GOOD, *shlex.split(pasted))


def test_a_value_that_is_refused_is_no_missing_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "cluster.n_nodes=two"]) == 1
    err = capsys.readouterr().err
    assert "'two'" in err
    assert "did you mean" not in err
    assert "'+'" not in err
    app = App.create(tmp_path, AREAL_MAIN)
    done = app.run(*GOOD, "cluster.n_nodes=two")
    assert done.returncode == 1
    assert "Did you mean" not in done.stderr


@pytest.mark.usefixtures("_stored_schema")
def test_groups_behind_a_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("defaults: [closed_schema, areal/experiment: grpo, _self_]\n")
    assert main(["plan", str(file)]) == 1
    assert "put areal/experiment and areal/layout before the schema" in capsys.readouterr().err
    file.write_text("defaults: [areal/experiment: grpo, closed_schema, _self_]\n")
    assert main(["plan", str(file), "rollout.backend=vllm:d2", "actor.backend=fsdp:d2"]) == 0


@pytest.fixture
def _stored_schema() -> object:
    from dataclasses import make_dataclass

    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="closed_schema", node=make_dataclass("Config", [("lr", float, 0.1)]))
    yield
    store.repo.pop("closed_schema.yaml")


NAMES = ["q.yaml", "q.yaml.yaml", "q.yaml.yaml.yaml", "a@b.yaml", "a.yaml", "x.yaml", "x.y.yaml"]


@pytest.mark.parametrize("name", NAMES)
def test_the_file_that_is_named_is_the_one_that_is_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    roomy = {"n_nodes": 4, "n_gpus_per_node": 8}
    for number, one in enumerate(NAMES, 1):
        data = {**PPO, "cluster": roomy, "actor": {"backend": f"fsdp:d{number}"}}
        write(tmp_path / one, data)
    assert main(["plan", str(tmp_path / name), "--format", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["engines"]["actor"]["world_size"] == NAMES.index(name) + 1
    words = ["--config-dir", str(tmp_path), "--config-name", name]
    assert main(["plan", *words, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == made
