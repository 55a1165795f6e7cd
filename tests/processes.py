"""Processes in surroundings that tests choose."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """The environment of this process with other values; None: unset."""
    merged = {**os.environ, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def heed_permissions() -> None:
    """Make the program that this process becomes heed modes of files, which root does not."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        if os.geteuid() == 0 and libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "root keeps its capabilities here")


def fill_the_disk() -> None:
    """No file may be longer than 64 bytes, which looks as a full disk does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))


SEVERAL = """
import json, os, sys
from areal_conf.cli import entry
for columns, arguments in json.loads(sys.argv[1]):
    os.environ["COLUMNS"] = columns
    status = entry.main(arguments)
    for stream in (sys.stdout, sys.stderr):
        print("\\f", status, sep="", end="\\f", file=stream, flush=True)
"""


class Done(NamedTuple):
    """What a command returned and printed."""

    status: int
    out: str
    err: str


def commands(
    *lines: tuple[str, ...],
    python: tuple[str, ...] = (),
    columns: tuple[str, ...] = ("100",),
    cwd: Path | None = None,
    before: Callable[[], object] | None = None,
    env: Mapping[str, str | None] | None = None,
) -> list[Done]:
    """Run commands of ``areal-conf`` one after the other, in a process that is started for them.

    Args:
        lines: arguments of each.
        python: options of the interpreter.
        columns: widths of the terminal; each command is run in each of them.
        cwd: working directory.
        before: called in the new process before it becomes Python.
        env: variables that are other than here; None: unset.
    """
    jobs = json.dumps([(width, line) for width in columns for line in lines])
    done = subprocess.run(
        [sys.executable, *python, "-c", SEVERAL, jobs],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        env=environment(env or {}),
        preexec_fn=before,
        cwd=cwd,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    out, err = (text.split("\f") for text in (done.stdout, done.stderr))
    return [Done(int(out[i + 1]), out[i], err[i]) for i in range(0, len(out) - 1, 2)]
