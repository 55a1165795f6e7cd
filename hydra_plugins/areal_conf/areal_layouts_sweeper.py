"""``hydra/sweeper=areal_layouts``: sweeps over layouts that never launch what cannot run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from hydra.plugins.sweeper import Sweeper

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class ArealLayoutsSweeper(Sweeper):
    """Takes what Hydra's basic sweeper takes, and layout patterns as values.

    It is no subclass of that sweeper, which holds every combination in memory before the first is
    looked at, and composes each one twice.

    Args:
        max_batch_size: jobs launched at a time; None for all.
        params: overrides of every sweep, key to value; those of the command line replace them.
        on_invalid: ``prune`` leaves out combinations whose plan has errors; ``error`` refuses the
            sweep for one of them.
        on_warning: ``keep`` runs combinations whose layouts are warned of, and tells; ``prune``
            leaves them out.
        root: dotted path of the package that holds the experiment.
        model: a Hugging Face ``config.json`` to hold layouts to; ``auto``; or one for each engine.
        gpu: the card that memory and time are estimated for: ``H100``, or its GiB. What does not
            fit it is left out.
        order: ``given``; ``time``: the fastest first, by the estimate; ``memory``: the emptiest GPU
            first.
        best: how many jobs run, the first ones of that order; None for all.
        dry: print the jobs with their estimates, and start none.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        params: dict[str, str] | None = None,
        on_invalid: Literal["prune", "error"] = "prune",
        root: str = "",
        model: Any = None,
        on_warning: Literal["keep", "prune"] = "keep",
        gpu: Any = None,
        order: Literal["given", "time", "memory"] = "given",
        best: int | None = None,
        dry: bool = False,
    ) -> None:
        self.params = params
        self.options = {
            "max_batch_size": max_batch_size,
            "on_invalid": on_invalid,
            "on_warning": on_warning,
            "root": root,
            "model": model,
            "gpu": gpu,
            "order": order,
            "best": best,
            "dry": dry,
        }
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None
        self.task_function: TaskFunction | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what the launchers are made from."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep; what each job returned, in its order."""
        from areal_conf.sweeps.run import SweepRun, overrides_of

        assert self.config is not None
        assert self.hydra_context is not None
        assert self.task_function is not None
        params = overrides_of(self.params)
        run = SweepRun(self.config, self.hydra_context, self.task_function, **self.options)
        return run.run([*params, *arguments])
