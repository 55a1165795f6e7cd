"""Seconds until a sweep of 10,000 combinations is pruned, and memory and time of 1,000 dry jobs.

    python benchmarks/prune.py

Where hydra-filter-sweeper is installed, it gets the first of the same combinations too, with
a filter that plans each of them: it composes every combination before it filters it.
"""

from __future__ import annotations

import gc
import itertools
import logging
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import HydraContext, RunMode

from areal_conf.sweep_launch import SweepRun
from areal_conf.sweeps import LayoutSweep, read_axes

SIZES = (1, 2, 4, 8, 16)
SERVERS = [f"sglang:d{d}t{t}p{p}" for d in SIZES for t in SIZES for p in SIZES[:4]]
TRAINERS = [f"fsdp:d{d}t{t}c{c}" for d in SIZES for t in SIZES for c in SIZES[:4]]
SWEEP = [f"rollout.backend={','.join(SERVERS)}", f"actor.backend={','.join(TRAINERS)}"]
RIVALS = 200

CONFIG = """
defaults:
  - areal/experiment: grpo
  - _self_
cluster: {n_nodes: 2, n_gpus_per_node: 8}
scheduler: {type: null}
actor: {backend: "fsdp:d8", optimizer: {lr: 1.0e-5}}
rollout: {backend: "sglang:d4t2"}
"""


def prune(loader: Any, master: Any, arguments: list[str]) -> LayoutSweep:
    """Find out which combinations can run."""

    def compose(overrides: list[str]) -> Any:
        return loader.load_sweep_config(master, overrides)

    sweep = LayoutSweep(read_axes(arguments, loader), compose)
    sweep.jobs()
    return sweep


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """How long `run` keeps the processor (whatever else the machine does), and what it returns."""
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def rival(loader: Any, master: Any) -> float | None:
    """Seconds a combination with hydra-filter-sweeper; None where it is not installed."""
    try:
        from hydra_filter_sweeper import AbstractFilter
        from hydra_plugins.filter import FilterSweeper
    except ImportError:
        return None
    from areal_conf.checks import check_only

    class Plans(AbstractFilter):  # type: ignore[misc]
        def filter(self, **kwargs: Any) -> bool:
            return any(severity == "error" for severity, _ in check_only(self.config))

    sweeper = FilterSweeper(None, filters=["plans"])
    sweeper._instantiate = lambda key, **given: Plans(**given)
    sweeper.config = master
    sweeper.hydra_context = HydraContext(config_loader=loader, callbacks=None)
    pairs = itertools.islice(itertools.product(SERVERS, TRAINERS), RIVALS)
    batch = [[f"rollout.backend={a}", f"actor.backend={b}"] for a, b in pairs]
    logging.disable(logging.INFO)
    took, _ = seconds(lambda: sweeper._filter_overrides_list([batch]))
    return took / RIVALS


def dry_run(loader: Any, master: Any, jobs: int) -> tuple[float, float]:
    """Seconds and MiB that a sweep of so many jobs takes when nothing is really launched."""

    class Dry(SweepRun):
        def _launcher(self, config: Any, task: Any) -> Any:
            return self

        def launch(self, overrides: list[list[str]], initial_job_idx: int) -> list[Any]:
            return []

        def _report(self, *given: Any) -> None:  # type: ignore[override]
            return

    context = HydraContext(config_loader=loader, callbacks=None)
    run = Dry(master, context, lambda cfg: None, max_batch_size=100)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took, _ = seconds(lambda: run.run([f"actor.optimizer.lr=range(0,{jobs})"]))
    return took, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    """Print what was measured."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.yaml").write_text(CONFIG)
        with initialize_config_dir(directory, version_base="1.3"):
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            loader: Any = hydra.config_loader
            overrides = [f"hydra.sweep.dir={directory}/sweep"]
            master = loader.load_configuration("config", overrides, RunMode.MULTIRUN)
            for jobs in (250, 500, 1000, 2000):
                spent, memory = dry_run(loader, master, jobs)
                print(f"{jobs} dry jobs: {spent:.2f} s, {memory:+.1f} MiB")
            took, sweep = seconds(lambda: prune(loader, master, SWEEP))
            report = sweep.report
            print(f"{report.total} combinations, {report.kept} left: {took:.2f} s")
            each = rival(loader, master)
            if each is not None:
                ratio = each / (took / report.total)
                print(f"hydra-filter-sweeper: {each * 1000:.1f} ms each, {ratio:.0f} times as long")


if __name__ == "__main__":
    main()
