"""The command line as a shell sees it: exit statuses, what goes where, and no traceback ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from paths import CASES

from areal_conf import plan
from areal_conf.cli.commands import COMMANDS
from areal_conf.cli.entry import main
from areal_conf.config.compose import compose_file

EXAMPLES = CASES / "areal-examples"
PPO = """
rollout: {backend: "sglang:d2t4"}
actor: {backend: "fsdp:d4t2"}
cluster: {n_nodes: 2, n_gpus_per_node: 8}
scheduler: {type: local}
"""
BAD = PPO.replace("fsdp:d4t2", "fsdp:d4p2")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ppo.yaml"
    path.write_text(PPO, encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one command."""
    try:
        status = main(arguments)
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else 2
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def shell(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "areal_conf", *arguments], capture_output=True, **options
    )


# -- plan -------------------------------------------------------


def test_plan(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    status, out, err = run(capsys, "plan", str(config))
    assert status == 0
    assert "16 of 16 GPUs" in out
    assert "error" not in err


def test_plan_of_overrides_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = "rollout.backend=sglang:d2t4 actor.backend=fsdp:d4t2"
    status, out, _ = run(capsys, "plan", *words.split())
    assert status == 0
    assert "sglang" in out


@pytest.mark.parametrize(
    "overrides",
    [
        ["areal/layout=2x8"],
        ["areal/layout=2x8", "areal/experiment=grpo"],
        ["areal/experiment=sft", "areal/layout=1x8_sft"],
        ["areal/layout=4x8_moe", "+name=mine"],
        ["areal/layout=2x8", "~critic"],
        ["rollout.backend=sglang[rollout]:d8", "actor.backend=megatron:(attn:d4t2|ffn:e4)"],
    ],
)
def test_plan_of_groups(capsys: pytest.CaptureFixture[str], overrides: list[str]) -> None:
    assert run(capsys, "plan", *overrides)[0] == 0


def test_plan_with_errors_exits_1(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    status, out, err = run(capsys, "plan", str(config), "actor.backend=fsdp:d4p2")
    assert status == 1
    assert "sglang" in out
    assert "actor.backend: AC104" in err
    assert "fsdp:d4p2" in err
    assert "^^" in err


def test_allowed_error_is_a_warning_and_said(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    words = ("plan", str(config), "actor.backend=fsdp:d16")
    assert run(capsys, *words)[0] == 1
    status, _, err = run(capsys, *words, "--allow", "AC306")
    assert status == 0
    assert "AC306" in err
    assert "allowed" in err


def test_config_dir_and_name(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    for name in ("ppo", "ppo.yaml"):
        words = ("--config-dir", str(config.parent), "--config-name", name)
        assert run(capsys, "plan", *words, "actor.backend=fsdp:d8")[0] == 0


def test_options_and_overrides_in_any_order(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    words = ["actor.backend=fsdp:d8", "--format", "json", str(config), "rollout.backend=vllm:d8"]
    status, out, _ = run(capsys, "plan", *words)
    assert status == 0
    assert json.loads(out)["engines"]["rollout"]["spec"] == "vllm:d8"


def test_composes_as_areal_does(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    """The file's directory is the config path: its defaults list is found there."""
    (config.parent / "base").mkdir()
    (config.parent / "base" / "b.yaml").write_text("actor: {backend: 'fsdp:d4'}", encoding="utf-8")
    top = config.parent / "top.yaml"
    top.write_text("defaults:\n  - ppo\n  - base@_global_: b\n  - _self_\n", encoding="utf-8")
    _, out, _ = run(capsys, "plan", str(top), "--format", "json")
    assert json.loads(out)["engines"]["actor"]["spec"] == "fsdp:d4"


def test_json_is_that_of_the_plan(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    _, out, err = run(capsys, "plan", str(config), "--format", "json")
    assert (out, err) == (plan(compose_file(config)).model_dump_json(indent=2) + "\n", "")


def test_json_holds_the_diagnostics(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    status, out, err = run(
        capsys, "plan", str(config), "actor.backend=fsdp:d4p2", "--format", "json"
    )
    assert (status, err) == (1, "")
    error = json.loads(out)["errors"][0]
    assert sorted(error) == ["code", "hint", "message", "path", "span", "text"]
    assert (error["code"], error["path"]) == ("AC104", "actor.backend")
    assert (error["text"], error["span"]) == ("fsdp:d4p2", [7, 9])


def test_output_file(capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path) -> None:
    for form, start in (("json", "{"), ("svg", "<"), ("table", "")):
        target = tmp_path / f"plan.{form}"
        status, out, _ = run(capsys, "plan", str(config), "--format", form, "-o", str(target))
        assert (status, out) == (0, "")
        assert target.read_text(encoding="utf-8").lstrip().startswith(start)
    (tmp_path / "plan.json").chmod(0o640)
    run(capsys, "plan", str(config), "--format", "json", "-o", str(tmp_path / "plan.json"))
    assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o640
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".plan")]


# -- usage: status 2 --------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["plan", "missing.yaml"],
        ["plan", "a.yaml", "b.yaml"],
        ["plan", "."],
        ["plan", "--format", "xml"],
        ["plan", "--nothing"],
        ["plan", "--launcher", "pbs"],
        ["plan", "--allow", "AC104"],
        ["plan", "--allow", "AC999"],
        ["plan", "--config-dir", "."],
        ["plan", "--config-name", "missing"],
        ["plan", "--config-dir", "missing", "--config-name", "x"],
        ["plan", "x.yaml", "--config-dir", ".", "--config-name", "x"],
        ["plan", "areal/layout=2x8", "-o", "missing/plan.txt"],
        ["plan", "areal/layout=2x8", "--model", "missing.json"],
        ["explain"],
        ["explain", "fsdp:d4", "fsdp:d8"],
    ],
)
def test_usage_errors_exit_2(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert out == "" or not arguments
    assert err or not arguments


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_unreadable_file_exits_2(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    config.chmod(0)
    assert run(capsys, "plan", str(config))[0] == 2


# -- invalid configs: status 1 ----------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"actor: [",
        b"\tactor: {}",
        b"just a string",
        b"- a\n- list",
        b"actor: {backend: 'fsdp:d4'}\n\xff\xfe",
        b"\x00\x01\x02",
        b"actor: {backend: 'fsdp:d4', backend: 'fsdp:d8'}",
        b"actor: !!python/object:os.system {}",
        b"a: &a [*a]",
        b"",
        b"defaults:\n  - nothing\n",
        b"rollout: {backend: 8}\nactor: {backend: [1]}",
        b"actor: {backend: '${nowhere}'}",
        b"actor: {backend: '${areal.gpus:}'}",
        b"actor: fsdp:d4",
    ],
)
def test_what_is_no_config_exits_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    status, _, err = run(capsys, "plan", str(path))
    assert status == 1
    assert "AC3" in err


@pytest.mark.parametrize(
    "override",
    [
        "actor.backend=fsdp:d4p2",
        "x=1",
        "actor.backend=${",
        "actor.optimizer.lr=(",
        "=1",
        "actor.backend=fsdp:d4,fsdp:d8",
        "+areal/layout=nothing",
        "+++x=1",
        "actor.backend=\ud800",
        "cluster.n_nodes=two",
        "~nothing",
    ],
)
def test_broken_overrides_exit_1(
    capsys: pytest.CaptureFixture[str], config: Path, override: str
) -> None:
    status, _, err = run(capsys, "plan", str(config), override)
    assert status == 1
    assert "AC" in err


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("actor.bakend=fsdp:d8", "actor.backend"),
        ("clustr.n_nodes=2", "cluster"),
        ("cluster.n_node=2", "cluster.n_nodes"),
    ],
)
def test_the_key_that_was_meant_is_named(
    capsys: pytest.CaptureFixture[str], config: Path, override: str, key: str
) -> None:
    status, _, err = run(capsys, "plan", str(config), override)
    assert status == 1
    assert f"hint: did you mean {key}? A new key needs a leading '+'" in err


@pytest.mark.parametrize("name", ["a b.yaml", "x-1.5.yaml", "ä.yaml", "a,b.yaml", "[x].yaml"])
def test_any_file_name(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PPO, encoding="utf-8")
    assert run(capsys, "plan", str(tmp_path / name))[0] == 0


def test_other_endings_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "c.yml").write_text(PPO, encoding="utf-8")
    status, _, err = run(capsys, "plan", str(tmp_path / "c.yml"))
    assert status == 1
    assert "c.yaml" in err


@pytest.mark.slow
def test_a_huge_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = "".join(f"k{i}: {{a: {i}, b: [x, y]}}\n" for i in range(1000))
    (tmp_path / "c.yaml").write_text(PPO + lines, encoding="utf-8")
    assert run(capsys, "plan", str(tmp_path / "c.yaml"))[0] == 0


# -- explain ----------------------------------------------------


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "explain", "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)")
    assert (status, err) == (0, "")
    assert "32" in out
    status, out, err = run(capsys, "explain", "fsdp:d4p2")
    assert (status, out) == (1, "")
    assert "fsdp:d4p2" in err
    assert "^^" in err
    assert "write fsdp:d8" in err


