"""Runs a job's training script as one rank, and records how that ended.

`areal_conf.areal.job` copies this file into the job's directory as ``rank.py``, and gives AReaL's
launcher the copy in place of the script: its own exit status does not tell success from failure.
Beside it, ``job.json`` names the script, and ``ranks/RANK.json`` gets the outcome: ``running``,
``succeeded``, ``failed`` or ``interrupted``. A rank that was killed stays ``running``.

Records have one size. They are made before the job starts and are written in place, so that a disk
that is full meanwhile has room for them. A record that cannot be written stops no script.

It runs where ranks run, so that it imports nothing of this package.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDS = os.path.join(HERE, "ranks")
SIZE = 4096
_UNSEEN = 60.0


def main(argv: list[str]) -> Any:
    """What AReaL's Ray launcher calls in each rank: the script's own ``main(argv)``.

    That launcher kills every rank when the first one returns, so that this one waits for the
    others.
    """
    script = _script()
    with _recorded():
        result = _module(script).main(argv)
    _wait_for_others()
    return result


def _run_as_main() -> None:
    script = _script()
    sys.argv[0] = script
    sys.path[0] = os.path.dirname(script)
    with _recorded():
        runpy.run_path(script, run_name="__main__")


def _script() -> str:
    with open(os.path.join(HERE, "job.json"), encoding="utf-8") as file:
        return str(json.load(file)["script"])


def _module(script: str) -> Any:
    sys.path.insert(0, os.path.dirname(script))
    name = os.path.splitext(os.path.basename(script))[0].replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, script)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{script} cannot be loaded: it does not end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _recorded() -> Iterator[None]:
    _record("running")
    try:
        yield
    except SystemExit as exit_:
        if exit_.code in (None, 0):
            _record("succeeded")
        else:
            _record("failed", f"exit status {exit_.code}")
        raise
    except KeyboardInterrupt:
        _record("interrupted")
        raise
    except BaseException as error:
        _record("failed", f"{type(error).__name__}: {error}")
        raise
    _record("succeeded")


def _record(outcome: str, error: str = "") -> None:
    rank = int(os.environ.get("RANK", "0"))
    entry = {
        "rank": rank,
        "world_size": _world_size(),
        "outcome": outcome,
        "error": error[:2000],
        "pid": os.getpid(),
    }
    try:
        os.makedirs(RECORDS, exist_ok=True)
        write_record(os.path.join(RECORDS, f"{rank}.json"), entry)
    except OSError as failure:
        sys.stderr.write(f"areal-conf: rank {rank} is not recorded: {failure.strerror}\n")


def write_record(path: str, entry: dict[str, Any]) -> None:
    """Write a record of `SIZE` bytes in place, and make it where there is none."""
    text = json.dumps(entry)
    while len(text) > SIZE:
        entry = {**entry, "error": entry["error"][: len(entry["error"]) // 2]}
        text = json.dumps(entry)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        os.write(handle, text.encode().ljust(SIZE))
        os.fsync(handle)
    finally:
        os.close(handle)


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _wait_for_others() -> None:
    """Return once every rank has ended, or when some have not shown up for a minute."""
    last_seen = time.monotonic()
    seen = -1
    while True:
        outcomes = list(filter(None, map(_outcome, range(_world_size()))))
        if len(outcomes) != seen:
            seen, last_seen = len(outcomes), time.monotonic()
        if "running" not in outcomes and (
            seen == _world_size() or time.monotonic() - last_seen > _UNSEEN
        ):
            return
        time.sleep(0.2)


def _outcome(rank: int) -> str | None:
    try:
        with open(os.path.join(RECORDS, f"{rank}.json"), encoding="utf-8") as file:
            return str(json.load(file)["outcome"]) or None
    except (FileNotFoundError, ValueError):
        return None


if __name__ == "__main__":
    _run_as_main()
