"""The options of a plan, as its callers hand them on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from areal_conf.config.experiment import Experiment


def anchored(model: Any, directory: str) -> Any:
    """A model, or one for each engine, with paths below `directory` made absolute.

    For a process that leaves the directory in which they were written (``hydra.job.chdir``). What
    is not there is left as it is: ``auto``, the name of a model.
    """
    if isinstance(model, str):
        path = os.path.join(directory, model)
        return path if model and os.path.exists(path) else model
    if isinstance(model, Mapping) and all(isinstance(value, str) for value in model.values()):
        return {engine: anchored(value, directory) for engine, value in model.items()}
    return model


@dataclass(frozen=True)
class PlanOptions:
    """Options for planning: the arguments of `areal_conf.plan` other than the config."""

    root: str = ""
    launcher: str | None = None
    model: Any = None
    allow: Iterable[str] = ()
    areal: str | None = None
    strict: bool = False
    gpu: Any = None

    def or_of(self, experiment: Experiment) -> PlanOptions:
        """These options; those that are not given are the ones of ``areal_plan`` in the config."""
        return replace(
            self,
            model=experiment.model if self.model is None else self.model,
            gpu=experiment.gpu if self.gpu is None else self.gpu,
            areal=experiment.areal if self.areal is None else self.areal,
        )
