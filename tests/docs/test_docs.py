"""Every command and snippet of README and docs, run in a directory of its own.

A block with a title is a file; the later blocks of its page find it. ``bash`` blocks must succeed;
commands of ``console`` blocks must print what stands below them, where ``...`` stands for anything
(a whole line of it: for any lines) and nothing stands for anything too. ``python`` blocks know what
those before them defined. Where a block cannot run here, a comment before it says why:
``<!-- not run: REASON -->``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
import yaml
from paths import ROOT

from areal_conf.cli.entry import main

REPOSITORY = ROOT
DOCS = REPOSITORY / "docs"
sys.path.insert(0, str(DOCS))

import make_pages  # noqa: E402
import railroad  # noqa: E402

RUN_ELSEWHERE = {"reference/errors.md"}  # tests/test_error_codes.py
PAGES = [REPOSITORY / "README.md"]  # a test below holds the Chinese one to its commands
PAGES += sorted(
    p
    for p in DOCS.rglob("*.md")
    if str(p.relative_to(DOCS)) not in RUN_ELSEWHERE and p.relative_to(DOCS).parts[0] != "zh"
)
LANGUAGES = {"bash", "console", "python"}
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.M | re.S,
)
_REASON = re.compile(r"<!-- not run: \S[^>]* -->\s*\Z")


class Block(NamedTuple):
    language: str
    title: str | None
    body: str
    line: int
    skipped: bool


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        title = re.search(r'title="([^"]+)"', found["info"])
        yield Block(
            found["language"],
            title[1] if title else None,
            textwrap.dedent(found["body"]),
            text.count("\n", 0, found.start()) + 1,
            _REASON.search(text[: found.start()]) is not None,
        )


def environment() -> dict[str, str]:
    """This interpreter's programs first; a terminal of 100 columns without colour."""
    own = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    return {**os.environ, **own}


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=directory,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )


def run_block(block: Block, directory: Path, before: str) -> None:
    if block.title is not None:
        file = directory / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.body, encoding="utf-8")
    elif block.language == "bash":
        installs = re.search(r"\b(apt-get|pip|sudo) ", block.body)
        assert not installs, "a test installs nothing: write <!-- not run: REASON --> before it"
        done = run(["bash", "-euo", "pipefail", "-c", block.body], directory)
        assert done.returncode == 0, done.stdout
    elif block.language == "python":
        done = run([sys.executable, "-c", before + block.body], directory)
        assert done.returncode == 0, done.stdout
    else:
        for command, expected in commands(block.body):
            here = _PLAIN.fullmatch(command)
            shown, quiet = run_here(command, directory) if here else run_shell(command, directory)
            # What stands there may leave the notes of stderr out.
            assert matches(shown, expected) or matches(quiet(), expected), f"$ {command}\n{shown}"


def run_shell(command: str, directory: Path) -> tuple[str, Callable[[], str]]:
    """What a command prints, and what it prints without stderr."""
    shown = run(["bash", "-c", command], directory).stdout
    return shown, lambda: run(["bash", "-c", f"{command} 2>/dev/null"], directory).stdout


_PLAIN = re.compile(
    r"areal-conf (?:check|explain|layouts|migrate|plan|schema|suggest) [^|<>$;&*?`~#\\]*"
)
"""Commands that need no shell and no process of their own."""


def run_here(command: str, directory: Path) -> tuple[str, Callable[[], str]]:
    """`run_shell` of a command in this process."""
    both, out = io.StringIO(), io.StringIO()

    class Both(io.StringIO):
        def write(self, text: str) -> int:
            both.write(text)
            return out.write(text)

    before = Path.cwd()
    os.chdir(directory)
    try:
        with (
            mock.patch.dict(os.environ, COLUMNS="100", NO_COLOR="1"),
            contextlib.redirect_stdout(Both()),
            contextlib.redirect_stderr(both),
            contextlib.suppress(SystemExit),
        ):
            main(shlex.split(command)[1:])
    finally:
        os.chdir(before)
    return both.getvalue(), out.getvalue


def commands(body: str) -> Iterator[tuple[str, str]]:
    """Commands of a console block, and what stands below each."""
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def matches(shown: str, expected: str) -> bool:
    if not expected.strip():
        return True
    lines = [line.rstrip() for line in expected.strip("\n").splitlines()]
    pattern = ""
    for line in lines:
        if line == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += ".*".join(map(re.escape, line.split("..."))) + r"\n"
    text = "".join(f"{line.rstrip()}\n" for line in shown.splitlines() if line.strip())
    pattern = pattern.replace(r"\n\n", r"\n")
    return re.fullmatch(pattern, text) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_page(page: Path, tmp_path: Path) -> None:
    python = ""
    for block in blocks(page):
        if block.skipped or (block.title is None and block.language not in LANGUAGES):
            continue
        try:
            run_block(block, tmp_path, python)
        except AssertionError as error:
            raise AssertionError(f"{page.name}:{block.line}: {error}") from None
        if block.language == "python" and block.title is None:
            python += block.body


def test_every_block_says_what_it_is() -> None:
    """Else a command could stand in a block that nothing runs."""
    for page in PAGES:
        untold = [block.line for block in blocks(page) if not block.language]
        assert not untold, f"{page.name}: write a language (text, if none) at lines {untold}"


def test_both_readmes_have_the_same_commands() -> None:
    english, chinese = (
        [re.sub(r" +#.*", "", block.body) for block in blocks(REPOSITORY / name)]
        for name in ("README.md", "README.zh.md")
    )
    assert english == chinese


CHINESE = [REPOSITORY / "README.zh.md", *sorted((DOCS / "zh").rglob("*.md"))]


@pytest.mark.parametrize("page", CHINESE[1:], ids=lambda p: p.name)
def test_a_chinese_page_has_the_blocks_of_the_english_one(page: Path) -> None:
    """So that the commands that run there are the commands here; comments may differ."""
    english = DOCS / page.relative_to(DOCS / "zh")
    wanted, found = (
        [(b.title, re.sub(r" +#.*", "", b.body)) for b in blocks(one)] for one in (english, page)
    )
    assert found == wanted


def test_every_guide_is_there_in_chinese() -> None:
    names = [sorted(p.name for p in (DOCS / d / "guides").glob("*.md")) for d in ("", "zh")]
    assert names[0] == names[1]


def test_one_chinese_term_for_each_english_one() -> None:
    glossary = yaml.safe_load((DOCS / "zh" / "glossary.yaml").read_text(encoding="utf-8"))
    assert len({entry["zh"] for entry in glossary.values()}) == len(glossary)
    for page in CHINESE:
        text = page.read_text(encoding="utf-8")
        for term, entry in glossary.items():
            for other in entry["not"]:
                assert other not in text, f"{page.name}: {term} is {entry['zh']}, not {other}"


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, *CHINESE, DOCS / "reference" / "errors.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:|#", target):
                assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


def test_pages_and_pictures_are_as_made() -> None:
    """Mended by ``python docs/make_pages.py`` and ``python docs/railroad.py``."""
    for page, text in make_pages.pages().items():
        assert page.read_text(encoding="utf-8") == text, page
    drawn = (DOCS / "images" / "grammar.svg").read_text(encoding="utf-8")
    assert drawn == railroad.svg()
