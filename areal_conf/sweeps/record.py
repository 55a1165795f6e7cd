"""``layouts.json``: what a sweep starts, and what became of each job while it runs.

Each job notes its start and end in a file of its own, ``.layouts/NUMBER.json``, through a callback
that Hydra runs wherever the job runs. The sweep gathers these into one file, which is whole at
every moment; `gather` does so too for a sweep that was killed while its jobs went on.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hydra.experimental.callback import Callback

from areal_conf.errors import clip
from areal_conf.files import write_atomically
from areal_conf.sweeps.results.measured import read_measured, tells_of_memory

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig


log = logging.getLogger(__name__)

FILE, NOTES = "layouts.json", ".layouts"
VERSION = 1
WAITING, RUNNING, COMPLETED, FAILED = "waiting", "running", "completed", "failed"
OUT_OF_MEMORY, STOPPED = "out_of_memory", "stopped"

_INTERVAL = 0.5
"""Seconds between looks at what jobs have noted."""

_LONGEST = 2000
"""Characters of a text that a job returned or raised."""


class RecordCallback(Callback):
    """Notes start and end of each job of a sweep.

    Args:
        directory: absolute path of the sweep's directory.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._began = 0.0

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Note that a job starts, and where."""
        self._began = time.monotonic()
        output = str(config.hydra.runtime.output_dir)
        self._note(config, {"state": RUNNING, "started": time.time(), "directory": output})

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Note how a job ended."""
        note = {
            "directory": str(config.hydra.runtime.output_dir),
            "seconds": round(time.monotonic() - self._began, 3),
        }
        self._note(config, {**note, **outcome(job_return)})

    def _note(self, config: DictConfig, note: dict[str, Any]) -> None:
        if any(os.environ.get(name, "0") != "0" for name in ("RANK", "SLURM_PROCID")):
            return
        number = int(config.hydra.job.num)
        try:
            folder = Path(self.directory, NOTES)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / f"{number}.json", json.dumps({"job": number, **note}))
        except OSError as error:
            log.warning("job %d is not noted in %s: %s", number, FILE, error.strerror or error)
            return
        record = Record.living.get(self.directory)
        if record is not None and note["state"] != RUNNING:
            record.refresh()


def outcome(result: JobReturn) -> dict[str, Any]:
    """State, and value or error, of a job that ended."""
    from hydra.core.utils import JobStatus

    value = result._return_value
    if result.status == JobStatus.COMPLETED:
        return {"state": COMPLETED, "return_value": plain(value)}
    error = f"{type(value).__name__}: {value}"
    state = OUT_OF_MEMORY if tells_of_memory(error) else FAILED
    return {"state": state, "error": clip(error, _LONGEST)}


def plain(value: Any) -> Any:
    """What a job returned, as JSON has it: numbers, texts, lists and mappings; else its text."""
    if value is None or isinstance(value, (bool, int, str)):
        return clip(value, _LONGEST) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in list(value.items())[:100]}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value[:100]]
    number = getattr(value, "item", None)  # of numpy and torch
    if callable(number):
        with contextlib.suppress(Exception):
            return plain(number())
    return clip(repr(value), _LONGEST)


