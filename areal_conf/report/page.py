"""One HTML file to send to a colleague: a plan, suggestions, or the results of a sweep.

The page is whole in itself: it has no address outside it, and its content security policy allows
none. Everything is readable without scripts; a script lights the groups of the GPU that is pointed
at, and sorts. Every value comes from a config and is data: it goes through `html.escape`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from areal_conf.report import page_assets
from areal_conf.report.colours import IN_TURN

if TYPE_CHECKING:
    from areal_conf.planning.result import EnginePlan, Plan

MOST_NODES = 16
"""Nodes that are drawn one by one; above, neighbours of the same shape are drawn once."""

MOST_GPUS = 64
"""GPUs of one node that are drawn; the rest is counted."""

_LETTERS = {"d": "data", "t": "tensor", "c": "context", "p": "pipeline", "e": "expert"}

_PARTS = (
    "parameters", "gradients", "optimizer", "activations", "logits", "gathered", "workspace",
    "weights",
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and the key of its value in a row.

    Attributes:
        number: whether values are compared as numbers, and set to the right.
        code: whether values are text to copy: never broken over lines.
    """

    heading: str
    key: str
    number: bool = False
    code: bool = False


def plan_page(plan: Plan) -> str:
    """The page of a plan: what is wrong, the engines with their memory, and every GPU."""
    title = f"GPU plan: {plan.total_gpus} GPUs"
    return document(title, [*_findings(plan), *_engines(plan), *_picture(plan)])


def suggestions_page(found: Mapping[str, Any]) -> str:
    """The page of ``areal-conf suggest``, from its JSON."""
    rows = [_suggestion_row(number, one) for number, one in enumerate(found["suggestions"], 1)]
    engines = list(dict.fromkeys(name for one in found["suggestions"] for name in one["engines"]))
    columns = [Column("#", "#", number=True), Column("relative step time", "time", number=True)]
    for name in engines:
        columns += [
            Column(name, name, code=True),
            Column(f"{name}: memory / GPU", f"{name}.memory"),
        ]
    columns += [Column("overrides", "overrides", code=True), Column("reasons", "reasons")]
    notes = [f"left out: {count} by {code}" for code, count in found.get("left_out", {}).items()]
    notes += [f"not known: {text}" for text in found.get("unknown", ())]
    return table_page("Layouts to try first", columns, rows, notes)


def table_page(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    notes: Iterable[str] = (),
) -> str:
    """A page with one sortable table and notes below it."""
    return document(title, [*_table(columns, rows), *_notes(notes)])


def document(title: str, body: Iterable[str]) -> str:
    """A whole page, in ASCII, so that no encoding of a server can spoil it."""
    text = "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{page_assets.POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{page_assets.STYLE}</style>\n</head>\n<body>",
            f"<h1>{escape(title)}</h1>",
            *body,
            f"<script>{page_assets.SCRIPT}</script>\n</body>\n</html>\n",
        ]
    )
    # A lone surrogate of a config cannot be written in any encoding.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


# -- what is wrong --------------------------------------------------------------------------------


def _findings(plan: Plan) -> Iterator[str]:
    for kind, found in (("error", plan.errors), ("warning", plan.warnings)):
        for one in found:
            path = f"<code>{escape(one.path)}</code>: " if one.path else ""
            yield (
                f'<p class="finding {kind}"><b>{kind}</b> {path}{escape(one.code)}: '
                f"{escape(one.message)}<br><span>hint: {escape(one.hint)}</span></p>"
            )


# -- engines --------------------------------------------------------------------------------------


def _engines(plan: Plan) -> Iterator[str]:
    rows = []
    for name, engine in plan.engines.items():
        memory = getattr(engine, "memory", None)
        rows.append(
            {
                "engine": name,
                "spec": engine.spec or "",
                "gpus": engine.gpus,
                "shares": engine.colocated_with or "",
                "memory": memory_range(_plain(memory)),
                "parts": _bar(_plain(memory)),
            }
        )
    columns = [
        Column("engine", "engine"),
        Column("backend", "spec", code=True),
        Column("GPUs", "gpus", number=True),
        Column("on the GPUs of", "shares"),
    ]
    if any(row["memory"] for row in rows):
        columns += [Column("memory / GPU", "memory"), Column("parts", "parts")]
    yield from _table(columns, rows, markup={"parts"})


