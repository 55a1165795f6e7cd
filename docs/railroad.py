"""Draws the railroad diagram of the grammar: ``python docs/railroad.py``.

Each part of a diagram knows its width, and how far it reaches above and below its line. A test
compares ``docs/images/grammar.svg`` with what this gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from areal_conf.spec.backends import BACKENDS, DIMENSIONS, SECTIONS

R = 10
"""Radius of the curves, in pixels; also half of a box's height less 2."""
GAP = 12


@dataclass(frozen=True)
class Box:
    """A word of the language (round), or the name of another diagram (square)."""

    text: str
    word: bool = True

    @property
    def width(self) -> int:
        return 8 * len(self.text) + 20

    above = below = R + 2

    def draw(self, x: int, y: int) -> Iterator[str]:
        kind, round_ = ("w", R) if self.word else ("n", 0)
        yield (
            f'<rect class="{kind}" x="{x}" y="{y - R - 1}" width="{self.width}" '
            f'height="{2 * R + 2}" rx="{round_}"/>'
        )
        yield f'<text x="{x + self.width // 2}" y="{y + 4}">{escape(self.text)}</text>'


@dataclass(frozen=True)
class Row:
    """Parts one after the other."""

    parts: tuple[Part, ...]

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts) + GAP * (len(self.parts) - 1)

    @property
    def above(self) -> int:
        return max(part.above for part in self.parts)

    @property
    def below(self) -> int:
        return max(part.below for part in self.parts)

    def draw(self, x: int, y: int) -> Iterator[str]:
        for i, part in enumerate(self.parts):
            if i:
                yield _line(x, y, GAP)
                x += GAP
            yield from part.draw(x, y)
            x += part.width


@dataclass(frozen=True)
class Fork:
    """One of several parts, the first on the line; None is a way past the others."""

    ways: tuple[Part | None, ...]

    @property
    def width(self) -> int:
        return max(way.width for way in self.ways if way) + 4 * R

    @property
    def above(self) -> int:
        return self.ways[0].above if self.ways[0] else R + 2

    @property
    def below(self) -> int:
        last = self.ways[-1]
        return self._drops()[-1] + (last.below if last else 0)

    def _drops(self) -> list[int]:
        drops = [0]
        for upper, lower in zip(self.ways, self.ways[1:], strict=False):
            room = (upper.below if upper else R) + (lower.above if lower else R) + 8
            drops.append(drops[-1] + max(room, 2 * R + 2))
        return drops

    def draw(self, x: int, y: int) -> Iterator[str]:
        for way, drop in zip(self.ways, self._drops(), strict=True):
            inner = self.width - 4 * R
            length = way.width if way else 0
            if drop:
                yield _path(f"M{x} {y} q{R} 0 {R} {R} v{drop - 2 * R} q0 {R} {R} {R}")
                end = x + self.width
                yield _path(f"M{end} {y} q-{R} 0 -{R} {R} v{drop - 2 * R} q0 {R} -{R} {R}")
            else:
                yield _line(x, y, 2 * R)
                yield _line(x + self.width - 2 * R, y, 2 * R)
            left = x + 2 * R
            if way:
                yield from way.draw(left, y + drop)
            yield _line(left + length, y + drop, inner - length)


@dataclass(frozen=True)
class Again:
    """A part, once or more."""

    part: Part

    @property
    def width(self) -> int:
        return self.part.width + 4 * R

    @property
    def above(self) -> int:
        return self.part.above

    @property
    def below(self) -> int:
        return self.part.below + 2 * R

    def draw(self, x: int, y: int) -> Iterator[str]:
        drop, inner = self.part.below + R, self.part.width
        yield _line(x, y, 2 * R)
        yield from self.part.draw(x + 2 * R, y)
        yield _line(x + 2 * R + inner, y, 2 * R)
        yield _path(
            f"M{x + 2 * R + inner} {y} q{R} 0 {R} {R} v{drop - 2 * R} q0 {R} -{R} {R} "
            f"h-{inner} q-{R} 0 -{R} -{R} v-{drop - 2 * R} q0 -{R} {R} -{R}"
        )


Part = Box | Row | Fork | Again


def _line(x: int, y: int, length: int) -> str:
    return _path(f"M{x} {y} h{length}") if length else ""


def _path(d: str) -> str:
    return f'<path d="{d}"/>'


def row(*parts: Part) -> Row:
    return Row(parts)


def fork(*ways: Part | None) -> Fork:
    return Fork(ways)


def name(text: str) -> Box:
    return Box(text, word=False)


def grammar() -> dict[str, Part]:
    """The diagrams, by rule; words come from the table of backends."""
    label = fork(row(Box("["), name("name"), Box("]")), None)
    section = row(*_section())
    return {
        "spec": row(name("backend"), label, Box(":"), fork(name("dims"), name("moe"))),
        "backend": fork(*(Box(backend) for backend in BACKENDS)),
        "dims": Again(row(fork(*(Box(letter) for letter in DIMENSIONS)), name("size"))),
        "moe": fork(row(Box("("), name("section"), Box(")")), name("section")),
        "section": section,
    }


def _section() -> Iterator[Part]:
    for i, word in enumerate(SECTIONS):
        if i:
            yield Box("|")
        yield from (Box(word), Box(":"), name("dims"))


def svg() -> str:
    """All diagrams below each other."""
    out, y, width = [], 10, 0
    for rule, part in grammar().items():
        out.append(f'<text class="rule" x="10" y="{y + 14}">{rule}</text>')
        line = y + 24 + part.above
        out += [f'<circle cx="16" cy="{line}" r="4"/>', _line(20, line, 16)]
        out += part.draw(36, line)
        end = 36 + part.width
        out += [_line(end, line, 16), f'<circle cx="{end + 20}" cy="{line}" r="4"/>']
        y, width = line + part.below + 16, max(width, end + 40)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" '
        f'height="{y}" role="img" font-family="ui-monospace, Consolas, monospace" font-size="13">'
        "<title>Grammar of backend strings</title>"
        "<style>svg{background:#fff}text{fill:#222;text-anchor:middle}"
        ".rule{text-anchor:start;font-weight:bold}path{fill:none;stroke:#666;stroke-width:1.5}"
        "circle{fill:#666}.w{fill:#e3eefc;stroke:#3867b5}.n{fill:#f4f0e4;stroke:#97803c}</style>"
        f'<rect width="{width}" height="{y}" fill="#fff"/>'
    )
    return "\n".join([head, *filter(None, out), "</svg>"]) + "\n"


if __name__ == "__main__":
    target = Path(__file__).parent / "images" / "grammar.svg"
    target.write_text(svg(), encoding="utf-8")
