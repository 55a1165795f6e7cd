"""Commands, apps and launches where the disk, the user, the terminal or Python are not as usual."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra_app import AREAL_MAIN, HYDRA_MAIN, App
from paths import FAKES
from processes import commands, environment, fill_the_disk, heed_permissions

import areal_conf
from areal_conf import AllocationError, ModelAllocation, Plan, plan
from areal_conf.app.preflight import PlanRefused
from areal_conf.areal import interpolations, runner
from areal_conf.areal.hydra_jobs import JobFailedError
from areal_conf.config.app_module import AppImportError
from areal_conf.documents.isolation import EnvironmentHiddenError
from areal_conf.documents.yaml_text import BadYamlError
from areal_conf.errors import Diagnostic
from areal_conf.files import FileChangedError, TooLargeError
from areal_conf.legacy.carry_over import AllocationModeDeprecationWarning
from areal_conf.lint import linter
from areal_conf.migrate import document
from areal_conf.migrate.outcome import LeftAloneError
from areal_conf.migrate.proof import UnprovenError
from areal_conf.sweeps.axes import SweepError
from areal_conf.sweeps.base import IdleEngineError
from areal_conf.sweeps.results.summary import NoSweepError

LEGACY = "allocation_mode: sglang:d4+fsdp:d4\nactor: {path: x}\nrollout: {x: 1}\n"
EXPORT = ("export", "--launcher", "local", "config.yaml", "-o", "out.yaml")
FINE = ("plan", "actor.backend=fsdp:d4", "rollout.backend=sglang:d4")


@pytest.fixture
def permissions() -> None:
    """Skips where modes of files mean nothing."""
    check = "import os, sys; sys.exit(os.access('/proc/version', os.W_OK))"
    try:
        subprocess.run([sys.executable, "-c", check], preexec_fn=heed_permissions, check=True)
    except subprocess.SubprocessError as error:
        pytest.skip(f"root cannot give up its rights here: {error}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a legacy config, a config that can be launched, and a script."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "old.yaml").write_text(LEGACY)
    (folder / "out.yaml").write_text("old")
    experiment = {
        "experiment_name": "exp",
        "trial_name": "trial",
        "allocation_mode": "",
        "cluster": {"n_nodes": 1, "n_gpus_per_node": 2, "fileroot": str(tmp_path)},
        "recover": {"mode": "disabled"},
        "actor": {"backend": "fsdp:d2"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(experiment))
    (folder / "train.py").write_text("")
    return folder


AREAL = {"PYTHONPATH": os.pathsep.join([str(FAKES), *filter(None, sys.path)])}
"""With a stand-in for AReaL's launchers: without AReaL, a launch is refused at once."""

LAUNCH = ("launch", "--launcher", "local", "--dir", "job", "train.py", "config.yaml")


def untouched(folder: Path) -> bool:
    whole = (folder / "old.yaml").read_text() == LEGACY
    return whole and (folder / "out.yaml").read_text() == "old" and len(os.listdir(folder)) == 4


# -- disks ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("permissions")
def test_a_directory_that_cannot_be_written(folder: Path) -> None:
    folder.chmod(0o555)
    try:
        fine, exported, migrated, launched = commands(
            FINE,
            EXPORT,
            ("migrate", "--write", "."),
            LAUNCH,
            cwd=folder,
            before=heed_permissions,
            env=AREAL,
        )
    finally:
        folder.chmod(0o755)
    assert fine.status == 0, fine.err
    assert (exported.status, launched.status) == (2, 2)
    assert exported.err.endswith("areal-conf export: out.yaml: Permission denied\n")
    assert "job: Permission denied" in launched.err
    assert migrated.status == 1
    assert "AC526: cannot be written: Permission denied" in migrated.err
    assert untouched(folder)


@pytest.mark.usefixtures("permissions")
def test_files_that_cannot_be_read(folder: Path) -> None:
    (folder / "old.yaml").chmod(0o000)
    run = commands(
        ("plan", "old.yaml"),
        ("check", "."),
        ("migrate", "--check", "."),
        ("plan", "config.yaml", "--model", "old.yaml"),
        cwd=folder,
        before=heed_permissions,
    )
    for done in run:
        assert done.status in (1, 2)
        assert "old.yaml" in done.err + done.out
        assert "Permission denied" in done.err + done.out


