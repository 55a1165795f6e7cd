"""The plan as a picture: nodes as boxes, GPUs as cells, each cell naming who sits on it.

`render` gives one self-contained SVG document: no script, no external font or image, the same
bytes for the same plan. What sits where is found by `areal_conf.report.scene`; lengths are pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

from areal_conf.errors import clip, counted
from areal_conf.report.colours import COLOURS, INK, MORE_COLOURS, PAPER
from areal_conf.report.memory import (
    BAR_STYLE,
    MEMORY_ROOM,
    memory_bar,
    memory_key,
    shared_of,
    whole,
)
from areal_conf.report.scene import (
    MOST_CELLS,
    MOST_NODES,
    ROW,
    Cell,
    Drawn,
    Group,
    drawn_engines,
    groups_of_nodes,
    ranges_of,
)
from areal_conf.report.terminal import engine_notes, summary

if TYPE_CHECKING:
    from areal_conf.planning.result import EnginePlan, Plan


_WIDEST, _WIDEST_OF_MANY, _MOST_MIDDLING = 1560, 2000, 128
_MARGIN = 24
_GAP = 3
_MOST_LEGEND = 40


class _Scale(NamedTuple):
    """Measures that depend on how much is drawn.

    Attributes:
        name: font size of an engine's name in a cell.
        small: font size of the coordinates below it.
        band: height of one engine in a cell.
        head: height of a box above its cells.
        numbers: height of the line of GPU numbers above the cells; 0: none.
        gutter: space between boxes.
    """

    name: float
    small: float
    band: int
    head: int
    numbers: int
    gutter: int


_NORMAL = _Scale(name=10.5, small=9.5, band=30, head=22, numbers=12, gutter=14)
_DENSE = _Scale(name=9, small=8, band=24, head=17, numbers=0, gutter=9)
_MOST_NORMAL = 32
"""Boxes that are drawn at normal scale; more are drawn dense."""

_STYLE = f"""
.ac text{{font:11px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:{INK}}}
.ac .h{{font-size:20px;font-weight:700}}
.ac .s{{font-size:13px;fill:#444}}
.ac .l{{font-size:13px}}
.ac .b{{font-weight:700}}
.ac .m{{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}}
.ac .n{{font-weight:600;fill:#333}}
.ac .bad{{fill:#a40000;font-weight:600}}
.ac .box{{fill:#f1f3f5;stroke:#9aa0a6}}
.ac .over{{stroke:#a40000;stroke-dasharray:6 3}}
.ac .i{{fill:{PAPER};stroke:#80868b;stroke-dasharray:2 2}}
.ac .x{{stroke:#a40000;stroke-width:2.5}}
.ac .u{{fill:none;stroke:#444;stroke-width:2}}
"""


def render(plan: Plan) -> str:
    """`plan` as an SVG document."""
    return _Picture(plan).document()


# -- text ---------------------------------------------------------------------------------------


def text_width(text: str, size: float) -> float:
    """Upper estimate of the width of `text` in a common sans-serif font of `size` pixels."""
    return size * sum(map(_em, text))


@lru_cache(maxsize=1024)
def _em(char: str) -> float:
    if east_asian_width(char) in "WF" or char in "mwMW@%…":
        return 1.02
    if char in " ijl.,:;|!'()[]I-":
        return 0.38
    return 0.44 if char in "rtf" else 0.8 if char.isupper() else 0.65


def shortened(text: str, size: float, room: float) -> str:
    """`text`, cut with an ellipsis where it is wider than `room` pixels."""
    if text_width(text, size) <= room:
        return text
    while text and text_width(text + "…", size) > room:
        text = text[:-1]
    return text + "…"


def _n(value: float) -> str:
    """A length in as few characters as it takes."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


# -- drawing ------------------------------------------------------------------------------------


class _Picture:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.engines = drawn_engines(plan)
        self.by_index = {engine.number: engine for engine in self.engines}
        self.fills = _fills(list(plan.engines))
        every = groups_of_nodes(plan, self.engines)
        kept = max(1, min(MOST_NODES, MOST_CELLS // max((len(g.cells) for g in every), default=1)))
        self.groups = every[:kept]
        self.left_out = sum(group.count for group in every[kept:])
        self.scale = _NORMAL if len(self.groups) <= _MOST_NORMAL else _DENSE
        if plan.cluster is None:  # ranks, not GPUs with numbers
            self.scale = self.scale._replace(numbers=0)
        self.labels: dict[tuple[int, int, int], str] = {}
        self.cell = self._cell_width()
        columns = min(ROW, max((len(g.cells) for g in self.groups), default=1))
        self.box = columns * (self.cell + _GAP) - _GAP + 12
        self.memory_room = MEMORY_ROOM if plan.memory else 0
        self.heights: set[float] = set()
        self.out: list[str] = []
        self.y = 0.0
        self.width = 0.0

    def document(self) -> str:
        """The whole SVG, in ASCII, so that no encoding of a pipe or a server can spoil it."""
        title, rest = self._title()
        self._heading(title, rest)
        self._legend()
        self._grid()
        width, height = _n(self.width + _MARGIN), _n(self.y + _MARGIN)
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="ac" width="{width}" '
            f'height="{height}" viewBox="0 0 {width} {height}" role="img" '
            f'aria-labelledby="ac-title ac-desc">',
            f'<title id="ac-title">{_safe(title)}</title>',
            f'<desc id="ac-desc">{_safe(self._description())}</desc>',
            f"<style>{_STYLE}{self._rules()}</style>",
            self._defs(),
            f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        ]
        page = "\n".join([*head, *self.out, "</svg>"]) + "\n"
        return page.encode("ascii", "xmlcharrefreplace").decode("ascii")

    def _title(self) -> tuple[str, str]:
        first, _, rest = summary(self.plan)[0].partition(" · ")
        return f"GPU plan: {first}", rest

    def _description(self) -> str:
        lines = []
        for engine in self.plan.engines.values():
            facts = [engine.spec or "no backend", counted(engine.gpus, "GPU")]
            lines.append(f"{clip(engine.name)}: {', '.join([*facts, *engine_notes(engine)])}.")
        return "Nodes are boxes, GPUs are cells. " + " ".join(lines[:_MOST_LEGEND])

    def _rules(self) -> str:
        name, small = _n(self.scale.name), _n(self.scale.small)
        return (
            f".ac .c text{{text-anchor:middle;font-size:{name}px;font-weight:600;"
            "pointer-events:none}\n"
            f".ac .c tspan{{font-size:{small}px;font-weight:400}}\n"
            f".ac .c .g{{font-size:{small}px;font-weight:400;fill:#555}}\n"
            + (BAR_STYLE if self.plan.memory else "")
        ) + "".join(f".ac .e{i}{{fill:{fill}}}\n" for i, fill in enumerate(self.fills))

    def _defs(self) -> str:
        rects = "".join(
            f'<rect id="c{_n(h)}" width="{_n(self.cell)}" height="{_n(h)}" rx="2"/>'
            for h in sorted(self.heights)
        )
        return f"<defs>{rects}</defs>"

    def _text(self, x: float, y: float, style: str, text: str) -> None:
        self.out.append(f'<text class="{style}" x="{_n(x)}" y="{_n(y)}">{_safe(text)}</text>')

    def _reach(self, x: float) -> None:
        self.width = max(self.width, x)

    # heading and legend

    def _heading(self, title: str, rest: str) -> None:
        self.y = _MARGIN + 16
        self._text(_MARGIN, self.y, "h", title)
        self._reach(_MARGIN + text_width(title, 20))
        self.y += 20
        self._text(_MARGIN, self.y, "s", rest)
        self._reach(_MARGIN + text_width(rest, 13))
        for line in self._troubles():
            self.y += 19
            self._text(_MARGIN, self.y, "l bad", line)
            self._reach(_MARGIN + text_width(line, 13.5))
        self.y += 12

    def _troubles(self) -> Iterator[str]:
        errors = self.plan.errors
        if errors:
            codes = ", ".join(dict.fromkeys(error.code for error in errors[:200]))
            yield f"{counted(len(errors), 'error')}, it will not run like this: {codes}"
        if self.plan.cluster is None:
            return
        for engine in self.engines:
            without = engine.plan.devices.count(None) if engine.plan.gpus else 0
            if without:
                yield f"no room for {counted(without, 'rank')} of {engine.name}"

    def _legend(self) -> None:
        rows = [self._legend_row(e) for e in list(self.plan.engines.values())[:_MOST_LEGEND]]
        styles = ("l b", "l m", "l", "l")
        widths = [max((text_width(row[i], 13) for row in rows), default=0) + 18 for i in range(4)]
        widths[1] = max((len(row[1]) for row in rows), default=0) * 8.2 + 18
        for index, row in enumerate(rows):
            self.y += 22
            running = self.plan.engines[list(self.plan.engines)[index]].active
            self._swatch(f"e{index}" if running else "i")
            x = _MARGIN + 26.0
            for text, style, width in zip(row, styles, widths, strict=True):
                if text:
                    self._text(x, self.y, style, text)
                x += width
            self._reach(x)
        more = len(self.plan.engines) - len(rows)
        if more:
            self.y += 22
            self._text(_MARGIN + 26, self.y, "l", f"and {counted(more, 'more engine')}")
        self._key()
        self.y += 18

    def _swatch(self, style: str) -> None:
        self.out.append(
            f'<rect class="{style}" x="{_MARGIN}" y="{_n(self.y - 12)}" '
            'width="16" height="16" rx="2"/>'
        )

    def _legend_row(self, engine: EnginePlan) -> tuple[str, str, str, str]:
        name = shortened(clip(engine.name), 13, 240)
        gpus = counted(engine.gpus, "GPU") if engine.active else "not running"
        if engine.active and engine.colocated_with:
            gpus = f"{engine.world_size:,} shared"
        notes = shortened("; ".join(map(clip, engine_notes(engine))), 13, 600)
        return name, clip(engine.spec or "", 100), gpus, notes

    def _key(self) -> None:
        """How to read a cell; only what this picture has."""
        cells = [cell for group in self.groups for cell in group.cells]
        split = any(len(cell) > 1 for cell in cells)
        lines = self._key_of_labels()
        if any(self.by_index[cell[0].engine].unit > 1 for cell in cells if cell):
            lines.append(
                "A bar under cells: one instance or tensor group"
                + (" of the engine on top." if split else ".")
            )
        if split:
            lines.append("A split cell is one GPU that its engines share.")
        if self.plan.memory:
            lines.append(memory_key(self.plan.memory))
        self.y += 6 if lines else 0
        for line in lines:
            self.y += 19
            self._text(_MARGIN, self.y, "s", line)
            self._reach(_MARGIN + text_width(line, 13))
        if any(share.straddles for cell in cells for share in cell):
            self.y += 24
            self._swatch("i x")
            what = "red frame: its instance or tensor group lies on more than one node"
            self._text(_MARGIN + 26, self.y, "l", what)

    def _key_of_labels(self) -> list[str]:
        letters = {x for e in self.engines for x in e.letters if not (e.serves and x == "d")}
        names = {"d": "data", "p": "pipeline", "c": "context", "t": "tensor"}
        parts = [f"{x}: {names[x]}" for x in "dpct" if x in letters]
        if any(e.serves for e in self.engines):
            parts.insert(0, "inst: server instance")
        if any(e.experts for e in self.engines):
            parts.append("e: expert")
        if any(e.plan.dims and e.plan.dims.etp > 1 for e in self.engines):
            parts.append("etp: tensor of an expert")
        if not parts:
            return []
        return [
            "A cell is a GPU, with its engine and the place of the rank on it, counted from 0 "
            f"({', '.join(parts)})."
        ]

    # nodes

    def _cell_width(self) -> int:
        widest = 40.0
        for index, group in enumerate(self.groups):
            for gpu, cell in enumerate(group.cells):
                for place, share in enumerate(cell):
                    label = self.by_index[share.engine].label(group.ranks(gpu, place))
                    self.labels[index, gpu, place] = label
                    widest = max(widest, text_width(label, self.scale.small) + 6)
        names = [min(96.0, text_width(e.name, self.scale.name) + 6) for e in self.engines]
        return 2 * round(min(170.0, max([widest, *names])) / 2 + 0.5)

    def _grid(self) -> None:
        step = self.box + self.scale.gutter
        widest = _WIDEST if len(self.groups) <= _MOST_MIDDLING else _WIDEST_OF_MANY
        across = int((widest - 2 * _MARGIN + self.scale.gutter) // step)
        if len(self.groups) <= _MOST_NORMAL:
            in_a_row = 3 if any(group.count > 1 for group in self.groups) else 1
            across = min(across, max(in_a_row, round((len(self.groups) * 1.2) ** 0.5)))
        across = max(1, across)
        for start in range(0, len(self.groups), across):
            row = self.groups[start : start + across]
            for column, group in enumerate(row):
                x = _MARGIN + column * step
                self._box(start + column, group, x, self.y)
                self._reach(x + self.box + (8 if group.count > 1 else 0))
            stacked = any(group.count > 1 for group in row)
            self.y += max(map(self._box_height, row)) + self.scale.gutter + (8 if stacked else 0)
        self.y -= self.scale.gutter
        if self.left_out:
            self.y += 24
            text = f"and {counted(self.left_out, 'more node')} of other shapes"
            self._text(_MARGIN, self.y, "l", text)
        if not self.groups:
            self._text(_MARGIN, self.y, "l", "nothing to draw: no engine has a GPU")

    def _line_height(self, group: Group) -> int:
        return self.scale.numbers + group.depth * self.scale.band + 8 + self.memory_room

    def _hidden(self, group: Group) -> int:
        if self.plan.cluster is None:
            return 0
        return self.plan.cluster.n_gpus_per_node - len(group.cells)

    def _box_height(self, group: Group) -> int:
        lines = -(-len(group.cells) // ROW)
        return self.scale.head + lines * self._line_height(group) + (16 * bool(self._hidden(group)))

    def _box(self, index: int, group: Group, x: float, y: float) -> None:
        height = self._box_height(group)
        over = " over" if group.over else ""
        for back in (8, 4, 0) if group.count > 1 else (0,):
            self.out.append(
                f'<rect class="box{over}" x="{_n(x + back)}" y="{_n(y + back)}" '
                f'width="{self.box}" height="{height}" rx="5"/>'
            )
        style = "n bad" if group.over else "n"
        label = shortened(group.label, 11.5, self.box - 12)
        self._text(x + 8, y + self.scale.head - 6, style, label)
        if hidden := self._hidden(group):
            self._text(x + 8, y + height - 7, "n", f"and {counted(hidden, 'more GPU')}")
        shift = f"translate({_n(x + 6)},{_n(y + self.scale.head)})"
        self.out.append(f'<g class="c" transform="{shift}">')
        for first in range(0, len(group.cells), ROW):
            gpus = range(first, min(first + ROW, len(group.cells)))
            self._line(index, group, gpus, first // ROW * self._line_height(group))
        self.out.append("</g>")

    def _line(self, index: int, group: Group, gpus: range, top: int) -> None:
        """One line of cells of a box, with numbers above and bars below."""
        step = self.cell + _GAP
        if self.scale.numbers:
            self.out += [
                f'<text class="g" x="{i * step + self.cell // 2}" y="{top + 8}">{gpu}</text>'
                for i, gpu in enumerate(gpus)
            ]
        top += self.scale.numbers
        for column, gpu in enumerate(gpus):
            draw = self._cell if group.cells[gpu] else self._idle
            self.out.append(f"<g>{draw(index, group, gpu, column * step, top)}</g>")
        foot = top + group.depth * self.scale.band + self.memory_room
        self._bars(group, gpus, foot + 4)

    def _idle(self, index: int, group: Group, gpu: int, x: int, y: int) -> str:
        height = group.depth * self.scale.band
        self.heights.add(height)
        return (
            f"<title>idle: {self._place(group, gpu)}</title>"
            f'<use href="#c{height}" class="i"{_at(x, y)}/>'
            f'<text class="g" x="{x + self.cell // 2}" y="{y + height // 2 + 3}">idle</text>'
        )

    def _cell(self, index: int, group: Group, gpu: int, x: int, y: int) -> str:
        cell = group.cells[gpu]
        height = group.depth * self.scale.band / len(cell)
        self.heights.add(height)
        centre = x + self.cell // 2
        parts = [f"<title>{self._tooltip(group, gpu)}</title>"]
        for place, share in enumerate(cell):
            top = y + place * height
            style = f"e{share.engine}" + (" x" if share.straddles else "")
            name = shortened(self.by_index[share.engine].name, self.scale.name, self.cell - 4)
            label = shortened(self.labels[index, gpu, place], self.scale.small, self.cell - 2)
            parts.append(
                f'<use href="#c{_n(height)}" class="{style}"{_at(x, top)}/>'
                f'<text x="{centre}" y="{_n(top + height / 2 - 2)}">{_safe(name)}'
                f'<tspan x="{centre}" dy="{_n(self.scale.small + 1)}">{_safe(label)}</tspan></text>'
            )
        return "".join(parts) + self._memory(cell, x, y + group.depth * self.scale.band)

    def _memory(self, cell: Cell, x: int, bottom: int) -> str:
        """The memory bar of one GPU; empty where nothing is estimated."""
        memory = self.plan.memory
        shared = shared_of(memory, self.by_index[cell[0].engine].plan.name)
        if memory is None or shared is None:
            return ""
        return memory_bar(shared, memory.gpu, x, bottom + 2, self.cell)

    def _tooltip(self, group: Group, gpu: int) -> str:
        lines = []
        for place, share in enumerate(group.cells[gpu]):
            engine = self.by_index[share.engine]
            ranks = group.ranks(gpu, place)
            span = ranges_of(min(ranks), max(ranks))
            line = f"{engine.name} rank{'s' if len(ranks) > 1 else ''} {span}"
            if len(ranks) == 1:
                line += _expert_part(engine, ranks[0])
            if (memory := engine.plan.memory) is not None and memory.step is not None:
                line += f", {whole(memory.step)} of {memory.gpu:.0f} GiB"
            lines.append(line)
        return f"{_safe('; '.join(lines))}: {self._place(group, gpu)}"

    def _place(self, group: Group, gpu: int) -> str:
        where = group.label.partition(":")[0]
        return _safe(where if self.plan.cluster is None else f"{where} GPU {gpu}")

    def _bars(self, group: Group, gpus: range, y: int) -> None:
        """Under the cells, a bar for each instance or tensor group of the first engine."""
        step = self.cell + _GAP
        runs: list[tuple[tuple[int, int], int, int]] = []
        for column, gpu in enumerate(gpus):
            cell = group.cells[gpu]
            if not cell or self.by_index[cell[0].engine].unit == 1:
                continue
            key = (cell[0].engine, cell[0].unit)
            if runs and runs[-1][0] == key and runs[-1][2] == column - 1:
                runs[-1] = (key, runs[-1][1], column)
            else:
                runs.append((key, column, column))
        if runs:
            path = "".join(
                f"M{first * step + 2} {y}h{(last - first) * step + self.cell - 4}"
                for _, first, last in runs
            )
            self.out.append(f'<path class="u" d="{path}"/>')


def _fills(names: Sequence[str]) -> list[str]:
    """The colour of each engine, the same in every picture for the standard ones."""
    out = []
    others = 0
    for name in names:
        if name in COLOURS:
            out.append(COLOURS[name])
        else:
            out.append(MORE_COLOURS[others % len(MORE_COLOURS)])
            others += 1
    return out


def _at(x: float, y: float) -> str:
    return (f' x="{_n(x)}"' if x else "") + (f' y="{_n(y)}"' if y else "")


def _expert_part(engine: Drawn, rank: int) -> str:
    allocation = engine.plan.allocation
    if allocation is None or not allocation.parallel.sizes.expert_mesh:
        return ""
    at = engine.plan.coordinates(rank)
    return f" (experts: edp{at.edp} e{at.e} etp{at.etp})"


def _safe(text: str) -> str:
    return escape("".join(c if c.isprintable() else "?" for c in text))
