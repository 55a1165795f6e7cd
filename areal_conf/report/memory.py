"""Estimates of memory in words: what a table shows of each engine, and of GPUs that are shared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from areal_conf.errors import counted
from areal_conf.report.colours import VERDICTS

if TYPE_CHECKING:
    from areal_conf.planning.memory_result import EngineMemory, PlanMemory, SharedMemory

LEAST_SHOWN = 0.05
"""GiB below which a part is not listed."""


def whole(ends: tuple[float, float]) -> str:
    """A range in whole numbers, rounded outwards: ``31-40``."""
    low, high = math.floor(ends[0]), math.ceil(ends[1])
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def memory_verdict(memory: EngineMemory | None) -> list[str]:
    """``31-40 of 79 GiB``; below it what that means, where it does not simply fit."""
    if memory is None:
        return []
    if memory.step is None:
        return ["not estimated"]
    return [f"{whole(memory.step)} of {memory.gpu:.0f} GiB", *_VERDICTS.get(memory.verdict, ())]


def memory_parts(memory: EngineMemory | None) -> list[str]:
    """The parts in GiB, largest first and marked by ``>``; the room of a cache; loading."""
    if memory is None or memory.step is None:
        return []
    parts = sorted(memory.parts.items(), key=lambda part: -part[1])
    shown = [f"{name} {size:.1f}" for name, size in parts if size >= LEAST_SHOWN]
    if shown:
        shown[0] = f"> {shown[0]}"
    cache = memory.kv_cache
    if cache is not None:
        shown.append(f"cache {whole(cache.room)}")
        if cache.requests is not None:
            low, high = (math.floor(end) for end in cache.requests)
            held = f"{low:,}" if low == high else f"{low:,}-{high:,}"
            shown.append(f"full requests {held}")
    if memory.load is not None:
        shown.append(f"loading {whole(memory.load)}")
    return shown


_VERDICTS = {"may": ("may not fit",), "no": ("does not fit",), "unknown": ("not complete",)}


def memory_summary(memory: PlanMemory | None) -> list[str]:
    """What engines on the same GPUs need together, a line for each set of GPUs."""
    if memory is None:
        return []
    return [
        f"{' and '.join(shared.engines)} on {counted(shared.gpus, 'GPU')}: "
        f"{whole(shared.step)} of {memory.gpu:.0f} GiB together"
        for shared in memory.gpus
        if len(shared.engines) > 1
    ]


_BAR_CLASSES = {"fits": "mf", "may": "mm", "no": "mn", "unknown": "mu"}
_FILLED = "".join(f".ac .{_BAR_CLASSES[word]}{{fill:{fill}}}" for word, fill in VERDICTS.items())
BAR_STYLE = f".ac .mt{{fill:#cfd4da}}{_FILLED}\n"
"""Style of a memory bar in a picture: its track, and what fills it by verdict."""

_BAR_HEIGHT = 4
MEMORY_ROOM = 6
"""Height that a bar takes below the cells of a node."""


def shared_of(memory: PlanMemory | None, engine: str) -> SharedMemory | None:
    """What the GPUs of `engine` need for all engines on them; None where not estimated."""
    for shared in memory.gpus if memory is not None else ():
        if engine in shared.engines:
            return shared
    return None


def memory_bar(shared: SharedMemory, gpu: float, x: float, y: float, width: float) -> str:
    """A bar below a GPU: full at the card's size, filled to the middle of the range."""
    filled = min(1.0, (shared.step[0] + shared.step[1]) / 2 / gpu) * width
    place = f'x="{x:g}" y="{y:g}" height="{_BAR_HEIGHT}" rx="1"'
    kind = _BAR_CLASSES[shared.verdict]
    return (
        f'<rect class="mt" {place} width="{width:g}"/>'
        f'<rect class="{kind}" {place} width="{filled:.4g}"/>'
    )


def memory_key(memory: PlanMemory) -> str:
    """How to read the bars, in a sentence."""
    return (
        f"A coloured bar: memory of {memory.gpu:.0f} GiB a GPU; green fits, orange may not fit, "
        "red does not, grey is not complete."
    )
