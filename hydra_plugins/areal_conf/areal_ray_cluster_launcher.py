"""``hydra/launcher=areal_ray_cluster``: each job of a sweep on nodes and GPUs of its own plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class ArealRayClusterLauncher(Launcher):
    """Takes the place of hydra-ray-launcher, which reads what its jobs need once for all of them,
    and keeps each job on one node.

    Args:
        init: arguments of ``ray.init``.
        nodes: nodes of every job; None: as many as its plan needs.
        gpus_per_node: GPUs of each node; None: those of its plan.
        cpus_per_node: CPUs of each node.
        root: dotted path of the package that holds the experiment.
    """

    def __init__(
        self,
        init: dict[str, Any] | None = None,
        nodes: int | None = None,
        gpus_per_node: int | None = None,
        cpus_per_node: float = 1,
        root: str = "",
    ) -> None:
        self.options = {
            "init": dict(init or {}),
            "nodes": nodes,
            "gpus_per_node": gpus_per_node,
            "cpus_per_node": cpus_per_node,
            "root": root,
        }
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None
        self.task_function: TaskFunction | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what the jobs are made from."""
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run the jobs on the cluster; results in their order."""
        from areal_conf.sweeps.ray import RayLaunch

        assert self.config is not None
        assert self.hydra_context is not None
        assert self.task_function is not None
        launch = RayLaunch(self.config, self.hydra_context, self.task_function, **self.options)  # type: ignore[arg-type]
        return launch.run(job_overrides, initial_job_idx)
