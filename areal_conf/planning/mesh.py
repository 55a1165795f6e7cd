"""Rank order: which group of each dimension a rank belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from areal_conf.spec.backends import Role, Sizes

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

    __slots__ = ("sizes", "strides")

    def __init__(self, axes: Sequence[tuple[str, int]]) -> None:
        self.sizes = dict(axes)
        self.strides: dict[str, int] = {}
        stride = 1
        for name, size in axes:
            self.strides[name] = stride
            stride *= size

    def coordinate(self, rank: int, axis: str) -> int:
        """Where `rank` stands along `axis`, from 0."""
        return rank // self.strides[axis] % self.sizes[axis]

    def groups(self, axis: str) -> list[list[int]]:
        """Ranks that differ along `axis` alone, one list a group, ascending."""
        others = [a for a in reversed(self.sizes) if a != axis]
        steps = [*self._offsets([axis])]
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
