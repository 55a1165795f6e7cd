"""The benchmarks run, and their tables are whole. Numbers are for quiet machines."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys

import pytest
from paths import ROOT

BENCHMARKS = ROOT / "benchmarks"
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
NO_TABLES = ("run", "measure", "memory", "ranking", "fit_speed", "authors")
"""The script, what its tables share, and the scripts of accuracy."""

TABLES = [p.stem for p in sorted(BENCHMARKS.glob("*.py")) if p.stem not in NO_TABLES]
ROW = re.compile(r"^\| (?!what \||---).*\|$", re.M)
HERE = r"[\d.,]+ (?:s|ms|us|ns|MiB)"
RATIO = r"\*\*[\d.,/]+\*\* \([\d.,/]+ to [\d.,/]+\)"
WHOLE = re.compile(
    rf"\| [^|]+ \| {HERE} \| [^|]+ \| (?:{HERE} \| {RATIO}|not installed \| -) \| [^|]+ \|"
)


def title(table: str) -> str:
    """What a module of the folder says its table is called."""
    tree = ast.parse((BENCHMARKS / f"{table}.py").read_text(encoding="utf-8"))
    return next(
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TITLE"
    )


def benchmark(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "run.py", "--quick", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("table", TABLES)
def test_quick_form_prints_each_table(table: str) -> None:
    printed = benchmark(table)
    assert f"\n## {title(table)}\n" in printed
    rows = ROW.findall(printed)
    assert rows
    for row in rows:
        assert WHOLE.fullmatch(row.replace("\\|", "")), row


def test_a_peer_that_is_missing_is_said() -> None:
    missing = importlib.util.find_spec("areal") is None
    assert ("not installed" in benchmark("parsing")) is missing


def test_the_page_is_that_of_the_script() -> None:
    assert PAGE.startswith("# Benchmarks\n\n`python benchmarks/run.py --write` writes this page.")
    titles = re.findall(r"^## (.*)$", PAGE, re.M)
    assert sorted(titles) == sorted([*map(title, TABLES), "Bars missed"])


def test_the_page_has_every_peer() -> None:
    assert "not installed" not in PAGE


def test_a_bar_that_is_missed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    measure = importlib.import_module("measure")
    row = measure.Row("parsing", [30e-6], "a peer", [15e-6], most=20e-6, most_times=3)
    assert row.bars == [("under 20.0 us", False), ("under 3.00", True)]
    assert row.cells()[-1] == "under 20.0 us: **missed**; under 3.00: met"


def test_pairs_are_compared_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    measure = importlib.import_module("measure")
    row = measure.Row("loaded in the second pass", [1.0, 10.0, 1.2], "a peer", [2.0, 20.0, 2.0])
    assert row.ratios == [0.5, 0.5, 0.6]