def test_explain_tells_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "explain", "fsdp:d2t2d4t8")
    assert status == 1
    assert err.count("AC105") == 2


def test_explain_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "explain", "sglang:d2t4", "--format", "json")
    assert status == 0
    assert json.loads(out)["canonical"] == "sglang:d2t4"


@pytest.mark.parametrize("spec", ["", " ", "\x1b[31m", "ä", "fsdp:d４", "-", "x" * 100_000])
def test_explain_anything(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    status, out, err = run(capsys, "explain", spec)
    assert (status, out) == (1, "")
    assert "\x1b" not in err
    assert len(err) < 5000


# -- as a process -----------------------------------------------


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    status, out, err = run(capsys, *[command] * bool(command), "--help")
    assert (status, err) == (0, "")
    assert out.startswith("usage: areal-conf")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version")[1].startswith("areal-conf 0.")


@pytest.mark.slow
def test_as_a_module_without_terminal_or_locale(config: Path) -> None:
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONPATH": ":".join(sys.path)}
    env.update(PYTHONCOERCECLOCALE="0", PYTHONUTF8="0", TERM="dumb")
    done = shell("plan", str(config), env=env, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    done.stdout.decode("ascii")
    assert b"\x1b" not in done.stdout
    done = shell("explain", "fsdp:d４", env=env)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_closed_pipe_is_no_traceback(config: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "areal_conf", "plan", str(config), "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err
    assert err == b""


@pytest.mark.skipif(not EXAMPLES.exists(), reason="no shared cases here")
@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.yaml")))
@pytest.mark.slow
def test_example_files_give_a_plan_or_a_clear_refusal(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    status, out, err = run(capsys, "plan", str(EXAMPLES / name))
    assert status in (0, 1)
    assert "GPUs" in out or "AC" in err


# -- words, paths and streams ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("migrate", "--write", ""),
        ("check", ""),
        ("plan", ""),
        ("plan", "--config-name", ""),
        ("plan", "--model", "", "actor.backend=fsdp:d8"),
        ("plan", "--model", "actor=", "actor.backend=fsdp:d8"),
        ("plan", "-o", "", "actor.backend=fsdp:d8"),
        ("export", "-o", ""),
        ("schema", "-o", ""),
        ("layouts", "fsdp:d*@8", "--model", ""),
        ("launch", "--launcher", "local", "", "c.yaml"),
        ("launch", "--launcher", "local", "--dir", "", "s.py", "c.yaml"),
    ],
)
def test_an_empty_path_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    """``migrate --write "$UNSET"`` must not mean the working directory."""
    monkeypatch.chdir(tmp_path)
    legacy = "allocation_mode: fsdp:d4\nactor: {path: x}\n"
    Path("legacy.yaml").write_text(legacy)
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert "the path is empty" in err
    assert Path("legacy.yaml").read_text() == legacy


def test_words_behind_two_dashes_are_no_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-x.yaml").write_text(PPO)
    for command in ("check", "migrate", "plan"):
        assert run(capsys, command, "--", "-x.yaml")[0] == 0
    assert run(capsys, "check", "--format", "json", "--", "-x.yaml", "-y.yaml")[0] == 2
    assert run(capsys, "explain", "--", "fsdp:d4")[0] == 0
    assert "AC111" in run(capsys, "explain", "--", "-fsdp:d4")[2]


@pytest.mark.parametrize("words", ["--help", "schema", "layouts fsdp:d*t*@65536"])
def test_a_reader_that_goes_away_is_told_as_by_other_programs(words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        command = [sys.executable, "-m", "areal_conf", *words.split()]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (141, b"")


def test_errors_of_json_are_in_the_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, config: Path
) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    for words in ([str(broken)], [str(config), "nokey.x=1"]):
        status, out, err = run(capsys, "plan", *words, "--format", "json")
        made = json.loads(out)
        assert (status, err, made["engines"]) == (1, "", {})
        assert [e["code"] for e in made["errors"]] == ["AC320"]
    for words in (["explain", "fsdp:d4p2"], ["layouts", "fsdp:d*p2@8"]):
        status, out, err = run(capsys, *words, "--format", "json")
        assert (status, err) == (1, "")
        assert [e["code"] for e in json.loads(out)["errors"]] == ["AC104"]


def test_models_of_some_engines_and_of_all_others(
    capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m.json"
    model.write_text('{"num_attention_heads": 8, "num_hidden_layers": 8}')
    other = tmp_path / "n.json"
    other.write_text('{"num_attention_heads": 2, "num_hidden_layers": 8}')
    both = ("--model", str(model), "--model", f"rollout={other}")
    status, _, err = run(capsys, "plan", str(config), *both)
    assert status == 1
    assert "AC401" in err
    assert "rollout.backend" in err
    assert "actor.backend" not in err


def test_pipes(capsys: pytest.CaptureFixture[str], tmp_path: Path, config: Path) -> None:
    """A directory's are not read; one that is named is, once; a config to compose is no pipe."""
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    assert "1 file checked" in run(capsys, "check", str(tmp_path))[2]
    status, _, err = run(capsys, "plan", str(pipe))
    assert status == 1
    assert "Hydra reads no pipes" in err
    for words in (["check", str(pipe)], ["migrate", str(pipe)]):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(pipe.write_text, BAD)
            status, out, _ = run(capsys, *words)
        assert (pipe.is_fifo(), "AC104" in out) == (True, words[0] == "check")
        assert status == (1 if words[0] == "check" else 0)
    model = tmp_path / "model.json"
    os.mkfifo(model)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(model.write_text, '{"num_attention_heads": 1, "num_hidden_layers": 8}')
        assert run(capsys, "plan", str(config), "--model", str(model))[0] == 1


def test_files_that_cannot_be_read_are_not_counted(
    capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    (config.parent / "nowhere.yaml").symlink_to("missing")
    status, _, err = run(capsys, "check", str(config.parent))
    assert status == 2
    assert "nowhere.yaml: No such file" in err
    assert "1 file checked" in err


def test_the_name_of_a_file_says_its_format(
    capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path
) -> None:
    beginnings = {"a.svg": "<svg", "a.json": "{", "a.txt": "engine", "a": "engine"}
    for name, beginning in beginnings.items():
        assert run(capsys, "plan", str(config), "-o", str(tmp_path / name))[0] == 0
        assert (tmp_path / name).read_text().lower().lstrip().startswith(beginning), name
    run(capsys, "plan", str(config), "-o", str(tmp_path / "a.svg"), "--format", "json")
    assert json.loads((tmp_path / "a.svg").read_text())["total_gpus"] == 16
