"""From one figure to a range, and from a range to a verdict."""

from __future__ import annotations

from typing import Literal

GIB = 2.0**30
"""Bytes of a GiB."""

Range = tuple[float, float]
"""Lower and upper end."""

Verdict = Literal["fits", "may", "no", "unknown"]
"""Whether something fits the card."""

STATIC_RANGE = 0.97, 1.07
DYNAMIC_RANGE = 0.88, 1.15
"""How far states and everything else may be off, as factors."""

SLACK = 1.0
"""GiB by which fragments may raise the allocator's peak; a tenth of the peak where that is less."""

CONTEXT = 1.0, 3.0
"""GiB of CUDA's context and NCCL's buffers beside the allocator; what is over the lower end is at
most 15 % of the rest, since small models need few buffers."""


def allocator_range(static: float, dynamic: float, workspace: float, pools: float = 0.0) -> Range:
    """The range of torch's allocator, in GiB.

    Args:
        static: what stays.
        dynamic: everything else.
        workspace: of the libraries.
        pools: what streams keep reserved for themselves: fragments are part of it.
    """
    low = STATIC_RANGE[0] * static + DYNAMIC_RANGE[0] * dynamic + workspace
    high = STATIC_RANGE[1] * static + DYNAMIC_RANGE[1] * dynamic + workspace
    return low, high + max(pools, min(SLACK, 0.1 * (static + dynamic + workspace)))


def all_in(allocator: Range) -> Range:
    """What the card must hold, in GiB: the allocator's range, context and buffers."""
    least, most = CONTEXT
    return allocator[0] + least, allocator[1] + min(most, least + 0.15 * allocator[0])


def verdict_of(
    gpu: float | None, step: Range | None, load: Range | None = None, sure: bool = True
) -> Verdict:
    """``fits``, ``no`` or ``may``; ``unknown`` without a card.

    Args:
        gpu: GiB of the card.
        step: range of a step.
        load: range of loading, where it may need more.
        sure: whether the range counts everything; if not, only ``no`` can be said.
    """
    if gpu is None or step is None:
        return "unknown"
    ranges = [step] if load is None else [step, load]
    if any(low > gpu for low, _ in ranges):
        return "no"
    if not sure:
        return "unknown"
    return "fits" if all(high < gpu for _, high in ranges) else "may"
