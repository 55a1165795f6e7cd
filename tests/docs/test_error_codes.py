"""The page of error codes: every code has an entry, and every example gives its code."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import pytest
from paths import ROOT

from areal_conf import AllocationError
from areal_conf.cli.entry import main
from areal_conf.errors import CODES

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import make_pages  # noqa: E402

CONTENT: dict[str, Any] = make_pages.examples()
ENTRIES: dict[str, dict[str, Any]] = CONTENT["codes"]
NO_EXAMPLE = {"AC606"}


def run(command: str) -> str:
    """What a command prints, on either stream."""
    name, *arguments = shlex.split(command)
    if name == "python":
        words = [sys.executable, *arguments]
        return subprocess.run(words, stdout=PIPE, stderr=STDOUT, text=True, check=False).stdout
    assert name == "areal-conf"
    with printed() as page:
        main(arguments)
    return page.getvalue()


@contextlib.contextmanager
def printed() -> Iterator[io.StringIO]:
    page = io.StringIO()
    with (
        contextlib.redirect_stdout(page),
        contextlib.redirect_stderr(page),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield page


def run_python(code: str) -> str:
    """What a snippet prints, and the error it raises."""
    with printed() as page:
        try:
            exec(code, {})
        except AllocationError as error:
            print(error)
    return page.getvalue()


def test_every_code_has_an_entry() -> None:
    missing = [code for code in CODES if code not in ENTRIES]
    assert not missing, f"write cause, example and cure into docs/reference/errors.yaml: {missing}"
    assert list(ENTRIES) == list(CODES)


@pytest.mark.parametrize("code", ENTRIES)
def test_example(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ENTRIES[code]
    monkeypatch.chdir(tmp_path)
    for name, text in {**CONTENT["files"], **entry.get("files", {})}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert entry["cause"]
    assert entry["cure"]
    if code in NO_EXAMPLE:
        return
    shown = run_python(entry["python"]) if "python" in entry else run(entry["example"])
    assert re.search(rf"\b{code}\b", shown), shown
    if "fixed" in entry:
        fixed = run(entry["fixed"])
        assert not re.search(rf"\b{code}\b", fixed), fixed