def _plain(memory: Any) -> Mapping[str, Any] | None:
    if memory is None or isinstance(memory, Mapping):
        return memory
    plain: Mapping[str, Any] = memory.model_dump(mode="json")
    return plain


def memory_range(memory: Mapping[str, Any] | None) -> str:
    """``31-40 of 79 GiB: may fit``; empty where nothing was estimated."""
    if not memory:
        return ""
    step, gpu = memory.get("step"), memory.get("gpu")
    if not step or gpu is None:
        return "unknown"
    verdict = {"fits": "fits", "may": "may fit", "no": "does not fit"}.get(memory["verdict"], "")
    return f"{step[0]:.0f}-{step[1]:.0f} of {gpu:.0f} GiB{': ' if verdict else ''}{verdict}"


def _bar(memory: Mapping[str, Any] | None) -> str:
    """The parts of a GPU's memory as a bar; its whole width is the card."""
    if not memory or not memory.get("parts") or not memory.get("gpu"):
        return ""
    parts = {name: _middle(value) for name, value in memory["parts"].items()}
    scale = 100 / max(memory["gpu"], sum(parts.values()))
    cells = [
        f'<i class="m{_PARTS.index(name) if name in _PARTS else 0}" '
        f'style="width:{value * scale:.1f}%" title="{escape(name)}: {value:.1f} GiB"></i>'
        for name, value in parts.items()
        if value > 0
    ]
    said = ", ".join(
        f"{escape(name)} {value:.1f}" for name, value in parts.items() if value >= 0.05
    )
    return f'<span class="bar">{"".join(cells)}</span><small>{said} GiB</small>'


def _middle(value: Any) -> float:
    if isinstance(value, (list, tuple)):
        return sum(value) / len(value) if value else 0.0
    return float(value or 0)


# -- GPUs -----------------------------------------------------------------------------------------

_Cell = tuple[tuple[str, int], ...]
"""The engines of a GPU, each with its rank."""


def _picture(plan: Plan) -> Iterator[str]:
    nodes = _nodes(plan)
    if not nodes:
        return
    numbers = {name: place for place, name in enumerate(plan.engines)}
    yield '<div id="legend" aria-live="polite">Point at a rank to light its groups: '
    yield "".join(f'<span class="g-{letter}">{word}</span> ' for letter, word in _LETTERS.items())
    yield '</div><div class="nodes">'
    for first, last, cells in _folded(nodes):
        name = f"node {first}" if first == last else f"nodes {first}-{last}"
        more = f" <b>x {last - first + 1} like this</b>" if first != last else ""
        yield f'<section class="node"><h2>{name}{more}</h2><div class="gpus">'
        for gpu, cell in enumerate(cells[:MOST_GPUS]):
            yield _gpu(plan, numbers, gpu, cell)
        yield "</div>"
        if len(cells) > MOST_GPUS:
            yield f"<p>and {len(cells) - MOST_GPUS} more GPUs</p>"
        yield "</section>"
    yield "</div>"


def _nodes(plan: Plan) -> dict[int, list[_Cell]]:
    """The engines on every GPU, node by node; empty where no cluster is known."""
    if plan.cluster is None:
        return {}
    per_node = plan.cluster.n_gpus_per_node
    nodes: dict[int, list[list[tuple[str, int]]]] = {}
    for name, engine in plan.engines.items():
        for rank, device in enumerate(engine.devices):
            if device is not None:
                node = nodes.setdefault(device[0], [[] for _ in range(per_node)])
                node[device[1]].append((name, rank))
    idle = range(plan.cluster.n_nodes) if plan.cluster.n_nodes <= MOST_NODES else ()
    for number in idle:
        nodes.setdefault(number, [[] for _ in range(per_node)])
    return {n: [tuple(cell) for cell in nodes[n]] for n in sorted(nodes)}


