"""The process in which AReaL is imported: one JSON request a line in, one answer a line out.

Importing AReaL takes seconds and warns of much, so that all tests share one such process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def parse(specs: list[str]) -> list[dict[str, Any]]:
    """What AReaL's parser says of each string: its sizes, or its error."""
    from areal.api.alloc_mode import ModelAllocation

    answers = []
    for spec in specs:
        try:
            answers.append(sizes(ModelAllocation.from_str(spec)))
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"[:200]})
    return answers


def log_steps(folder: str, used: list[float]) -> None:
    """Let AReaL's own logger write a step for each number of GB used; ``folder/tb`` too."""
    from types import SimpleNamespace

    from areal.api import FinetuneSpec
    from areal.api.cli_args import StatsLoggerConfig
    from areal.api.io_struct import DeviceRuntimeInfo
    from areal.utils import stats_logger, stats_tracker

    settings = StatsLoggerConfig(experiment_name="e", trial_name="t", fileroot=folder)
    settings.tensorboard.path = f"{folder}/tb"
    stats_logger.asdict = lambda config: {}  # which stands in for a whole experiment
    spec = FinetuneSpec(total_train_epochs=1, dataset_size=8, train_batch_size=2)
    stream = open(f"{folder}/areal.log", "w", encoding="utf-8")  # noqa: SIM115 - loggers keep it
    handlers = stats_logger.logger.handlers + _logger_of(DeviceRuntimeInfo).handlers
    for handler in handlers:
        handler.stream = stream
    logger = stats_logger.StatsLogger(SimpleNamespace(stats_logger=settings), spec)
    tracker = stats_tracker.DistributedStatsTracker()
    for step, gigabytes in enumerate(used):
        with tracker.record_timing("train_step"), tracker.record_timing("rollout"):
            pass
        DeviceRuntimeInfo(1.0, 2.0, gigabytes, 79.1, "GB").log("ppo update")
        logger.commit(0, step, step, tracker.export())
    logger.close()
    stream.flush()


def _logger_of(cls: Any) -> Any:
    return vars(sys.modules[cls.__module__])["logger"]


def sizes(allocation: Any) -> dict[str, Any]:
    p = allocation.parallel
    return {
        "backend": allocation.backend,
        "name": allocation.name,
        "d": p.data_parallel_size,
        "t": p.tensor_parallel_size,
        "p": p.pipeline_parallel_size,
        "c": p.context_parallel_size,
        "e": p.expert_parallel_size,
        "etp": p.expert_tensor_parallel_size,
        "edp": p.expert_data_parallel_size,
        "world_size": p.world_size,
    }


def mode(text: str) -> dict[str, Any]:
    """What the SPMD launchers read of an ``allocation_mode``."""
    from areal.api.alloc_mode import _AllocationMode

    read = _AllocationMode.from_str(text)
    return {
        "type": read.type_.name,
        "gen": read.gen.world_size if read.gen else None,
        "train": read.train.world_size if read.train else None,
    }


def load(argv: list[str], cls: str) -> dict[str, Any]:
    """The backends of a config as AReaL's loader gives them; or its error."""
    from areal.api import cli_args

    return loaded(cli_args.load_expr_config, argv, getattr(cli_args, cls))


def load_ours(argv: list[str], cls: str) -> dict[str, Any]:
    """The same by this package's loader."""
    from areal.api import cli_args

    from areal_conf.areal.loader import load_expr_config

    return loaded(load_expr_config, argv, getattr(cli_args, cls))


def loaded(loader: Any, argv: list[str], cls: Any) -> dict[str, Any]:
    try:
        config, file = loader(argv, cls)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:2000]}
    found = {name: getattr(config, name, None) for name in ("actor", "critic", "ref", "rollout")}
    backends = {name: engine.backend for name, engine in found.items() if engine is not None}
    return {"file": file, "backends": backends, "mode": config.allocation_mode}


def switched(script: str) -> dict[str, Any]:
    """What a script of AReaL's style computes with AReaL's import, and with this package's."""
    answers = {}
    for module in ("areal.api.alloc_mode", "areal_conf"):
        names: dict[str, Any] = {}
        exec(script.replace("MODULE", module), names)
        answers[module] = names["result"]
    return answers


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # AReaL prints
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    for line in sys.stdin:
        call, arguments = json.loads(line)
        try:
            answer = {"ok": globals()[call](*arguments)}
        except Exception as error:
            answer = {"raised": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
