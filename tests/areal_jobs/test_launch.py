"""`areal_conf.areal.job` and ``areal-conf launch``, with launchers that behave as AReaL's do.

The launchers of AReaL itself are run in ``tests/interop``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from launched import experiment
from omegaconf import OmegaConf
from paths import FAKES
from processes import Done

from areal_conf import AllocationError
from areal_conf.areal import rank_script, runner, supervisor
from areal_conf.areal.job import Job, prepare
from areal_conf.cli.entry import main
from areal_conf.planning.options import PlanOptions

SCRIPT = """
import os, sys, time
rank = os.environ["RANK"]
def say(line): # in one write, or lines of two ranks mix
    print(line + "\\n", end="", flush=True)
say(f"rank {rank} {sys.argv[1:]} {__name__}")
def main(argv):
    if os.environ.get("BOOM") == rank:
        raise RuntimeError("boom")
    if "SLOW" in os.environ:
        say(f"slow {os.getpid()}")
        time.sleep(60)
if __name__ == "__main__":
    main(sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "my train.py"
    file.write_text(SCRIPT)
    return file


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump(experiment(tmp_path)))
    return file


def start(script: Path, config: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "areal_conf", "launch", "--launcher", "local"]
    job = ["--dir", str(config.parent / "job")]
    paths = os.pathsep.join([str(FAKES), *sys.path[1:], os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [*command, *job, str(script), str(config), *words],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, **env},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_clean_run_is_a_success(script: Path, config: Path) -> None:
    """The launcher ends with status 1 all the same."""
    process = start(script, config, "actor.backend=fsdp:d2p1t1")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    job = config.parent / "job"
    log = (job / "areal.log").read_text()
    for rank in "01":
        assert f"rank {rank} ['--config', '{job}/areal.yaml'] __main__" in out
        assert f"rank {rank} " in log
        assert json.loads((job / "ranks" / f"{rank}.json").read_text())["outcome"] == "succeeded"
    assert yaml.safe_load((job / "areal.yaml").read_text())["allocation_mode"] == "fsdp:d2"
    assert (config.parent / "root").is_dir()
    assert (config.parent / "names").is_dir()


def test_a_raising_rank_is_a_failure(script: Path, config: Path) -> None:
    process = start(script, config, BOOM="1")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "rank 1 failed: RuntimeError: boom" in err
    assert "Traceback" in out


def test_a_rank_that_never_starts_is_a_failure(script: Path, config: Path) -> None:
    process = start(script, config, FAKE_WORLD="0")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no rank of my train.py started" in err


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_every_process(script: Path, config: Path, number: signal.Signals) -> None:
    process = start(script, config, SLOW="1")
    log = config.parent / "job" / "areal.log"
    until(lambda: log.exists() and log.read_text().count("slow") == 2)
    ranks = [int(line.split()[1]) for line in log.read_text().splitlines() if "slow" in line]
    process.send_signal(number)
    process.communicate(timeout=60)
    killed = number is signal.SIGKILL
    assert process.returncode == (-number if killed else 128 + number)
    if not killed:
        assert all(map(ended, ranks)), "a rank was left behind"
    until(lambda: all(map(ended, ranks)))


def test_a_launcher_that_goes_on_after_success_is_stopped(script: Path, config: Path) -> None:
    """AReaL's local launcher starts a clean run anew where recovery is on."""
    began = time.monotonic()
    process = start(script, config, FAKE_PAUSE="50")
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert time.monotonic() - began < 40


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_a_killed_supervisor_takes_the_launcher_with_it(script: Path, config: Path) -> None:
    process = start(script, config, SLOW="1")
    log = config.parent / "job" / "areal.log"
    until(lambda: log.exists() and log.read_text().count("slow") == 2)
    ranks = [int(line.split()[1]) for line in log.read_text().splitlines() if "slow" in line]
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    os.kill(int(children), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "rank 0 was killed before it ended" in err
    until(lambda: all(map(ended, ranks)))


def test_the_supervisor_starts_nothing_for_a_process_that_is_gone() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    command = [sys.executable, supervisor.__file__, str(gone.pid), "echo", "started"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")


# -- files of the user's ---------------------------------------------------------------------------


def launch(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "areal_conf", "launch", "--launcher", "local"]
    paths = os.pathsep.join([str(FAKES), *sys.path[1:], os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*command, *words],
        cwd=directory,
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


@pytest.fixture
def launch_here(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """A launch in this process, for what is refused before anything starts."""
    monkeypatch.syspath_prepend(FAKES)

    def launched(directory: Path, *words: str) -> Done:
        monkeypatch.chdir(directory)
        capfd.readouterr()
        try:
            status = main(["launch", "--launcher", "local", *words])
        except SystemExit as end:
            status = int(end.code or 0)
        return Done(status, *capfd.readouterr())

    return launched


def contents(directory: Path) -> dict[str, str]:
    return {
        str(file.relative_to(directory)): file.read_text()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize(
    ("script_name", "config_name"),
    [
        ("rank.py", "f.yaml"),
        ("train.py", "areal.yaml"),
        ("ranks/train.py", "f.yaml"),
        ("sub/../rank.py", "f.yaml"),
        ("link.py", "f.yaml"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_job_is_not_made_over_its_own_script_or_config(
    tmp_path: Path,
    script_name: str,
    config_name: str,
    dry: tuple[str, ...],
    launch_here: Callable[..., Done],
) -> None:
    for folder in ("ranks", "sub"):
        (tmp_path / folder).mkdir()
    if script_name == "link.py":
        (tmp_path / "rank.py").write_text(SCRIPT)
        (tmp_path / "link.py").symlink_to("rank.py")
    else:
        (tmp_path / script_name).write_text(SCRIPT)
    (tmp_path / config_name).write_text(yaml.safe_dump(experiment(tmp_path)))
    before = contents(tmp_path)
    done = launch_here(tmp_path, script_name, config_name, "--dir", ".", *dry)
    assert done.status == 2, done.err
    assert "the job would overwrite it" in done.err
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["areal.log", "areal.yaml", "allocation.json", "job.json", "ranks/0.json", "rank.py"]
)
def test_what_no_launch_made_is_left_alone(
    tmp_path: Path, name: str, launch_here: Callable[..., Done]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(experiment(tmp_path)))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"mine": true}')
    before = contents(tmp_path)
    done = launch_here(tmp_path, "train.py", "f.yaml", "--dir", ".")
    assert done.status == 2
    assert "would overwrite" in done.err
    assert contents(tmp_path) == before


def test_the_working_directory_can_be_the_jobs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(experiment(tmp_path)))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "ranks.txt").write_text("mine")
    before = contents(tmp_path)
    for _ in range(2):  # the second time over its own files
        done = launch(tmp_path, "train.py", "f.yaml", "--dir", ".")
        assert done.returncode == 0, done.stderr
        assert contents(tmp_path).items() >= before.items()
        (tmp_path / "ranks" / "mine.txt").write_text("mine")
    assert (tmp_path / "ranks" / "mine.txt").exists()


def test_each_launch_has_a_directory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(experiment(tmp_path)))
    from areal_conf.cli.launch import _new_directory

    wanted = tmp_path / "outputs" / "2026-01-01" / "00-00-00"
    made = [_new_directory(wanted) for _ in range(3)]
    assert [one.name for one in made] == ["00-00-00", "00-00-00-2", "00-00-00-3"]
    done = launch(tmp_path, "train.py", "f.yaml")
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("outputs/*/*/job.json"))) == 1


def test_a_machine_without_areal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(experiment(tmp_path)))
    command = [sys.executable, "-m", "areal_conf", "launch", "--launcher", "local"]
    for option, status in (("--dry-run", 0), ("--allow=AC306", 2)):
        done = subprocess.run(
            [*command, "train.py", "f.yaml", option], cwd=tmp_path, text=True, capture_output=True
        )
        if "interop" in sys.prefix:
            pytest.skip("AReaL is installed")
        assert done.returncode == status
        assert "AReaL is not installed" in done.stderr
        assert not (tmp_path / "outputs").exists()


# -- disks and signals -----------------------------------------------------------------------------


def _can_mount() -> bool:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not _can_mount(), reason="may not mount")
def test_a_disk_that_fills_up_stops_no_training(tmp_path: Path) -> None:
    """The log has gaps. A rank that starts when the disk is full still runs."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = tmp_path / "train.py"
    script.write_text(
        "import os, time\n"
        "time.sleep(3 * int(os.environ['RANK']))\n"
        "for _ in range(40): print('x' * 50_000, flush=True)\n"
        "print('done', os.environ['RANK'], flush=True)\n"
    )
    base = experiment(tmp_path)
    config = tmp_path / "f.yaml"
    config.write_text(yaml.safe_dump(base))
    paths = os.pathsep.join([str(FAKES), *sys.path[1:]])
    inside = f'mount -t tmpfs -o size=200k none {disk} && exec "$@"'
    launch = ["-m", "areal_conf", "launch", "--launcher", "local", "--dir", str(disk / "job")]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside, "sh", sys.executable, *launch, script, config],
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    assert "areal.log is incomplete: No space left on device" in done.stderr
    assert "done 0" in done.stdout
    assert "done 1" in done.stdout


def test_a_record_is_of_one_size_and_in_place(tmp_path: Path) -> None:
    file = tmp_path / "0.json"
    entry = {"rank": 0, "world_size": 1, "outcome": "failed", "error": "\u8bad" * 9000, "pid": 1}
    rank_script.write_record(str(file), {**entry, "error": ""})
    inode = file.stat().st_ino
    rank_script.write_record(str(file), entry)
    assert file.stat().st_size == rank_script.SIZE
    assert file.stat().st_ino == inode
    assert json.loads(file.read_text())["outcome"] == "failed"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_what_was_ignored_at_the_start_stays_ignored(
    script: Path, config: Path, number: signal.Signals
) -> None:
    """``nohup`` ignores SIGHUP, and a shell SIGINT for what it starts with ``&``."""
    command = [sys.executable, "-m", "areal_conf", "launch", "--launcher", "local"]
    paths = os.pathsep.join([str(FAKES), *sys.path[1:], os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [*command, "--dir", str(config.parent / "job"), str(script), str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, "SLOW": "1"},
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN) and None,
    )
    log = config.parent / "job" / "areal.log"
    until(lambda: log.exists() and log.read_text().count("slow") == 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    process.send_signal(number)
    os.kill(int(children), number)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


def test_one_run_at_a_time_in_a_directory(
    tmp_path: Path,
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runner, "_ENDING", 0.1)
    script.write_text("import time\ntime.sleep(60)\n")
    config = tmp_path / "f.yaml"
    config.write_text(yaml.safe_dump(experiment(tmp_path)))
    first = start(script, config)
    log = tmp_path / "job" / "areal.log"
    until(lambda: log.exists() and log.stat().st_size > 0)
    with pytest.raises(BlockingIOError, match="another run goes on") as refused:
        runner.run_job(prepared(tmp_path, "local", script))
    assert refused.value.filename == str(tmp_path / "job")
    assert "waiting for the end of another run" in capsys.readouterr().err
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)


def test_a_full_disk_stops_no_training(
    tmp_path: Path, script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log has gaps, and the script runs to its end."""
    job = replace(prepared(tmp_path, "local", script), kind="controller")
    job.claim()
    (job.directory / "areal.log").symlink_to("/dev/full")
    script.write_text("print('x' * 1_000_000, flush=True)\nprint('y', flush=True)\n")
    assert runner.run_job(job).status == 0
    assert capfd.readouterr().err.count("areal.log is incomplete: No space left on device") == 1


