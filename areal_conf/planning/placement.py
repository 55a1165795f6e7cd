"""Which rank is which, and which GPU of which node it sits on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from areal_conf.planning.mesh import Device
from areal_conf.planning.packing import pack


@dataclass(frozen=True, slots=True)
class Demand:
    """GPUs that one engine reserves: `count` units of `size` ranks each.

    A unit is what should not straddle a node: a server instance, or a tensor group of a trainer.
    `fresh` engines begin on a node of their own (node-granular schedulers).
    """

    engine: str
    count: int
    size: int
    serves: bool = False
    fresh: bool = False


Unit = int | tuple[int, ...] | None
"""GPUs of one unit, counted through all nodes: the first of a run, or each one; None: no room."""


class Placement(NamedTuple):
    """The GPUs of every unit of every engine."""

    units: dict[str, list[Unit]]
    sizes: dict[str, int]
    gpus_per_node: int

    def devices(self, engine: str) -> list[Device | None]:
        """The GPU of each rank of `engine`, by rank; None where there is no room."""
        per_node = self.gpus_per_node
        out: list[Device | None] = []
        for gpus in self._gpus(engine):
            if gpus is None:
                out.extend([None] * self.sizes[engine])
            else:
                out.extend(divmod(gpu, per_node) for gpu in gpus)
        return out

    def straddling(self, engine: str) -> int:
        """How many units of `engine` lie on more than one node."""
        per_node = self.gpus_per_node
        return sum(
            gpus is not None and gpus[0] // per_node != gpus[-1] // per_node
            for gpus in self._gpus(engine)
        )

    def ranks_by_node(self, engine: str) -> Counter[int]:
        """How many ranks of `engine` sit on each node."""
        per_node = self.gpus_per_node
        return Counter(gpu // per_node for gpus in self._gpus(engine) for gpu in gpus or ())

    def nodes(self) -> int:
        """Nodes that hold at least one rank."""
        used: set[int] = set()
        for engine in self.units:
            for gpus in self._gpus(engine):
                used.update(gpu // self.gpus_per_node for gpu in gpus or ())
        return len(used)

    def _gpus(self, engine: str) -> Iterator[Sequence[int] | None]:
        size = self.sizes[engine]
        for unit in self.units[engine]:
            yield range(unit, unit + size) if isinstance(unit, int) else unit


def place(demands: Sequence[Demand], gpus_per_node: int, n_nodes: int | None) -> Placement:
    """Give every unit its GPUs, engine after engine; `n_nodes` None: as many nodes as it takes.

    First fit, in the order of `demands`. Where that makes a unit straddle a node that it would
    fit, the largest units are placed first instead, then the servers' before the trainers'; where
    that is not enough, all ways are searched to keep every unit whole, or else every server. The
    way with the fewest straddling units is kept.
    """
    best = _first_fit(demands, gpus_per_node, n_nodes)
    cost = _cost(best, demands)
    if cost <= _NOTHING or n_nodes is None or any(demand.fresh for demand in demands):
        return best
    for way in _other_ways(demands, gpus_per_node, n_nodes):
        if way is not None and (new := _cost(way, demands)) < cost:
            best, cost = way, new
        if cost <= _NOTHING:
            break
    return best


def _other_ways(
    demands: Sequence[Demand], per_node: int, n_nodes: int
) -> Iterator[Placement | None]:
    yield _first_fit(sorted(demands, key=lambda x: -x.size), per_node, n_nodes)
    yield _first_fit(sorted(demands, key=lambda x: (not x.serves, -x.size)), per_node, n_nodes)
    yield _packed(demands, demands, per_node, n_nodes)
    yield _packed([d for d in demands if d.serves], demands, per_node, n_nodes)


_NOTHING = (0, 0, 0)


def _cost(placed: Placement, demands: Iterable[Demand]) -> tuple[int, int, int]:
    """Units without room; then units that straddle a node though they would fit one: server
    instances, and tensor groups."""
    per_node = placed.gpus_per_node
    homeless = servers = trainers = 0
    for demand in demands:
        homeless += placed.units[demand.engine].count(None)
        if demand.size <= per_node:
            count = placed.straddling(demand.engine)
            servers += count if demand.serves else 0
            trainers += 0 if demand.serves else count
    return homeless, servers, trainers


def _packed(
    whole: Sequence[Demand], demands: Sequence[Demand], per_node: int, n_nodes: int
) -> Placement | None:
    """`demands` placed so that none of `whole` straddles a node; None where no way was found."""
    large = [d for d in demands if d.size > per_node]
    small = [d for d in whole if d.size <= per_node]
    if any(d.size % per_node for d in large) or not small:
        return None
    first = sum(d.count * d.size for d in large) // per_node
    counts: Counter[int] = Counter()
    for demand in small:
        counts[demand.size] += demand.count
    nodes = pack(counts, per_node, n_nodes - first)
    if nodes is None:
        return None
    nodes.sort(key=lambda node: [-node.get(d.size, 0) for d in small])
    free = _FreeGpus(per_node, n_nodes)
    units: dict[str, list[Unit]] = {d.engine: free.take(d.count, d.size) for d in large}
    starts = _starts(nodes, free, per_node)
    for demand in small:
        units[demand.engine] = [next(starts[demand.size]) for _ in range(demand.count)]
    for demand in demands:
        if demand.engine not in units:
            units[demand.engine] = free.take(demand.count, demand.size)
    return Placement(units, {d.engine: d.size for d in demands}, per_node)


def _starts(
    nodes: list[dict[int, int]], free: _FreeGpus, per_node: int
) -> dict[int, Iterator[int]]:
    """Where the units of each size begin, node after node; what is left is given back."""
    starts: dict[int, list[int]] = {}
    for node in nodes:
        begin = free.tail
        for size, n in node.items():
            starts.setdefault(size, []).extend(range(begin, begin + n * size, size))
            begin += n * size
        free.tail += per_node
        free.give_back(begin, free.tail - begin)
    return {size: iter(found) for size, found in starts.items()}


def _first_fit(demands: Sequence[Demand], per_node: int, n_nodes: int | None) -> Placement:
    free = _FreeGpus(per_node, n_nodes)
    units: dict[str, list[Unit]] = {}
    for demand in demands:
        if demand.fresh:
            free.next_node()
        units[demand.engine] = free.take(demand.count, demand.size)
    return Placement(units, {d.engine: d.size for d in demands}, per_node)


class _FreeGpus:
    """Runs of free GPUs: the tail of the cluster, and gaps left before it."""

    def __init__(self, per_node: int, n_nodes: int | None) -> None:
        self.per_node = per_node
        self.end = None if n_nodes is None else n_nodes * per_node
        self.tail = 0
        self.gaps: dict[int, list[int]] = {}  # length -> heap of starts; each inside one node

    def next_node(self) -> None:
        """Begin a node of its own; what is left of the others stays idle."""
        self.tail = -(-self.tail // self.per_node) * self.per_node
        self.gaps = {}

    def give_back(self, start: int, length: int) -> None:
        """A gap of `length` GPUs from `start`."""
        if length:
            heappush(self.gaps.setdefault(length, []), start)

    def take(self, count: int, size: int) -> list[Unit]:
        """The GPUs of `count` units of `size`, in order."""
        units: list[Unit] = [self.one(size) for _ in range(count)]
        return [self.scattered(size) if unit is None else unit for unit in units]

    def one(self, size: int) -> int | None:
        """A run that stays inside a node, or begins one; None where there is none."""
        found = self.first_gap(size)
        if found is not None:
            start, length = found
            self.give_back(start + size, length - size)
            return start
        room = self.per_node - self.tail % self.per_node
        skip = room if size > room and room < self.per_node else 0
        if self.end is not None and self.tail + skip + size > self.end:
            return None
        self.give_back(self.tail, skip)
        start = self.tail + skip
        self.tail = start + size
        return start

    def first_gap(self, size: int) -> tuple[int, int] | None:
        """Start and length of the first gap of at least `size`, which is taken out; else None."""
        fitting = [(starts[0], n) for n, starts in self.gaps.items() if n >= size and starts]
        if not fitting:
            return None
        start, length = min(fitting)
        heappop(self.gaps[length])
        return start, length

    def scattered(self, size: int) -> Unit:
        """GPUs wherever some are free; None where there are too few of a bounded cluster."""
        assert self.end is not None  # without a bound, each unit has a run
        at_end = self.end - self.tail
        if sum(n * len(starts) for n, starts in self.gaps.items()) + at_end < size:
            return None
        taken: list[int] = []
        while len(taken) < size and (found := self.first_gap(1)):
            start, length = found
            part = min(length, size - len(taken))
            taken.extend(range(start, start + part))
            self.give_back(start + part, length - part)
        more = size - len(taken)
        taken.extend(range(self.tail, self.tail + more))
        self.tail += more
        return tuple(taken)
