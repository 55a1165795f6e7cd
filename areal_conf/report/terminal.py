"""What people read on a terminal: the plan, what is wrong with it, what a backend string means.

`plan_table`, `diagnostics_text` and `explain` build Rich renderables that adapt to the terminal
when they are printed: its width, and whether it takes more than ASCII. Text of the user never
passes through Rich's markup, and characters that could move the cursor are shown escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from areal_conf.errors import AllocationError, Diagnostic, counted, underline
from areal_conf.planning.mesh import Device
from areal_conf.report.memory import memory_parts, memory_summary, memory_verdict
from areal_conf.report.pen import Pen

if TYPE_CHECKING:
    from areal_conf.planning.result import EnginePlan, Plan


_NARROW = 72
"""Columns below which a table of engines becomes a list."""

_GAP = 3
"""Columns between two cells of a table."""

_MOST_SHOWN = 100
"""Findings of one severity that are printed in full."""

_MOST_RUNS = 6
"""Runs of nodes named for one engine."""

_TEXT_KEPT = 2000
"""Characters of a faulty text that are looked at; the rest lies far from the span."""


# -- where GPUs lie -----------------------------------------------------------------------------


class NodeRun(NamedTuple):
    """Consecutive nodes on which an engine has the same GPUs."""

    first: int
    last: int
    gpus: tuple[int, ...]

    def __str__(self) -> str:
        nodes = f"node {self.first}" if self.first == self.last else f"nodes {_span(self[:2])}"
        return f"{nodes}: GPU{'s' if len(self.gpus) > 1 else ''} {ranges(self.gpus)}"


def node_runs(devices: Iterable[Device | None]) -> list[NodeRun]:
    """The nodes of `devices` in ascending order, equal neighbours taken together."""
    by_node: dict[int, set[int]] = {}
    for device in devices:
        if device is not None:
            by_node.setdefault(device[0], set()).add(device[1])
    runs: list[NodeRun] = []
    for node in sorted(by_node):
        gpus = tuple(sorted(by_node[node]))
        if runs and runs[-1].last == node - 1 and runs[-1].gpus == gpus:
            runs[-1] = runs[-1]._replace(last=node)
        else:
            runs.append(NodeRun(node, node, gpus))
    return runs


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in short: ``0-3,6``."""
    out: list[list[int]] = []
    for number in numbers:
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ",".join(map(_span, out))


def _span(bounds: Sequence[object]) -> str:
    first, last = bounds
    return str(first) if first == last else f"{first}-{last}"


# -- the plan -----------------------------------------------------------------------------------


def plan_table(plan: Plan) -> RenderableType:
    """The engines of `plan` and the GPUs each sits on; total, cluster and idle GPUs below."""
    return _PlanTable(plan)


def plan_text(plan: Plan, console: Console) -> None:
    """Print `plan`."""
    # Nothing is cut: a backend string that is wider than the terminal can still be copied.
    console.print(plan_table(plan), crop=False)


class _Row(NamedTuple):
    engine: EnginePlan
    backend: str
    layout: str
    gpus: str
    where: list[str]
    memory: list[str]
    parts: list[str]
    notes: list[str]


_TITLES = {
    "engine": "engine",
    "backend": "backend",
    "layout": "layout",
    "gpus": "GPUs",
    "where": "where",
    "memory": "memory / GPU",
    "notes": "notes",
}
"""Columns of the table by the field of a row that they show."""


