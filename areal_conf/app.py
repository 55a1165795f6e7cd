"""Drop-ins for Hydra apps: `main` for ``hydra.main``, `compose` for ``hydra.compose``, a callback.

All three do the same with a composed config (`prepared`): they carry a legacy ``allocation_mode``
over, plan the experiment and refuse what cannot run.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import CompactHydraException, ConfigCompositionException
from hydra.experimental.callback import Callback

from areal_conf.engines import whole_number
from areal_conf.errors import AllocationError, clip, counted
from areal_conf.granted import slurm_mismatch
from areal_conf.legacy import warn_once
from areal_conf.options import PlanOptions
from areal_conf.overrides import as_typed, meant

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.plan import Plan

log = logging.getLogger(__name__)

_UNKNOWN = ("AC316", "AC357", "AC362")
"""Codes for what a config does not say. Apps that are no scripts of AReaL never say it, and need
not hear of it at each start; ``areal-conf plan`` tells."""

_UNSPECIFIED: Any = object()
Task = Callable[[Any], Any]


class PlanRefused(CompactHydraException):
    """The plan of one job of a sweep has errors, and its task was not entered.

    The errors were printed where the job was refused. Sweepers and launchers see a failed job, as
    from any exception of a task.
    """


def main(
    config_path: str | None = _UNSPECIFIED,
    config_name: str | None = None,
    version_base: str | None = _UNSPECIFIED,
    *,
    root: str = "",
    **options: Any,
) -> Callable[[Task], Callable[..., Any]]:
    """``hydra.main`` with the plan checked before the task function runs.

    Backend overrides are taken as typed (parentheses, brackets, in sweeps too), a legacy
    ``allocation_mode`` is carried over into the config, and a plan with errors prints them on
    stderr and exits 1. In a sweep every bad job is reported and the good ones run. Under torchrun
    only rank 0 prints, and a WORLD_SIZE other than the actor's is an error.

    The arguments are those of ``hydra.main`` of the Hydra that is installed, and `root`: the
    package that holds the experiment where it is not the config's root (``"rl"`` for
    ``areal/experiment@rl: ppo``).
    """
    import hydra

    given = {"config_path": config_path, "version_base": version_base}
    given = {key: value for key, value in given.items() if value is not _UNSPECIFIED}

    def decorate(task: Task) -> Callable[..., Any]:
        @functools.wraps(task)
        def checked(cfg: DictConfig) -> Any:
            return task(_checked(cfg, root))

        app = hydra.main(config_name=config_name, **given, **options)(checked)

        @functools.wraps(task)
        def entry(cfg_passthrough: DictConfig | None = None) -> Any:
            return _run(app) if cfg_passthrough is None else app(cfg_passthrough)

        return entry

    return decorate


def _run(app: Callable[[], Any]) -> Any:
    """Run a Hydra app with the backends of its command line as typed.

    Where Hydra knows no such key, the one that was meant is named below Hydra's own error.
    """
    argv = sys.argv
    sys.argv = [argv[0], *(a if a.startswith("-") else as_typed([a])[0] for a in argv[1:])]
    try:
        return app()
    except SystemExit as stop:  # Hydra has printed what is wrong, and stops
        key = meant(stop.__context__)
        if key and is_first_rank():
            print(f"Did you mean {key}?", file=sys.stderr)
        raise
    finally:
        sys.argv = argv


def compose(
    config_name: str | None = None,
    overrides: Sequence[str] | None = None,
    return_hydra_config: bool = False,
    *,
    root: str = "",
    **options: Any,
) -> DictConfig:
    """``hydra.compose`` with overrides as typed, a legacy mode carried over, and the plan checked.

    The arguments are those of ``hydra.compose``, and `root` as in `main`.

    Raises:
        AllocationError: with everything that is wrong with the plan in `errors`.
    """
    import hydra

    try:
        cfg = hydra.compose(config_name, as_typed(overrides or ()), return_hydra_config, **options)
    except ConfigCompositionException as refused:
        if key := meant(refused):
            message = f"{refused}\nDid you mean {key}?"
            raise ConfigCompositionException(message) from refused.__cause__
        raise
    prepared(cfg, PlanOptions(root)).raise_for_errors()
    return cfg


def prepared(cfg: DictConfig, options: PlanOptions) -> Plan:
    """The plan of `cfg`, into which a legacy ``allocation_mode`` is carried over first."""
    from areal_conf.plan import planned

    made = planned(cfg, options)
    if is_first_rank():
        warn_once(made.carried)
    _fill_in(cfg, made)
    mismatch = _world_size_mismatch(made) or slurm_mismatch()
    if mismatch is not None:
        made = made.with_error(mismatch)
    return made


def _fill_in(cfg: DictConfig, made: Plan) -> None:
    """Write the backends that ``allocation_mode`` gave into the config the task will see."""
    from omegaconf import OmegaConf, read_write

    for path, spec in made.filled_in().items():
        section = OmegaConf.select(cfg, path.rpartition(".")[0])
        with read_write(section):
            OmegaConf.update(cfg, path, spec, force_add=True)


# -- torchrun -----------------------------------------------------------------------------------


def is_first_rank() -> bool:
    """Whether this process speaks for all: rank 0 under torchrun, or no torchrun at all."""
    return os.environ.get("RANK", "0") == "0"


def _world_size_mismatch(made: Plan) -> AllocationError | None:
    """AC308: torchrun started another number of ranks than the actor has."""
    started = whole_number(os.environ.get("WORLD_SIZE", ""))
    actor = made.engines.get("actor")
    if "RANK" not in os.environ or started is None or actor is None or not actor.spec:
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


# -- refusing -----------------------------------------------------------------------------------


def _checked(cfg: DictConfig, root: str) -> DictConfig:
    """`cfg` with its legacy mode carried over; raises where its plan has errors."""
    made = _plan_or_refuse(cfg, PlanOptions(root))
    if made.errors:
        _refuse(_report(made))
    for line in _warnings(made):
        print(f"warning: {line}", file=sys.stderr, flush=True)
    return cfg


def _plan_or_refuse(cfg: DictConfig, options: PlanOptions) -> Plan:
    try:
        return prepared(cfg, options)
    except (AllocationError, OSError) as error:  # OSError: of a model's file
        _refuse(str(error))
        raise AssertionError("unreachable") from error


def _report(made: Plan) -> str:
    return "\n".join(d.error().describe() for d in made.errors)


def _warnings(made: Plan) -> Iterator[str]:
    """What is odd about a plan that may start, and what to do about it; not what is unknown, nor
    what `warn_once` has told of an ``allocation_mode``."""
    for one in made.warnings if is_first_rank() else ():
        if one.code not in _UNKNOWN and not one.code.startswith("AC5"):
            where = f"{one.path}: " if one.path else ""
            yield f"{where}{one.code}: {one.message} ({one.hint})"


def _refuse(report: str) -> None:
    """Print why on stderr, from the first rank alone, and stop this job."""
    job = _job_name()
    if is_first_rank():
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
    return f"job {cfg.job.num} ({cfg.job.override_dirname})"


# -- the callback -------------------------------------------------------------------------------


class PlanCallback(Callback):
    """Hydra callback ``areal_plan``: plans each job, logs the plan, and stops a bad one.

    Writes ``allocation.json`` and ``allocation.svg`` into the job's output directory. It ends the
    process with SystemExit, since Hydra turns other exceptions of a callback into warnings.

    Args:
        root: dotted path of the package that holds the experiment.
        launcher: an SPMD launcher of AReaL: local, ray or slurm.
        model: a Hugging Face ``config.json`` to hold the layouts to.
    """

    def __init__(
        self, root: str = "", launcher: str | None = None, model: str | None = None
    ) -> None:
        self.options = PlanOptions(root, launcher, model)

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
        made = _plan_or_refuse(config, self.options)
        if is_first_rank():
            _save(made, Path(config.hydra.runtime.output_dir))
            for line in _summary(made):
                log.info(line)
        if made.errors:
            _refuse(_report(made))
        for line in _warnings(made):
            log.warning("%s", line)


def _named(error: Exception) -> str:
    return clip(f"{type(error).__name__}: {error}", 300)


def _save(made: Plan, directory: Path) -> None:
    """Write the plan's files. Where that fails it is told: it neither starts nor stops a job."""
    from areal_conf import svg
    from areal_conf.files import write_atomically

    try:
        write_atomically(directory / "allocation.json", made.model_dump_json(indent=2) + "\n")
        write_atomically(directory / "allocation.svg", svg.render(made))
    except OSError as error:
        log.warning("the plan cannot be written to %s: %s", directory, error.strerror or error)


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
