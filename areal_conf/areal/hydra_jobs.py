"""Launches the jobs of a Hydra multirun, one after the other, through AReaL.

What the Hydra launchers ``areal_local``, ``areal_ray``, ``areal_slurm`` and ``areal_controller``
do. The app's task function is not called: AReaL's launcher runs the script that
``hydra.launcher.script`` names, with the config that Hydra composed for the job.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, filter_overrides, run_job, setup_globals
from hydra.errors import CompactHydraException
from omegaconf import open_dict

from areal_conf.app.hydra_lines import configure_log
from areal_conf.areal.job import prepare
from areal_conf.areal.runner import StoppedError
from areal_conf.areal.runner import run_job as run_areal_job
from areal_conf.errors import AllocationError
from areal_conf.planning.options import PlanOptions, anchored

if TYPE_CHECKING:
    from hydra.types import HydraContext
    from omegaconf import DictConfig


log = logging.getLogger(__name__)

_NOT_IN_TRIAL_NAMES = re.compile(r"[^\w.]", re.ASCII)


class JobFailedError(CompactHydraException):
    """A job was refused, or did not end well."""


@dataclass(frozen=True)
class Settings:
    """Fields of the launcher's config.

    Attributes:
        kind: local, ray, slurm or controller.
        script: the training script.
        model: a Hugging Face ``config.json`` to hold layouts to.
        areal: version of AReaL to judge by; None: the installed one.
    """

    kind: str
    script: str | None
    model: str | None = None
    areal: str | None = None

    def check(self) -> str:
        """The script.

        Raises:
            JobFailedError: none is named.
        """
        if not self.script:
            raise JobFailedError(
                f"areal_{self.kind} needs the training script: write hydra.launcher.script=train.py"
            )
        return self.script


def launch(
    settings: Settings,
    hydra_context: HydraContext,
    config: DictConfig,
    job_overrides: Sequence[Sequence[str]],
    initial_job_idx: int,
    used: set[tuple[str, str]],
) -> list[JobReturn]:
    """Run every job; how each one ended.

    Args:
        settings: of the launcher.
        hydra_context: the app's.
        config: the app's config of the multirun.
        job_overrides: overrides of each job.
        initial_job_idx: number of the first job.
        used: pairs of experiment and trial name that earlier batches used; added to.
    """
    settings = replace(
        settings,
        script=str(Path(settings.check()).absolute()),
        model=anchored(settings.model, os.getcwd()),  # a job may change the directory
    )
    setup_globals()
    configure_log(hydra_context, config)
    Path(str(config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
    log.info("Launching %d jobs by AReaL (%s)", len(job_overrides), settings.kind)
    composed = [
        _composed(hydra_context, config, overrides, initial_job_idx + number)
        for number, overrides in enumerate(job_overrides)
    ]
    names = trial_names([_names(job) for job in composed], initial_job_idx, used)
    results = []
    for job, name, overrides in zip(composed, names, job_overrides, strict=True):
        log.info("\t#%s : %s", job.hydra.job.num, " ".join(filter_overrides(overrides)))
        results.append(_run(settings, hydra_context, job, name))
        configure_log(hydra_context, config)
    return results


def _composed(
    hydra_context: HydraContext, config: DictConfig, overrides: Sequence[str], number: int
) -> DictConfig:
    job = hydra_context.config_loader.load_sweep_config(config, list(overrides))
    with open_dict(job):
        job.hydra.job.id = str(number)
        job.hydra.job.num = number
    return job


def trial_names(
    pairs: Sequence[tuple[str, str] | None], first: int, used: set[tuple[str, str]]
) -> list[str | None]:
    """A trial name for each job, of which `pairs` has the (experiment_name, trial_name): its own
    where no other job has it, else with the job's number, from `first` on, and more where that name
    is another job's.

    AReaL clears the records of such a pair when it starts, so that two jobs of one pair destroy
    each other. None: the config has no name, which the plan tells.
    """
    given: list[str | None] = []
    taken = used | {pair for pair in pairs if pair is not None}
    for number, pair in enumerate(pairs, first):
        if pair is None:
            given.append(None)
            continue
        if pairs.count(pair) > 1 or pair in used:
            pair = _free_name(pair, number, taken)
        taken.add(pair)
        given.append(pair[1])
        used.add(pair)
    return given


def _free_name(
    pair: tuple[str, str], number: int, taken: Collection[tuple[str, str]]
) -> tuple[str, str]:
    """The pair with the job's number behind the trial name, and one more where that is taken."""
    experiment, trial = pair
    stem = name = f"{_NOT_IN_TRIAL_NAMES.sub('_', trial)}_{number}"
    for again in itertools.count(2):
        if (experiment, name) not in taken:
            break
        name = f"{stem}_{again}"
    return experiment, name


def _names(job: DictConfig) -> tuple[str, str] | None:
    holder = HydraConfig.instance()
    outer = holder.cfg
    holder.set_config(job)  # names may interpolate ${hydra:job.num}
    try:
        return str(job["experiment_name"]), str(job["trial_name"])
    except Exception:
        return None
    finally:
        holder.cfg = outer


def _run(
    settings: Settings, hydra_context: HydraContext, job: DictConfig, trial: str | None
) -> JobReturn:
    if trial is not None:
        with open_dict(job):
            job.trial_name = trial
    return run_job(
        hydra_context=hydra_context,
        task_function=lambda cfg: _launch_one(settings, cfg),
        config=job,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _launch_one(settings: Settings, cfg: Any) -> int:
    """Launch one job by AReaL; its exit status, which is 0.

    Raises:
        JobFailedError: the plan was refused, or the script failed.
        SystemExit: the sweep was stopped by a signal.
    """
    directory = Path(HydraConfig.get().runtime.output_dir)
    try:
        job = prepare(
            cfg,
            settings.kind,
            settings.check(),
            directory,
            PlanOptions(model=settings.model, areal=settings.areal),
        )
    except (AllocationError, OSError) as error:  # OSError: of a model's file
        found = error.errors if isinstance(error, AllocationError) else ()
        report = "\n".join(one.describe() for one in found) or str(error)
        print(report, file=sys.stderr, flush=True)
        raise JobFailedError(f"refused:\n{report}") from None
    for warning in job.plan.warnings:
        log.info("%s: %s", warning.code, warning.message)
    log.info("%s", " ".join(job.command))
    sys.stdout.flush()
    try:
        outcome = run_areal_job(job, getattr(sys.stdout, "buffer", None))
    except StoppedError as stop:
        raise SystemExit(128 + stop.signum) from None
    except OSError as error:
        raise JobFailedError(f"job in {directory}: {error}") from None
    if outcome.status != 0:
        log.error("%s", outcome.reason)
        raise JobFailedError(f"job in {directory}: {outcome.reason}")
    return outcome.status
