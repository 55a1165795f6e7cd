"""The sweeper as a Hydra plugin: Hydra's own suites, and sweeps of an experiment."""

from __future__ import annotations

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)

from hydra_plugins.areal_conf.areal_layouts_sweeper import ArealLayoutsSweeper

SWEEPER = "hydra/sweeper=areal_layouts"

# Hydra's suites run apps that say nothing of their version_base.
pytestmark = pytest.mark.filterwarnings("ignore:Future Hydra versions:UserWarning")


def test_discovered() -> None:
    found = Plugins.instance().discover(Sweeper)
    assert ArealLayoutsSweeper.__name__ in [sweeper.__name__ for sweeper in found]


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
