"""What a job measured of itself: AReaL's logs and tensorboard files in the directory of the job.

Formats, at areal-project/AReaL@v1.0.4: the lines ``Memory-Usage HEAD: memory allocated (GB): ...``
(areal/api/io_struct.py, ``DeviceRuntimeInfo.log``; its GB are 1024**3 bytes), the tables of
``StatsLogger.print_stats`` (areal/utils/printing.py, tabulate's ``fancy_grid``), and scalars of
tensorboardX under the same names. Times stand under ``timeperf/`` (areal/utils/stats_tracker.py).
"""

from __future__ import annotations

import math
import os
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from areal_conf.sweeps.results.event_files import read_scalars

_LOGS = (".log", ".out", ".err")
_TAIL = 16 * 2**20
"""Bytes at the end of a log that are read."""

_MOST_FILES = 400

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MEMORY = re.compile(
    r"Memory-Usage (?P<head>.{0,200}?): "
    r"memory allocated \((?P<unit>[KMG]B)\): (?P<allocated>[\d.]+), "
    r"memory reserved \([KMG]B\): (?P<reserved>[\d.]+), "
    r"device memory used/total \([KMG]B\): (?P<used>[\d.]+)/(?P<total>[\d.]+)"
)
_GIB = {"GB": 1.0, "MB": 2.0**-10, "KB": 2.0**-20}
_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP|NPU)(?: error:)? out of memory"
    r"|OOM[- ]kill|oom_kill|OUT_OF_MEMORY",
    re.IGNORECASE,
)
_TIME = "timeperf/"


@dataclass
class Measured:
    """Figures of one job.

    Attributes:
        memory: GiB of the last line on memory: ``head``, ``allocated``, ``reserved``, ``used`` and
            ``total`` of the device, and ``most_used``, ``most_reserved`` over all lines.
        timeperf: the last time of each part of a step, in seconds, by its name without
            ``timeperf/``.
        typical: the median of each part over all steps but the first.
        steps: how many steps were timed.
        out_of_memory: whether a log tells of memory that ran out.
    """

    memory: dict[str, Any] = field(default_factory=dict)
    timeperf: dict[str, float] = field(default_factory=dict)
    typical: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    out_of_memory: bool = False


def read_measured(*directories: Path) -> Measured:
    """What the logs and event files below some directories say.

    What cannot be read says nothing. Of a log, the last 16 MiB are read.
    """
    found = Measured()
    logged: dict[str, list[float]] = {}
    scalars: dict[str, dict[int, float]] = {}
    for path in _files(directories):
        try:
            if "tfevents" in path.name:
                for tag, step, value in read_scalars(path):
                    if tag.startswith(_TIME) and math.isfinite(value):
                        scalars.setdefault(tag, {})[step] = value
            else:
                _read_log(path, found, logged)
        except OSError:
            continue
    series = {tag: [values[n] for n in sorted(values)] for tag, values in scalars.items()}
    for tag, values in {**logged, **series}.items():
        name = tag.removeprefix(_TIME)
        found.timeperf[name] = values[-1]
        found.typical[name] = statistics.median(values[1:] or values)
        found.steps = max(found.steps, len(values))
    return found


def _files(directories: tuple[Path, ...]) -> Iterator[Path]:
    seen: set[str] = set()
    for directory in directories:
        for folder, below, names in os.walk(directory):
            below[:] = sorted(name for name in below if not name.startswith("."))
            for name in sorted(names):
                path = Path(folder, name)
                real = os.path.realpath(path)
                if (name.endswith(_LOGS) or "tfevents" in name) and real not in seen:
                    seen.add(real)
                    if len(seen) > _MOST_FILES:
                        return
                    if os.path.isfile(real):
                        yield path


def _read_log(path: Path, found: Measured, times: dict[str, list[float]]) -> None:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL))
        text = file.read(_TAIL).decode("utf-8", "replace")
    mine: dict[str, list[float]] = {}
    for line in _COLOURS.sub("", text).splitlines():
        if "Memory-Usage" in line and (memory := _MEMORY.search(line)):
            _note_memory(found.memory, memory)
        elif "\N{BOX DRAWINGS LIGHT VERTICAL}" in line:
            for tag, value in _cells(line):
                if tag.startswith(_TIME):
                    mine.setdefault(tag, []).append(value)
        elif not found.out_of_memory and _OUT_OF_MEMORY.search(line):
            found.out_of_memory = True
    for tag, values in mine.items():  # one log may be a copy of another
        if len(values) > len(times.get(tag, ())):
            times[tag] = values


def _note_memory(memory: dict[str, Any], line: re.Match[str]) -> None:
    scale = _GIB[line["unit"]]
    figures = {key: float(line[key]) * scale for key in ("allocated", "reserved", "used", "total")}
    memory.update(head=line["head"], **{key: round(size, 3) for key, size in figures.items()})
    for key in ("used", "reserved"):
        memory[f"most_{key}"] = max(memory.get(f"most_{key}", 0.0), memory[key])


def _cells(line: str) -> Iterator[tuple[str, float]]:
    """Names and values of a row of a table: they take turns."""
    cells = [cell.strip() for cell in line.split("\N{BOX DRAWINGS LIGHT VERTICAL}")[1:]]
    for tag, number in zip(cells[::2], cells[1::2], strict=False):
        try:
            value = float(number)
        except ValueError:
            continue
        if tag and math.isfinite(value):
            yield tag, value


def tells_of_memory(text: str) -> bool:
    """Whether an error's text tells of memory that ran out."""
    return bool(_OUT_OF_MEMORY.search(text))
