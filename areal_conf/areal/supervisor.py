"""Runs one command and leaves none of its processes behind.

    python supervisor.py PARENT COMMAND ...

AReaL's local launcher, sent SIGTERM, dies and leaves servers and ranks running; only SIGINT makes
it clean up. So this process stands between: a signal to it (or the end of the process PARENT, which
started it) becomes SIGINT for the command, then SIGTERM and SIGKILL for whatever is left, orphans
included, which the kernel hands to it (``PR_SET_CHILD_SUBREAPER``). Should this process be killed
itself, the command gets SIGINT. Its exit status is the command's, 128 + N where signal N ended
that.

It imports nothing of this package, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

GRACE = 30.0
"""Seconds that the command has to clean up after SIGINT."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a job."""

_LAST_WORDS = 5.0
_TICK = 0.1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(parent: int, command: list[str]) -> int:
    """Run `command` as long as `parent` lives; its exit status."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    asked: list[int] = []
    for number in STOPPING:
        # What was ignored when the launch began (nohup) stays so; SIGTERM is how PARENT asks.
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda got, frame: asked.append(got))
    if os.getppid() != parent:  # it ended before the kernel was told
        return 128 + signal.SIGTERM
    me = os.getpid()
    try:
        child = subprocess.Popen(command, start_new_session=True, preexec_fn=lambda: _bind_to(me))
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    status = _wait(child, asked)
    _end_the_rest()
    return status if status >= 0 else 128 - status


def _bind_to(parent: int) -> None:
    """In a child: SIGINT once `parent` has ended, even where it was ignored so far."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGINT)


def _wait(child: subprocess.Popen[bytes], asked: list[int]) -> int:
    """The command's return code; it is stopped once a signal arrived, sooner on a second one."""
    told, deadline = 0, float("inf")
    while True:
        if (status := _reaped(child.pid)) is not None:
            return status
        if asked and not told:
            told, deadline = 1, time.monotonic() + GRACE
            child.send_signal(signal.SIGINT)
        elif told == 1 and (len(asked) > 1 or time.monotonic() > deadline):
            told = 2
            _end_the_rest()
        time.sleep(_TICK)


def _reaped(wanted: int | None) -> int | None:
    """Collect every process that ended; the return code of `wanted` where it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == wanted:
            found = os.waitstatus_to_exitcode(status)


def _end_the_rest() -> None:
    """SIGTERM for every process below this one, and SIGKILL for those that stay."""
    for number, seconds in ((signal.SIGTERM, _LAST_WORDS), (signal.SIGKILL, _LAST_WORDS)):
        deadline = time.monotonic() + seconds
        told: set[int] = set()
        while left := _descendants():
            for pid in left - told:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            told |= left
            if time.monotonic() > deadline:
                break
            time.sleep(_TICK)


def _descendants() -> set[int]:
    """Processes below this one that have not ended; none where there is no ``/proc``."""
    parents: dict[int, int] = {}
    try:
        entries = os.listdir("/proc")
    except OSError:
        return set()
    for entry in filter(str.isdigit, entries):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                state, ppid = file.read().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry)] = int(ppid)
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def _prctl(option: int, value: int) -> None:
    """Ask the Linux kernel; elsewhere nothing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
