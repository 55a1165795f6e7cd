"""The example apps do what their READMEs say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra_app import App
from paths import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture(params=["existing_app", "python_app"])
def readme(request: pytest.FixtureRequest) -> str:
    return (EXAMPLES / request.param / "README.md").read_text(encoding="utf-8")


def copied(name: str, directory: Path) -> App:
    """The example in a directory of its own, so that it writes no outputs here."""
    example = EXAMPLES / name
    code = (example / "train.py").read_text(encoding="utf-8")
    config = (example / "conf" / "config.yaml").read_text(encoding="utf-8")
    return App.create(directory / name, code, config=config)


def test_existing_app(tmp_path: Path) -> None:
    app = copied("existing_app", tmp_path)
    assert (
        "areal" not in (app.directory / "app.py").read_text(encoding="utf-8").partition('"""\n')[2]
    )
    assert app.output() == (
        "rollout: 2 servers of 4 GPUs\nactor:   8 ranks, 4 replicas\nin all:  16 GPUs on 2 nodes\n"
    )
    assert "8 ranks, 8 replicas" in app.output("actor.backend=fsdp:d8")
    assert "8 GPUs on 1 nodes" in app.output("areal/layout=1x8")
    swept = app.run("-m", "actor.backend=fsdp:d8,fsdp:d4t2")
    assert re.findall(r"\d replicas", swept.stdout) == ["8 replicas", "4 replicas"]
    refused = app.run("hydra/callbacks=areal_plan", "actor.backend=fsdp:d4p2")
    assert refused.returncode == 1
    assert "ranks" not in refused.stdout
    assert "  fsdp:d4p2\n         ^^\n" in refused.stderr


def test_python_app(tmp_path: Path) -> None:
    app = copied("python_app", tmp_path)
    out = app.output()
    assert "the actor has 4 replicas of some/model\n16 GPUs on 2 nodes\n" in out
    assert re.search(r"^actor +fsdp:d4t2 +8 GPUs, from \(0, 0\) to \(0, 7\)$", out, re.M)
    assert "megatron:d4t2e4" in app.output("actor.backend=megatron:(attn:d4t2|ffn:e4)")
    refused = app.run("actor.backend=fsdp:d4p2")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "AC104" in refused.stderr
    swept = app.run("-m", "actor.backend=fsdp:d8,fsdp:d12,fsdp:d4t2")
    assert swept.returncode == 1
    assert swept.stderr.count("AC307") == 1
    assert re.findall(r"(\d) replicas", swept.stdout) == ["8", "4"]


def test_readmes_name_only_commands_that_the_tests_run(readme: str) -> None:
    commands = re.findall(r"^python train\.py(.*)$", readme, re.M)
    shown = Path(__file__).read_text(encoding="utf-8")
    for command in commands:
        for word in command.replace("'", "").split():
            assert f'"{word}"' in shown
