"""Layouts of one engine, best first, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from areal_conf.errors import CODES, counted
from areal_conf.estimate.serving import ServingMemory
from areal_conf.estimate.timing.step import PARTS
from areal_conf.report.memory import whole
from areal_conf.report.pen import Pen
from areal_conf.suggest.ranking import EQUAL, USUAL_WORDS, Ranked, requests_at_once

if TYPE_CHECKING:
    from rich.console import Console

VERDICTS = {"fits": "fits", "may": "may not fit", "no": "does not fit", "unknown": "not known"}


def print_ranking(ranked: Sequence[Ranked], left_out: Mapping[str, int], console: Console) -> None:
    """Print the table, and below it what the estimate rests on and leaves open."""
    pen = Pen(console.options)
    serves = ranked[0].allocation.role == "inference"
    table = Table(box=None, pad_edge=False)
    table.add_column("layout", no_wrap=True)
    for name in ("memory", "GiB a GPU", *(("requests",) if serves else ("time", "costs most"))):
        table.add_column(name)
    table.add_column("warnings")
    for one in ranked:
        cells = server_cells(one) if serves else trainer_cells(one)
        codes = ", ".join(dict.fromkeys(x.code for x in one.warnings))
        table.add_row(*map(pen.text, (str(one.allocation), *cells, codes)))
    console.print(table)
    for line in _notes(ranked, left_out, serves):
        console.print(pen.text(line), soft_wrap=True)


def memory_cell(ranked: Ranked) -> str:
    """``31-40``; of a server the room of its cache."""
    memory = ranked.memory
    if isinstance(memory, ServingMemory):
        return "" if memory.cache is None else f"cache {whole(memory.cache.room)}"
    return "" if memory is None or memory.step is None else whole(memory.step)


def server_cells(ranked: Ranked) -> tuple[str, str, str]:
    """Verdict, memory and full-length requests at once."""
    requests = requests_at_once(ranked)
    shown = "" if requests is None else f"{requests:,} at once"
    return VERDICTS[ranked.verdict], memory_cell(ranked), shown


def trainer_cells(ranked: Ranked) -> tuple[str, str, str, str]:
    """Verdict, memory, relative time and the largest part of a step."""
    return VERDICTS[ranked.verdict], memory_cell(ranked), time_words(ranked), largest_part(ranked)


def time_words(ranked: Ranked) -> str:
    """``1.25``; ``about equal`` under 5 per cent; rough where experts are dealt over ranks."""
    if ranked.relative is None or ranked.time is None:
        return "not known"
    rough = " rough" if ranked.time.rough else ""
    if 1 < ranked.relative < EQUAL:
        return f"{ranked.relative:.2f} about equal{rough}"
    return f"{ranked.relative:.2f}{rough}"


def largest_part(ranked: Ranked) -> str:
    """Of a step, beside the matmuls: ``pipeline 31 %``."""
    time = ranked.time
    if time is None or not time.total:
        return ""
    name = max((x for x in PARTS if x != "matmul"), key=lambda part: getattr(time, part))
    return f"{name} {100 * getattr(time, name) / time.total:.0f} %"


def _notes(ranked: Sequence[Ranked], left_out: Mapping[str, int], serves: bool) -> list[str]:
    notes = [
        f"left out: {counted(count, 'layout')} by {code}, {CODES[code]}"
        for code, count in sorted(left_out.items())
        if count
    ]
    if serves:
        notes.append("order: cache room a GPU, requests at once; about equal rooms: small first")
    else:
        notes += [
            "time: estimated, beside the fastest that fits or may fit; compare within this table",
            "costs most: the largest part of a step beside its matrix products",
        ]
        notes += [f"assumed: {word}" for word in USUAL_WORDS]
    told = {x.code: x for one in ranked for x in one.warnings}
    notes += [f"{code}: {error.message}" for code, error in sorted(told.items())]
    return notes
