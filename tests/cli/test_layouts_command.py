"""``areal-conf layouts``"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra_app import unescaped
from paths import ROOT

from areal_conf import ModelAllocation, layouts
from areal_conf.cli.entry import main

GUIDE = ROOT / "docs" / "guides" / "layouts.md"


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layouts", "fsdp:d*t*@4"]) == 0
    assert capsys.readouterr() == ("fsdp:d4\nfsdp:d2t2\nfsdp:t4\n", "")


def test_hydra_format_is_what_a_sweeper_reads(capsys: pytest.CaptureFixture[str]) -> None:
    pattern = "megatron[actor]:attn:d*t*|ffn:t*e*@8"
    assert main(["layouts", pattern, "--format", "hydra"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    override = OverridesParser.create().parse_overrides([f"actor.backend={line}"])[0]
    found = list(map(unescaped, override.sweep_string_iterator()))
    assert [str(ModelAllocation.from_str(spec)) for spec in found] == [
        str(allocation).replace("[actor]", "") for allocation in layouts(pattern)
    ]
    assert not set(line) & set("()[]'\"")


def test_hydra_format_needs_no_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layouts", "megatron:attn:d*|ffn:t*@2", "--format", "hydra"]) == 0
    assert capsys.readouterr().out == "megatron:d2,megatron:attn:d2|ffn:t2\n"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layouts", "megatron:d*e2", "--gpus", "4", "--format", "json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert only == {
        "spec": "megatron:d4e2",
        "backend": "megatron",
        "name": None,
        "dims": {"d": 4, "t": 1, "p": 1, "c": 1, "e": 2, "etp": 1, "edp": 2},
        "world_size": 4,
    }


def test_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"num_attention_heads": 28, "num_key_value_heads": 4, "num_hidden_layers": 28}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["layouts", "fsdp:d*t*@8", "--model", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == ["fsdp:d8", "fsdp:d4t2", "fsdp:d2t4"]
    assert main(["layouts", "fsdp:t*@8", "--model", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert "AC603" in err
    assert "fits the model" in err
    assert main(["layouts", "fsdp:d*@8", "--model", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["fsdp:d*p*@8"], "AC104", "fsdp:d*t*@8"),
        (["fsdp:d*t*"], "AC601", "fsdp:d*t*@8"),
        (["fsdp:d*t*", "--gpus", "0"], "AC602", "such as 8"),
        (["fsdp:d3t*@8"], "AC603", "give 6 or 9 GPUs"),
        (["archon:d*t4e2@8"], "AC603", "archon:d*t*p*c*e*@8"),
    ],
)
def test_invalid(
    arguments: list[str], code: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["layouts", *arguments]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(code)
    assert hint in err


def test_a_reader_that_stops_early() -> None:
    command = [sys.executable, "-m", "areal_conf", "layouts", "megatron:d*t*p*c*e*@1048576"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"megatron:d1048576\n"
        process.stdout.close()
        assert process.stderr.read() == b""


def test_guide_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    shown = re.findall(r"^\$ areal-conf (layouts .*)\n((?:.|\n)*?)^```", text, re.M)
    assert len(shown) == 3
    for command, output in shown:
        main(shlex.split(command))
        assert "".join(capsys.readouterr()) == output


def test_snippets_of_the_guide_run() -> None:
    snippets = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert snippets
    for snippet in snippets:
        exec(snippet, {})


@pytest.mark.parametrize("gpus", ["8.0", "1_0", "\uff18", "-8", ""])
def test_gpus_that_are_no_plain_number(gpus: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["layouts", "fsdp:d*", f"--gpus={gpus}"])
    assert stop.value.code == 2
