"""Real processes killed at points all over their run: files stay whole, nobody stays behind.

Each series has one kill in each of equal parts of the run's measured duration, at a random point of
that part. ``AREAL_CONF_KILLS=100`` makes the series long, with a complete run after each kill and
not only after the last; ``AREAL_CONF_SEED`` changes the points.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import yaml
from hydra_app import HYDRA_MAIN, App
from launched import experiment
from paths import FAKES

from areal_conf.cli import entry

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux")

LONG = "AREAL_CONF_KILLS" in os.environ
KILLS = int(os.environ.get("AREAL_CONF_KILLS", "6" if "FULL" in os.environ else "3"))
SEED = os.environ.get("AREAL_CONF_SEED", "1")
PATIENCE = 180.0
BY_SIGNAL = [(signal.SIGKILL, KILLS), (signal.SIGTERM, KILLS // 3), (signal.SIGINT, KILLS // 3)]


def moments(series: str, count: int = KILLS) -> list[float]:
    """Points of a run, from 0 (its start) to 1 (its end)."""
    source = random.Random(f"{SEED} {series}")
    points = [(part + source.random()) / count for part in range(count)]
    source.shuffle(points)
    return points


def blows(series: str) -> list[tuple[signal.Signals, float]]:
    """Signals and the points of a run at which each is sent."""
    return [(number, moment) for number, count in BY_SIGNAL for moment in moments(series, count)]


class Run:
    """A process with all that descends from it, known by a variable of its environment."""

    def __init__(self, command: list[str], cwd: Path, **env: str) -> None:
        self.mark = uuid.uuid4().hex
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd,
            env={**os.environ, "KILL_TEST": self.mark, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )

    def end(self, patience: float = PATIENCE) -> float:
        """Wait for a run that must succeed, and for all of its processes; the seconds it took."""
        _, err = self.process.communicate(timeout=patience)
        seconds = time.monotonic() - self.began
        assert self.process.returncode == 0, err.decode()
        self.leaves_nobody()
        return seconds

    def killed_after(self, seconds: float, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal so many seconds after the start; everything that ran must end by itself."""
        time.sleep(max(0.0, seconds - (time.monotonic() - self.began)))
        self.process.send_signal(number)
        self.process.wait(timeout=PATIENCE)
        self.leaves_nobody()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def leaves_nobody(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while left := self.alive():
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.05)

    def alive(self) -> dict[int, str]:
        """Processes of this run, with their commands."""
        mark = f"KILL_TEST={self.mark}".encode()
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                folder = Path("/proc", name)
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(name)] = (folder / "cmdline").read_text().replace("\0", " ")
        return found


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def is_leftover(name: str) -> bool:
    return Path(name).name.startswith(".") and name.endswith(".areal-conf")


# -- migrate --------------------------------------------------------------------------------------

LEGACY = "allocation_mode: sglang:d4+fsdp:d4\nactor: {path: x}\nrollout: {x: 1}\n# %s\n"


def legacy_tree(folder: Path) -> Path:
    for number in range(240):
        file = folder / f"group{number % 4}" / f"{number}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(LEGACY % number)
    return folder


def test_migrate(tmp_path: Path) -> None:
    command = ["-m", "areal_conf", "migrate", "--write", "."]
    reference = legacy_tree(tmp_path / "reference")
    old = contents(reference)
    duration = Run(command, reference).end()
    new = contents(reference)
    halfway = 0
    for number, moment in blows("migrate"):
        tree = legacy_tree(tmp_path / "tree")
        Run(command, tree).killed_after(moment * duration, number)
        found = contents(tree)
        leftovers = [name for name in found if is_leftover(name)]
        assert len(leftovers) <= 1
        assert found.keys() == {*old, *leftovers}
        assert all(found[name] in (old[name], new[name]) for name in old), moment
        halfway += old != {name: found[name] for name in old} != new
        assert entry.main(["migrate", "--write", str(tree)]) == 0
        assert contents(tree) == new
        shutil.rmtree(tree)
    print(f"{halfway} migrations were killed between the first file and the last")


# -- files of one write ---------------------------------------------------------------------------

EVERY_LINE = """
import itertools, os, signal, sys
from areal_conf import files

def kill_at(line):
    left = itertools.count(1)
    def trace(frame, event, arg):
        if frame.f_code.co_filename != files.__file__:
            return None
        if event == "line" and next(left) == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    return trace

for line in itertools.count(1):
    path = files.Path("f.yaml")
    path.write_text("old")
    child = os.fork()
    if child == 0:
        sys.settrace(kill_at(line))
        files.write_atomically(path, "new")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert path.read_text() in ("old", "new"), line
    files.write_atomically(path, "again")
    assert os.listdir() == ["f.yaml"], line
    assert path.read_text() == "again"
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
assert line > 30, line
"""


def test_before_every_line_of_a_write(tmp_path: Path) -> None:
    Run(["-c", EVERY_LINE], tmp_path).end()