def _folded(nodes: Mapping[int, list[_Cell]]) -> list[tuple[int, int, list[_Cell]]]:
    """First and last number of neighbours that look alike, and the GPUs of the first."""
    out: list[tuple[int, int, list[_Cell]]] = []
    fold = len(nodes) > MOST_NODES
    for number, cells in nodes.items():
        shape = [tuple(name for name, _ in cell) for cell in cells]
        if fold and out and out[-1][1] == number - 1:
            first, _, before = out[-1]
            if shape == [tuple(name for name, _ in cell) for cell in before]:
                out[-1] = (first, number, before)
                continue
        out.append((number, number, cells))
    return out


def _gpu(plan: Plan, numbers: Mapping[str, int], gpu: int, cell: _Cell) -> str:
    ranks = "".join(_rank(plan.engines[name], numbers[name], name, rank) for name, rank in cell)
    return f'<div class="gpu"><span class="id">{gpu}</span>{ranks or "<em>idle</em>"}</div>'


def _rank(engine: EnginePlan, number: int, name: str, rank: int) -> str:
    at = engine.coordinates(rank)
    place = {"d": at.d, "p": at.p, "c": at.c, "t": at.t, "e": at.e, "x": at.edp, "y": at.etp}
    sizes = engine.dims.model_dump() if engine.dims else {}
    shown = " ".join(f"{k}{v}" for k, v in place.items() if k in "dpcte" and sizes.get(k, 1) > 1)
    data = " ".join(f'data-{key}="{value}"' for key, value in place.items())
    memory = _plain(getattr(engine, "memory", None))
    bar = ""
    if memory and memory.get("step") and memory.get("gpu"):
        high = min(100.0, 100 * memory["step"][1] / memory["gpu"])
        bar = f'<u class="v-{escape(str(memory["verdict"]))}" style="width:{high:.0f}%"></u>'
    return (
        f'<span class="rank e{number % len(IN_TURN)}" tabindex="0" data-n="{number}" {data} '
        f'title="{escape(name)}, rank {rank}: {shown or "alone"}">'
        f"<b>{escape(name)}</b> <small>{shown or f'rank {rank}'}</small>{bar}</span>"
    )


# -- tables ---------------------------------------------------------------------------------------


def _table(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], markup: Iterable[str] = ()
) -> Iterator[str]:
    ready = set(markup)
    yield '<div class="wide"><table class="sortable"><thead><tr>'
    for column in columns:
        kind = ' class="number"' if column.number else ""
        yield f'<th scope="col"{kind}><button type="button">{escape(column.heading)}</button></th>'
    yield "</tr></thead><tbody>"
    for row in rows:
        yield (
            "<tr>"
            + "".join(_field(column, row, column.key in ready) for column in columns)
            + "</tr>"
        )
    yield "</tbody></table></div>"


def _field(column: Column, row: Mapping[str, Any], ready: bool) -> str:
    value = row.get(column.key)
    shown = str(value) if ready else _shown(value)
    if column.code and shown:
        shown = f"<code>{shown}</code>"
    if not column.number:
        return f"<td>{shown}</td>"
    key = value if isinstance(value, (int, float)) else ""
    return f'<td class="number" data-key="{key}">{shown}</td>'


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return "<br>".join(map(_shown, value))
    return escape(str(value))


def _suggestion_row(number: int, one: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "#": number,
        "time": one.get("time"),
        "overrides": " ".join(one["overrides"]),
        "reasons": list(one.get("reasons", ())),
    }
    for name, engine in one["engines"].items():
        row[name] = engine.get("spec")
        row[f"{name}.memory"] = memory_range(engine.get("memory"))
    return row


def _notes(notes: Iterable[str]) -> Iterator[str]:
    for note in notes:
        yield f'<p class="note">{escape(note)}</p>'
