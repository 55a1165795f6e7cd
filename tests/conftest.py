"""Settings and fixtures that every test shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from cluster import ray_cluster as ray_lab
from cluster import slurm as slurm_lab
from hypothesis import Phase, settings
from paths import TESTS

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


SLOW = {
    "app/test_hydra_apps.py",
    "app/test_examples.py",
    "app/test_where_it_runs.py",
    "areal_jobs/test_export_meaning.py",
    "areal_jobs/test_launch.py",
    "areal_jobs/test_launchers.py",
    "cli/test_completion.py",
    "cli/test_init.py",
    "cli/test_pasted_hints.py",
    "docs/test_docs.py",
    "docs/test_error_codes.py",
    "docs/test_guides.py",
    "lint/test_pre_commit.py",
    "planning/test_agreement.py",
    "planning/test_memory_of_examples.py",
    "suggest/test_authors.py",
    "sweeps/test_layouts_sweeper.py",
    "sweeps/test_stock_launchers.py",
    "test_benchmarks.py",
    "test_fuzz.py",
    "test_hostile.py",
    "test_kill.py",
    "test_surroundings.py",
    "test_typing.py",
}
"""Files whose tests start processes, or take more than a second each."""

ONE_LINE = {
    "areal_jobs/test_launch.py",
    "areal_jobs/test_launchers.py",
    "lint/test_json_schema.py",
    "docs/test_docs.py",
    "docs/test_error_codes.py",
    "legacy/test_allocation_mode.py",
    "planning/test_agreement.py",
    "planning/test_memory_of_examples.py",
    "planning/test_placement.py",
    "report/test_svg.py",
    "test_benchmarks.py",
    "test_engine_args.py",
    "test_errors.py",
    "test_files.py",
    "test_fuzz.py",
    "test_hostile.py",
    "test_kill.py",
    "test_layouts.py",
    "test_structure.py",
    "test_surroundings.py",
    "test_typing.py",
}
ONE_LINE_FOLDERS = {"estimate", "model", "spec", "suggest"}
"""Files and folders that say little more on a second Hydra line. CI runs them on both."""


DIFFERS_IN_NEXT = {
    "test_a_large_file": "OmegaConf 2.4.1 limits the nodes of a YAML file",
    "test_keys_that_hydra_takes": "OmegaConf 2.4.1 refuses the keys 1 and '1' together",
    "test_keys_that_hydra_takes_are_not_given_twice": "OmegaConf 2.4.1 refuses 1 beside '1'",
    "test_many_merges_are_no_bomb": "OmegaConf 2.4.1 limits the nodes of a YAML file",
    "test_what_is_deleted_stays_so": "deletions under Hydra 1.4.0rc3 are not settled yet",
}
"""Tests whose answer is another one with OmegaConf 2.4.1 and Hydra 1.4.0rc3, and why."""


def _is_next() -> bool:
    import omegaconf

    return omegaconf.__version__.startswith("2.4.1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their file, so that a stage can leave some out."""
    for item in items:
        if not item.path.is_relative_to(TESTS):
            continue
        name = item.path.relative_to(TESTS).as_posix()
        reason = DIFFERS_IN_NEXT.get(getattr(item, "originalname", item.name))
        if reason and _is_next():
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
        if name in SLOW:
            item.add_marker(pytest.mark.slow)
        if name in ONE_LINE or name.partition("/")[0] in ONE_LINE_FOLDERS:
            item.add_marker(pytest.mark.one_line)


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
