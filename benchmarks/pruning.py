"""A sweep of 10,000 combinations, pruned before anything is launched."""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext, RunMode
from measure import Effort, Job, Row, compare

from areal_conf.sweeps.axes import read_axes
from areal_conf.sweeps.combinations import LayoutSweep

TITLE = "Pruning a sweep of 10,000 combinations"
SIZES = (1, 2, 4, 8, 16)
SERVERS = [f"sglang:d{d}t{t}p{p}" for d in SIZES for t in SIZES for p in SIZES[:4]]
TRAINERS = [f"fsdp:d{d}t{t}c{c}" for d in SIZES for t in SIZES for c in SIZES[:4]]
SWEEP = [f"rollout.backend={','.join(SERVERS)}", f"actor.backend={','.join(TRAINERS)}"]
COMBINATIONS = len(SERVERS) * len(TRAINERS)
KEPT = 400
FEW = 20
CONFIG = """
defaults:
  - areal/experiment: grpo
  - _self_
cluster: {n_nodes: 2, n_gpus_per_node: 8}
scheduler: {type: null}
actor: {backend: "fsdp:d8"}
rollout: {backend: "sglang:d4t2"}
"""


@contextmanager
def sweep() -> Iterator[tuple[Any, Any]]:
    """Hydra's config loader, and the config of the sweep."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "config.yaml").write_text(CONFIG, encoding="utf-8")
        with initialize_config_dir(directory, version_base="1.3"):
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            loader: Any = hydra.config_loader
            yield loader, loader.load_configuration("config", [], RunMode.MULTIRUN)


def rows(effort: Effort) -> Iterator[Row]:
    """All combinations here; of the peer a few, since each takes it a tenth of a second."""
    with sweep() as (loader, master):
        yield compare(
            f"{COMBINATIONS:,} combinations, of which {KEPT} can run",
            partial(prune, loader, master),
            f"hydra-filter-sweeper, {FEW} of them times {COMBINATIONS // FEW}",
            partial(filtered, loader, master),
            effort,
            whole=(1, COMBINATIONS / FEW),
            most=3,
        )


def prune(loader: Any, master: Any) -> None:
    """Find out which combinations can run."""
    found = LayoutSweep(read_axes(SWEEP, loader), partial(loader.load_sweep_config, master))
    assert len(found.jobs()) == KEPT
    assert found.report.total == COMBINATIONS


def filtered(loader: Any, master: Any) -> Job:
    """A few combinations given to hydra-filter-sweeper, with a filter that plans each of them.

    It composes every combination before it filters it.
    """
    from hydra_filter_sweeper import AbstractFilter
    from hydra_plugins.filter import FilterSweeper

    from areal_conf.planning.checks import check_only

    class Plans(AbstractFilter):  # type: ignore[misc]
        def filter(self, **kwargs: Any) -> bool:
            return any(severity == "error" for severity, _ in check_only(self.config))

    sweeper = FilterSweeper(None, filters=["plans"])
    sweeper._instantiate = lambda key, **given: Plans(**given)
    sweeper.config = master
    sweeper.hydra_context = HydraContext(config_loader=loader, callbacks=None)
    pairs = itertools.islice(itertools.product(SERVERS, TRAINERS), FEW)
    batch = [[f"rollout.backend={a}", f"actor.backend={b}"] for a, b in pairs]
    logging.disable(logging.INFO)
    return partial(sweeper._filter_overrides_list, [batch])


def here() -> None:
    """For the memory: all combinations pruned."""
    with sweep() as (loader, master):
        prune(loader, master)


def peer() -> None:
    """A few combinations given to hydra-filter-sweeper."""
    with sweep() as (loader, master):
        filtered(loader, master)()