class Record:
    """The file of one sweep, kept while the sweep runs.

    Args:
        directory: the sweep's.
        sweep: what is said of the sweep as a whole.
        rows: one for each job, in the order of the sweep.
    """

    living: ClassVar[dict[str, Record]] = {}
    """By directory: the sweeps of this process, in which jobs may run too."""

    def __init__(
        self, directory: Path, sweep: Mapping[str, Any], rows: Sequence[dict[str, Any]]
    ) -> None:
        self.directory = directory.absolute()
        self.sweep = dict(sweep)
        self.rows = list(rows)
        self._texts = [_text(row) for row in self.rows]
        self._by_number: dict[int, int] = {}
        self._open: set[int] = set()
        self._notes: dict[int, bytes] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._failed = False

    @contextlib.contextmanager
    def kept(self) -> Iterator[Record]:
        """Write the file, and keep it until the sweep has ended."""
        self._clear()
        self.write()
        self.living[str(self.directory)] = self
        thread = threading.Thread(target=self._watch, name="layouts.json", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()
            self.refresh()
            self._end()
            self.living.pop(str(self.directory), None)

    def number(self, index: int, number: int) -> None:
        """Say under which number a job runs."""
        with self._lock:
            self._by_number[number] = index
            self._open.add(number)
            self._change(index, {"job": number})

    def end(self, index: int, result: JobReturn) -> None:
        """Take over how a job ended from what the launcher returned, where it noted nothing."""
        with self._lock:
            if self.rows[index]["state"] in (WAITING, RUNNING):
                self._change(index, outcome(result))

    def refresh(self) -> None:
        """Take over what jobs have noted since, and write the file if that is anything."""
        with self._lock:
            changed = False
            for number in sorted(self._open):
                index = self._by_number[number]
                path = self.directory / NOTES / f"{number}.json"
                note = _note_of(path)
                if note is not None and note[0] != self._notes.get(number):
                    self._notes[number] = note[0]
                    self._change(index, ended(note[1], self.directory))
                    if self.rows[index]["state"] != RUNNING:
                        self._open.discard(number)
                    changed = True
            if changed:
                self.write()

    def write(self) -> None:
        """Write the file; a failure is told once."""
        with self._lock:
            head = json.dumps({"version": VERSION, **self.sweep}, indent=1)[:-2]
            text = f'{head},\n "jobs": [\n' + ",\n".join(self._texts) + "\n]}\n"
            try:
                write_atomically(self.directory / FILE, text)
            except OSError as error:
                if not self._failed:
                    log.warning("%s cannot be written: %s", FILE, error.strerror or error)
                self._failed = True

    def _change(self, index: int, fields: Mapping[str, Any]) -> None:
        self.rows[index].update(fields)
        self._texts[index] = _text(self.rows[index])

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            self.refresh()

    def _clear(self) -> None:
        """Forget the notes of a sweep that ran in this directory before."""
        with contextlib.suppress(OSError):
            for path in (self.directory / NOTES).glob("*.json"):
                path.unlink()

    def _end(self) -> None:
        """What runs no more and has not told of its end was stopped."""
        with self._lock:
            for index, row in enumerate(self.rows):
                if row["state"] == RUNNING:
                    self._change(index, {"state": STOPPED})
            self.write()


def _text(row: Mapping[str, Any]) -> str:
    return "  " + json.dumps(row)


def _note_of(path: Path) -> tuple[bytes, dict[str, Any]] | None:
    try:
        data = path.read_bytes()
        note = json.loads(data)
    except (OSError, ValueError):
        return None
    return (data, note) if isinstance(note, dict) else None


def ended(note: Mapping[str, Any], sweep: Path) -> dict[str, Any]:
    """The note of a job, with the figures of its directory once it has ended."""
    fields = {key: value for key, value in note.items() if key != "job"}
    directory = Path(str(note.get("directory", "")))
    if note.get("state") in (None, RUNNING) or not note.get("directory"):
        return fields
    with contextlib.suppress(ValueError):
        fields["directory"] = str(directory.relative_to(sweep))
    found = read_measured(directory)
    if found.memory:
        fields["memory"] = found.memory
    if found.timeperf:
        fields.update(timeperf=found.timeperf, typical=found.typical, steps=found.steps)
    if note["state"] == FAILED and found.out_of_memory:
        fields["state"] = OUT_OF_MEMORY
    return fields


def gather(directory: Path) -> dict[str, Any]:
    """``layouts.json`` of a sweep, with what its jobs have noted since it was written.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it is no file of a sweep.
    """
    text = (directory / FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    jobs = found.get("jobs") if isinstance(found, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(row, dict) for row in jobs):
        raise ValueError(f"{directory / FILE} is no record of a sweep")
    over = not _runs(found)
    for row in jobs:
        number = row.get("job")
        if row.get("state") not in (WAITING, RUNNING, STOPPED):
            continue
        note = _note_of(directory / NOTES / f"{number}.json") if isinstance(number, int) else None
        if note is not None:
            row.update(ended(note[1], directory.absolute()))
        if row.get("state") == RUNNING and over:
            row["state"] = STOPPED
    return found


def _runs(found: Mapping[str, Any]) -> bool:
    """Whether the sweep may still run: on another machine nobody here can tell."""
    process = found.get("process")
    if not isinstance(process, dict) or process.get("host") != socket.gethostname():
        return True
    try:
        os.kill(int(process["pid"]), 0)
    except (ProcessLookupError, KeyError, TypeError, ValueError):
        return False
    except OSError:
        return True
    return True
