"""The options of a plan, as its callers hand them on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from areal_conf.config.experiment import Experiment


@dataclass(frozen=True)
class PlanOptions:
    """What a plan is held to: the arguments of `areal_conf.plan` beside the config."""

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
