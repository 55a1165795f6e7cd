"""Suggestions as a table, and as the sweep that tries them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from areal_conf.errors import CODES, counted
from areal_conf.report.pen import Pen

if TYPE_CHECKING:
    from rich.console import Console

    from areal_conf.suggest.result import Suggestion, Suggestions


def print_suggestions(found: Suggestions, console: Console) -> None:
    """Print every suggestion with its reasons; its overrides are one line that can be copied."""
    pen = Pen(console.options)

    def line(*parts: str | tuple[str, str]) -> None:
        console.print(pen.text(*parts), soft_wrap=True)

    for split, group in groupby(found.suggestions, key=split_words):
        line((split, "bold"))
        for suggestion in group:
            line("  ", " ".join(suggestion.overrides))
            for reason in suggestion.reasons:
                line("      ", (reason, "dim"))
    if not found.suggestions:
        line("nothing fits")
    for code, count in found.left_out.items():
        line(f"left out: {counted(count, 'layout')} by {code}, {CODES[code]}")
    for note in found.unknown:
        line(note)


def split_words(suggestion: Suggestion) -> str:
    """``rollout 8 + actor 24 of 32 GPUs``: what tells the splits apart."""
    shares = [
        f"{name} {engine['gpus']}" for name, engine in suggestion.engines.items() if engine["gpus"]
    ]
    total = sum(engine["gpus"] for engine in suggestion.engines.values())
    return f"{' + '.join(shares)} of {counted(total, 'GPU')}"


def hydra_lines(found: Suggestions) -> Iterator[str]:
    """What goes behind ``-m``, a line for each split: every combination in it fills the GPUs."""
    for _, group in groupby(found.suggestions, key=split_words):
        values: dict[str, list[str]] = {}
        for suggestion in group:
            for override in suggestion.overrides:
                key, _, value = override.partition("=")
                values.setdefault(key, []).append(value)
        yield " ".join(f"{key}={_all(found)}" for key, found in values.items())


def _all(values: Sequence[str]) -> str:
    return ",".join(dict.fromkeys(values))
