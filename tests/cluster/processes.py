"""Processes known by what stands in their environment, which their children inherit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path


def processes(ours: Callable[[set[bytes]], bool]) -> Iterator[int]:
    """Other processes whose environment (``b"NAME=value"``, as they began) is one of `ours`."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = set((entry / "environ").read_bytes().split(b"\0"))
        except OSError:  # it has ended, or is not for us to read
            continue
        if ours(variables):
            yield int(entry.name)


def kill_all(find: Callable[[], Iterator[int]], seconds: float = 30) -> None:
    """Kill what `find` finds until it finds nothing more.

    Raises:
        TimeoutError: some do not end.
    """
    end = time.monotonic() + seconds
    while left := list(find()):
        if time.monotonic() > end:
            raise TimeoutError(f"processes {left} do not end")
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
