"""Layouts enumerated a second, as `ModelAllocation` objects and as bare sizes.

    python benchmarks/enumerate.py

Each pattern is enumerated once before the clock starts; the best of several passes counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from areal_conf import layouts
from areal_conf.layouts import Space

PATTERNS = (
    "megatron:d*t*p*c*e*@4096",
    "megatron:attn:d*t*p*c*|ffn:t*e*@1024",
    "archon:d*t*p*c*e*@4096",
    "fsdp:d*t*c*@1048576",
    "sglang:d*t*p*@1048576",
)
PASSES = 7


def rate(enumerate_all: Callable[[], Iterable[object]]) -> tuple[int, float]:
    """How many things, and how many of them a second in the best pass."""
    count = sum(1 for _ in enumerate_all())
    repeats = max(1, 20_000 // count)
    best = float("inf")
    for _ in range(PASSES):
        start = time.perf_counter()
        for _ in range(repeats):
            for _ in enumerate_all():
                pass
        best = min(best, time.perf_counter() - start)
    return count, count * repeats / best


def main() -> None:
    """Print one line a pattern."""
    print(f"{'pattern':40} {'layouts':>8} {'objects/s':>12} {'bare sizes/s':>13}")
    for pattern in PATTERNS:
        space = Space.of(pattern)
        count, objects = rate(partial(layouts, pattern))
        _, bare = rate(partial(space.sizes, space.gpus_or(None)))
        print(f"{pattern:40} {count:8} {objects:12,.0f} {bare:13,.0f}")


if __name__ == "__main__":
    main()
