"""The reference of plans: its tables have every code of the rules, and the meaning it has there."""

from __future__ import annotations

import re
from types import ModuleType

import pytest
from paths import ROOT

from areal_conf.errors import CODES
from areal_conf.planning.rules import (
    cluster,
    launchers,
    scheduling_spec,
    trainer,
    versions,
    workers,
)

GUIDE = (ROOT / "docs" / "reference" / "plan-rules.md").read_text(encoding="utf-8")


def rows(table: str) -> dict[str, list[str]]:
    found = re.search(rf"<!-- {table}: begin[^\n]*-->\n(.*?)<!-- {table}: end -->", GUIDE, re.S)
    assert found
    lines = [line.strip("| ").split(" | ") for line in found[1].splitlines()[2:]]
    assert len({line[0] for line in lines}) == len(lines)
    return {line[0]: line[1:] for line in lines}


def codes_of(*tables: ModuleType) -> set[str]:
    """Codes that the docstrings of rules name."""
    docs = (rule.__doc__ or "" for table in tables for rule in table.RULES)
    return {code for doc in docs for code in re.findall(r"AC\d{3}", doc)}


def test_meanings_are_those_of_the_code() -> None:
    for code, (meaning, *_) in {**rows("experiment"), **rows("start")}.items():
        assert meaning == CODES[code]


def test_every_code_of_the_rules_is_in_a_table() -> None:
    tables = {**rows("experiment"), **rows("start")}
    of_rules = codes_of(cluster, scheduling_spec, trainer, workers, launchers, versions)
    of_resolving = {f"AC30{n}" for n in (1, 2, 3, 4, 5, 9)} | {"AC362", "AC364", "AC365"}
    assert set(tables) == of_rules | of_resolving


@pytest.mark.parametrize("table", [cluster, scheduling_spec, trainer, workers, launchers, versions])
def test_every_rule_says_its_code_and_where_it_stands(table: ModuleType) -> None:
    for rule in table.RULES:
        assert re.match(r"AC\d{3}", rule.__doc__ or ""), rule.__name__


def test_what_is_refused_at_start_begins_with_ac31() -> None:
    assert {code for code in rows("start") if code not in ("AC325", "AC363")} == {
        code for code in CODES if code.startswith("AC31")
    }


def test_snippets_run() -> None:
    names: dict[str, object] = {}
    guide = (ROOT / "docs" / "guides" / "plans.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", guide, re.S)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(snippet, names)
