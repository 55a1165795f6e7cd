"""``areal-conf check``: findings of YAML files, at their line and column."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from areal_conf.cli.entry import main
from areal_conf.files import MAX_BYTES
from areal_conf.lint.linter import files_below, lint_file
from areal_conf.lint.nodes import FileFinding

EXPERIMENT = """\
cluster: {n_nodes: 2, n_gpus_per_node: 8}
rollout:
  backend: "sglang:d2t4"
actor:
  backend: fsdp:d4t2  # 8 GPUs
ref:
  backend: ''
  scheduling_strategy: {type: colocation, target: actor}
"""


def lint(tmp_path: Path, text: str | bytes, name: str = "config.yaml") -> list[FileFinding]:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return lint_file(file)


def found(findings: list[FileFinding]) -> list[str]:
    return [f"{f.place.line}:{f.place.column} {f.error.code} {f.error.path}" for f in findings]


@pytest.mark.parametrize(
    ("folder", "mark"),
    [
        (".hidden", None),
        ("node_modules/pkg", None),
        ("lib/site-packages/pkg", None),
        ("venv", "pyvenv.cfg"),
    ],
)
def test_files_that_others_maintain_are_left_out(
    tmp_path: Path, folder: str, mark: str | None
) -> None:
    inside = tmp_path / folder / "config.yaml"
    inside.parent.mkdir(parents=True)
    inside.write_text("actor: {backend: fsdp:d4p2}")
    if mark:
        (inside.parent / mark).write_text("")
    (tmp_path / "own.yaml").write_text(EXPERIMENT)
    assert list(files_below(tmp_path)) == [tmp_path / "own.yaml"]
    assert inside in files_below(inside.parent)  # a directory that is named is searched
    assert list(files_below(inside)) == [inside]


def test_nothing_wrong(tmp_path: Path) -> None:
    assert lint(tmp_path, EXPERIMENT) == []


@pytest.mark.parametrize(
    ("line", "column", "width"),
    [
        ("fsdp:d4p2", 19, 2),
        ("fsdp:d4p2  # comment", 19, 2),
        ("'fsdp:d4p2'", 20, 2),
        ('"fsdp:d4p2"', 20, 2),
        ('!!str "fsdp:d4p2"', 26, 2),
        ("&layout fsdp:d4p2", 27, 2),
        ('"fsdp:\\u0064\\u0034p2"', 12, 21),  # written in another way than it reads: the value
    ],
)
def test_column_of_the_characters(tmp_path: Path, line: str, column: int, width: int) -> None:
    (finding,) = lint(tmp_path, f"# 分配\nactor:\n  backend: {line}\n")
    assert finding.error.code == "AC104"
    place = finding.place
    assert (place.line, place.column, place.end_column - place.column) == (3, column, width)


def test_places(tmp_path: Path) -> None:
    flow = "{actor: {backend: fsdp:d4p2}, rollout: {backend: 'vllm:d2c2'}}\n"
    assert found(lint(tmp_path, flow)) == [
        "1:26 AC104 actor.backend",
        "1:58 AC104 rollout.backend",
    ]
    block = "actor:\n  backend: |-\n    fsdp:d4p2\n"
    assert found(lint(tmp_path, block)) == ["3:12 AC104 actor.backend"]
    folded = 'actor:\n  backend: "fsdp:d4\n    p2"\n'
    assert found(lint(tmp_path, folded)) == ["2:12 AC104 actor.backend"]
    several = "actor:\n  backend: fsdp:d4p2m3\n"
    assert found(lint(tmp_path, several)) == [
        "2:19 AC104 actor.backend",
        "2:21 AC103 actor.backend",
    ]
    budget = EXPERIMENT.replace("n_nodes: 2", "n_nodes: 1")
    assert found(lint(tmp_path, budget)) == ["1:1 AC306 cluster"]
    bom = b"\xef\xbb\xbfactor: {backend: fsdp:d4p2}\n"
    assert found(lint(tmp_path, bom)) == ["1:25 AC104 actor.backend"]
    wide = "actor: {backend: fsdp:d4p2}\n".encode("utf-16")
    assert found(lint(tmp_path, wide)) == ["1:25 AC104 actor.backend"]
    windows = "actor:\r\n  backend: fsdp:d4p2\r\n"
    assert found(lint(tmp_path, windows)) == ["2:19 AC104 actor.backend"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("actor: {backend: sglang:d8}", ["1:18 AC302 actor.backend"]),
        ("rollout: {backend: fsdp:d8}", ["1:20 AC302 rollout.backend"]),
        ("actor: {backend: 8}", ["1:18 AC309 actor.backend"]),
        ("actor: {backend: 8:4}", ["1:18 AC309 actor.backend"]),
        ("actor: {backend: d4t2}", ["1:18 AC101 actor.backend"]),
        ("actor: {backend: torch:d2}", ["1:18 AC102 actor.backend"]),
        ("actor: {backend: fsdp:d8}\nrollout: {gpus: 3}", ["2:1 AC301 rollout.backend"]),
        ("actor: {backend: fsdp:d8}\nrollout: {backend: }", ["2:19 AC301 rollout.backend"]),
        (
            "teacher: {backend: fsdp:d8e2}",
            ["1:20 AC324 teacher.backend", "1:27 AC104 teacher.backend"],
        ),
        (
            "teacher: {engine_type: train, train: {backend: fsdp:d8e2}}",
            ["1:55 AC104 teacher.train.backend"],
        ),
        ("judge: {backend: sglang:d1c2}", ["1:27 AC104 judge.backend"]),
        ("app: {deep: [{backend: fsdp:d1p2}]}", ["1:31 AC104 app.deep[0].backend"]),
        ("backend: fsdp:d1p2  # of a config group", ["1:17 AC104 backend"]),
        (
            "actor: {backend: fsdp:d8}\nref:\n  backend: fsdp:d4\n"
            "  scheduling_strategy: {type: colocation, target: actor}",
            ["3:12 AC304 ref.backend"],
        ),
        (
            "actor: {backend: fsdp:d8}\nref: {scheduling_strategy: {type: colocation}}",
            ["2:7 AC303 ref.scheduling_strategy.target"],
        ),
        (
            "rl:\n  actor: {backend: megatron:d2t2e8}\n  ref: {backend: ''}",
            ["2:33 AC204 rl.actor.backend"],
        ),
        (
            "areal_plan: {engines: {gen: {path: app.gen, role: inference}}}\n"
            "app: {gen: {backend: fsdp:d8}}",
            ["2:22 AC302 app.gen.backend"],
        ),
        ("defaults: &d {backend: fsdp:d4p2}\nactor: {<<: *d}", ["1:31 AC104 actor.backend"]),
    ],
)
def test_what_is_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert found(lint(tmp_path, text, "config.yml"))[: len(expected)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n",
        "[1, 2]",
        "just text",
        "services: {db: {backend: postgres, image: x}}",
        "actor: {lr: 0.1}\ncritic: {lr: 0.1}",
        "db: {backend: 8}\nq: {backend: [1]}",
        "theme: !!python/name:material.theme {}\nbackend: sqlite",
        "a: 1\na: 2",
        "actor: {backend: '???'}\nrollout: {backend: 'sglang:d8'}\ncritic: {backend: ''}",
        "actor: {backend: ''}\nrollout: {backend: null}",
        "actor: {backend: 'fsdp:d${oc.env:GPUS}'}\nref: {backend: ''}\nrollout: {backend: vllm:d8}",
        "actor: {backend: '${my.resolver:8}'}\ncritic: {backend: ''}",
        "actor: {backend: fsdp:d8}\ncluster: {n_nodes: '${oc.env:N}', n_gpus_per_node: 4}",
        "# @package _global_\nactor: {backend: fsdp:d8}\nrollout: {n: 1}",
        "scheduler: {type: null}\nactor: {backend: fsdp:d8}",
    ],
)
def test_silently_fine(tmp_path: Path, text: str) -> None:
    assert found(lint(tmp_path, text)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("actor: [1", "1:10 AC330 None"),
        ("a: b: c", "1:5 AC330 None"),
        ("\tx: 1", "1:1 AC330 None"),
        ("a: *missing", "1:4 AC330 None"),
        (b"a: \xff\xfe", "1:4 AC330 None"),
        ("a: \x00", "1:4 AC330 None"),
        ("[" * 5000, "1:1 AC330 None"),
        ("actor: {backend: fsdp:d8}\n? [a, b]\n: 1", "2:3 AC330 None"),
        ("actor: {backend: fsdp:d8, x: !odd 1}", "1:30 AC330 None"),
        ("actor: {backend: fsdp:d8}\nx: &x [*x]", "1:1 AC330 None"),
        (
            "actor: {backend: fsdp:d8}\na: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{b}: &{b} [*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a}]\n"
                for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "1:1 AC330 None",
        ),
        ("actor: {backend: fsdp:d8}\nactor: {backend: fsdp:d4}", "2:1 AC331 actor"),
        ("actor:\n  backend: fsdp:d8\n  backend: fsdp:d8", "3:3 AC331 actor.backend"),
    ],
)
def test_broken_files(tmp_path: Path, text: str | bytes, expected: str) -> None:
    assert found(lint(tmp_path, text)) == [expected]


def test_large_file(tmp_path: Path) -> None:
    assert found(lint(tmp_path, b"#" * (MAX_BYTES + 1))) == ["1:1 AC330 None"]


def test_documents(tmp_path: Path) -> None:
    text = "kind: Job\n---\nactor: {backend: fsdp:d4p2}\n---\n  rollout: {backend: fsdp:d1}\n"
    assert found(lint(tmp_path, text)) == [
        "3:25 AC104 actor.backend",
        "5:22 AC302 rollout.backend",
    ]


def test_composed_configs(tmp_path: Path) -> None:
    """A file with a defaults list is planned as Hydra composes it."""
    (tmp_path / "actor").mkdir()
    (tmp_path / "actor" / "small.yaml").write_text("backend: fsdp:d8\n")
    text = "defaults: [areal/experiment: ppo, actor: small, _self_]\n"
    text += "rollout: {backend: sglang:d8}\ncluster: {n_nodes: 1, n_gpus_per_node: 8}\n"
    assert found(lint(tmp_path, text)) == ["3:1 AC306 cluster"]
    text = "defaults: [areal/layout: 2x8, _self_]\nrollout: {backend: fsdp:d8}\n"
    assert "2:20 AC302 rollout.backend" in found(lint(tmp_path, text))
    text = "defaults: [actor: small]\nref: {scheduling_strategy: {type: colocation, target: actor}}"
    assert found(lint(tmp_path, text)) == []
    (tmp_path / "actor" / "small.yaml").write_text("backend: fsdp:d8p2\n")
    assert found(lint(tmp_path, text)) == ["1:1 AC104 actor.backend"]


def test_environment_is_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOKEN", "fsdp:s3cret")
    text = "token: ${oc.env:TOKEN}\nactor: {backend: '${token}'}\ncritic: {backend: '${actor.x}'}\n"
    text += "key: hunter2\nrollout: {backend: '${oc.env:TOKEN}'}\nref: {backend: '${key}'}\n"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text("password: hunter2\n  s3cret: x\n")
    main(["check", str(tmp_path)])
    captured = capsys.readouterr()
    assert "AC330" in captured.out
    for secret in ("s3cret", "hunter2"):
        assert secret not in captured.out + captured.err


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(EXPERIMENT)
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "bad.yml").write_text("actor:\n  backend: fsdp:d4p2\n")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "bad.yaml").write_text("actor: [")
    (tmp_path / "notes.txt").write_text("actor: [")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "multirun.yaml").write_text("hydra:\n  sweep:\n    dir: x\nactor: [")
    return tmp_path


def test_exit_status(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "good.yaml"]) == 0
    assert capsys.readouterr() == ("", "1 file checked: nothing wrong\n")
    assert main(["check", "."]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("a b/bad.yml:2:19: error AC104 in actor.backend: fsdp has no pipeline")
    assert "\n  fsdp:d4p2\n         ^^\n  hint: write fsdp:d8" in out
    assert err == "2 files checked: 1 error\n"
    assert main(["check", "good.yaml", "missing.yaml", "a b"]) == 2
    out, err = capsys.readouterr()
    assert "bad.yml:2:19" in out
    assert "areal-conf check: missing.yaml: No such file or directory\n" in err
    with pytest.raises(SystemExit) as usage:
        main(["check"])
    assert usage.value.code == 2
    with pytest.raises(SystemExit) as usage:
        main(["check", "good.yaml", "--allow", "AC104"])
    assert usage.value.code == 2


def test_no_file_is_not_fine(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "empty").mkdir()
    assert main(["check", "empty"]) == 0
    assert capsys.readouterr().err == "0 files checked\n"


def test_allow(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = EXPERIMENT.replace("n_nodes: 2", "n_nodes: 1")
    (tree / "good.yaml").write_text(text)
    assert main(["check", "good.yaml"]) == 1
    assert main(["check", "good.yaml", "--allow", "AC306"]) == 0
    assert "warning AC306" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_unreadable_file(tree: Path) -> None:
    (tree / "good.yaml").chmod(0)
    assert main(["check", "good.yaml"]) == 2


def test_github(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "50%,x:y.yaml").write_text("actor: {backend: fsdp:d4p2}\n")
    assert main(["check", "a b", "50%,x:y.yaml", "--format", "github"]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "::error file=a b/bad.yml,line=2,endLine=2,col=19,endColumn=21,title=AC104 actor.backend"
        "::fsdp has no pipeline dimension (p)%0Ahint: write fsdp:d8"
    )
    assert second.startswith("::error file=50%25%2Cx%3Ay.yaml,line=1,")


def test_sarif(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a b", str(tree / "good.yaml"), "--format", "sarif"]) == 1
    log: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    (result,) = run["results"]
    assert result["ruleId"] == run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "AC104"
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "a%20b/bad.yml"
    assert location["region"] == {
        "startLine": 2,
        "startColumn": 19,
        "endLine": 2,
        "endColumn": 21,
    }
    assert main(["check", str(tree / "a b"), "--format", "sarif"]) == 1
    assert '"uri": "file:///' in capsys.readouterr().out


def test_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "good.yaml", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["check", "a b", "--format", "json"]) == 1
    (record,) = json.loads(capsys.readouterr().out)
    assert record["file"] == "a b/bad.yml"
    assert (record["line"], record["column"], record["end_column"]) == (2, 19, 21)
    assert (record["code"], record["text"], record["span"]) == ("AC104", "fsdp:d4p2", [7, 9])


def test_the_configs_of_this_package() -> None:
    assert main(["check", str(ROOT / "conf")]) == 0