class _PlanTable:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows = [_row(engine, plan) for engine in plan.engines.values()]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        pen = Pen(options)
        if not self.rows:
            yield pen.text("no engines")
        elif pen.width < max(_NARROW, self._width(self._columns(notes=False))):
            for row in self.rows:
                yield from self._entry(row, pen)
        else:
            columns = self._columns(notes=True)
            if pen.width < self._width(columns):
                columns = self._columns(notes=False)
            yield self._table(columns, pen)
            yield from self._below(columns, pen)
        for line in (*summary(self.plan), *memory_summary(self.plan.memory)):
            yield pen.text(line)

    def _columns(self, *, notes: bool) -> list[str]:
        """The columns that have something to show, `notes` where there is room for them."""
        optional = {"memory": True, "notes": notes}
        return [
            name
            for name in _TITLES
            if optional.get(name, True) and (name not in optional or self._has(name))
        ]

    def _width(self, columns: list[str]) -> int:
        """Columns of the terminal that a table needs in which no cell is broken."""
        widths = [
            max(cell_len(line) for row in self.rows for line in (_TITLES[name], *_cell(row, name)))
            for name in columns
        ]
        return 1 + sum(widths) + _GAP * (len(widths) - 1)

    def _has(self, name: str) -> bool:
        return any(getattr(row, name) for row in self.rows)

    def _table(self, columns: list[str], pen: Pen) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in columns:
            table.add_column(
                _TITLES[name],
                justify="right" if name == "gpus" else "left",
                style="bold" if name == "engine" else "",
                no_wrap=True,
            )
        for row in self.rows:
            cells = [pen.lines(_cell(row, name)) for name in columns]
            table.add_row(*cells, style="" if row.engine.active else "dim")
        return table

    def _below(self, columns: list[str], pen: Pen) -> Iterator[RenderableType]:
        """What the table has no column for, an engine after the other."""
        grid = Table.grid(padding=(0, _GAP, 0, 1), pad_edge=True)
        grid.add_column(no_wrap=True)
        grid.add_column()
        for row in self.rows:
            notes = [] if "notes" in columns else row.notes
            lines = [", ".join(said) for said in (notes, _memory(row)) if said]
            if lines:
                grid.add_row(pen.text((row.engine.name, "bold")), pen.lines(lines))
        if grid.row_count:
            yield grid
            yield pen.text("")

    def _entry(self, row: _Row, pen: Pen) -> Iterator[RenderableType]:
        head = f" {row.engine.spec}" if row.engine.spec else ""
        yield pen.words((row.engine.name, "bold"), head)
        lines = [f"GPUs {row.gpus}", *row.where] if row.engine.active else []
        if row.memory:
            lines.append(f"memory of a GPU: {', '.join(row.memory)}")
        if row.parts:
            lines.append(", ".join(_memory(row)))
        yield Padding(pen.lines([*lines, *row.notes]), (0, 0, 0, 2))


def _memory(row: _Row) -> list[str]:
    """The parts of its memory, with their unit."""
    return ["memory (GiB): " + row.parts[0], *row.parts[1:]] if row.parts else []


def _cell(row: _Row, column: str) -> list[str]:
    """The lines of one cell."""
    value = row.engine.name if column == "engine" else getattr(row, column)
    return [value] if isinstance(value, str) else value


def summary(plan: Plan) -> list[str]:
    """The plan in a line or two: GPUs against the cluster, idle ones, who starts the workers."""
    mode = "single controller" if plan.mode == "single_controller" else "SPMD"
    if plan.launcher:
        mode += f", launcher {plan.launcher}"
    if plan.cluster is None:
        return [f"{counted(plan.total_gpus, 'GPU')} · cluster unknown · {mode}"]
    cluster = plan.cluster
    have = cluster.n_nodes * cluster.n_gpus_per_node
    shape = f"{counted(cluster.n_nodes, 'node')} × {counted(cluster.n_gpus_per_node, 'GPU')}"
    line = f"{plan.total_gpus:,} of {counted(have, 'GPU')} · {shape} · {mode}"
    used = {d for e in plan.engines.values() for d in e.devices if d is not None}
    missing = plan.total_gpus - len(used)
    beyond = sum(node >= cluster.n_nodes for node, _ in used)
    idle = have - len(used) + beyond
    if missing > 0:
        line += f" · no room for {counted(missing, 'rank')}"
    else:
        line += f" · {idle:,} idle" if idle else " · none idle"
    if beyond:
        line += f" · {beyond:,} on nodes beyond n_nodes"
    return [line]


def _row(engine: EnginePlan, plan: Plan) -> _Row:
    layout = ""
    if engine.allocation is not None:
        layout = str(engine.allocation.parallel)
    gpus = str(engine.gpus) if engine.active else "-"
    return _Row(
        engine,
        engine.backend or "-",
        layout,
        gpus,
        _where(engine, plan),
        memory_verdict(engine.memory),
        memory_parts(engine.memory),
        engine_notes(engine),
    )


def _where(engine: EnginePlan, plan: Plan) -> list[str]:
    if not engine.active:
        return ["not running"]
    if engine.external:
        return ["external server"]
    devices = engine.devices
    runs = node_runs(devices)
    lines = [str(run) for run in runs[:_MOST_RUNS]]
    if len(runs) > _MOST_RUNS:
        rest = sum(run.last - run.first + 1 for run in runs[_MOST_RUNS:])
        lines.append(f"and {counted(rest, 'more node')}")
    without = devices.count(None)
    if plan.cluster is not None and without and engine.gpus:
        lines.append(f"no room for {counted(without, 'rank')}")
    return lines or ["-"]


