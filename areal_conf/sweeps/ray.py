"""Runs the jobs of a sweep on a Ray cluster, each on the nodes and GPUs of its own plan.

A task of Ray's lies on one node. So each job gets a placement group: one bundle a node, on nodes of
their own where there are several. The job itself runs in the first bundle and has its GPUs; tasks
that it starts are placed in the group, and so find the GPUs of the other nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import CompactHydraException

from areal_conf.app.preflight import PlanRefused
from areal_conf.errors import AllocationError, counted

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


log = logging.getLogger(__name__)


class Bundles(NamedTuple):
    """The placement group of one job: `nodes` bundles of `gpus` GPUs and `cpus` CPUs."""

    nodes: int
    gpus: int
    cpus: float

    @property
    def bundle(self) -> dict[str, float]:
        """The share of one node."""
        return {"CPU": self.cpus, **({"GPU": self.gpus} if self.gpus else {})}

    def __str__(self) -> str:
        return f"{counted(self.nodes, 'node')} of {counted(self.gpus, 'GPU')}"


@dataclass
class RayLaunch:
    """Launches jobs of one sweep.

    Args:
        config: the config of the sweep, with Hydra's own.
        context: Hydra's.
        task: what each job runs.
        init: arguments of ``ray.init``.
        nodes: nodes of every job; None: as many as its plan needs.
        gpus_per_node: GPUs of each node; None: those of its plan.
        cpus_per_node: CPUs of each node.
        root: dotted path of the package that holds the experiment.
    """

    config: DictConfig
    context: HydraContext
    task: TaskFunction
    init: dict[str, Any]
    nodes: int | None
    gpus_per_node: int | None
    cpus_per_node: float
    root: str

    def run(self, job_overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
        """Run the jobs, as many at once as the cluster has room for; results in their order.

        A job whose process dies, or whose plan has errors, is a failed job, not an exception.
        """
        from hydra.core.utils import filter_overrides, setup_globals

        from areal_conf.app.hydra_lines import configure_log

        setup_globals()
        configure_log(self.context, self.config)
        Path(self.config.hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
        self._connect()
        results: dict[int, JobReturn] = {}
        running: dict[Any, tuple[int, DictConfig, Any]] = {}
        try:
            for i, overrides in enumerate(job_overrides):
                job = self._composed(overrides, first + i)
                shown = " ".join(filter_overrides(overrides))
                try:
                    bundles = self._bundles(job)
                except AllocationError as error:
                    log.error(f"\t#{first + i} : {shown} : {error}")
                    refusal = PlanRefused("The plan of this job has errors: it was not started.")
                    results[i] = _failed(job, refusal)
                    continue
                log.info(f"\t#{first + i} : {shown} : {bundles}")
                _warn_if_it_waits(bundles)
                reference, group = self._start(job, bundles)
                running[reference] = (i, job, group)
            while running:
                _collect(running, results)
        finally:
            _abandon(running)
        return [results[i] for i in range(len(job_overrides))]

    def _connect(self) -> None:
        try:
            import ray
        except ImportError:
            message = "hydra/launcher=areal_ray_cluster needs Ray: pip install ray"
            raise CompactHydraException(message) from None
        if ray.is_initialized():
            return
        try:
            ray.init(**self.init)
        except ConnectionError as error:
            hint = "start a cluster with `ray start --head`, or give hydra.launcher.init.address"
            raise CompactHydraException(f"No Ray cluster: {error}\nhint: {hint}") from None

    def _composed(self, overrides: Sequence[str], number: int) -> DictConfig:
        from omegaconf import open_dict

        job = self.context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(job):
            job.hydra.job.id = f"job_id_for_{number}"
            job.hydra.job.num = number
        return job

    def _bundles(self, job: DictConfig) -> Bundles:
        from areal_conf.planning.result import plan

        nodes, gpus = self.nodes, self.gpus_per_node
        if nodes is None or gpus is None:
            made = plan(job, root=self.root)
            made.raise_for_errors()
            nodes = made.nodes if nodes is None else nodes
            gpus = made.gpus_per_node if gpus is None else gpus
        return Bundles(max(1, nodes), gpus, self.cpus_per_node)

    def _start(self, job: DictConfig, bundles: Bundles) -> tuple[Any, Any]:
        import ray
        from hydra.core.singleton import Singleton
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = "STRICT_SPREAD" if bundles.nodes > 1 else "STRICT_PACK"
        group = placement_group([bundles.bundle] * bundles.nodes, strategy=strategy)
        run = ray.remote(_run_job).options(
            num_cpus=bundles.cpus,
            num_gpus=bundles.gpus,
            max_retries=0,  # a job that died has done something already
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group,
                placement_group_bundle_index=0,
                placement_group_capture_child_tasks=True,
            ),
        )
        return run.remote(self.context, job, self.task, Singleton.get_state()), group


def _run_job(context: HydraContext, job: DictConfig, task: TaskFunction, state: Any) -> JobReturn:
    """What runs on the cluster."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.singleton import Singleton
    from hydra.core.utils import run_job, setup_globals

    setup_globals()
    Singleton.set_state(state)
    HydraConfig.instance().set_config(job)
    return run_job(
        hydra_context=context,
        task_function=task,
        config=job,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _collect(
    running: dict[Any, tuple[int, DictConfig, Any]], results: dict[int, JobReturn]
) -> None:
    """Wait for one job, and give its nodes back."""
    import ray
    from ray.util.placement_group import remove_placement_group

    (done, *_), _ = ray.wait(list(running))
    i, job, group = running.pop(done)
    try:
        results[i] = ray.get(done)
    except Exception as error:  # the process of the job died, or its result cannot be sent
        results[i] = _failed(job, error)
    remove_placement_group(group)


def _abandon(running: dict[Any, tuple[int, DictConfig, Any]]) -> None:
    """Stop the jobs that nobody waits for any more."""
    if not running:
        return
    import ray
    from ray.util.placement_group import remove_placement_group

    for reference, (_, _, group) in running.items():
        ray.cancel(reference, force=True)
        remove_placement_group(group)


def _failed(job: DictConfig, error: Exception) -> JobReturn:
    from omegaconf import OmegaConf

    hydra = job.hydra
    return JobReturn(
        overrides=OmegaConf.to_container(hydra.overrides.task),  # type: ignore[arg-type]
        cfg=job,
        task_name=hydra.job.name,
        status=JobStatus.FAILED,
        _return_value=error,
    )


def _warn_if_it_waits(bundles: Bundles) -> None:
    """Say so where the cluster has no such nodes now: it may grow, or the job waits for ever."""
    import ray

    fit = [
        node
        for node in ray.nodes()
        if node["Alive"]
        and all(node["Resources"].get(k, 0) >= v for k, v in bundles.bundle.items())
    ]
    if len(fit) < bundles.nodes:
        log.warning(f"the Ray cluster has no {bundles} now: the job waits until it has")
