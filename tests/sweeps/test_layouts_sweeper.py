"""The sweeper as a Hydra plugin: Hydra's own suites, and sweeps of an experiment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)
from omegaconf import OmegaConf

from areal_conf.sweeps.run import SweepRun
from hydra_plugins.areal_conf.areal_layouts_sweeper import ArealLayoutsSweeper

SWEEPER = "hydra/sweeper=areal_layouts"

# Hydra's suites run apps that say nothing of their version_base.
pytestmark = pytest.mark.filterwarnings("ignore:Future Hydra versions:UserWarning")


def test_discovered() -> None:
    found = Plugins.instance().discover(Sweeper)
    assert ArealLayoutsSweeper.__name__ in [sweeper.__name__ for sweeper in found]


def test_params_come_before_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[str] = []
    monkeypatch.setattr(SweepRun, "run", lambda run, arguments: swept.extend(arguments))
    sweeper = ArealLayoutsSweeper(params={"actor.backend": "fsdp:d*@8", "seed": "1,2"})
    context: Any = object()
    sweeper.setup(
        hydra_context=context, task_function=lambda cfg: None, config=OmegaConf.create({})
    )
    sweeper.sweep(["seed=3"])
    assert swept == ["actor.backend=fsdp:d*@8", "seed=1,2", "seed=3"]


REFUSED = {
    "on_invalid=skip": "hydra.sweeper.on_invalid: AC309",
    "model=nowhere.json": "hydra.sweeper.model: AC421",
    "root=5": "hydra.sweeper.root: AC309",
    "params=5": "hydra.sweeper.params: AC309",
    "max_batch_size=x": "hydra.sweeper.max_batch_size: AC309",
    "max_batch_size=-1": "hydra.sweeper.max_batch_size: AC309",
    "on_warning=drop": "hydra.sweeper.on_warning: AC309",
    "order=fast": "hydra.sweeper.order: AC309",
    "order=time": "hydra.sweeper.order: AC708",
    "best=0": "hydra.sweeper.best: AC309",
    "dry=5": "hydra.sweeper.dry: AC309",
    "gpu=Q9000": "hydra.sweeper.gpu: AC710",
}
SEVERAL = """
import hydra, json, sys
from hydra.core.global_hydra import GlobalHydra
app = hydra.main(version_base="1.3")(lambda cfg: print("task"))
for option in json.loads(sys.argv[1]):
    layouts = "+rollout.backend=sglang:d1,sglang:d2"
    sys.argv[1:] = ["-m", "hydra/sweeper=areal_layouts", f"hydra.sweeper.{option}", layouts]
    status = 0
    try:
        app()
    except SystemExit as end:
        status = end.code
    GlobalHydra.instance().clear()
    print("\f", status, sep="", end="\f", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int]]:
    """What an app prints for each of these settings, and its exit status; no task runs."""
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps([*REFUSED])],
        cwd=tmp_path_factory.mktemp("refused"),
        capture_output=True,
        text=True,
    )
    assert "task" not in done.stdout
    printed = done.stderr.split("\f")
    return {option: (printed[2 * i], int(printed[2 * i + 1])) for i, option in enumerate(REFUSED)}


@pytest.mark.parametrize("option", REFUSED)
def test_settings_that_mean_nothing_are_refused(
    option: str, refusals: dict[str, tuple[str, int]]
) -> None:
    printed, status = refusals[option]
    assert status == 1
    assert REFUSED[option] in printed
    assert "Traceback" not in printed


def test_a_sweep_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    app = "import hydra; hydra.main(version_base='1.3')(lambda cfg: print('task'))()"
    words = ["-m", "hydra/sweeper=areal_layouts", "hydra.sweep.dir=file", "+a=1,2"]
    done = subprocess.run(
        [sys.executable, "-c", app, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "hydra.sweep.dir: AC309: the sweep cannot be written there: File exists" in done.stderr
    assert "Traceback" not in done.stderr
    assert "task" not in done.stdout


@pytest.mark.parametrize(("launcher_name", "overrides"), [("basic", [SWEEPER])])
class TestLauncher(LauncherTestSuite):
    """Hydra's suite for launchers, run with this sweeper."""


@pytest.mark.parametrize(
    ("launcher_name", "overrides"), [("basic", [SWEEPER, "hydra.sweeper.max_batch_size=2"])]
)
class TestBatches(BatchedSweeperTestSuite):
    """Hydra's suite for sweepers that launch in batches."""


@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"), [({}, ["-m", SWEEPER, "hydra/launcher=basic"])]
)
class TestIntegration(IntegrationTestSuite):
    """Hydra's suite of apps in processes of their own."""
