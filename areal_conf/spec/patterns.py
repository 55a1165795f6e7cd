"""The grammar of layout patterns: backend strings in which sizes may be open.

pattern  = spec in which a size may be "*" [ "@" size ]
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from areal_conf.errors import clip
from areal_conf.spec.backends import MAX_SIZE, Backend, Sizes
from areal_conf.spec.grammar import STAR, B, Dim, Grammar

_DIM_OR_STAR = re.compile(
    rf"{B}(?:([dtpce]){B}([1-9][0-9]{{0,6}}(?!\d)|\*)|([A-Za-z])(?:{B}(\d+|\*))?)"
)
_COUNT = re.compile(rf"{B}@{B}([^\s()|]*)")


class Pattern(NamedTuple):
    """A layout pattern, read: the sizes as they are written, `STAR` where open.

    Attributes:
        backend: the row of its backend.
        name: component name, or None.
        attn: sizes by letter, of the attn section or of the plain form.
        ffn: sizes by letter of the ffn section; None in the plain form.
        gpus: number of GPUs after ``@``, or None.
    """

    backend: Backend
    name: str | None
    attn: dict[str, int]
    ffn: dict[str, int] | None
    gpus: int | None


class PatternGrammar(Grammar):
    """The same grammar where a size may be ``*`` and ``@`` a number of GPUs may follow.

    What the open sizes can be is left to the enumeration; what is wrong whatever they are is
    found here.
    """

    __slots__ = ("count", "sections")

    dim_rule = _DIM_OR_STAR

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.count: int | None = None
        self.sections: list[dict[str, int]] = []

    def pattern(self) -> Pattern | None:
        """pattern = spec in which a size may be "*" [ "@" size ]"""
        spec = self.spec()
        if spec is None:
            return None
        attn, *ffn = self.sections
        return Pattern(spec.backend, spec.name, attn, ffn[0] if ffn else None, self.count)

    def end(self) -> None:
        """[ "@" size ], and nothing after it"""
        if count := _COUNT.match(self.text, self.pos):
            self.pos = count.end()
            if re.fullmatch("[1-9][0-9]{0,6}", count[1]) and int(count[1]) <= MAX_SIZE:
                self.count = int(count[1])
            else:
                self.bad_count(count)
        super().end()

    def at_end(self) -> bool:
        return super().at_end() or _COUNT.match(self.text, self.pos) is not None

    def unfolded(self, backend: Backend, dims: dict[str, Dim], start: int) -> Sizes:
        self.sections = [_sizes(dims)]
        if self.is_open():
            self.check_world(start)
            return Sizes()
        return super().unfolded(backend, dims, start)

    def folded(
        self,
        backend: Backend,
        attn: dict[str, Dim],
        ffn: dict[str, Dim],
        opening: re.Match[str],
    ) -> Sizes | None:
        self.sections = [_sizes(attn), _sizes(ffn)]
        if not self.is_open():
            return super().folded(backend, attn, ffn, opening)
        if not backend.folding:
            self.bad_folding(backend, opening)
            return None
        self.check_world(opening.start())
        p, ffn_p = self.sections[0].get("p", 1), self.sections[1].get("p", STAR)
        if STAR not in (p, ffn_p) and p != ffn_p:
            self.bad_ffn_p(ffn["p"], p)
        self.check_letters(attn, ffn)
        return Sizes()

    def is_open(self) -> bool:
        return any(STAR in section.values() for section in self.sections)

    def check_world(self, start: int) -> None:
        sizes = self.sections[0]
        if (world := math.prod(sizes.get(x) or 1 for x in "dtpc")) > MAX_SIZE:
            self.bad_world(start, world)

    def bad_count(self, count: re.Match[str]) -> None:
        start, end = count.span(1)
        what = f"not {clip(count[1])!r}" if count[1] else "and nothing stands there"
        message = f"after '@' a number of GPUs from 1 to {MAX_SIZE} is expected, {what}"
        self.fault("AC602", start, end, message, "replace", "8")


def _sizes(dims: dict[str, Dim]) -> dict[str, int]:
    return {letter: dim.size for letter, dim in dims.items()}
