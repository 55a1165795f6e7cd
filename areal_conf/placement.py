"""Which rank is which, and which GPU of which node it sits on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from areal_conf.backends import Role, Sizes

Device = tuple[int, int]
"""(node, GPU of the node), both from 0."""


class Coordinates(NamedTuple):
    """Where a rank stands in the mesh, each from 0: data, pipeline, context, tensor, then the
    expert mesh: expert, expert tensor, expert data."""

    d: int
    p: int
    c: int
    t: int
    e: int
    etp: int
    edp: int


class Mesh:
    """A mesh of named axes, the first one fastest."""

    __slots__ = ("sizes", "strides", "world")

    def __init__(self, axes: Sequence[tuple[str, int]]) -> None:
        self.sizes = dict(axes)
        self.world = prod(self.sizes.values())
        self.strides: dict[str, int] = {}
        stride = 1
        for name, size in axes:
            self.strides[name] = stride
            stride *= size

    def coordinate(self, rank: int, axis: str) -> int:
        """Where `rank` stands along `axis`, from 0."""
        return rank // self.strides[axis] % self.sizes[axis]

    def groups(self, axes: str | Sequence[str]) -> list[list[int]]:
        """Ranks that differ along `axes` alone, one list a group, ascending."""
        own = [a for a in self.sizes if a in axes]
        others = [a for a in reversed(self.sizes) if a not in axes]
        steps = sorted(self._offsets(own))
        return [[base + step for step in steps] for base in sorted(self._offsets(others))]

    def _offsets(self, axes: Sequence[str]) -> Iterator[int]:
        ranges = [range(0, self.sizes[a] * self.strides[a], self.strides[a]) for a in axes]
        return (sum(offsets) for offsets in product(*ranges))


class RankOrder:
    """The order of ranks of one layout.

    Training (megatron, fsdp and archon alike): ``rank = t + T*(c + C*(d + D*p))``, and in the
    expert mesh ``rank = etp + ETP*(e + E*(edp + EDP*p))``: Megatron-LM's order "tp-cp-ep-dp-pp"
    (core/parallel_state.py, ``RankGenerator``), leftmost fastest; AReaL's FSDP mesh (dp, sp, tp)
    and Archon mesh (pp, dp, cp, tp) have the last axis fastest, which is the same.

    Inference: instance i holds the ranks from ``i*T*P``; inside it tensor is fastest, then
    pipeline.
    """

    __slots__ = ("dense", "expert", "world")

    def __init__(self, sizes: Sizes, role: Role) -> None:
        d, t, p, c, e, etp = sizes
        axes = [("t", t), ("c", c), ("d", d), ("p", p)]
        if role == "inference":
            axes = [("t", t), ("c", c), ("p", p), ("d", d)]
        self.world = sizes.world
        self.dense = Mesh(axes)
        edp = sizes.world // (p * etp * e)
        self.expert = Mesh([("etp", etp), ("e", e), ("edp", edp), ("p", p)])

    def coordinates(self, rank: int) -> Coordinates:
        """Where `rank` stands.

        Raises:
            IndexError: for a rank outside ``range(world_size)``.
        """
        if not 0 <= rank < self.world:
            raise IndexError(f"rank {rank} is not in 0..{self.world - 1}")
        dense, expert = self.dense, self.expert
        return Coordinates(
            dense.coordinate(rank, "d"),
            dense.coordinate(rank, "p"),
            dense.coordinate(rank, "c"),
            dense.coordinate(rank, "t"),
            expert.coordinate(rank, "e"),
            expert.coordinate(rank, "etp"),
            expert.coordinate(rank, "edp"),
        )

    def rank(self, d: int = 0, p: int = 0, c: int = 0, t: int = 0) -> int:
        """The rank at these coordinates of the dense mesh.

        Raises:
            IndexError: for a coordinate outside its dimension.
        """
        total = 0
        for axis, value in (("d", d), ("p", p), ("c", c), ("t", t)):
            if not 0 <= value < self.dense.sizes[axis]:
                raise IndexError(f"{axis} {value} is not in 0..{self.dense.sizes[axis] - 1}")
            total += value * self.dense.strides[axis]
        return total


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
    fit, the largest units are placed first instead, then the servers' before the trainers', and
    the way with the fewest straddling units is kept.
    """
    best = _first_fit(demands, gpus_per_node, n_nodes)
    ways = (
        sorted(demands, key=lambda x: -x.size),
        sorted(demands, key=lambda x: (not x.serves, -x.size)),
    )
    cost = _cost(best, demands)
    for order in ways:
        if cost == (0, 0):
            break
        other = _first_fit(order, gpus_per_node, n_nodes)
        if (new := _cost(other, demands)) < cost:
            best, cost = other, new
    if cost[1] and any(not d.serves and d.size > 1 for d in demands):
        # A trainer's tensor group may be split so that no server is.
        split = [d if d.serves else Demand(d.engine, d.count * d.size, 1) for d in ways[1]]
        other = _first_fit(split, gpus_per_node, n_nodes)
        if _cost(other, demands)[0] < cost[0]:
            best = other
    return best


def _cost(placed: Placement, demands: Iterable[Demand]) -> tuple[int, int]:
    """Avoidable straddles: (server instances, tensor groups); of units that fit a node."""
    per_node = placed.gpus_per_node
    servers = trainers = 0
    for demand in demands:
        if demand.size <= per_node:
            count = placed.straddling(demand.engine)
            servers += count if demand.serves else 0
            trainers += 0 if demand.serves else count
    return servers, trainers


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
        self.gaps: list[list[int]] = []  # [start, length], each inside one node

    def next_node(self) -> None:
        self.tail = -(-self.tail // self.per_node) * self.per_node
        self.gaps = []

    def take(self, count: int, size: int) -> list[Unit]:
        units: list[Unit] = [self.one(size) for _ in range(count)]
        return [self.scattered(size) if unit is None else unit for unit in units]

    def one(self, size: int) -> int | None:
        """A run that stays inside a node, or begins one; None where there is none."""
        for gap in self.gaps:
            if gap[1] >= size:
                start = gap[0]
                gap[0] += size
                gap[1] -= size
                if not gap[1]:
                    self.gaps.remove(gap)
                return start
        room = self.per_node - self.tail % self.per_node
        skip = room if size > room and room < self.per_node else 0
        if self.end is not None and self.tail + skip + size > self.end:
            return None
        if skip:
            self.gaps.append([self.tail, skip])
            self.tail += skip
        start = self.tail
        self.tail += size
        return start

    def scattered(self, size: int) -> Unit:
        """GPUs wherever some are free; None where there are too few."""
        at_end = 0 if self.end is None else self.end - self.tail
        if sum(length for _, length in self.gaps) + at_end < size:
            return None
        taken: list[int] = []
        while len(taken) < size and self.gaps:
            start, length = self.gaps[0]
            part = min(length, size - len(taken))
            taken.extend(range(start, start + part))
            self.gaps[0] = [start + part, length - part]
            if part == length:
                self.gaps.pop(0)
        more = size - len(taken)
        taken.extend(range(self.tail, self.tail + more))
        self.tail += more
        return tuple(taken)


def idle(placements: Mapping[str, Sequence[Device | None]], n_nodes: int, per_node: int) -> int:
    """GPUs of the cluster on which no rank sits."""
    used = {device for devices in placements.values() for device in devices if device}
    return n_nodes * per_node - len(used)
