"""The page of estimates says what the benchmark prints and what the table of states holds."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys

from paths import CASES, ROOT

from areal_conf.estimate.presets import STATES

PAGE = (ROOT / "docs" / "reference" / "estimates.md").read_text(encoding="utf-8")


def table(name: str) -> list[list[str]]:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", PAGE, re.S)
    assert found is not None
    lines = found[1].strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_accuracy_is_that_of_the_benchmark() -> None:
    spec = importlib.util.spec_from_file_location("memory_page", ROOT / "benchmarks" / "memory.py")
    assert spec is not None
    assert spec.loader is not None
    memory = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = memory
    spec.loader.exec_module(memory)
    rows = memory.read_rows([str(CASES / "memory-measured.tsv")])
    assert table("accuracy") == [
        [
            name,
            str(row["n"]),
            f"{row['median']:.1f}",
            f"{row['p90']:.1f}",
            f"{row['inside']:.2f}",
        ]
        for name, row in memory.report(rows)["families"].items()
    ]


def test_states_are_those_of_the_table() -> None:
    assert table("states") == [
        [
            row.backend,
            row.optimizer,
            ".".join(map(str, row.since)),
            row.dtype or "any",
            *(f"{size:g}" for size in row.states),
        ]
        for row in STATES
    ]


def test_the_order_is_that_of_the_benchmark() -> None:
    sys.path.insert(0, str(ROOT))
    ranking = importlib.import_module("benchmarks.ranking")
    rows = ranking.read_rows([str(CASES / "layouts-measured.tsv")])
    assert table("ranking") == [
        [
            name,
            str(row["n"]),
            f"{row['tau']:.2f}",
            f"{100 * row['regret']:.1f}",
            f"{100 * row['oom_said']:.0f}",
            f"{100 * row['good_refused']:.1f}",
        ]
        for name, row in ranking.report(rows)["groups"].items()
    ]