def engine_notes(engine: EnginePlan) -> list[str]:
    notes = []
    if engine.inactive_because:
        notes.append(engine.inactive_because)
    if engine.allocation is None and engine.active and not engine.external:
        notes.append("no usable backend")
    if engine.instances is not None and engine.active:
        size = counted(engine.instance_size or 0, "GPU")
        notes.append(f"{counted(engine.instances, 'instance')} of {size}")
    layout = engine.allocation.parallel if engine.allocation else None
    if layout is not None and layout.sizes.expert_mesh and not engine.inherited_from:
        notes.append(f"experts: e{layout.ep_size} etp{layout.etp_size} edp{layout.edp_size}")
    if engine.colocated_with:
        notes.append(f"on the GPUs of {engine.colocated_with}")
    if engine.inherited_from:
        notes.append(f"backend of {engine.inherited_from}")
    return notes


# -- what is wrong ------------------------------------------------------------------------------


def diagnostics(plan: Plan, console: Console) -> None:
    """Print the errors of `plan`, then its warnings; nothing where there are none."""
    print_diagnostics(findings(plan), console)


def findings(plan: Plan) -> list[Diagnostic]:
    """The errors of `plan`, then its warnings."""
    return [*plan.errors, *plan.warnings]


def refusal(error: AllocationError, console: Console) -> None:
    """Print an exception with everything that is wrong with the same input."""
    for one in Diagnostic.all_of("error", error):
        _print_one(_Printed(one, ""), console)


def print_diagnostics(diagnostics: Iterable[Diagnostic], console: Console) -> None:
    """Print findings, one after the other in their order.

    On a terminal, sentences wrap at its width and a long text is cut around what is underlined;
    elsewhere (a file, a pipe) each line is one line, so that it can be searched.
    """
    shown: Counter[str] = Counter()
    more: dict[str, Counter[str]] = {}
    for one in diagnostics:
        shown[one.severity] += 1
        if shown[one.severity] <= _MOST_SHOWN:
            _print_one(_Printed(one, f"{one.severity}: "), console)
        else:
            more.setdefault(one.severity, Counter())[one.code] += 1
    for kind, codes in more.items():
        each = ", ".join(f"{code} {n}x" for code, n in codes.items())
        _print_one(_More(f"{counted(codes.total(), f'more {kind}')}: {each}"), console)


def _print_one(item: _Printed | _More, console: Console) -> None:
    console.print(item, soft_wrap=not console.is_terminal, crop=False)


class _More:
    def __init__(self, text: str) -> None:
        self.line = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Pen(options).text(self.line)


class _Printed:
    """One diagnostic as `Diagnostic.describe` words it, cut and wrapped to the terminal."""

    def __init__(self, one: Diagnostic, kind: str) -> None:
        self.one = one
        self.kind = kind

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        pen = Pen(options)
        colour = "yellow" if self.one.severity == "warning" else "red"
        head, *_, hint = self.one.describe().split("\n")
        where, code, message = head.partition(f"{self.one.code}: ")
        yield pen.words((self.kind, f"bold {colour}"), (where, "bold"), (code, colour), message)
        if self.one.text:
            room = pen.width - 3 if console.is_terminal else _TEXT_KEPT
            text, marker = _underlined(self.one, pen, room)
            start, length = len(marker) - marker.count("^"), marker.count("^")
            line = Text("  ", no_wrap=True, overflow="ignore")
            line.append(text)
            yield line
            yield Text("  " + " " * start, no_wrap=True, overflow="ignore").append(
                "^" * length, colour
            )
        yield pen.words(("hint: ", "bold"), hint.removeprefix("hint: "))


def _underlined(one: Diagnostic, pen: Pen, room: int) -> tuple[str, str]:
    """The faulty text and its marker in at most `room` columns."""
    text, span = _near(one.text, one.span)
    start, end = span
    head, body, tail = (pen.plain(part) for part in (text[:start], text[start:end], text[end:]))
    text, span = head + body + tail, (len(head), len(head) + len(body))
    limit = min(160, room)
    while True:
        shown, marker = underline(text, span, limit)
        shown = shown if not pen.ascii else shown.replace("…", "~")
        if limit <= 8 or max(cell_len(shown), len(marker)) <= room:
            return shown, marker
        limit = max(8, min(limit - 1, limit * room // max(cell_len(shown), len(marker))))


def _near(text: str, span: tuple[int, int]) -> tuple[str, tuple[int, int]]:
    """The part of a very long text that lies around `span`."""
    start, end = span
    left = max(0, start - _TEXT_KEPT // 2)
    right = min(len(text), left + _TEXT_KEPT)
    end = min(end, right)
    return text[left:right], (start - left, end - left)
