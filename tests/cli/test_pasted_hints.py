"""Hints are pasted as they are: Hydra takes them, and they name keys as the config has them."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from paths import ROOT

from areal_conf import plan
from areal_conf.cli.entry import main
from areal_conf.config.overrides import with_plus

sys.path.insert(0, str(ROOT / "docs"))

import make_pages

CONTENT: dict[str, Any] = make_pages.examples()
WORD = re.compile(r"\+{0,2}[A-Za-z_][\w.]*\.\w+=[^\s,;)]+|\+{0,2}allocation_mode=[^\s,;)]+")
PLANS = {
    code: entry
    for code, entry in CONTENT["codes"].items()
    if str(entry.get("example", "")).startswith("areal-conf plan")
}


def run(*arguments: str) -> str:
    page = io.StringIO()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(page),
        contextlib.suppress(SystemExit),
    ):
        main(arguments)
    return page.getvalue()


def pasteable(text: str) -> list[str]:
    """The overrides that the hints of `text` tell to write."""
    hints = [line for line in text.splitlines() if line.strip().startswith("hint:")]
    plain = [word for hint in hints for word in WORD.findall(hint) if "(" not in word]
    return [word.strip("'\"") for word in plain if "..." not in word and "NAME" not in word]


def together(overrides: list[str]) -> list[list[str]]:
    """The overrides in as few commands as there are alternatives for one key."""
    rounds: list[dict[str, str]] = []
    for override in dict.fromkeys(overrides):
        key = override.partition("=")[0].lstrip("+")
        free = next((one for one in rounds if key not in one), None)
        if free is None:
            rounds.append(free := {})
        free[key] = override
    return [list(one.values()) for one in rounds]


def files(tmp_path: Path, entry: dict[str, Any]) -> None:
    for name, text in {**CONTENT["files"], **entry.get("files", {})}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize("code", PLANS)
def test_hints_of_the_page_of_codes(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = PLANS[code]
    monkeypatch.chdir(tmp_path)
    files(tmp_path, entry)
    words = shlex.split(entry["example"])[1:]
    for overrides in together(pasteable(run(*words))):
        again = run(*words, *overrides)
        assert "AC320" not in again, f"{overrides}: {again}"


EXPERIMENTS: list[tuple[dict[str, Any], str]] = [
    ({"actor": {"path": "x"}}, "AC301"),
    ({"rollout": {}, "actor": {"backend": "fsdp:d8"}}, "AC301"),
    ({"name": "nothing"}, "AC301"),
    ({"teacher": {}, "actor": {"backend": "fsdp:d8"}}, "AC301"),
    ({"actor": {"backend": "fsdp:d8"}}, "AC357"),
    ({"actor": {"backend": "fsdp:d8"}, "cluster": {"n_nodes": 1}}, "AC357"),
    ({"actor": {"backend": "fsdp:d8"}, "cluster": None}, "AC357"),
    (
        {"actor": {"path": "x"}, "rollout": {"path": "x"}, "allocation_mode": "sglang:d4+d4"},
        "AC512",
    ),
    ({"rl": {"rollout": {"backend": "sglang:d4"}, "actor": {"backend": "fsdp:d4"}}}, "AC357"),
]


@pytest.mark.parametrize(("config", "code"), EXPERIMENTS)
def test_a_key_that_is_absent_has_a_plus(config: dict[str, Any], code: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump(config))
    first = run("plan", str(file))
    assert code in first
    hint = first[first.index(code) :].partition("hint: ")[2].partition("\n")[0]
    overrides = pasteable(f"hint: {hint}")
    assert overrides
    # Only one of several that are offered for one key is pasted.
    by_key = {word.partition("=")[0]: word for word in reversed(overrides)}
    again = run("plan", str(file), *by_key.values())
    assert "AC320" not in again, again
    assert again != first


def test_only_composed_configs_need_a_plus() -> None:
    cfg = {"actor": {}, "rollout": {"backend": "sglang:d8"}}
    assert "+" not in plan(cfg).errors[0].hint
    assert "+" not in plan(OmegaConf.create(cfg)).errors[0].hint


def test_plus_is_put_before_absent_keys_alone() -> None:
    cfg = OmegaConf.create({"a": {"b": 1, "ref": "${x}"}, "x": {"y": 2}, "none": None})
    OmegaConf.set_struct(cfg, True)
    text = "write a.b=1 a.c=2, +a.d=3, ++a.e=4 a.ref.z=5 none.k=6 or '++q.r=[{s.t=1}]'; see a.b"
    assert with_plus(text, cfg) == (
        "write a.b=1 +a.c=2, +a.d=3, ++a.e=4 a.ref.z=5 +none.k=6 or '++q.r=[{s.t=1}]'; see a.b"
    )
