"""Hydra launchers that hand each job of a multirun to AReaL: ``hydra/launcher=areal_local``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class _ArealJobs:
    """Runs a training script through AReaL, once per job.

    Args:
        script: the training script; it is run in place of the app's task function.
        model: a Hugging Face ``config.json`` to hold layouts to.
        areal: version of AReaL to judge by; default is the installed one.
    """

    kind: ClassVar[str]

    def __init__(
        self, script: str | None = None, model: str | None = None, areal: str | None = None
    ) -> None:
        self.script = script
        self.model = model
        self.areal = areal
        self.used: set[tuple[str, str]] = set()

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what `launch` needs."""
        self.hydra_context = hydra_context
        self.config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run every job, one after the other; how each one ended."""
        from areal_conf.areal import hydra_jobs

        settings = hydra_jobs.Settings(self.kind, self.script, self.model, self.areal)
        return hydra_jobs.launch(
            settings, self.hydra_context, self.config, job_overrides, initial_job_idx, self.used
        )


class ArealLocalLauncher(_ArealJobs, Launcher):
    """AReaL's SPMD launcher for one node."""

    kind = "local"


class ArealRayLauncher(_ArealJobs, Launcher):
    """AReaL's SPMD launcher for Ray."""

    kind = "ray"


class ArealSlurmLauncher(_ArealJobs, Launcher):
    """AReaL's SPMD launcher for Slurm."""

    kind = "slurm"


class ArealControllerLauncher(_ArealJobs, Launcher):
    """The script itself, which starts AReaL's single controller."""

    kind = "controller"
