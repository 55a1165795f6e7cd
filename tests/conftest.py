"""Settings and fixtures that every test shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from cluster import ray_cluster as ray_lab
from cluster import slurm as slurm_lab
from hypothesis import Phase, settings

from areal_conf.spec import allocation

# Machines that run tests are busy: a deadline would fail tests for what others do meanwhile. In CI
# the examples are the same every time; new ones are looked for elsewhere.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
# Where a test is to fail quickly, nobody reads a small example.
settings.register_profile(
    "mutants",
    deadline=None,
    derandomize=True,
    max_examples=30,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="module", autouse=True)
def _hydra_as_it_was() -> Iterator[None]:
    """What a file of tests says of Hydra's ``version_base`` ends with it."""
    from hydra.version import VersionBase

    before = VersionBase.instance().version_base
    yield
    VersionBase.instance().version_base = before


@pytest.fixture(autouse=True)
def _nothing_parsed() -> None:
    """No test finds in the cache what another one parsed."""
    allocation._CACHE.clear()


@pytest.fixture(scope="session")
def slurm() -> Iterator[slurm_lab.Lab]:
    """A Slurm cluster for the whole session; skips where Slurm is not installed."""
    if reason := slurm_lab.missing():
        pytest.skip(reason)
    lab = slurm_lab.Lab.create()
    yield lab
    lab.stop()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[ray_lab.RayCluster]:
    """A Ray cluster for the whole session; skips where Ray is not installed."""
    if reason := ray_lab.missing():
        pytest.skip(reason)
    cluster = ray_lab.RayCluster.create()
    yield cluster
    cluster.stop()
