"""Names of trials that no two jobs of a sweep share."""

from __future__ import annotations

from typing import Any

from areal_conf.config.overrides import for_hydra
from areal_conf.config.view import is_unset
from areal_conf.errors import AllocationError
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
        self._pairs: set[tuple[str, str]] = set()

    def give(self, overrides: list[str], base: Base, choice: Choice, number: int) -> None:
        """Name the job with this number; its override replaces or follows those there are.

        The number is all that stands behind the last ``_``, so that no two names are equal.
        """
        if not base.has_engines or not base.source.has(self._trial):
            return
        if self._axis is not None and len(self._axis.values) > 1:
            self._refuse_twice(base, choice)
            return
        text = for_hydra(f"{self._name(base, choice)}_{number}")
        if self._axis is None:
            overrides.append(f"{self._trial}={text}")
        else:
            at = next(i for i, o in enumerate(overrides) if o.startswith(f"{self._axis.key}="))
            overrides[at] = f"{self._axis.key}={text}"

    def _name(self, base: Base, choice: Choice) -> Any:
        base.apply(choice)
        name = base.raw(self._trial) or base.value(choice, self._trial)
        return "trial" if is_unset(name) else name

    def _refuse_twice(self, base: Base, choice: Choice) -> None:
        try:
            pair = (
                str(base.value(choice, self._experiment)),
                str(base.value(choice, self._trial)),
            )
        except AllocationError:  # a name that is known in the job alone: ${hydra:job.num}
            return
        if pair in self._pairs:
            raise SweepError(
                "AC605",
                f"two jobs have experiment_name {pair[0]} and trial_name {pair[1]}, and would "
                "destroy each other's records",
                path=self._trial,
                hint=f"leave {self._trial} out of the sweep: each job gets a name of its own",
            )
        self._pairs.add(pair)
