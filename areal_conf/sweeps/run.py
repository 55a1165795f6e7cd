"""Launches the jobs of a sweep: on a cluster grouped by what they need, each group by itself.

Launchers that ask a cluster for resources read them once, for all jobs of a launch. So the jobs
that need the same are launched together, with nodes and GPUs of their own plan.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from areal_conf.config.view import is_mapping, is_unset
from areal_conf.errors import AllocationError, clip, counted, wrong_type
from areal_conf.estimate.cards import Card, read_card
from areal_conf.files import write_atomically
from areal_conf.sweeps.axes import SweepError, read_axes
from areal_conf.sweeps.combinations import Job, LayoutSweep, OnInvalid, OnWarning, Report
from areal_conf.sweeps.estimates import Order
from areal_conf.sweeps.listing import listed, rows_of
from areal_conf.sweeps.need import Need, need_of
from areal_conf.sweeps.record import Record, RecordCallback

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


log = logging.getLogger(__name__)


class FirstProcess:
    """A task function that only the first process of a Slurm job runs.

    AReaL's single controller is one process, wherever its workers are; run on every node of a job
    it would run several times over, under one name.
    """

    def __init__(self, task: TaskFunction) -> None:
        self.task = task

    def __call__(self, cfg: Any) -> Any:
        """Run the task, or nothing in the other processes."""
        return self.task(cfg) if os.environ.get("SLURM_PROCID", "0") == "0" else None


@dataclass(frozen=True)
class SweepSettings:
    """What ``hydra.sweeper`` says of a sweep; see `hydra_plugins.areal_conf` for the meaning.

    Raises:
        SweepError: AC309 for a setting that is of the wrong type.
    """

    max_batch_size: int | None = None
    on_invalid: OnInvalid = "prune"
    on_warning: OnWarning = "keep"
    root: str = ""
    model: Any = None
    gpu: Any = None
    order: Order = "given"
    best: int | None = None
    dry: bool = False

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "best"):
            number = getattr(self, name)
            if number is not None and not (type(number) is int and number > 0):
                raise _unusable(name, number, "a whole number from 1, or null")
        for name, kind in (("on_invalid", OnInvalid), ("on_warning", OnWarning), ("order", Order)):
            if getattr(self, name) not in (words := get_args(kind)):
                raise _unusable(name, getattr(self, name), " or ".join(words))
        if not isinstance(self.dry, bool):
            raise _unusable("dry", self.dry, "true or false")
        if not isinstance(self.root, str):
            raise _unusable("root", self.root, "the dotted path of a package")


class SweepRun:
    """One sweep, from what is swept to what its jobs returned.

    Args:
        config: the config of the sweep, with Hydra's own.
        context: Hydra's.
        task: what each job runs.
        settings: fields of `SweepSettings`.
    """

    def __init__(
        self, config: DictConfig, context: HydraContext, task: TaskFunction, **settings: Any
    ) -> None:
        self.config = config
        self.context = context
        self.task = task
        self.settings = SweepSettings(**settings)
        self._report: Report | None = None
        self._needs: dict[str, Need] = {}

    def run(self, arguments: Sequence[str]) -> list[Sequence[JobReturn]]:
        """Launch every job that can run; one entry a batch, each in the order of the sweep.

        Raises:
            SweepError: where the sweep is not started.
        """
        jobs = self._jobs(arguments)
        if self.settings.dry:
            for line in listed(jobs):
                print(line)
            return []
        self._save()
        self._warn_of_one_directory(len(jobs))
        size = self.settings.max_batch_size or len(jobs)
        returns = []
        with self._record(jobs).kept() as record, self._noting(record):
            for first in range(0, len(jobs), size):
                batch = jobs[first : first + size]
                for job in batch:
                    if job.fresh:
                        self._compose(job.overrides)
                results = self._launch(batch, first, record)
                for i, result in enumerate(results):
                    record.end(first + i, result)
                record.refresh()
                self._report_failures(batch, results, first)
                returns.append(results)
        return returns

    def _record(self, jobs: list[Job]) -> Record:
        assert self._report is not None
        left_out = {code: count for code, (count, _) in sorted(self._report.pruned.items())}
        process = {"host": socket.gethostname(), "pid": os.getpid()}
        about = {
            "started": time.time(),
            "process": process,
            "order": self.settings.order,
            "combinations": self._report.total,
            "left_out": left_out,
        }
        return Record(Path(self.config.hydra.sweep.dir), about, rows_of(jobs))

    @contextlib.contextmanager
    def _noting(self, record: Record) -> Iterator[None]:
        """Let each job note its start and end, wherever it runs."""
        callbacks = getattr(getattr(self.context, "callbacks", None), "callbacks", None)
        if not isinstance(callbacks, list):
            yield
            return
        callback = RecordCallback(str(record.directory))
        callbacks.append(callback)
        try:
            yield
        finally:
            callbacks.remove(callback)

    def _launch(self, batch: list[Job], first: int, record: Record) -> Sequence[JobReturn]:
        if self._kind():
            return self._launch_grouped(batch, first, record)
        for i in range(len(batch)):
            record.number(first + i, first + i)
        return self._launch_together(batch, first)

    def _jobs(self, arguments: Sequence[str]) -> list[Job]:
        try:
            axes = read_axes(arguments, self.context.config_loader)
            chosen = self.settings
            sweep = LayoutSweep(axes, self._compose, chosen.root, chosen.model, self._card())
            self._report = sweep.report
            try:
                return sweep.jobs(chosen.on_invalid, chosen.on_warning, chosen.order, chosen.best)
            finally:
                for line in sweep.report.lines():
                    log.info(line)
        except SweepError:
            raise
        except AllocationError as error:
            raise SweepError.because(error) from None
        except OSError as error:  # of a model's file
            message = f"the model cannot be read: {clip(str(error), 300)}"
            hint = "name a Hugging Face config.json, or its directory"
            raise SweepError("AC421", message, hint=hint, path="hydra.sweeper.model") from None

    def _card(self) -> Card | None:
        try:
            gpu = self.settings.gpu
            return None if gpu is None else read_card(gpu)
        except AllocationError as error:
            raise SweepError.because(error, "hydra.sweeper.gpu") from None

    def _compose(self, overrides: list[str]) -> DictConfig:
        return self.context.config_loader.load_sweep_config(self.config, overrides)

    def _save(self) -> None:
        from omegaconf import OmegaConf

        directory = Path(self.config.hydra.sweep.dir)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_atomically(directory / "multirun.yaml", OmegaConf.to_yaml(self.config))
        except OSError as error:
            message = f"the sweep cannot be written there: {error.strerror or error}"
            shown, hint = clip(str(directory), 200), "name a directory that can be written to"
            raise SweepError(
                "AC309", message, text=shown, path="hydra.sweep.dir", hint=hint
            ) from None

    def _warn_of_one_directory(self, jobs: int) -> None:
        """Hydra puts each job where ``hydra.sweep.subdir`` says: text alone says one place."""
        from omegaconf import OmegaConf

        sweep: Any = OmegaConf.to_container(self.config.hydra.sweep, resolve=False)
        subdir = sweep.get("subdir")
        if jobs > 1 and isinstance(subdir, str) and "${" not in subdir:
            log.warning(
                "hydra.sweep.subdir: all %d jobs write into %s (write '${hydra.job.num}' for a "
                "directory of each)",
                jobs,
                clip(subdir, 200),
            )

    def _launch_together(self, batch: list[Job], first: int) -> Sequence[JobReturn]:
        """Launch the jobs of a launcher that asks no cluster for anything."""
        overrides = [job.overrides for job in batch]
        found: Sequence[JobReturn] = self._stock.launch(overrides, initial_job_idx=first)
        return found

    @cached_property
    def _stock(self) -> Any:
        """The launcher as it is configured."""
        return self._launcher(self.config, self.task)

    def _launcher(self, config: DictConfig, task: TaskFunction) -> Any:
        from hydra.core.plugins import Plugins

        return Plugins.instance().instantiate_launcher(self.context, task, config)

    @staticmethod
    def _report_failures(batch: list[Job], results: Sequence[JobReturn], first: int) -> None:
        """Log each job that failed with its overrides, then raise what the first one raised."""
        from hydra.core.utils import JobStatus

        failed = [i for i, result in enumerate(results) if result.status == JobStatus.FAILED]
        for i in failed:
            error = results[i]._return_value
            number = _number(results[i], first + i)
            log.error(f"job {number} failed: {' '.join(batch[i].overrides)}: {error!r}")
        for i in failed:
            _ = results[i].return_value

    # -- by need -----------------------------------------------------------------------------

    def _kind(self) -> str | None:
        """How the launcher asks a cluster for resources; None where it asks for none."""
        from omegaconf import OmegaConf

        launcher = OmegaConf.to_container(self.config.hydra.launcher, resolve=False)
        assert isinstance(launcher, dict)
        if {"nodes", "gpus_per_node", "tasks_per_node"} <= launcher.keys():
            return "nodes"
        ray = launcher.get("ray")
        return "ray" if isinstance(ray, dict) and "remote" in ray else None

    def _launch_grouped(self, batch: list[Job], first: int, record: Record) -> Sequence[JobReturn]:
        """Launch the jobs grouped by need, all groups at once.

        Within a batch, jobs are numbered group by group; results are in the order of the sweep.
        """
        groups: dict[Need | None, list[int]] = {}
        for i, job in enumerate(batch):
            need = self._need(job.overrides) if job.planned else None
            groups.setdefault(need, []).append(i)
        launches = []
        start = first
        for need, members in groups.items():
            for place, i in enumerate(members):
                record.number(start + i, first + place)
            launcher = self._launcher_for(need) if need else self._stock
            if need:
                log.info(f"{counted(len(members), 'job')} on {_shown(need)}")
            launches.append((launcher.launch, [batch[i].overrides for i in members], first))
            first += len(members)
        results: dict[int, JobReturn] = {}
        for members, found in zip(groups.values(), self._all(launches), strict=True):
            results.update(zip(members, found, strict=True))
        return [results[i] for i in range(len(batch))]

    def _all(
        self, launches: list[tuple[Callable[..., Any], list[list[str]], int]]
    ) -> Iterator[Sequence[JobReturn]]:
        """What each launch returns. They wait for their jobs, so that each has a thread."""
        if self._kind() == "ray" or len(launches) == 1:  # Ray's start is not for several threads
            for launch, jobs, first in launches:
                yield launch(jobs, initial_job_idx=first)
            return
        with ThreadPoolExecutor(len(launches)) as pool:
            futures = [pool.submit(run, jobs, initial_job_idx=n) for run, jobs, n in launches]
            for future, (_, jobs, _n) in zip(futures, launches, strict=True):
                if error := future.exception():
                    shown = "; ".join(" ".join(job) for job in jobs)
                    log.error(f"a group of jobs did not end: {shown}: {error!r}")
            yield from [future.result() for future in futures]

    def _need(self, overrides: list[str]) -> Need:
        key = " ".join(overrides)
        if key not in self._needs:
            cfg = self._compose(overrides)
            try:
                need = need_of(cfg, self.settings.root)
                if self._kind() == "ray":
                    _refuse_several_nodes(need, overrides)
                else:
                    need = need.as_written(cfg.hydra.launcher)
            except AllocationError as error:
                raise SweepError.because(error) from None
            self._needs[key] = need
        return self._needs[key]

    def _launcher_for(self, need: Need) -> Any:
        from omegaconf import open_dict

        config = copy.deepcopy(self.config)
        launcher = config.hydra.launcher
        with open_dict(launcher):
            if self._kind() == "ray":
                launcher.ray.remote.num_gpus = need.gpus_per_node
            else:
                launcher.nodes = need.nodes
                launcher.gpus_per_node = need.gpus_per_node
                launcher.tasks_per_node = need.tasks_per_node
        one_process = need.controller and need.tasks_per_node == 1 and need.nodes > 1
        return self._launcher(config, FirstProcess(self.task) if one_process else self.task)


def overrides_of(params: Any) -> list[str]:
    """``hydra.sweeper.params`` as overrides.

    Raises:
        SweepError: AC309 for what is no mapping.
    """
    if is_unset(params):
        return []
    if not is_mapping(params):
        raise _unusable("params", params, "a mapping of keys to values")
    return [f"{key}={value}" for key, value in params.items()]


def _unusable(setting: str, value: object, expected: str) -> SweepError:
    """AC309: a setting of the sweeper that is of the wrong type."""
    error = wrong_type(value, expected, hint=f"write {expected}")
    return SweepError.because(error, f"hydra.sweeper.{setting}")


def _number(result: JobReturn, otherwise: int) -> int:
    """The number of a job, by which its directory is named; `otherwise` where it never began."""
    from omegaconf import OmegaConf

    cfg = result.hydra_cfg
    number = None if cfg is None else OmegaConf.select(cfg, "hydra.job.num")
    return otherwise if number is None else int(number)


def _refuse_several_nodes(need: Need, overrides: list[str]) -> None:
    """hydra-ray-launcher makes one Ray task of a job, and a task lies on one node.

    Raises:
        AllocationError: AC307 for a job that needs more than one.
    """
    if need.nodes > 1:
        raise AllocationError(
            "AC307",
            f"a job needs {need.nodes} nodes, and hydra/launcher=ray starts each on one",
            text=" ".join(overrides),
            path="hydra.launcher",
            hint="write hydra/launcher=areal_ray_cluster",
        )


def _shown(need: Need) -> str:
    nodes, tasks = counted(need.nodes, "node"), counted(need.tasks_per_node, "task")
    return f"{nodes} of {counted(need.gpus_per_node, 'GPU')}, {tasks} each"
