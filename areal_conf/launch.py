"""Launches a composed config: by AReaL's SPMD launchers, or by its single controller.

A `Job` is planned, written into a directory of its own and handed over (`Job.run`). AReaL's
launchers end with status 1 even after a clean run, so that a job is judged by what the ranks of the
training script did: each one records that (`areal_conf.rank_script`).
"""

from __future__ import annotations

import ast
import contextlib
import errno
import getpass
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from areal_conf import rank_script, supervisor
from areal_conf.app import prepared
from areal_conf.areal import exported
from areal_conf.engines import View
from areal_conf.errors import AllocationError, clip
from areal_conf.files import write_atomically
from areal_conf.options import PlanOptions
from areal_conf.resolve import LAUNCHERS
from areal_conf.trainer_rules import DIRECTORIES

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.plan import Plan

CONTROLLER = "controller"
"""The kind of job that runs the script itself, which starts AReaL's single controller."""

LOG = "areal.log"
_CONFIG = "areal.yaml"
_RANK_SCRIPT = "rank.py"
_PLAIN = re.compile(r"[\w./=@+:-]*", re.ASCII)
_AFTER_SUCCESS = 8.0
"""Seconds that AReaL's local launcher has to end by itself once every rank succeeded and its
process is gone: 10 seconds after a clean run it starts the script anew, where ``recover.mode`` is
on or auto. The other launchers recover after a failure alone."""

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


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        status: exit status: 0 where every rank of the script succeeded.
        reason: what went wrong, in one sentence; empty where nothing did.
    """

    status: int
    reason: str = ""


@dataclass(frozen=True)
class Job:
    """One job, ready to run.

    Attributes:
        kind: local, ray, slurm or `CONTROLLER`.
        script: the training script, as an absolute path.
        config: what AReaL reads.
        plan: the plan of it, without errors.
        directory: where the job's files go.
        environment: variables that are set for it.
    """

    kind: str
    script: Path
    config: DictConfig
    plan: Plan
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """The command that is run."""
        config = ["--config", str(self.directory / _CONFIG)]
        if self.kind == CONTROLLER:
            return [sys.executable, str(self.script), *config]
        module = f"areal.infra.launcher.{self.kind}"
        return [sys.executable, "-m", module, str(self.directory / _RANK_SCRIPT), *config]

    @property
    def inference_nodes(self) -> int:
        """Nodes that the ray and slurm launchers give to servers."""
        rollout, per_node = self.plan.engines.get("rollout"), self.plan.facts.per_node
        return rollout.gpus // per_node if rollout and per_node else 0

    def value(self, dotted: str) -> Any:
        """A value of the config; AReaL's default where it is one of `DIRECTORIES` and absent.

        Raises:
            AllocationError: AC309 for an interpolation that leads nowhere.
        """
        value = View(self.config).select(dotted)
        return DIRECTORIES.get(dotted) if value is None else value

    def write(self) -> None:
        """Write the job's files, and make the directories that AReaL's launchers need."""
        from omegaconf import OmegaConf

        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self.directory / _CONFIG, OmegaConf.to_yaml(self.config))
        write_atomically(
            self.directory / "allocation.json", self.plan.model_dump_json(indent=2) + "\n"
        )
        if self.kind == CONTROLLER:
            return
        records = self.directory / "ranks"
        shutil.rmtree(records, ignore_errors=True)
        records.mkdir()
        job = json.dumps({"script": str(self.script)})
        write_atomically(self.directory / "job.json", job)
        source = Path(rank_script.__file__).read_bytes()
        write_atomically(self.directory / _RANK_SCRIPT, source)
        for key in DIRECTORIES:
            Path(str(self.value(key))).mkdir(parents=True, exist_ok=True)

    def run(self, stream: IO[bytes] | None = None) -> Outcome:
        """Write the job's files, run it, and wait for its end.

        Where processes of an earlier run in the same directory are still ending, it waits for them
        first.

        Args:
            stream: where its output goes besides the log in its directory.

        Raises:
            StoppedError: SIGINT, SIGTERM or SIGHUP arrived; every process of the job has ended.
            OSError: its files cannot be written, or another run goes on in its directory.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / LOG, "ab", buffering=0) as log:
            _reserve(log)
            self.write()
            run = _Run(self, log, stream)
            status = run.wait()
        if self.kind == CONTROLLER:
            return Outcome(status, _exited(status))
        if run.not_submitted:
            return Outcome(1, f"sbatch refused a job: see {self._log_name()}")
        return self.judge()

    def judge(self) -> Outcome:
        """How the ranks of the script ended."""
        records = self.records()
        if not records:
            return Outcome(1, f"no rank of {self.script.name} started: see {self._log_name()}")
        for rank, record in sorted(records.items()):
            if record["outcome"] == "failed":
                return Outcome(1, f"rank {rank} failed: {clip(record['error'], 300)}")
        for rank in range(max(record["world_size"] for record in records.values())):
            outcome = records[rank]["outcome"] if rank in records else "not started"
            if outcome == "running":
                outcome = "killed before it ended"
            if outcome != "succeeded":
                return Outcome(1, f"rank {rank} was {outcome}: see {self._log_name()}")
        return Outcome(0)

    def records(self) -> dict[int, dict[str, Any]]:
        """What each rank recorded last."""
        found = {}
        for file in (self.directory / "ranks").glob("*.json"):
            record = json.loads(file.read_text())
            found[int(record["rank"])] = record
        return found

    def _log_name(self) -> str:
        return str(self.directory / LOG)


