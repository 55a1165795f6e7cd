"""Guides whose tables and snippets come from the code."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest
from paths import ROOT

from areal_conf import AllocationError
from areal_conf.cli.engine_args import add_arguments
from areal_conf.engine_args import TARGETS, engine_args
from areal_conf.errors import CODES
from areal_conf.model import RULES, check_model, read_model
from areal_conf.spec.allocation import ModelAllocation

GUIDES = ROOT / "docs" / "guides"


def rules_table() -> str:
    """The table of rules as docs/reference/model-rules.md has it."""
    lines = ["| code | backends | what must hold | sources |", "| --- | --- | --- | --- |"]
    for rule in RULES:
        sources = "; ".join(f"`{source}`" for source in dict.fromkeys(rule.sources.values()))
        lines.append(f"| {rule.code} | {', '.join(rule.sources)} | {rule.demand} | {sources} |")
    return "\n".join(lines) + "\n"


def targets_table() -> str:
    """The table of frameworks as docs/reference/engine-args.md has it."""
    lines = [
        "| `--for` | backends | argument or key: size | derived | source |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in TARGETS:
        keys = "<br>".join(f"`{key}`: {value}" for key, value in row.keys.items())
        backends = ", ".join(row.backends)
        lines.append(f"| {row.framework} | {backends} | {keys} | {row.derived} | {row.source} |")
    return "\n".join(lines) + "\n"


def _between(page: str, name: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.search(rf"<!-- {name}: begin[^\n]*-->\n(.*?)<!-- {name}: end -->", text, re.S)
    assert found
    return found.group(1)


def test_tables_are_those_of_the_code() -> None:
    assert _between("reference/model-rules.md", "rules") == rules_table()
    assert _between("reference/engine-args.md", "targets") == targets_table()


@pytest.mark.parametrize("guide", ["models.md", "engine-args.md", "moe.md", "areal.md"])
def test_python_snippets_run(guide: str) -> None:
    text = (GUIDES / guide).read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", text, re.S)
    assert snippets
    for snippet in snippets:
        exec(snippet, {})


def test_model_error_as_shown() -> None:
    facts = read_model(
        {"num_attention_heads": 28, "num_key_value_heads": 4, "num_hidden_layers": 28}
    )
    (finding,) = check_model(ModelAllocation.from_str("sglang:t8"), facts, path="rollout.backend")
    assert finding.describe() in (GUIDES / "models.md").read_text(encoding="utf-8")


def test_commands_as_shown() -> None:
    text = (GUIDES / "engine-args.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\$ areal-conf engine-args (.*)\n((?:.|\n)*?)(?=^\$ |^```)", text, re.M)
    assert len(shown) == 4
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for command, output in shown:
        args = parser.parse_args(shlex.split(command))
        try:
            result = shlex.join(engine_args(args.spec, args.framework))
        except AllocationError as error:
            result = str(error)
        assert output.rstrip("\n") == result


def test_codes_are_those_of_the_code() -> None:
    pages = (GUIDES / "models.md", ROOT / "docs" / "reference" / "model-rules.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"^\| (AC\d+)", text, re.M))
    assert named == {code for code in CODES if code.startswith("AC4")}
