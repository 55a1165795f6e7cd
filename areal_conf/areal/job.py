"""Launches a composed config: by AReaL's SPMD launchers, or by its single controller.

A `Job` is planned, written into a directory of its own and handed over
(`areal_conf.areal.runner.run_job`). AReaL's launchers end with status 1 even after a clean run, so
that a job is judged by what the ranks of the training script did: each one records that
(`areal_conf.areal.rank_script`).
"""

from __future__ import annotations

import ast
import contextlib
import errno
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areal_conf.app.preflight import prepared
from areal_conf.areal import rank_script
from areal_conf.areal.export import exported
from areal_conf.config.areal_defaults import DIRECTORIES, LAUNCHERS
from areal_conf.config.view import View
from areal_conf.errors import AllocationError, clip
from areal_conf.files import write_atomically
from areal_conf.planning.options import PlanOptions

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.planning.result import Plan


CONTROLLER = "controller"
"""The kind of job that runs the script itself, which starts AReaL's single controller."""

LOG = "areal.log"
_CONFIG = "areal.yaml"
_RANK_SCRIPT = "rank.py"
_PLAN = "allocation.json"
_JOB = "job.json"
_RECORDS = "ranks"
_NAMES = (LOG, _CONFIG, _RANK_SCRIPT, _PLAN, _JOB, _RECORDS)
"""Everything that is written into a job's directory."""

_MADE_BY = {"made_by": "areal-conf"}
"""What the `_JOB` of a directory says: the files of these names are of an earlier run, and ours."""
_MAX_RECORDS = 65_536
"""Records that are made before a job starts; ranks over it make their own."""

_PLAIN = re.compile(r"[\w./=@+:-]*", re.ASCII)


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

    def check_directory(self, *sources: Path) -> None:
        """Refuse a directory in which the job would overwrite what it did not make.

        Args:
            sources: files that the job is made from, besides its script.

        Raises:
            OSError: a file or folder of the user's has a name that the job writes to.
        """
        for source in (self.script, *sources):
            for name in _NAMES:
                if _is_same_or_below(source, self.directory / name):
                    reason = f"the job would overwrite it as its own {name}: name another directory"
                    raise FileExistsError(errno.EEXIST, reason, str(source))
        if _is_ours(self.directory):
            return
        for name in _NAMES:
            file = self.directory / name
            if os.path.lexists(file) and not (name == _PLAN and is_plan(file)):
                reason = "it is of no earlier launch, which this one would overwrite: name another "
                raise FileExistsError(errno.EEXIST, reason + "directory", str(file))

    def claim(self) -> None:
        """Make the directory, and say in it whose it is, before anything else is written."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), open(self.directory / _JOB, "x") as file:
            json.dump(_MADE_BY, file)

    def write(self) -> None:
        """Write the job's files, and make the directories that AReaL's launchers need."""
        from omegaconf import OmegaConf

        self.claim()
        write_atomically(self.directory / _CONFIG, OmegaConf.to_yaml(self.config))
        write_atomically(self.directory / _PLAN, self.plan.model_dump_json(indent=2) + "\n")
        if self.kind == CONTROLLER:
            return
        self._make_records()
        job = json.dumps({**_MADE_BY, "script": str(self.script)})
        write_atomically(self.directory / _JOB, job)
        source = Path(rank_script.__file__).read_bytes()
        write_atomically(self.directory / _RANK_SCRIPT, source)
        for key in DIRECTORIES:
            Path(str(self.value(key))).mkdir(parents=True, exist_ok=True)

    def _make_records(self) -> None:
        """A record for each rank, with nothing in it yet; those of an earlier run are removed."""
        records = self.directory / _RECORDS
        records.mkdir(exist_ok=True)
        for file in _record_files(records):
            file.unlink()
        actor = self.plan.engines.get("actor")
        for rank in range(min(actor.world_size, _MAX_RECORDS) if actor else 0):
            empty = {"rank": rank, "world_size": 0, "outcome": "", "error": "", "pid": 0}
            rank_script.write_record(str(records / f"{rank}.json"), empty)

    def judge(self) -> Outcome:
        """How the ranks of the script ended."""
        records = self.records()
        if not records:
            return Outcome(1, f"no rank of {self.script.name} started: see {self.log_name()}")
        for rank, record in sorted(records.items()):
            if record["outcome"] == "failed":
                return Outcome(1, f"rank {rank} failed: {clip(record['error'], 300)}")
        for rank in range(max(record["world_size"] for record in records.values())):
            outcome = records[rank]["outcome"] if rank in records else "not started"
            if outcome == "running":
                outcome = "killed before it ended"
            if outcome != "succeeded":
                return Outcome(1, f"rank {rank} was {outcome}: see {self.log_name()}")
        return Outcome(0)

    def records(self) -> dict[int, dict[str, Any]]:
        """What each rank recorded last."""
        found = {}
        for file in _record_files(self.directory / _RECORDS):
            with contextlib.suppress(OSError, ValueError):  # it is being written, or never was
                record = json.loads(file.read_text())
                if record["outcome"]:
                    found[int(record["rank"])] = record
        return found

    def log_name(self) -> str:
        return str(self.directory / LOG)


def is_plan(file: Path) -> bool:
    """Whether `file` is the JSON of a plan."""
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and {"engines", "total_gpus", "mode"} <= data.keys()


def _is_ours(directory: Path) -> bool:
    """Whether a job of this package was launched in `directory` before."""
    try:
        data = json.loads((directory / _JOB).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and data.items() >= _MADE_BY.items()


def _is_same_or_below(source: Path, name: Path) -> bool:
    """Whether `source` is what `name` leads to, by whatever links, or is in that folder."""
    real, target = Path(os.path.realpath(source)), Path(os.path.realpath(name))
    if real == target or target in real.parents:
        return True
    lexical = Path(os.path.abspath(source))
    if lexical == Path(os.path.abspath(name)):
        return True
    try:
        return os.path.samefile(source, name)
    except OSError:
        return False


def _record_files(records: Path) -> list[Path]:
    """The records in a folder, which may hold other files."""
    return [file for file in records.glob("*.json") if re.fullmatch(r"[0-9]+", file.stem)]


def prepare(
    cfg: DictConfig,
    kind: str,
    script: str | Path,
    directory: Path,
    options: PlanOptions | None = None,
) -> Job:
    """Plan `cfg` and everything that its launch needs; nothing is written.

    A legacy ``allocation_mode`` is carried over into `cfg`.

    Raises:
        AllocationError: with everything that stops the job in `errors`.
    """
    launcher = kind if kind in LAUNCHERS else None
    options = replace(options or PlanOptions(), launcher=launcher, strict=True)
    path = Path(script).absolute()
    plan = prepared(cfg, options).with_error(*_script_errors(path, kind))
    plan.raise_for_errors()
    job = Job(kind, path, exported(cfg, plan), plan, directory.absolute(), _environment(kind))
    if launcher:
        job = replace(job, plan=plan.with_error(*_unsafe(job)))
        job.plan.raise_for_errors()
    return job


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