def test_dry_run_says_what_would_run(script: Path, config: Path) -> None:
    process = start(script, config, "--dry-run")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    job = config.parent / "job"
    assert f"-m areal.infra.launcher.local {job}/rank.py --config {job}/areal.yaml" in out
    assert "mode:        fsdp:d2" in out
    assert "ranks:       2 of fsdp:d2" in out
    assert "environment: PATH=" in out
    assert not job.exists()


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_file_where_the_jobs_directory_would_be(
    script: Path, config: Path, options: tuple[str, ...], launch_here: Callable[..., Done]
) -> None:
    words = [*options, str(script), str(config), "--dir", str(config / "job")]
    done = launch_here(config.parent, *words)
    assert (done.status, done.out) == (2, "")
    assert done.err.endswith(f"{config}: Not a directory\n")


def test_wrong_usage(script: Path, config: Path, launch_here: Callable[..., Done]) -> None:
    for words, status in (
        ((str(script),), 2),
        ((str(script), str(config), str(config)), 2),
        ((str(script), str(config.parent / "none.yaml")), 2),
        ((str(script), str(config), "actor.backend=fsdp:d2p2"), 1),
    ):
        done = launch_here(config.parent, *words)
        assert done.status == status, done.err
        assert "Traceback" not in done.err


# -- what is refused ------------------------------------------------------------------------------


