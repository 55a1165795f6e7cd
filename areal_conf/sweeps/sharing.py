"""Which engines take their layout from each pattern of a sweep, and the GPUs left for patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from areal_conf.planning.state import Engine, ResolvedExperiment
    from areal_conf.search_space import Space


def stand_ins(spaces: dict[int, Space]) -> dict[int, tuple[int, str]]:
    """For each pattern a number of GPUs and a backend string of it to resolve the experiment with.

    The numbers are primes that no engine has: whatever has a multiple of one takes its layout from
    that pattern, by inheritance or by interpolation.
    """
    return {
        i: (size, f"{space.pattern.backend.name}:d{size}")
        for (i, space), size in zip(spaces.items(), _primes(_LARGER), strict=False)
    }


_LARGER = 2**12
"""Sizes that people write are powers of two, and small multiples of them."""


def _primes(above: int) -> Iterator[int]:
    number = above
    while True:
        number += 1
        if all(number % i for i in range(2, int(number**0.5) + 1)):
            yield number


class Sharing:
    """Patterns and the engines of an experiment that was resolved with their `stand_ins`.

    Attributes:
        takers: the engines that take their layout from each pattern.
        weights: how many of them have GPUs of their own.
    """

    def __init__(self, state: ResolvedExperiment, sizes: dict[int, int]) -> None:
        self._state = state
        self.takers: dict[int, list[Engine]] = {
            i: [e for e in state.engines.values() if e.world_size and not e.world_size % size]
            for i, size in sizes.items()
        }
        self.weights = {i: _gpus(self.takers[i]) // size for i, size in sizes.items()}

    def budget(self) -> int | None:
        """GPUs there are: of the cluster, or of one node where the scheduler uses no more."""
        experiment = self._state.experiment
        if self._state.scheduler == "local":
            return experiment.n_gpus_per_node or None
        return experiment.cluster_gpus

    def left(self) -> int | None:
        """GPUs that the other engines leave for the patterns; None where no cluster is known."""
        budget = self.budget()
        if budget is None:
            return None
        return budget - self._state.total + sum(map(_gpus, self.takers.values()))

    def host_of(self, pattern: int) -> Engine | None:
        """The engine on whose GPUs those that take `pattern` run."""
        takers = {engine.name for engine in self.takers[pattern]}
        hosts = (engine.colocated_with for engine in self.takers[pattern])
        name = next((host for host in hosts if host is not None and host not in takers), None)
        return None if name is None else self._state.engines[name]

    def pattern_of(self, engine: Engine) -> int | None:
        """The pattern from which `engine` takes its layout; None where that is fixed."""
        return next((i for i, takers in self.takers.items() if engine in takers), None)


def _gpus(engines: Sequence[Engine]) -> int:
    return sum(engine.gpus for engine in engines)
