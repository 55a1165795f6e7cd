"""Run a prepared job of an SPMD launcher, and end it cleanly."""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from areal_conf.areal import supervisor
from areal_conf.areal.job import CONTROLLER, LOG, Job, Outcome

_AFTER_SUCCESS = 8.0
"""Grace period in seconds for AReaL's local launcher to exit on its own, once every rank succeeded
and its process is gone. If ``recover.mode`` is on or auto, it restarts the script 10 seconds after
a clean run. The other launchers recover only after a failure."""

_ENDING = supervisor.GRACE + 15
"""Seconds that the processes of a run that was stopped may take to end."""

_NOT_SUBMITTED = b"Failed to submit job"
"""What AReaL's slurm launcher logs where ``sbatch`` refuses a job (infra/launcher/slurm.py,
``submit_array``). It then waits 20 minutes for servers, or for ever for ranks that never come,
while the servers hold their nodes."""


class StoppedError(Exception):
    """The job was stopped by a signal, and all of its processes have ended.

    Attributes:
        signum: the signal.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.signum).name}"


# -- running ----------------------------------------------------------------------------------


def run_job(job: Job, stream: IO[bytes] | None = None) -> Outcome:
    """Write the job's files, run it, and wait for its end.

    Where processes of an earlier run in the same directory are still ending, it waits for them
    first.

    Args:
        job: the job.
        stream: where its output goes besides the log in its directory.

    Raises:
        StoppedError: SIGINT, SIGTERM or SIGHUP arrived; every process of the job has ended.
        OSError: its files cannot be written, or another run goes on in its directory.
    """
    job.check_directory()
    job.claim()
    with open(job.directory / LOG, "ab", buffering=0) as log:
        reserve(log)
        job.write()
        run = Run(job, log, stream)
        status = run.wait()
    if job.kind == CONTROLLER:
        return Outcome(status, f"the script ended with status {status}" if status else "")
    if run.not_submitted:
        return Outcome(1, f"sbatch refused a job: see {job.log_name()}")
    return job.judge()


def reserve(log: IO[bytes]) -> None:
    """Lock the log of a job, for this process and its supervisor.

    Raises:
        BlockingIOError: another run still has it after all the time that ending may take.
    """
    if _locked(log):
        return
    folder = os.path.dirname(log.name)
    print(
        f"areal-conf: waiting for the end of another run in {folder}", file=sys.stderr, flush=True
    )
    _until(lambda: _locked(log), _ENDING)
    if not _locked(log):
        raise BlockingIOError(errno.EBUSY, "another run goes on in this directory", folder)


def _locked(log: IO[bytes]) -> bool:
    """Whether the lock is this process's now; True too where there are no locks."""
    try:
        import fcntl

        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


class Run:
    """One run of a job: its processes, its log, and the signals that arrive meanwhile."""

    def __init__(self, job: Job, log: IO[bytes], stream: IO[bytes] | None) -> None:
        self.job = job
        self.log = log
        self.stream = stream
        self.log_failed = False
        self.received: list[int] = []
        self.not_submitted = False
        self._end = b""

    def wait(self) -> int:
        """Run the job to its end; the command's exit status."""
        job = self.job
        tails = [_Tail(path) for path in _log_files(job)]
        with self._signals_received():
            process = subprocess.Popen(
                [sys.executable, "-I", supervisor.__file__, str(os.getpid()), *job.command],
                env={**os.environ, **job.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[self.log.fileno()],  # its lock is held until the last process has ended
            )
            pump = threading.Thread(target=self._pump, args=(process.stdout,), daemon=True)
            pump.start()
            self._watch(process, tails)
        pump.join(timeout=5)
        if job.kind == "slurm":
            _cancel_slurm_jobs(job)
        for tail in tails:
            self._emit(tail.read())
        if self.received:
            raise StoppedError(self.received[0])
        return process.returncode

    def _watch(self, process: subprocess.Popen[bytes], tails: list[_Tail]) -> None:
        done_at = None
        passed_on = 0
        while process.poll() is None:
            while passed_on < len(self.received):
                process.send_signal(signal.SIGTERM)
                passed_on += 1
            for tail in tails:
                self._emit(tail.read())
            if self.job.kind == "local" and done_at is None and self._succeeded():
                done_at = time.monotonic() + _AFTER_SUCCESS
            if self.not_submitted and done_at is None:
                done_at = time.monotonic()
            if done_at is not None and time.monotonic() > done_at:
                process.send_signal(signal.SIGTERM)
                done_at = float("inf")
            time.sleep(0.2)

    def _succeeded(self) -> bool:
        """Whether every rank, on this machine, succeeded and has left."""
        if self.job.judge().status != 0:
            return False
        return not any(_alive(record["pid"]) for record in self.job.records().values())

    def _pump(self, source: IO[bytes]) -> None:
        with source:
            while chunk := os.read(source.fileno(), 1 << 16):
                self._emit(chunk)
                end = self._end + chunk
                self.not_submitted |= self.job.kind == "slurm" and _NOT_SUBMITTED in end
                self._end = end[-len(_NOT_SUBMITTED) :]

    def _emit(self, chunk: bytes) -> None:
        if not chunk:
            return
        try:
            self.log.write(chunk)
        except OSError as error:
            self._tell_once(error)
        if self.stream is not None:
            with contextlib.suppress(OSError, ValueError):  # a reader that left stops no job
                self.stream.write(chunk)
                self.stream.flush()

    def _tell_once(self, error: OSError) -> None:
        """Say that the log has gaps: a full disk is no reason to stop a training."""
        if not self.log_failed:
            self.log_failed = True
            message = f"areal-conf: {self.log.name} is incomplete: {error.strerror}"
            print(message, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _signals_received(self) -> Iterator[None]:
        """Signals of this process stop the job; only the main thread can take them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        numbers = [n for n in supervisor.STOPPING if not _is_ignored(n)]
        before: dict[int, Any] = {
            n: signal.signal(n, lambda number, frame: self.received.append(number)) for n in numbers
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _is_ignored(number: signal.Signals) -> bool:
    """Whether the signal was ignored when this process started, as by ``nohup`` or ``&``."""
    return signal.getsignal(number) is signal.SIG_IGN


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class _Tail:
    """What is appended to a file from now on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = path.stat().st_size if path.exists() else 0

    def read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.at)
                chunk = file.read(1 << 20)
        except OSError:
            return b""
        self.at += len(chunk)
        return chunk


def _log_files(job: Job) -> list[Path]:
    """Logs of what does not write to the launcher's own output: jobs of Slurm."""
    if job.kind != "slurm":
        return []
    names = (job.value("experiment_name"), job.value("trial_name"))
    folder = Path(str(job.value("cluster.fileroot")), "logs", getpass.getuser(), *map(str, names))
    return [folder / "llm_server.log", folder / "trainer.log"]


def _cancel_slurm_jobs(job: Job) -> None:
    """Cancel what the launcher may have left in the queue, and wait until it is gone.

    The names are those of ``SlurmLauncher.slurm_name`` (infra/launcher/slurm.py).
    """
    run = f"{job.value('experiment_name')}_{job.value('trial_name')}"
    which = ["--user", getpass.getuser(), "--name", f"{run}:trainer,{run}:llm_server"]
    if shutil.which("scancel") is None:
        return
    subprocess.run(["scancel", *which], capture_output=True, check=False)
    _until(lambda: not _queued(which), 20)


def _queued(which: list[str]) -> str:
    listed = subprocess.run(
        ["squeue", "--noheader", *which], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip()


def _until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.5)