def prepared(tmp_path: Path, kind: str, script: Path, **changes: Any) -> Job:
    cfg = OmegaConf.create(experiment(tmp_path, **changes))
    return prepare(cfg, kind, script, tmp_path / "job")


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"trial_name": "a b"}, ["AC323"]),
        ({"experiment_name": "${nope}"}, ["AC309"]),
        ({"trial_name": "???"}, ["AC319"]),
        ({"cluster": [1]}, ["AC309"]),
        ({"actor": {"backend": "fsdp:d4p2"}}, ["AC104"]),
    ],
)
def test_what_would_fail_later_is_refused(
    tmp_path: Path, script: Path, changes: dict[str, Any], codes: list[str]
) -> None:
    with pytest.raises(AllocationError) as caught:
        prepared(tmp_path, "local", script, **changes)
    assert [e.code for e in caught.value.errors] == codes


def test_ray_needs_a_main(tmp_path: Path, script: Path) -> None:
    assert prepared(tmp_path, "ray", script).environment["RAY_DEDUP_LOGS"] == "0"
    script.write_text("print('no entry')")
    with pytest.raises(AllocationError, match="has no main"):
        prepared(tmp_path, "ray", script)
    with pytest.raises(AllocationError, match="no script"):
        prepared(tmp_path, "local", tmp_path / "none.py")


