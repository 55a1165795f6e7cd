"""Two things measured alike: in turn, in seconds of the processor, as ratios of pairs.

What else runs on the machine slows both sides of a pair, so that their ratio holds where each
time alone would not. The median of the pairs counts; the least and the greatest ratio show how
quiet the machine was.
"""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

Job = Callable[[], Any]
"""What is measured: one call."""


@dataclass(frozen=True)
class Effort:
    """How much is measured: pairs of each comparison, and the least seconds of one pass."""

    pairs: int
    seconds: float


FULL = Effort(pairs=11, seconds=0.05)
QUICK = Effort(pairs=1, seconds=0.002)


@dataclass(frozen=True)
class Row:
    """One comparison: what it takes here, and what its peer takes.

    Attributes:
        what: what is measured.
        here: seconds (or MiB) of each pass.
        peer: what it is held to.
        theirs: the same of the peer, pair by pair; empty where the peer is not installed.
        most: bar for what it takes here.
        most_times: bar for the ratio to the peer.
        unit: ``s`` or ``MiB``.
    """

    what: str
    here: list[float]
    peer: str
    theirs: list[float] = field(default_factory=list)
    most: float | None = None
    most_times: float | None = None
    unit: Literal["s", "MiB"] = "s"

    @property
    def ratios(self) -> list[float]:
        """Here over peer, pair by pair, rising."""
        return sorted(a / b for a, b in zip(self.here, self.theirs, strict=False))

    @property
    def bars(self) -> list[tuple[str, bool]]:
        """Each bar in words, and whether it is met."""
        found = []
        if self.most is not None:
            found.append((f"under {shown(self.most, self.unit)}", median(self.here) < self.most))
        if self.most_times is not None and self.theirs:
            met = median(self.ratios) < self.most_times
            found.append((f"under {times(self.most_times)}", met))
        return found

    def cells(self) -> list[str]:
        """The row of the table."""
        theirs, ratio = "not installed", "-"
        if self.theirs:
            theirs = shown(median(self.theirs), self.unit)
            least, middle, greatest = self.ratios[0], median(self.ratios), self.ratios[-1]
            ratio = f"**{times(middle)}** ({times(least)} to {times(greatest)})"
        bars = [f"{bar}: {'met' if met else '**missed**'}" for bar, met in self.bars]
        here = shown(median(self.here), self.unit)
        return [self.what, here, self.peer, theirs, ratio, "; ".join(bars) or "-"]


def shown(value: float, unit: str) -> str:
    """A time or an amount of memory with three figures."""
    if unit == "s":
        power = next((n for n in range(3) if value * 1000**n >= 1), 3)
        value, unit = value * 1000**power, ("s", "ms", "us", "ns")[power]
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def times(ratio: float) -> str:
    """A ratio in words: ``1.02``, and ``1/8,400`` for a small one."""
    if ratio < 0.1:
        return f"1/{1 / ratio:,.0f}"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def table(rows: list[Row]) -> Iterator[str]:
    """The rows as Markdown."""
    yield "| what | here | peer | peer takes | ratio (least to greatest) | bar |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', BAR) for cell in row.cells())} |"


BAR = "\\|"
"""A vertical bar inside a cell."""


# -- time -----------------------------------------------------------------------------------------


def compare(
    what: str,
    here: Job,
    peer: str,
    theirs: Callable[[], Job],
    effort: Effort,
    *,
    whole: tuple[float, float] = (1, 1),
    most: float | None = None,
    most_times: float | None = None,
) -> Row:
    """A row of seconds.

    Args:
        what: what is measured.
        here: our side.
        peer: name of the other.
        theirs: makes the other side; an `ImportError` says that it is not installed.
        effort: how much is measured.
        whole: how many calls of each side make up what the row speaks of: 1/100 for a call that
            does a hundred of it, 200 where one call of the slow side is a two-hundredth.
        most: bar in seconds.
        most_times: bar for the ratio.
    """
    try:
        jobs = [here, theirs()]
    except ImportError:
        jobs = [here]
    repeats = [_repeats(job, effort) for job in jobs]
    spent: list[list[float]] = [[] for _ in jobs]
    for number in range(effort.pairs):
        sides = list(range(len(jobs)))
        for side in sides if number % 2 else reversed(sides):
            spent[side].append(seconds(jobs[side], repeats[side]) * whole[side])
    return Row(what, spent[0], peer, spent[1] if len(jobs) > 1 else [], most, most_times)


def _repeats(job: Job, effort: Effort) -> int:
    """Calls of `job` that take long enough for the clock; the first, which warms up, is free."""
    if seconds(job) > _LONG * effort.seconds:
        return 1
    repeats = 1
    while (spent := seconds(job, repeats) * repeats) < effort.seconds:
        repeats = max(repeats + 1, min(10 * repeats, int(repeats * effort.seconds / spent)))
    return repeats


_LONG = 50
"""A first call that takes so many times what a pass must take is no matter of warming up."""


def seconds(job: Job, repeats: int = 1) -> float:
    """Seconds of the processor that one call of `job` takes, on average."""
    gc.disable()
    try:
        started = time.process_time()
        for _ in range(repeats):
            job()
        return max(time.process_time() - started, 1e-9) / repeats
    finally:
        gc.enable()


# -- memory ---------------------------------------------------------------------------------------


def peak(module: str, function: str) -> float:
    """MiB that a fresh Python needs at most to import a module of this folder and call a function
    of it.

    Raises:
        ImportError: what it needs is not installed.
    """
    command = [sys.executable, __file__, module, function]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == _MISSING:
        raise ImportError(f"{module}.{function} needs what is not installed")
    if done.returncode:
        raise RuntimeError(done.stderr)
    return int(done.stdout.split()[-1]) / 1024


_MISSING = 3


def main(module: str, function: str) -> int:
    """The fresh Python: do it, and print the greatest resident size in KiB."""
    try:
        getattr(importlib.import_module(module), function)()
    except ImportError:
        return _MISSING
    # Not ru_maxrss, which begins with what the parent held.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(status.partition("VmHWM:")[2].split()[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
