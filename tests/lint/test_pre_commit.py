"""The pre-commit hooks, run by pre-commit on a scratch repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

REPOSITORY = ROOT

pytestmark = [
    pytest.mark.apps,
    pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="no git repository"),
]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("pre_commit")
    if shutil.which("git") is None:
        pytest.skip("no git")
    for name in [name for name in os.environ if name.startswith(("GIT_", "PYTHONPATH"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "cache"))
    repository = tmp_path / "scratch"
    repository.mkdir()
    monkeypatch.chdir(repository)
    git("init", "--quiet")
    return repository


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, stdin=subprocess.DEVNULL)


def try_hook(hook: str) -> subprocess.CompletedProcess[str]:
    git("add", ".")
    command = [sys.executable, "-m", "pre_commit", "try-repo", str(REPOSITORY), hook, "-a"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_check(scratch: Path) -> None:
    (scratch / "good.yaml").write_text("actor: {backend: fsdp:d8}\n")
    (scratch / "notes.txt").write_text("actor: {backend: fsdp:d4p2}\n")
    assert (done := try_hook("areal-conf-check")).returncode == 0, done.stdout + done.stderr
    (scratch / "bad.yml").write_text("actor:\n  backend: fsdp:d4p2\n")
    done = try_hook("areal-conf-check")
    assert done.returncode == 1
    assert "bad.yml:2:19: error AC104" in done.stdout
    assert "2 files checked: 1 error" in done.stdout


def test_migrate(scratch: Path) -> None:
    (scratch / "new.yaml").write_text("actor: {backend: fsdp:d8}\n")
    assert (done := try_hook("areal-conf-migrate")).returncode == 0, done.stdout + done.stderr
    (scratch / "old.yaml").write_text("allocation_mode: sglang:d4+fsdp:d4\nactor: {x: 1}\n")
    done = try_hook("areal-conf-migrate")
    assert done.returncode == 1
    assert "old.yaml" in done.stdout
