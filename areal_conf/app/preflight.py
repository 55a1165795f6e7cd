"""Before a job: its plan is made, reported, and the job refused where the plan has errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from hydra.errors import CompactHydraException

from areal_conf.config.experiment import read_experiment
from areal_conf.config.packages import find_root
from areal_conf.config.view import whole_number
from areal_conf.errors import AllocationError, counted
from areal_conf.legacy.carry_over import warn_once
from areal_conf.planning.options import PlanOptions, anchored

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.planning.result import Plan


def slurm_mismatch() -> AllocationError | None:
    """AC308: this Slurm job was given other nodes or GPUs than its launcher's config now says."""
    asked = _asked()
    if asked is None:
        return None
    nodes, gpus = asked
    has_nodes, has_gpus = _given("SLURM_JOB_NUM_NODES"), _given("SLURM_GPUS_PER_NODE")
    if has_nodes in (None, nodes) and has_gpus in (None, gpus):
        return None
    given, needed = _shown(has_nodes, has_gpus), _shown(nodes, gpus)
    return AllocationError(
        "AC308",
        f"Slurm gave this job {given}, its layout needs {needed}",
        path="hydra.launcher",
        hint="write hydra/sweeper=areal_layouts, which asks for what each job of a sweep needs",
    )


def _asked() -> tuple[int, int | None] | None:
    """Nodes and GPUs of each by the job's own config; None where submitit did not submit it."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    if "SLURM_JOB_ID" not in os.environ or not HydraConfig.initialized():
        return None
    if HydraConfig.get().mode != RunMode.MULTIRUN:  # no launcher ran: it was started by hand
        return None
    launcher = HydraConfig.get().launcher
    if not str(launcher.get("_target_")).endswith(".SlurmLauncher"):
        return None
    try:
        return launcher.nodes, launcher.gpus_per_node
    except OmegaConfBaseException:  # the plan has errors, and they are told
        return None


def _given(variable: str) -> int | None:
    return whole_number(os.environ.get(variable, ""))


def _shown(nodes: int | None, gpus: int | None) -> str:
    count = "? nodes" if nodes is None else counted(nodes, "node")
    return count if gpus is None else f"{count} of {counted(gpus, 'GPU')}"


_UNKNOWN = ("AC316", "AC357", "AC362")
"""Codes for missing information, which apps outside AReaL never provide. They are not repeated at
startup; ``areal-conf plan`` reports them."""


class PlanRefused(CompactHydraException):
    """The plan of one job of a sweep has errors, and its task was not entered.

    The errors were printed where the job was refused. Sweepers and launchers see a failed job, as
    from any exception of a task.
    """


def prepared(cfg: DictConfig, options: PlanOptions) -> Plan:
    """The plan of `cfg`, into which a legacy ``allocation_mode`` is carried over first."""
    from areal_conf.planning.result import planned

    made = planned(cfg, _anchored(cfg, options))
    _fill_in(cfg, made)
    return made


def prepared_here(cfg: DictConfig, options: PlanOptions) -> Plan:
    """`prepared`, for a process that is the job itself: the ranks and nodes that it was started on
    must be those of the plan."""
    made = prepared(cfg, options)
    if is_first_rank(made):
        warn_once(replace(made.carried, warning=_legacy_warning(made)))
    mismatch = _world_size_mismatch(made) or slurm_mismatch()
    return made.with_error(mismatch) if mismatch else made


def _legacy_warning(made: Plan) -> str | None:
    """What the plan says of a legacy ``allocation_mode``, with a hint that can be pasted."""
    if made.carried.warning is None:
        return None
    found = (one for one in made.warnings if one.code in ("AC512", "AC513"))
    return next((f"{one.message}; {one.hint}" for one in found), made.carried.warning)


def _anchored(cfg: DictConfig, options: PlanOptions) -> PlanOptions:
    """The options of a job that left the directory in which the paths of its config were written
    (``hydra.job.chdir``)."""
    from hydra.core.hydra_config import HydraConfig

    if options.model is not None or not HydraConfig.initialized():
        return options
    started = str(HydraConfig.get().runtime.cwd)
    if started == os.getcwd():
        return options
    model = read_experiment(cfg, find_root(cfg, options.root)).model
    return replace(options, model=None if model is None else anchored(model, started))


def _fill_in(cfg: DictConfig, made: Plan) -> None:
    """Write the backends that ``allocation_mode`` gave into the config the task will see."""
    from omegaconf import OmegaConf, read_write

    for path, spec in made.filled_in().items():
        section = OmegaConf.select(cfg, path.rpartition(".")[0])
        with read_write(section):
            OmegaConf.update(cfg, path, spec, force_add=True)


# -- torchrun -----------------------------------------------------------------------------------


def is_first_rank(made: Plan | None = None) -> bool:
    """Whether this process speaks for all: rank 0 of an SPMD run, or no SPMD run at all.

    Clusters set RANK and WORLD_SIZE in every container (Kubeflow does): a job that is run by the
    single controller is no rank of anything.
    """
    return os.environ.get("RANK", "0") == "0" or not _is_spmd_run(made)


def _is_spmd_run(made: Plan | None) -> bool:
    """Whether this process is one of many that run the same script."""
    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return False
    if os.environ.get("AREAL_SPMD_MODE", "").lower() in ("1", "true"):
        return True
    return "TORCHELASTIC_RUN_ID" in os.environ or made is None or made.scheduler is None


def _world_size_mismatch(made: Plan) -> AllocationError | None:
    """AC308: torchrun started another number of ranks than the actor has."""
    started = whole_number(os.environ.get("WORLD_SIZE", ""))
    actor = made.engines.get("actor")
    if not _is_spmd_run(made) or started is None or actor is None or not actor.spec:
        return None
    if started == actor.world_size:
        return None
    ranks = counted(started, "rank")
    return AllocationError(
        "AC308",
        f"torchrun started {ranks} (WORLD_SIZE), the actor has {actor.world_size}",
        text=actor.spec,
        path="actor.backend",
        hint=f"start {counted(actor.world_size, 'rank')}, or write a backend of {started}",
    )


def plan_or_refuse(cfg: DictConfig, options: PlanOptions) -> Plan:
    try:
        return prepared_here(cfg, options)
    except (AllocationError, OSError) as error:  # OSError: of a model's file
        refuse(str(error))
        raise AssertionError("unreachable") from error


def report_of(made: Plan) -> str:
    return "\n".join(d.describe() for d in made.errors)


def warnings_of(made: Plan) -> Iterator[str]:
    """Warnings of a plan that is allowed to start, with their hints. Missing information and what
    `warn_once` has reported about an ``allocation_mode`` are left out."""
    for one in made.warnings if is_first_rank(made) else ():
        if one.code not in _UNKNOWN and not one.code.startswith("AC5"):
            where = f"{one.path}: " if one.path else ""
            yield f"{where}{one.code}: {one.message} ({one.hint})"


def refuse(report: str, made: Plan | None = None) -> None:
    """Print why on stderr, from the first rank alone, and stop this job."""
    job = _job_name()
    if is_first_rank(made):
        print(f"{job}:\n{report}" if job else report, file=sys.stderr, flush=True)
    if job is None:
        raise SystemExit(1)
    raise PlanRefused("The plan of this job has errors: it was not started.")


def _job_name() -> str | None:
    """Number and overrides of this job of a sweep; None outside of one."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    if not HydraConfig.initialized():
        return None
    cfg = HydraConfig.get()
    if cfg.mode != RunMode.MULTIRUN:
        return None
    return f"job {cfg.job.num} ({','.join(cfg.overrides.task)})"
