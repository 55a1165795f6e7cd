"""Shell completion: of the command line, and Hydra's own of the config groups."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from areal_conf.cli.commands import COMMANDS
from areal_conf.cli.entry import main

APP = """\
import hydra

@hydra.main(config_path=None, version_base="1.3")
def app(cfg):
    raise AssertionError("completion runs no app")

app()
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["ch"], ["check"]),
        (["plan", "--la"], ["--launcher"]),
        (["plan", "--launcher", "s"], ["slurm"]),
        (["check", "--format", "s"], ["sarif"]),
        (["check", "my"], ["my config.yaml"]),
        (["completion", "f"], ["fish"]),
        (["nonsense", "x"], []),
        (["plan", "actor.back"], ["actor.backend="]),
        (["plan", "areal/lay"], ["areal/layout="]),
        (["plan", "areal/layout=2"], ["areal/layout=2x8"]),  # where "=" splits no words
        (["plan", "areal/layout", "=", "2"], ["2x8"]),
        (["plan", "rollout.backend", "="], ["sglang:", "vllm:"]),
        (["launch", "--launcher", "local", "my"], ["my config.yaml"]),
        (["export", "scheduler.type", "=", "sl"], ["slurm"]),
        (["plan", "--ro"], ["--root"]),
    ],
)
def test_bash(
    typed: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    (tmp_path / "my config.yaml").touch()
    code = script("bash", capsys)
    code += 'COMP_WORDS=(areal-conf "$@"); COMP_CWORD=$#; _areal_conf\n'
    code += "[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    done = subprocess.run(
        [bash, "-u", "-c", code, "bash", *typed],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout.splitlines() == expected
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert all(command in text for command in COMMANDS)
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    (tmp_path / "script").write_text(text)
    subprocess.run([program, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("areal/lay", ["areal/layout="]),
        ("+areal/layout=1x", ["+areal/layout=1x8", "+areal/layout=1x8_sft"]),
        ("+areal/experiment=d", ["+areal/experiment=distill", "+areal/experiment=dpo"]),
    ],
)
def test_hydra_completes_the_groups(typed: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = subprocess.run(
        [sys.executable, "app.py", "-sc", "query=bash"],
        env={**os.environ, "COMP_LINE": f"python app.py {typed}", "COMP_POINT": "0"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert sorted(done.stdout.split()) == expected
