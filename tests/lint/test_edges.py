"""``areal-conf check`` at its edges: what it cannot compose, must not read, or never ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from areal_conf.cli.entry import main
from areal_conf.documents.yaml_text import BadYamlError, endless_interpolation, load
from areal_conf.files import MAX_BYTES
from areal_conf.lint.linter import files_below, lint_file
from areal_conf.planning.checks import check_only
from areal_conf.planning.options import PlanOptions

ACTOR = "actor: {backend: fsdp:d8}\n"
NOT_SHOWN = {"AC316", "AC357"}


def write(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def codes(file: Path) -> list[str]:
    return [found.error.code for found in lint_file(file)]


# -- composed, or said to be not composed --------------------------------------------------------

NOT_COMPOSED = {
    "group": "defaults: [areal/experiment: grpp, _self_]\n" + ACTOR,
    "layout alone": "defaults: [areal/layout: 1x88, _self_]\n",
    "schema of the app": "defaults: [base_config, _self_]\n" + ACTOR,
    "schema of the app, no word of ours": "defaults: [base_schema, actor: small, _self_]\n",
    "environment": "defaults: [{exp: '${oc.env:TOK}'}, _self_]\n" + ACTOR,
    "environment, with a default": "defaults: [{exp: '${oc.env:TOK,good}'}, _self_]\n" + ACTOR,
    "package": "defaults: [_self_]\nhydra: {searchpath: ['pkg://evil']}\n" + ACTOR,
    "package behind a merge": "x: &x {searchpath: ['pkg://evil']}\ndefaults: [_self_]\n"
    "hydra: {<<: *x}\n" + ACTOR,
    "package behind an interpolation": "defaults: [_self_]\nmine: ['pkg://evil']\n"
    "hydra: {searchpath: '${mine}'}\n" + ACTOR,
    "package of the environment": "defaults: [_self_]\n"
    "hydra: {searchpath: ['${oc.env:TOK}://evil']}\n" + ACTOR,
}


@pytest.mark.parametrize("text", NOT_COMPOSED.values(), ids=NOT_COMPOSED)
def test_what_is_not_composed_is_not_fine(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {"config.yaml": text, "exp/good.yaml": "x: 1\n"})
    write(tmp_path, {"evil/__init__.py": f"open({str(tmp_path / 'imported')!r}, 'w')\n"})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TOK", "good")
    file = str(tmp_path / "config.yaml")
    assert main(["check", file]) == 0
    out, err = capsys.readouterr()
    assert "warning AC320" in out
    assert "not composed, so checked only for what the file itself holds: " in out
    assert err == "1 file checked: 1 not composed\n"
    assert main(["check", "--strict", file]) == 1
    assert not (tmp_path / "imported").exists()
    assert "evil" not in sys.modules


def test_the_environment_changes_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ACTOR + "cluster: {n_nodes: '${oc.env:N,1}', n_gpus_per_node: 8}\n"
    text += "ref: {backend: '${oc.decode:${oc.env:REF,null}}'}\nrollout: {backend: 'sglang:d8'}\n"
    write(tmp_path, {"config.yaml": text, "composed.yaml": "defaults: [_self_]\n" + text})
    found = []
    for value in (None, "fsdp:d4p2", "8", "9"):
        for name in ("N", "REF"):
            monkeypatch.delenv(name, raising=False)
            if value:
                monkeypatch.setenv(name, value)
        found.append([lint_file(tmp_path / f"{name}.yaml") for name in ("config", "composed")])
        assert OmegaConf.create({"n": "${oc.env:N,1}"}).n == (value or "1")
    assert [[len(x) for x in one] for one in found] == [[0, 0]] * 4


def test_a_schema_of_the_app_is_seen_with_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "base_config_of_check"
    monkeypatch.delitem(ConfigStore.instance().repo, f"{name}.yaml", raising=False)
    app = "from hydra.core.config_store import ConfigStore\n"
    app += f"ConfigStore.instance().store({name!r}, {{'lr': 0.1}})\n"
    write(tmp_path, {"app_of_check.py": app})
    write(tmp_path, {"a.yaml": f"defaults: [{name}, _self_]\nactor: {{backend: fsdp:d8}}\n"})
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--strict", "a.yaml"]) == 1
    assert "--app MODULE" in capsys.readouterr().out
    (tmp_path / "a.yaml").write_text(
        (tmp_path / "a.yaml").read_text() + "areal_plan: {app: app_of_check.py}\n"
    )
    assert main(["check", "--strict", "a.yaml"]) == 1  # named in a file: not imported
    assert "--app app_of_check.py" in capsys.readouterr().out
    assert main(["check", "--strict", "a.yaml", "--app", "app_of_check.py"]) == 0
    assert capsys.readouterr().err == "1 file checked: nothing wrong\n"


def test_configs_that_are_not_ours_need_not_be_composed(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": "defaults: [db: postgres, _self_]\nx: 1\n"})
    assert codes(tmp_path / "a.yaml") == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (ACTOR + "ref: {backend: '${actr.backend}'}\n", "ref.backend"),
        ("actor: {backend: '${missing}'}\n", "actor.backend"),
        ("defaults: [_self_]\nactor: {backend: '${missing}'}\n", "actor.backend"),
        (ACTOR + "cluster: {n_nodes: '${nodes.count}', n_gpus_per_node: 8}\n", "cluster.n_nodes"),
    ],
)
def test_an_interpolation_that_leads_nowhere(text: str, path: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": text})
    assert ("AC309", path) in [(f.error.code, f.error.path) for f in lint_file(tmp_path / "a.yaml")]


REF = "ref:\n  backend: fsdp:d8\n  scheduling_strategy: {type: colocation, target: actor}\n"


@pytest.mark.parametrize(
    ("defaults", "name"),
    [
        ("[engines: ref, _self_]", "engines/ref"),
        ("[engines@_global_: ref, _self_]", "engines/ref"),
        ("[engines@rl.engines: '${which}', _self_]", "engines/ref"),
        ("[engines/more: ref, _self_]", "engines/more/ref"),
        ("[ref, _self_]", "ref"),
        ("[/ref@_here_, _self_]", "ref"),
    ],
)
@pytest.mark.parametrize("text", [REF, REF + "critic: {backend: fsdp:d8}\nrollout: {n: 1}\n"])
def test_a_fragment_is_judged_by_what_it_holds(
    defaults: str, name: str, text: str, tmp_path: Path
) -> None:
    write(tmp_path, {"config.yaml": f"defaults: {defaults}\n", f"{name}.yaml": text})
    assert set(codes(tmp_path / f"{name}.yaml")) <= {"AC352"}
    wrong = text.replace("backend: fsdp:d8", "backend: fsdp:d8p2")
    write(tmp_path, {f"{name}.yaml": wrong})
    assert "AC104" in codes(tmp_path / f"{name}.yaml")


def test_a_fragment_of_its_own_defaults_is_composed_in_its_group(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "config.yaml": "defaults: [exp: a, _self_]\n",
            "exp/a.yaml": "defaults: [/base, _self_]\nactor: {backend: fsdp:d8}\n",
            "base.yaml": "rollout: {backend: 'sglang:d8'}\n",
        },
    )
    assert codes(tmp_path / "exp" / "a.yaml") == []


# -- what is searched ---------------------------------------------------------------------------


def test_only_what_hydra_wrote_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = "actor: {backend: fsdp:d4p2}\n"
    files = ("a.yaml", ".hydra/config.yaml", "run/b.yaml", "run/.hydra/hydra.yaml", "run/0/c.yaml")
    write(tmp_path, dict.fromkeys(files, bad))
    record = f"hydra:\n  run:\n    dir: x\n  sweep:\n    dir: y\n{bad}"
    write(tmp_path, {"run/multirun.yaml": record, "mine/multirun.yaml": bad})
    monkeypatch.chdir(tmp_path)
    assert main(["check", "."]) == 1
    assert capsys.readouterr().err == "4 files checked: 4 errors\n"
    write(tmp_path, {"run/b.yaml": "allocation_mode: fsdp:d8\nactor:\n  x: 1\n"})
    assert main(["migrate", "--check", "."]) == 1
    assert capsys.readouterr().out == "would change run/b.yaml\n"


def test_folders_that_cannot_be_listed_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {"a.yaml": ACTOR, "closed/b.yaml": ACTOR})
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert main(["check", str(tmp_path)]) == 2
    assert "closed: Permission denied" in capsys.readouterr().err
    assert main(["migrate", "--check", str(tmp_path)]) == 1
    assert "closed: not searched: Permission denied" in capsys.readouterr().err


def test_no_word_of_the_environment_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "actor: {backend: fsdp:d4p2}\nname: '${oc.env:WORD}'\n"
    write(tmp_path, {"a.yaml": text, "b.yaml": "defaults: [areal/layout: 9x9, _self_]\n" + text})
    shown = []
    for word in ("something", "pipeline", "layout", str(tmp_path)):
        monkeypatch.setenv("WORD", word)
        assert main(["check", str(tmp_path)]) == 1
        shown.append(capsys.readouterr())
    assert len(set(shown)) == 1


def test_devices_and_pipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full.yaml").symlink_to("/dev/full")
    (tmp_path / "zero.yml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    write(tmp_path, {"a.yaml": ACTOR})
    assert list(files_below(tmp_path)) == [tmp_path / "a.yaml"]
    assert main(["check", str(tmp_path / "full.yaml"), str(tmp_path / "zero.yml")]) == 2
    assert capsys.readouterr().err.count("it is a device, no file") == 2


@pytest.mark.parametrize("form", ["human", "github", "json", "sarif"])
@pytest.mark.slow
def test_names_that_are_not_utf8(form: str, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9 \xff.yaml")
    write(tmp_path, {name: "actor: {backend: fsdp:d4p2}\n"})
    for path in (name, str(tmp_path / name), "."):
        command = [sys.executable, "-m", "areal_conf", "check", path, "--format", form]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert (done.returncode, b"Traceback" in done.stderr) == (1, False), done.stderr
        assert b"AC104" in done.stdout


# -- time and memory ----------------------------------------------------------------------------

CHAIN = "".join(f"b{i}: &b{i} {{<<: [*b{i - 1}, *b{i - 1}]}}\n" for i in range(1, 40))
BOMBS = {
    "merge of itself": "a: &a {<<: *a, x: 1}\n",
    "merges of each other": "a: &a {x: &b {<<: *a}}\n",
    "merge in a list of itself": "a: &a {<<: [{y: 1}, *a], x: 1}\n",
    "merges that double": "b0: &b0 {x: 1}\n" + CHAIN,
    "second merges that double": "b0: &b0 {x: 1}\n"
    + CHAIN.replace("[", "").replace("]", "").replace(", *", ", y: {<<: *").replace("}\n", "}}\n"),
    "lists that double": "b0: &b0 [x]\n"
    + "".join(f"b{i}: &b{i} [*b{i - 1}, *b{i - 1}]\n" for i in range(1, 40)),
    "interpolations that double": "".join(
        f"k{i}: '${{k{i + 1}}}${{k{i + 1}}}'\n" for i in range(40)
    )
    + "k40: f\nref: {backend: '${k0}'}\n",
    "selects that double": "".join(
        f"k{i}: '${{oc.select:k{i + 1}}}${{oc.select:k{i + 1}}}'\n" for i in range(40)
    )
    + "k40: f\nref: {backend: '${k0}'}\n",
    "relative ones that double": "x:\n"
    + "".join(f"  k{i}: '${{.k{i + 1}}}${{.k{i + 1}}}'\n" for i in range(40))
    + "  k40: f\nref: {backend: '${x.k0}'}\n",
    "brackets": "x: " + "[" * 100_000 + "\n",
    "dashes": "- " * 50_000 + "\n",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("before", [ACTOR, "defaults: [_self_]\n" + ACTOR])
@pytest.mark.slow
def test_bombs(text: str, before: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": before + text, "b.yaml": text})
    start = time.process_time()
    assert "AC330" in codes(tmp_path / "a.yaml")
    codes(tmp_path / "b.yaml")
    with contextlib.suppress(SystemExit):
        assert main(["plan", str(tmp_path / "a.yaml")]) in (0, 1)
    assert time.process_time() - start < 10


@pytest.mark.slow
def test_many_merges_are_no_bomb(tmp_path: Path) -> None:
    text = "base: &base {a: 1, b: 2}\n" + "".join(f"x{i}: {{<<: *base}}\n" for i in range(2000))
    write(tmp_path, {"a.yaml": ACTOR + text})
    assert codes(tmp_path / "a.yaml") == []


@pytest.mark.slow
def test_a_large_file_is_looked_at_first(tmp_path: Path) -> None:
    rows = "".join(
        f"  - {{id: {i}, text: some words of a row, tags: [a, b]}}\n" for i in range(100_000)
    )
    write(tmp_path, {"rows.yaml": "rows:\n" + rows, "ours.yaml": ACTOR + "rows:\n" + rows})
    assert (tmp_path / "rows.yaml").stat().st_size > 5e6
    start = time.process_time()
    assert codes(tmp_path / "rows.yaml") == []
    assert time.process_time() - start < 1
    assert codes(tmp_path / "ours.yaml") == ["AC330"]
    assert time.process_time() - start < 15


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "a.yaml", "wb") as file:
        file.truncate(3 * 2**30)
    start = time.process_time()
    assert codes(tmp_path / "a.yaml") == ["AC330"]
    assert time.process_time() - start < 1
    assert MAX_BYTES < 2**25


def test_a_thousand_interpolations_in_a_row_are_fine() -> None:
    row = {f"k{i}": f"${{k{i + 1}}}" for i in range(1000)}
    assert endless_interpolation(row) is None
    assert endless_interpolation({"a": "${b}", "b": "${a}${a}"}) is None


# -- keys given twice ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "{0: a, 0: b}",
        "{1: a, '1': b}",
        "{1: a, 01: b}",
        "{true: a, yes: b}",
        "{1.0: a, 1: b}",
        "{a: &x {b: 1}, <<: [*x], <<: {c: 1}}",
    ],
)
def test_keys_that_hydra_takes_are_not_given_twice(text: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": f"{ACTOR}x: {text}\n"})
    OmegaConf.load(tmp_path / "a.yaml")
    assert codes(tmp_path / "a.yaml") == []


@pytest.mark.parametrize("text", ["{a: 1, 'a': 2}", "{2020-01-01: 1, 2020-01-01: 2}"])
def test_keys_that_are_given_twice(text: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": f"{ACTOR}x: {text}\n"})
    assert codes(tmp_path / "a.yaml") == ["AC331"]


# -- check agrees with plan ---------------------------------------------------------------------

SPECS = [
    "fsdp:d8",
    "fsdp:d4t2",
    "megatron:d2p2t2",
    "sglang:d8",
    "vllm:d2t4",
    "fsdp:d4p2",
    "",
    None,
    8,
]
STRATEGIES = [
    None,
    {"type": "colocation", "target": "actor"},
    {"type": "colocation"},
    {"type": "x"},
]
section = st.fixed_dictionaries(
    {},
    optional={
        "backend": st.sampled_from(SPECS),
        "scheduling_strategy": st.sampled_from(STRATEGIES),
    },
)
documents = st.fixed_dictionaries(
    {"actor": section},
    optional={
        "rollout": section,
        "ref": section,
        "critic": section,
        "teacher": section,
        "cluster": st.fixed_dictionaries(
            {"n_nodes": st.sampled_from([1, 2, None]), "n_gpus_per_node": st.sampled_from([8, 4])}
        ),
        "scheduler": st.sampled_from([{"type": "local"}, {"type": "slurm"}, {"type": None}]),
        "allocation_mode": st.sampled_from(["sglang:d8+fsdp:d8", "fsdp:d8", "", "sglang.d4+d4"]),
    },
)


@settings(max_examples=60, deadline=None)
@given(data=documents, composed=st.booleans(), below=st.booleans())
@pytest.mark.slow
def test_check_agrees_with_plan(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, object], composed: bool, below: bool
) -> None:
    data = {"rl": data} if below else data
    if composed:
        data = {"defaults": ["_self_"], **data}
    file = tmp_path_factory.mktemp("agrees") / "config.yaml"
    OmegaConf.save(OmegaConf.create(data), file)
    found = {(f.severity, f.error.code, f.error.path) for f in lint_file(file)}
    data.pop("defaults", None)
    planned = check_only(OmegaConf.create(data), PlanOptions())
    wanted = {(s, e.code, e.path) for s, e in planned if e.code not in NOT_SHOWN}
    if _is_ours(data, below):
        assert found == wanted, (found, wanted)


def _is_ours(data: dict[str, Any], below: bool) -> bool:
    """Whether the document says what an engine runs on; of others `check` says nothing."""
    sections = data["rl"] if below else data
    backends = [s.get("backend") for s in sections.values() if isinstance(s, dict)]
    if below:
        return any(isinstance(b, str) and ":" in b for b in backends)
    return bool(sections.get("allocation_mode")) or any(b not in ("", None) for b in backends)


def test_faults_of_yaml_have_a_place() -> None:
    with pytest.raises(BadYamlError) as fault:
        load("a: 1\nb: [1\n")
    assert fault.value.line >= 2