def test_a_full_disk(folder: Path) -> None:
    fine, exported, migrated, launched = commands(
        FINE,
        EXPORT,
        ("migrate", "--write", "."),
        LAUNCH,
        cwd=folder,
        before=fill_the_disk,
        env=AREAL,
    )
    assert fine.status == 0, fine.err
    assert (exported.status, launched.status) == (2, 2)
    assert exported.err.endswith("areal-conf export: out.yaml: File too large\n")
    assert "File too large" in launched.err
    assert migrated.status == 1
    assert "AC526: cannot be written: File too large" in migrated.err
    assert set(os.listdir(folder / "job")) == {"areal.log", "job.json"}  # what marks it as ours
    shutil.rmtree(folder / "job")
    assert untouched(folder)


@pytest.mark.parametrize(
    "arguments", [FINE, (*FINE, "--format=json"), ("schema",), ("layouts", "fsdp:d*t*c*@4096")]
)
def test_a_full_disk_behind_stdout(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "areal_conf", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    assert done.returncode == 2
    assert done.stderr.endswith(f"areal-conf {arguments[0]}: No space left on device\n")
    assert "Traceback" not in done.stderr


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    def leave() -> None:
        os.mkdir(tmp_path / "gone")
        os.chdir(tmp_path / "gone")
        os.rmdir(tmp_path / "gone")

    plans, *others = commands(
        FINE,
        ("explain", "fsdp:d8"),
        ("layouts", "fsdp:d*t*@8"),
        EXPORT,
        ("check", "."),
        ("migrate", "--write", "."),
        LAUNCH,
        before=leave,
    )
    assert plans.status == 1
    assert "No such file or directory" in plans.err
    assert [done.status for done in others] == [0, 0, 2, 0, 0, 2]


def test_two_migrations_at_once(folder: Path) -> None:
    """Each file is migrated by the one that comes first; the other one leaves it alone."""
    for number in range(60):
        (folder / f"{number}.yaml").write_text(LEGACY)
    names = set(os.listdir(folder))
    command = [sys.executable, "-m", "areal_conf", "migrate", "--write", "."]
    pair = [
        subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in pair:
        _, err = process.communicate(timeout=300)
        assert process.returncode in (0, 1)
        assert all(b"AC525" in line for line in err.splitlines() if b"left alone: " in line)
    assert len({(folder / f"{number}.yaml").read_text() for number in range(60)}) == 1
    assert "allocation_mode" not in (folder / "0.yaml").read_text()
    assert set(os.listdir(folder)) == names


# -- apps -----------------------------------------------------------------------------------------


@dataclass
class Odd:
    """How an app is run."""

    arguments: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    env: dict[str, str | None] = field(default_factory=dict)
    before: Callable[[], object] | None = None


def close_stdin() -> None:
    os.close(0)


NO_FILES = ("hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none")
ODD = {
    "-O": Odd(python=("-O",)),
    "-OO": Odd(python=("-OO",)),
    "-I": Odd(python=("-I",)),
    "-X dev": Odd(python=("-X", "dev")),
    "no home": Odd(env={"HOME": None, "USER": None, "LOGNAME": None}),
    "a home that is nowhere": Odd(env={"HOME": "/proc/nowhere"}),
    "C locale": Odd(env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "narrow": Odd(env={"COLUMNS": "1", "NO_COLOR": "1", "TERM": "dumb"}),
    "stdin closed": Odd(before=close_stdin),
    "no files of Hydra": Odd(arguments=NO_FILES),
    "disk full": Odd(arguments=NO_FILES, before=fill_the_disk),
}


def run_app(app: App, odd: Odd, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *odd.python, "app.py", *arguments, *odd.arguments],
        cwd=app.directory,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        env=environment(odd.env),
        preexec_fn=odd.before,
        timeout=300,
    )


@pytest.fixture(scope="module")
def dropin(tmp_path_factory: pytest.TempPathFactory) -> App:
    return App.create(tmp_path_factory.mktemp("dropin"), AREAL_MAIN)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> App:
    """An app with the callback, which tells what it was given."""
    code = HYDRA_MAIN.replace("print(OmegaConf", 'print("task:", cfg.actor.backend) #')
    return App.create(tmp_path_factory.mktemp("guarded"), code)


@pytest.mark.parametrize("how", [how for how in ODD if how != "disk full"])  # Hydra needs one
def test_a_sweep_with_the_drop_in(how: str, dropin: App) -> None:
    """The good job runs, and the bad one is refused."""
    done = run_app(
        dropin, ODD[how], "-m", "actor.backend=fsdp:d8,fsdp:d4p2", "rollout.backend=sglang:d8"
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("task: ") == 1
    assert "AC104" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", ["no files of Hydra", "disk full", "read-only", "-OO"])
@pytest.mark.usefixtures("permissions")
def test_the_callback(how: str, guarded: App) -> None:
    """It refuses bad jobs and lets good ones run, whether or not its files can be written."""
    out = guarded.directory / how
    odd = ODD.get(how, Odd(NO_FILES, before=heed_permissions))
    if how == "read-only":
        out.mkdir(mode=0o555)
    callback = ("hydra/callbacks=areal_plan", f"hydra.run.dir={out}", "rollout.backend=sglang:d8")
    good = run_app(guarded, odd, *callback, "actor.backend=fsdp:d8")
    assert good.returncode == 0, good.stderr
    assert "task: fsdp:d8" in good.stdout
    bad = run_app(guarded, odd, *callback, "actor.backend=fsdp:d4p2")
    assert bad.returncode == 1
    assert "AC104" in bad.stderr
    assert "task:" not in bad.stdout
    written = {name for name in os.listdir(out) if name.startswith("allocation")}
    unwritable = how in ("disk full", "read-only")
    assert written == (set() if unwritable else {"allocation.json", "allocation.svg"})
    assert ("the plan cannot be written" in good.stderr) == unwritable


# -- other processes ------------------------------------------------------------------------------


def raised() -> AllocationError:
    with pytest.raises(AllocationError) as caught:
        ModelAllocation.from_str("fsdp:d4p2x")
    return caught.value


def public_values() -> list[Any]:
    """At least one value of every public class, and one of every exception of the package."""
    config = {"actor": {"backend": "fsdp:d4p2"}, "rollout": {"backend": "sglang:d4"}}
    strategy = areal_conf.SchedulingStrategyType.separation
    return [
        ModelAllocation.from_str("megatron[actor]:(attn:d2t2|ffn:t2e2)"),
        ModelAllocation.from_str("sglang:d2t4").parallel,
        areal_conf.SchedulingStrategy("colocation", "actor"),
        strategy,
        areal_conf.AllocationMode.from_str("sglang:d4+fsdp:d4"),
        areal_conf.AllocationType.COLOCATE,
        plan(config),
        plan(config).engines["actor"],
        plan(config).errors[0],
        *areal_conf.layouts("fsdp:d*t*@8"),
        raised(),
        SweepError.because(raised()),
        PlanRefused("no"),
        JobFailedError("no"),
        FileChangedError(Path("a")),
        runner.StoppedError(15),
        interpolations.UnresolvedError("no"),
        IdleEngineError(raised()),
        NoSweepError("no"),
        document.YamlError("no", 3),
        linter._BrokenError(Diagnostic.of("error", raised()), linter.Place()),
        linter._NotComposedError("no", "mend it"),
        AppImportError("no"),
        BadYamlError("no", 3),
        EnvironmentHiddenError("no"),
        TooLargeError(Path("a")),
        LeftAloneError([]),
        UnprovenError("no"),
        AllocationModeDeprecationWarning("no"),
    ]


def own_classes(base: type) -> Iterator[type]:
    for info in pkgutil.walk_packages(areal_conf.__path__, "areal_conf."):
        if not info.name.endswith("__main__"):
            module = importlib.import_module(info.name)
            classes = (value for value in vars(module).values() if isinstance(value, type))
            for found in classes:
                if issubclass(found, base) and found.__module__ == module.__name__:
                    yield found


def test_every_class_is_among_them() -> None:
    kinds = set(map(type, public_values()))
    public = (getattr(areal_conf, name) for name in areal_conf.__all__)
    assert {value for value in public if isinstance(value, type)} <= kinds
    assert set(own_classes(BaseException)) <= kinds


@pytest.mark.parametrize("dumps", ["pickle", "cloudpickle", "copy"])
def test_values_and_exceptions_are_the_same_elsewhere(dumps: str) -> None:
    """Ray and submitit pickle with cloudpickle, joblib with its own copy of it."""
    if dumps == "copy":
        again = copy.deepcopy(public_values())
    else:
        module = pytest.importorskip(dumps)
        again = pickle.loads(module.dumps(public_values()))
    for value, found in zip(public_values(), again, strict=True):
        assert type(found) is type(value)
        assert str(found) == str(value)
        assert repr(found) == repr(value)
        if isinstance(value, BaseException):
            assert vars(found).keys() == vars(value).keys()
        else:
            plain = Plan.model_dump if isinstance(value, Plan) else lambda value: value
            assert plain(found) == plain(value)


def test_the_drop_in_goes_to_workers_of_joblib(dropin: App) -> None:
    """The task function that it wraps is pickled by value."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    joblib = ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "rollout.backend=sglang:d8")
    done = run_app(dropin, Odd(), *joblib, "actor.backend=fsdp:d8,fsdp:d4t2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("task: ") == 2
