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
from rich.console import (
    Console,
    ConsoleOptions,
    OverflowMethod,
    RenderableType,
    RenderResult,
)
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from areal_conf.allocation import ModelAllocation
from areal_conf.backends import BACKENDS, DIMENSIONS
from areal_conf.errors import AllocationError, Finding, counted, underline
from areal_conf.placement import Device, Mesh, RankOrder

if TYPE_CHECKING:
    from areal_conf.plan import EnginePlan, Plan

_NARROW = 72
"""Columns below which a table of engines becomes a list."""

_MOST_SHOWN = 100
"""Findings of one severity that are printed in full."""

_MOST_RUNS = 6
"""Runs of nodes named for one engine."""

_TEXT_KEPT = 2000
"""Characters of a faulty text that are looked at; the rest lies far from the span."""

_ASCII = {"…": "...", "×": "x", "·": "|", "–": "-", "→": "->", "⋅": "*"}


# -- characters ---------------------------------------------------------------------------------


class _Pen:
    """Makes `Text` of strings: never markup, nothing unprintable, ASCII where it must be."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.ascii = options.ascii_only
        self.width = options.max_width
        # Off a terminal nothing wraps, and then nothing may be cut either.
        self.overflow: OverflowMethod = "ignore" if options.no_wrap else "fold"

    def plain(self, text: str) -> str:
        """`text` with every character that the terminal cannot show written as an escape."""
        if text.isascii() and text.isprintable():
            return text
        return "".join(map(self._char, text))

    def _char(self, char: str) -> str:
        if char.isprintable() and not (self.ascii and ord(char) > 127):
            return char
        return _ASCII.get(char) or char.encode("unicode_escape", "replace").decode("ascii")

    def text(self, *parts: str | tuple[str, str]) -> Text:
        """One `Text` of parts, each a string or (string, style)."""
        out = Text(overflow=self.overflow)
        for part in parts:
            string, style = (part, "") if isinstance(part, str) else part
            out.append(self.plain(string), style)
        return out

    def lines(self, lines: Iterable[str]) -> Text:
        """Lines of text; the line breaks between them are kept."""
        return Text("\n".join(map(self.plain, lines)), overflow=self.overflow)


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
    console.print(plan_table(plan))


class _Row(NamedTuple):
    engine: EnginePlan
    backend: str
    layout: str
    gpus: str
    where: list[str]
    notes: list[str]


class _PlanTable:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows = [_row(engine, plan) for engine in plan.engines.values()]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        pen = _Pen(options)
        if not self.rows:
            yield pen.text("no engines")
        elif pen.width < _NARROW:
            for row in self.rows:
                yield from self._entry(row, pen)
        else:
            yield self._table(pen)
        for line in summary(self.plan):
            yield pen.text(line)

    def _table(self, pen: _Pen) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in ("engine", "backend", "layout"):
            table.add_column(name, overflow="fold")
        table.add_column("GPUs", justify="right", no_wrap=True)
        table.add_column("where", overflow="fold")
        if any(row.notes for row in self.rows):
            table.add_column("notes", overflow="fold")
        for row in self.rows:
            cells = [
                pen.text((row.engine.name, "bold")),
                pen.text(row.backend),
                pen.text(row.layout),
                pen.text(row.gpus),
                pen.lines(row.where),
                pen.lines(row.notes),
            ]
            style = "" if row.engine.active else "dim"
            table.add_row(*cells[: len(table.columns)], style=style)
        return table

    def _entry(self, row: _Row, pen: _Pen) -> Iterator[RenderableType]:
        name = (row.engine.name, "bold")
        head = f" {row.engine.spec}" if row.engine.spec else ""
        yield pen.text(name, head)
        if row.engine.active:
            yield Padding(pen.lines([f"GPUs {row.gpus}", *row.where]), (0, 0, 0, 2))
        if row.notes:
            yield Padding(pen.lines(row.notes), (0, 0, 0, 2))


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
        engine, engine.backend or "-", layout, gpus, _where(engine, plan), engine_notes(engine)
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


def findings(plan: Plan) -> list[Finding]:
    """The errors of `plan`, then its warnings."""
    errors = [Finding("error", diagnostic.error()) for diagnostic in plan.errors]
    return errors + [Finding("warning", diagnostic.error()) for diagnostic in plan.warnings]


def refusal(error: AllocationError, console: Console) -> None:
    """Print an exception with everything that is wrong with the same input."""
    for one in error.errors:
        _print_one(_Diagnostic("", one), console)


def print_diagnostics(diagnostics: Iterable[Finding], console: Console) -> None:
    """Print findings, one after the other in their order.

    On a terminal, sentences wrap at its width and a long text is cut around what is underlined;
    elsewhere (a file, a pipe) each line is one line, so that it can be searched.
    """
    shown: Counter[str] = Counter()
    more: dict[str, Counter[str]] = {}
    for severity, error in diagnostics:
        shown[severity] += 1
        if shown[severity] <= _MOST_SHOWN:
            _print_one(_Diagnostic(severity, error), console)
        else:
            more.setdefault(severity, Counter())[error.code] += 1
    for kind, codes in more.items():
        each = ", ".join(f"{code} {n}x" for code, n in codes.items())
        _print_one(_More(f"{counted(codes.total(), f'more {kind}')}: {each}"), console)


def _print_one(item: _Diagnostic | _More, console: Console) -> None:
    console.print(item, soft_wrap=not console.is_terminal)


class _More:
    def __init__(self, text: str) -> None:
        self.line = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _Pen(options).text(self.line)


class _Diagnostic:
    """One finding as `AllocationError.describe` words it, cut and wrapped to the terminal."""

    def __init__(self, severity: str, error: AllocationError) -> None:
        self.severity = severity
        self.error = error

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        pen = _Pen(options)
        colour = "yellow" if self.severity == "warning" else "red"
        kind = f"{self.severity}: " if self.severity else ""
        head, *_, hint = self.error.describe().split("\n")
        where, code, message = head.partition(f"{self.error.code}: ")
        yield pen.text((kind, f"bold {colour}"), (where, "bold"), (code, colour), message)
        if self.error.text:
            room = pen.width - 3 if console.is_terminal else _TEXT_KEPT
            text, marker = _underlined(self.error, pen, room)
            start, length = len(marker) - marker.count("^"), marker.count("^")
            line = Text("  ", no_wrap=True, overflow="ignore")
            line.append(text)
            yield line
            yield Text("  " + " " * start, no_wrap=True, overflow="ignore").append(
                "^" * length, colour
            )
        yield pen.text(("hint: ", "bold"), hint.removeprefix("hint: "))


def _underlined(error: AllocationError, pen: _Pen, room: int) -> tuple[str, str]:
    """The faulty text and its marker in at most `room` columns."""
    text, span = _near(error.text, error.span)
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


# -- what a backend string means ----------------------------------------------------------------


def explain(spec: str | ModelAllocation) -> RenderableType:
    """What a backend string means: sizes, ranks and their order, groups, canonical form.

    Raises:
        AllocationError: where `spec` is a string that is none.
    """
    if not isinstance(spec, ModelAllocation):
        spec = ModelAllocation.from_str(spec)
    return _Explanation(spec)


def explanation(allocation: ModelAllocation, console: Console) -> None:
    """Print what `allocation` means."""
    console.print(explain(allocation))


_MEANS_INFERENCE = {
    "d": "server instances, each with the whole model",
    "t": "GPUs that share each matrix of a layer",
    "p": "pipeline stages: the layers cut into as many parts",
}
_MEANS = {
    "d": "replicas of the model, each on its own part of the batch",
    "t": "GPUs that share each matrix of a layer",
    "p": "pipeline stages: the layers cut into as many parts",
    "c": "GPUs that share each sequence",
    "e": "GPUs over which the experts of a layer are spread",
    "etp": "GPUs that share each matrix of an expert",
    "edp": "copies of each expert",
}
_NAMES = {
    **{letter: dimension.name for letter, dimension in DIMENSIONS.items()},
    "etp": "expert tensor",
    "edp": "expert data",
}


class _Explanation:
    def __init__(self, allocation: ModelAllocation) -> None:
        self.allocation = allocation
        self.order = RankOrder(allocation.parallel.sizes, allocation.role)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        pen = _Pen(options)
        yield pen.text((str(self.allocation), "bold"))
        yield pen.text(sentence(self.allocation))
        yield self._sizes(pen)
        yield self._facts(pen)
        if self.allocation.parallel.sizes.expert_mesh:
            yield pen.text("The same ranks are dealt twice, once for attention, once for experts:")
            yield self._meshes(pen)

    def _sizes(self, pen: _Pen) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        table.add_column("size", no_wrap=True)
        table.add_column("dimension", overflow="fold")
        table.add_column("what it counts", overflow="fold")
        means = _MEANS if self.allocation.role == "training" else _MEANS_INFERENCE
        for letter, size in self._shown_sizes().items():
            cells = (f"{letter} {size}", _NAMES[letter], means[letter])
            table.add_row(*map(pen.text, cells))
        return table

    def _shown_sizes(self) -> dict[str, int]:
        parallel = self.allocation.parallel
        sizes = parallel.sizes
        letters = [x for x in DIMENSIONS if x in BACKENDS[self.allocation.backend].dims]
        out = {letter: getattr(sizes, letter) for letter in letters}
        if sizes.expert_mesh:
            out |= {"etp": sizes.etp, "edp": parallel.edp_size}
        return out

    def _facts(self, pen: _Pen) -> Table:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True, style="bold")
        table.add_column(overflow="fold")
        for name, value in self._facts_of():
            table.add_row(pen.text(name), pen.text(value))
        return table

    def _facts_of(self) -> Iterator[tuple[str, str]]:
        allocation = self.allocation
        yield "role", f"{allocation.role} ({allocation.backend})"
        if allocation.name is not None:
            yield "name", allocation.name
        yield "world size", self._product(("d", "p", "t", "c"))
        if allocation.instances is not None:
            size = counted(allocation.instance_size or 0, "GPU")
            yield "instances", f"{allocation.instances:,} of {size} each (t × p)"
        yield "rank order", _formula(self.order.dense.sizes, self.order.dense.strides)
        for axis, what in (("t", "tensor"), ("c", "context"), ("d", "data"), ("p", "pipeline")):
            if allocation.role == "inference" and axis == "d":
                continue
            if self.order.dense.sizes[axis] > 1:
                yield f"{what} groups", self._groups(self.order.dense, axis)
        yield "canonical", str(allocation)

    def _product(self, letters: Sequence[str]) -> str:
        sizes = self.allocation.parallel.sizes
        factors = [f"{x}{getattr(sizes, x)}" for x in letters if getattr(sizes, x) > 1]
        total = counted(sizes.world, "rank")
        return f"{total} = {' × '.join(factors)}" if len(factors) > 1 else total

    def _groups(self, mesh: Mesh, axis: str) -> str:
        size, stride = mesh.sizes[axis], mesh.strides[axis]
        if size == 1:
            return "each rank alone"
        count = self.order.world // size
        bases = (0, 1 if stride > 1 else size)[:count]
        shown = " ".join(_members(base, size, stride) for base in bases)
        more = " …" if count > 2 else ""
        return f"{count:,} of {counted(size, 'rank')}: {shown}{more}"

    def _meshes(self, pen: _Pen) -> Table:
        sizes = self.allocation.parallel.sizes
        edp = self.order.expert.sizes["edp"]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in ("", "attention (attn)", "experts (ffn)"):
            table.add_column(name, overflow="fold")
        rows = (
            ("data", f"d {sizes.d}", f"edp {edp}"),
            ("pipeline", f"p {sizes.p}", f"p {sizes.p}"),
            ("tensor", f"t {sizes.t}", f"etp {sizes.etp}"),
            ("context", f"c {sizes.c}", "–"),
            ("expert", "–", f"e {sizes.e}"),
            ("ranks", f"{sizes.world:,}", f"{sizes.world:,}"),
            (
                "tensor groups",
                self._groups(self.order.dense, "t"),
                self._groups(self.order.expert, "etp"),
            ),
            ("expert groups", "–", self._groups(self.order.expert, "e")),
            (
                "data groups",
                self._groups(self.order.dense, "d"),
                self._groups(self.order.expert, "edp"),
            ),
        )
        for row in rows:
            table.add_row(*map(pen.text, row))
        return table


def _members(base: int, size: int, stride: int) -> str:
    if size <= 8 or stride == 1:
        members = range(base, base + size * stride, stride)
        return f"[{members[0]}-{members[-1]}]" if size > 8 else f"[{' '.join(map(str, members))}]"
    first = " ".join(str(base + i * stride) for i in range(3))
    return f"[{first} … {base + (size - 1) * stride}]"


def _formula(sizes: dict[str, int], strides: dict[str, int]) -> str:
    """The rank as a sum over the axes that have more than one place, fastest first."""
    terms = [
        axis if strides[axis] == 1 else f"{strides[axis]:,}{axis}"
        for axis, size in sizes.items()
        if size > 1
    ]
    return f"rank = {' + '.join(terms) or '0'} (each letter counts from 0)"


def sentence(allocation: ModelAllocation) -> str:
    """What the layout does, in words that a newcomer understands."""
    s = allocation.parallel.sizes
    gpus = counted(s.world, "GPU")
    if allocation.role == "inference":
        each = counted(s.t * s.p, "GPU")
        servers = counted(s.d, f"{allocation.backend} server")
        return f"{servers} generating text on {gpus}: {each} each, all with the same model."
    cuts = _cuts(s.p, s.t, s.c)
    text = f"{allocation.backend} trains on {gpus}: {counted(s.d, 'replica')} of the model"
    text += " with" if s.d == 1 else ", each on its own part of the batch and with"
    text += f" {counted(s.world // s.d, 'GPU')}"
    text += f": {cuts}." if cuts else "."
    if s.expert_mesh:
        text += f" Experts use the same GPUs in another way: spread over {s.e:,}"
        text += f", each expert split over {s.etp:,}." if s.etp > 1 else ", each expert whole."
    return text


def _cuts(p: int, t: int, c: int) -> str:
    parts = []
    if p > 1:
        parts.append(f"layers cut into {p:,} stages")
    if t > 1:
        parts.append(f"each matrix split over {t:,}")
    if c > 1:
        parts.append(f"each sequence split over {c:,}")
    return ", ".join(parts)
