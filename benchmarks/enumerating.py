"""Every layout of a pattern, against trying all sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product

from measure import Effort, Row, compare

from areal_conf import AllocationError, ModelAllocation, layouts
from areal_conf.search_space import Space
from areal_conf.spec import allocation

TITLE = "Enumerating layouts"
SMALL, SMALL_GPUS = "megatron:d*t*p*c*e*@64", 64
PATTERNS = (
    "megatron:d*t*p*c*e*@4096",
    "megatron:attn:d*t*p*c*|ffn:t*e*@1024",
    "archon:d*t*p*c*e*@4096",
    "fsdp:d*t*c*@1048576",
    "sglang:d*t*p*@1048576",
)
_BAR = 1 / 250_000


def rows(effort: Effort) -> Iterator[Row]:
    """One pattern against brute force; the others as seconds for one layout."""
    assert set(layouts(SMALL)) == set(brute_force())
    yield compare(
        f"all of `{SMALL}`",
        here,
        "all sizes up to 64 written and parsed",
        lambda: peer,
        effort,
    )
    for pattern in PATTERNS:
        space = Space.of(pattern)
        count = use_up(layouts(pattern))
        share = 1 / count
        yield compare(
            f"one of {count:,}, `{pattern}`",
            lambda pattern=pattern: use_up(layouts(pattern)),
            "its bare sizes, as a tuple",
            lambda space=space: lambda: use_up(space.sizes(space.gpus_or(None))),
            effort,
            whole=(share, share),
            most=_BAR,
        )


def use_up(things: Iterable[object]) -> int:
    """How many there are."""
    return sum(1 for _ in things)


def brute_force() -> Iterator[ModelAllocation]:
    """The layouts of `SMALL` as someone finds them who has a parser and nothing else."""
    allocation._CACHE.clear()
    sizes = [size for size in range(1, SMALL_GPUS + 1) if SMALL_GPUS % size == 0]
    for d, t, p, c in product(sizes, repeat=4):
        if d * t * p * c == SMALL_GPUS:
            for e in sizes:
                with suppress(AllocationError):
                    yield ModelAllocation.from_str(f"megatron:d{d}t{t}p{p}c{c}e{e}")


def here() -> None:
    """All layouts of `SMALL`."""
    use_up(layouts(SMALL))


def peer() -> None:
    """The same by brute force."""
    use_up(brute_force())
