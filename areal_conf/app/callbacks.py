"""Hydra callbacks: the check of a plan, and the resources of a job."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback

from areal_conf.app.preflight import (
    PlanRefused,
    is_first_rank,
    plan_or_refuse,
    refuse,
    report_of,
    warnings_of,
)
from areal_conf.app.wrappers import log
from areal_conf.errors import AllocationError, clip, counted
from areal_conf.planning.options import PlanOptions, anchored

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.planning.result import Plan


_MARKS = (b'{\n  "engines":', b'<title id="ac-title">')
"""What the files of a plan have near their beginning."""

# -- the callback -------------------------------------------------------------------------------


class PlanCallback(Callback):
    """Hydra callback ``areal_plan``: plans each job, logs the plan, and stops a bad one.

    Writes ``allocation.json`` and ``allocation.svg`` into the job's output directory. It ends the
    process with SystemExit, since Hydra turns other exceptions of a callback into warnings.

    Args:
        root: dotted path of the package that holds the experiment.
        launcher: an SPMD launcher of AReaL: local, ray or slurm.
        model: a Hugging Face ``config.json`` to hold the layouts to; ``auto``; or one for each
            engine.
        gpu: the card that memory is estimated for.
        areal: version of AReaL to judge by; default is the installed one.

    ``areal_plan`` of the config gives those that are left out here.
    """

    def __init__(
        self,
        root: str = "",
        launcher: str | None = None,
        model: Any = None,
        gpu: Any = None,
        areal: str | None = None,
    ) -> None:
        model = anchored(model, os.getcwd())  # a job may change the directory
        self.options = PlanOptions(root, launcher, model, gpu=gpu, areal=areal)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Plan the job that is about to start."""
        try:
            self._check(config)
        except PlanRefused:
            raise SystemExit(1) from None
        except Exception as error:  # Hydra would start the job without the check
            print(f"areal_plan cannot check this job: {_named(error)}", file=sys.stderr, flush=True)
            raise SystemExit(1) from None

    def _check(self, config: DictConfig) -> None:
        made = plan_or_refuse(config, self.options)
        if is_first_rank(made):
            _save(made, Path(config.hydra.runtime.output_dir))
            for line in _summary(made):
                log.info(line)
        if made.errors:
            refuse(report_of(made), made)
        for line in warnings_of(made):
            log.warning("%s", line)


def _named(error: Exception) -> str:
    return clip(f"{type(error).__name__}: {error}", 300)


def _save(made: Plan, directory: Path) -> None:
    """Write the plan's files. Where that fails it is told: it neither starts nor stops a job."""
    from areal_conf.files import write_atomically
    from areal_conf.report import svg

    texts = {"json": made.model_dump_json(indent=2) + "\n", "svg": svg.render(made)}
    for kind, text in texts.items():
        file = directory / f"allocation.{kind}"
        if not _may_be_written(file):
            log.warning("%s is not written: it holds something else than a plan", file)
            continue
        try:
            write_atomically(file, text)
        except OSError as error:
            log.warning("the plan cannot be written to %s: %s", directory, error.strerror or error)
            return


def _may_be_written(file: Path) -> bool:
    """Whether there is no such file yet, or one that holds a plan: ``hydra.run.dir=.`` is a
    directory of the user's."""
    try:
        with file.open("rb") as stream:
            start = stream.read(4096)
    except OSError:
        return True
    return not start.strip() or any(mark in start for mark in _MARKS)


def _summary(made: Plan) -> list[str]:
    lines = [
        f"{name}: {engine.spec or '-'} on {counted(engine.gpus, 'GPU')}"
        + (f", colocated with {engine.colocated_with}" if engine.colocated_with else "")
        + (f", inactive ({engine.inactive_because})" if engine.inactive_because else "")
        for name, engine in made.engines.items()
    ]
    total = counted(made.total_gpus, "GPU")
    lines.append(f"total: {total}" + (f" of {made.cluster.gpus:,}" if made.cluster else ""))
    return lines


# -- what a launcher asks for ---------------------------------------------------------------------


class ResourcesCallback(Callback):
    """Hydra callback of ``hydra/launcher=areal_submitit``: a short error in place of a long stack.

    hydra-submitit-launcher reads nodes and GPUs once, from the config before the sweep; where that
    has no plan, Hydra prints the stack of everything that was resolved on the way there.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Read what the launcher will read, unless the sweeper sets it job by job."""
        from omegaconf.errors import OmegaConfBaseException

        if str(config.hydra.sweeper.get("_target_")).endswith(".ArealLayoutsSweeper"):
            return
        try:
            _ = config.hydra.launcher.nodes, config.hydra.launcher.gpus_per_node
        except OmegaConfBaseException as failed:
            error: BaseException | None = failed
            while error is not None and not isinstance(error, AllocationError):
                error = error.__context__
            if error is None:
                raise
            print(_before_the_sweep(error).describe(), file=sys.stderr, flush=True)
            raise SystemExit(1) from None


def _before_the_sweep(error: AllocationError) -> AllocationError:
    """`error` of a config without what is swept, from which a launcher takes its resources."""
    return error.reworded(
        f"the launcher asks for what the config says before the sweep: {error.message}",
        "write hydra/sweeper=areal_layouts, which asks for what each job of a sweep needs, or "
        f"mend the config itself: {error.hint}",
    )