def test_nodes_of_a_cluster(tmp_path: Path, script: Path) -> None:
    from areal_conf.cli.launch import description

    job = prepared(
        tmp_path,
        "slurm",
        script,
        cluster={"n_nodes": 3, "n_gpus_per_node": 8, "fileroot": str(tmp_path)},
        rollout={"backend": "sglang:d8t2"},
        sglang={"random_seed": 1},
        actor={"backend": "fsdp:d8"},
    )
    text = "\n".join(description(job))
    assert "nodes:       3: 2 for servers, 1 for ranks" in text
    assert "servers:     8 of sglang, 2 GPUs each" in text
    assert "AREAL_LLM_SERVER_ADDRS=<8 addresses>" in text


def test_what_is_found_of_the_job_can_be_allowed_too(tmp_path: Path, script: Path) -> None:
    cfg = OmegaConf.create(experiment(tmp_path, trial_name="a b"))
    job = prepare(cfg, "local", script, tmp_path / "job", PlanOptions(allow=["AC323"]))
    assert "AC323" in [one.code for one in job.plan.warnings]


def test_a_cluster_of_unknown_size_that_was_allowed(tmp_path: Path, script: Path) -> None:
    from areal_conf.cli.launch import description

    cfg = OmegaConf.create(experiment(tmp_path, cluster={"fileroot": str(tmp_path)}))
    job = prepare(cfg, "slurm", script, tmp_path / "job", PlanOptions(allow=["AC319"]))
    assert "nodes:       not known" in description(job)


def test_ray_ranks_call_main_and_wait_for_each_other(tmp_path: Path, script: Path) -> None:
    """AReaL's ray launcher kills all ranks when the first one returns."""
    job = prepared(tmp_path, "ray", script)
    job.write()
    call = "import sys; sys.path.insert(0, '.'); import rank; rank.main(['--config', 'x'])"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", call],
            cwd=job.directory,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "BOOM": "1"},
            stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]
    statuses = [process.wait(timeout=30) for process in ranks]
    for process in ranks:
        assert process.stderr is not None
        process.stderr.close()
    assert statuses == [0, 1]
    assert job.judge().reason == "rank 1 failed: RuntimeError: boom"
