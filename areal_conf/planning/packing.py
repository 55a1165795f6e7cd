"""Units into nodes so that none straddles one: an exact search, where first fit was not enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Pattern = tuple[int, ...]
"""How many units of each size one node holds."""

MAX_STEPS = 10_000
"""Choices looked at before the search gives up."""


def pack(counts: Mapping[int, int], room: int, nodes: int) -> list[dict[int, int]] | None:
    """Units of each size for every node that gets some; None where no way was found.

    Args:
        counts: number of units by size, each at most `room`.
        room: GPUs of a node.
        nodes: number of nodes.
    """
    search = _Search(sorted(counts, reverse=True), room)
    found = search.fill(tuple(counts[size] for size in search.sizes), nodes)
    if found is None:
        return None
    filled = []
    for pattern, times in found:
        holds = {size: n for size, n in zip(search.sizes, pattern, strict=True) if n}
        filled += [holds] * times
    return filled


class _Search:
    """Depth first over full nodes: what a node could still take, it may as well take."""

    def __init__(self, sizes: list[int], room: int) -> None:
        self.sizes = sizes
        self.room = room
        self.hopeless: set[tuple[Pattern, int]] = set()
        self.steps = 0

    def fill(self, left: Pattern, nodes: int) -> list[tuple[Pattern, int]] | None:
        """Patterns and how many nodes have each, for the units `left`."""
        if not any(left):
            return []
        self.steps += 1
        spare = nodes * self.room - self.total(left)
        if spare < 0 or (left, nodes) in self.hopeless:
            return None
        for pattern in sorted(self.patterns(left), key=self.total, reverse=True):
            for times in range(self.most(left, pattern, spare), 0, -1):
                rest = tuple(n - times * k for n, k in zip(left, pattern, strict=True))
                found = self.fill(rest, nodes - times)
                if found is not None:
                    return [(pattern, times), *found]
                if self.steps > MAX_STEPS:
                    return None
        self.hopeless.add((left, nodes))
        return None

    def total(self, counts: Pattern) -> int:
        return sum(size * n for size, n in zip(self.sizes, counts, strict=True))

    def most(self, left: Pattern, pattern: Pattern, spare: int) -> int:
        """How many nodes at most could have `pattern`, with no more than `spare` GPUs left idle.

        They are never more than there are: `spare` is what the units of `left` leave of all nodes.
        """
        waste = self.room - self.total(pattern)
        enough = min(n // k for n, k in zip(left, pattern, strict=True) if k)
        return min(enough, spare // waste) if waste else enough

    def patterns(self, left: Pattern) -> Iterator[Pattern]:
        """Full nodes that hold the largest size there is: some node must."""
        largest = next(i for i, n in enumerate(left) if n)
        for rest in self.choices(left, largest, self.room):
            if rest[0]:
                yield (0,) * largest + rest

    def choices(self, left: Pattern, i: int, room: int) -> Iterator[Pattern]:
        """What `room` could hold of the sizes from the one at `i` on, and nothing more fit."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            return
        size = self.sizes[i]
        most = min(left[i], room // size)
        if i == len(left) - 1:
            yield (most,)
            return
        for n in range(most, -1, -1):
            for rest in self.choices(left, i + 1, room - n * size):
                free = room - n * size - self.total((0,) * (i + 1) + rest)
                if n == most or free < size:  # else it could take one more
                    yield (n, *rest)
