"""Names of trials that no two jobs of a sweep share."""

from __future__ import annotations

from typing import Any

from areal_conf.config.overrides import for_hydra
from areal_conf.sweeps.axes import Axis, Choice, SweepError
from areal_conf.sweeps.base import Base


class TrialNames:
    """Gives each job of an AReaL experiment a ``trial_name`` of its own.

    Every scheduler and launcher of AReaL clears the records of (experiment_name, trial_name) when
    it starts: two jobs of one pair destroy each other's.
    """

    def __init__(self, axes: list[Axis], root: str) -> None:
        self._trial = f"{root}.trial_name" if root else "trial_name"
        self._experiment = f"{root}.experiment_name" if root else "experiment_name"
        self._axis = next((axis for axis in axes if axis.dotted == self._trial), None)
        self._pairs: set[tuple[Any, Any]] = set()

    def give(self, overrides: list[str], base: Base, choice: Choice, number: int) -> None:
        """Name the job with this number; its override replaces or follows those there are."""
        if not base.has_engines or not base.source.has(self._trial):
            return
        if self._axis is not None and len(self._axis.values) > 1:
            self._refuse_twice(base, choice)
            return
        name = base.raw(self._trial) or base.value(choice, self._trial) or "trial"
        text = for_hydra(f"{name}_{number}")
        if self._axis is None:
            overrides.append(f"{self._trial}={text}")
        else:
            at = next(i for i, o in enumerate(overrides) if o.startswith(f"{self._axis.key}="))
            overrides[at] = f"{self._axis.key}={text}"

    def _refuse_twice(self, base: Base, choice: Choice) -> None:
        pair = base.value(choice, self._experiment), base.value(choice, self._trial)
        if pair in self._pairs:
            raise SweepError(
                "AC605",
                f"two jobs have experiment_name {pair[0]} and trial_name {pair[1]}, and would "
                "destroy each other's records",
                path=self._trial,
                hint=f"leave {self._trial} out of the sweep: each job gets a name of its own",
            )
        self._pairs.add(pair)