OVER_AND_OVER = """
import os, signal, sys, time
from pathlib import Path
from omegaconf import OmegaConf
from areal_conf import plan
from areal_conf.cli import entry
from areal_conf.app.callbacks import _save
from areal_conf.areal.job import prepare

def write(spec):
    config = ["config.yaml", f"actor.backend={spec}"]
    assert entry.main(["export", *config, "-o", "export.yaml"]) == 0
    for form in ("json", "svg"):
        assert entry.main(["plan", *config, f"--format={form}", "-o", f"plan.{form}"]) == 0
    cfg = OmegaConf.merge(OmegaConf.load("config.yaml"), {"actor": {"backend": spec}})
    _save(plan(cfg), Path())
    prepare(cfg, "local", "train.py", Path("job")).write()

def files():
    return {str(p): p.read_bytes() for p in Path().rglob("*") if p.is_file()}

def without_leftovers(found):
    return {name: data for name, data in found.items() if not name.endswith(".areal-conf")}

variants = []
for spec in ("fsdp:d2", "fsdp:d4"):
    began = time.monotonic()
    write(spec)
    duration = time.monotonic() - began
    variants.append(files())
for moment in map(float, sys.argv[1:]):
    child = os.fork()
    if child == 0:
        while True:
            write("fsdp:d2")
            write("fsdp:d4")
    time.sleep(2 * duration * moment)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = files()
    whole = without_leftovers(found)
    assert len(found) - len(whole) <= 1, found.keys()
    either = [variant.keys() for variant in variants]  # a record for each rank: they differ
    assert either[0] & either[1] <= whole.keys() <= either[0] | either[1], whole.keys()
    for name, data in whole.items():
        assert data in [v[name] for v in variants if name in v], (moment, name)
    write("fsdp:d4")
    assert files() == variants[1]
"""


def test_files_written_over_and_over(tmp_path: Path) -> None:
    """``export -o``, ``plan -o``, the files of the callback and those of a launch.

    The process that is killed is forked from one that has imported everything.
    """
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump(experiment(tmp_path, 4, scheduler={"type": "local"}))
    )
    (tmp_path / "train.py").touch()
    points = map(str, moments("over and over"))
    Run(["-c", OVER_AND_OVER, *points], tmp_path).end(patience=PATIENCE + 15 * KILLS)


# -- sweeps ---------------------------------------------------------------------------------------

SWEEP = [
    "app.py",
    "-m",
    "hydra/sweeper=areal_layouts",
    "hydra/callbacks=areal_plan",
    "hydra.sweep.dir=out",
    "actor.backend=fsdp:d8,fsdp:d4t2,fsdp:d2t4,fsdp:t8",
    "rollout.backend=sglang:d8",
    "scheduler.type=local",
]
OURS = ("allocation.json", "allocation.svg", "multirun.yaml")


def test_sweep(tmp_path: Path) -> None:
    app = App.create(tmp_path / "app", HYDRA_MAIN).directory
    out = app / "out"
    duration = Run(SWEEP, app).end()
    whole = {name: data for name, data in contents(out).items() if Path(name).name in OURS}
    assert len(whole) == 9
    shutil.rmtree(out)
    points = moments("sweep")
    for moment in points:
        Run(SWEEP, app).killed_after(moment * duration)
        for name, data in contents(out).items():
            assert whole.get(name, data) == data, (moment, name)
        if LONG or moment == points[-1]:
            Run(SWEEP, app).end()
            found = contents(out)
            assert {name: found[name] for name in whole} == whole
            assert not any(map(is_leftover, found))
            shutil.rmtree(out)


# -- launches -------------------------------------------------------------------------------------

RANK = """
import os, time
print("rank", os.environ["RANK"], flush=True)
time.sleep(0.5)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump(experiment(tmp_path, 4, scheduler={"type": "local"}))
    )
    (tmp_path / "train.py").write_text(RANK)
    return tmp_path


def launched(folder: Path, job: str) -> Run:
    launch = ["-m", "areal_conf", "launch", "--launcher", "local", "--dir", job]
    paths = os.pathsep.join([str(FAKES), *sys.path[1:], os.environ.get("PYTHONPATH", "")])
    return Run([*launch, "train.py", "config.yaml"], folder, PYTHONPATH=paths)


def test_launch(folder: Path) -> None:
    """The next run in the same directory begins while the processes of the last one may be ending;
    every other one is in a directory of its own."""
    duration = launched(folder, "job").end()
    config = (folder / "job" / "areal.yaml").read_bytes()
    series = blows("launch")
    for place, (number, moment) in enumerate(series):
        killed = launched(folder, "job")
        time.sleep(moment * duration)
        killed.process.send_signal(number)
        killed.process.wait(timeout=PATIENCE)
        for file in (folder / "job").rglob("*.json"):
            json.loads(file.read_text())
        assert (folder / "job" / "areal.yaml").read_bytes() == config
        if LONG or place == len(series) - 1:
            launched(folder, "job" if place % 2 else f"job{place}").end()
        killed.killed_after(0)