def _exited(status: int) -> str:
    return f"the script ended with status {status}" if status else ""


def prepare(
    cfg: DictConfig,
    kind: str,
    script: str | Path,
    directory: Path,
    model: Any = None,
    allow: Iterable[str] = (),
    areal: str | None = None,
) -> Job:
    """Plan `cfg` and everything that its launch needs; nothing is written.

    A legacy ``allocation_mode`` is carried over into `cfg`.

    Raises:
        AllocationError: with everything that stops the job in `errors`.
    """
    launcher = kind if kind in LAUNCHERS else None
    made = prepared(cfg, PlanOptions("", launcher, model, allow, areal, strict=True))
    path = Path(script).absolute()
    for error in _script_errors(path, kind):
        made = made.with_error(error)
    made.raise_for_errors()
    job = Job(kind, path, exported(cfg, made), made, directory.absolute(), _environment(kind))
    for error in _unsafe(job) if launcher else ():
        made = made.with_error(error)
    made.raise_for_errors()
    return replace(job, plan=made)


def _environment(kind: str) -> dict[str, str]:
    """Variables that a job needs, where they are not set already.

    AReaL's launchers start ``torchrun`` and ``python3`` by name, so that this interpreter's come
    first. Ray leaves out lines of one rank that are like another's, which a log should not.
    """
    own = os.path.dirname(sys.executable)
    rest = [p for p in os.environ.get("PATH", os.defpath).split(os.pathsep) if p and p != own]
    wanted = {"PATH": os.pathsep.join([own, *rest]), "PYTHONUNBUFFERED": "1"}
    if kind == "ray":
        wanted["RAY_DEDUP_LOGS"] = os.environ.get("RAY_DEDUP_LOGS", "0")
    return wanted


# -- what is refused ------------------------------------------------------------------------------


def _script_errors(script: Path, kind: str) -> Iterator[AllocationError]:
    """AC322: no script, or none that AReaL's ray launcher can call."""
    if not script.is_file():
        message, hint = f"there is no script {clip(str(script), 200)}", "name a Python file"
        yield AllocationError("AC322", message, hint=hint, text=clip(str(script), 200))
    elif kind == "ray" and not _has_main(script):
        message = f"the ray launcher calls main(argv) of the script, and {script.name} has no main"
        yield AllocationError("AC322", message, hint="define main(argv) at its top level")


def _has_main(script: Path) -> bool:
    """Whether the script binds ``main`` at its top level, as far as can be seen."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return True  # Python will say it better
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        else:
            continue
        if "main" in names or "*" in names:
            return True
    return False


def _unsafe(job: Job) -> Iterator[AllocationError]:
    """AC323: AReaL's launchers join their arguments and log paths into shell commands without
    quotes (infra/launcher/local.py, slurm.py)."""
    named = {"the job's directory": str(job.directory)}
    for key in ("experiment_name", "trial_name", "cluster.fileroot"):
        named[key] = str(job.value(key))
    for what, text in named.items():
        bad = sorted(set(_PLAIN.sub("", text)))
        if bad:
            shown = " ".join(map(repr, bad[:5]))
            message = f"{what} holds {shown}, which the launcher's shell would read"
            hint = "use letters, digits and . _ - / = @ + : alone"
            path = None if " " in what else what
            yield AllocationError("AC323", message, hint=hint, text=clip(text, 200), path=path)


# -- running ----------------------------------------------------------------------------------


def _reserve(log: IO[bytes]) -> None:
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


class _Run:
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

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before: dict[int, Any] = {
            n: signal.signal(n, lambda number, frame: self.received.append(number)) for n in numbers
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


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
