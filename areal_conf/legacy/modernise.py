"""One component of an `allocation_mode`, rewritten into the language of backend strings.

It is rewritten character by character where it can be, so that what the parser finds in the new
text is told at its place in the text that the user wrote.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from areal_conf.legacy.dialects import BARE, LETTERS, NEWEST, SEPARATORS, SLASH
from areal_conf.spec.backends import BACKENDS, Backend
from areal_conf.spec.grammar import B

_BACKEND = re.compile(
    rf"{B}([a-z]\w*){B}(?:\[[^\]]*\]{B})?([:{re.escape(''.join(SEPARATORS))}])", re.ASCII
)
_NAMED = re.compile(rf"{B}(?=\[[^\]]*\]{B}:)")
_FOLDED = re.compile(rf"{B}(?=\(?{B}attn{B}:)")
_DIMS = re.compile(rf"{B}(?=[A-Za-z]{B}[0-9])")
_OLD_DIM = re.compile(rf"([{''.join(LETTERS)}])(?={B}[0-9])")
_PIPELINE_OR_EXPERT = re.compile(rf"[pe]{B}(?:[2-9]|1[0-9])")


class Component:
    """One component in today's language, and where its characters stand in the mode."""

    __slots__ = ("_at", "_from", "backend", "end", "mark", "start", "text")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.text = ""
        self.mark = NEWEST
        self.backend: Backend | None = None
        self._at: list[int] = []
        self._from: list[tuple[int, bool]] = []

    def add(self, text: str, origin: int, copied: bool = True) -> Component:
        """Append `text`, which stands at `origin` in the mode, or was put in there."""
        self._at.append(len(self.text))
        self._from.append((origin, copied))
        self.text += text
        return self

    def origin(self, at: int) -> int:
        """Where the character `at` of this component's text comes from."""
        i = max(0, bisect_right(self._at, at) - 1)
        origin, copied = self._from[i]
        return min(origin + (at - self._at[i] if copied else 0), self.end)


def modernise(text: str, start: int, end: int) -> Component:
    """The component from `start` to `end` of the mode `text`, in today's language."""
    new = Component(start, end)
    if m := _FOLDED.match(text, start):
        new.mark = BARE
        opened = text[m.end()] == "("
        new.add("megatron:" + "(" * (not opened), m.end(), copied=False)
        new.add(text[m.end() : end], m.end())
        return new if opened else new.add(")", end, copied=False)
    if head := _BACKEND.match(text, start, end):
        sign = head.start(2)
        new.add(text[start:sign], start).add(":", sign)
        new.mark = SEPARATORS.get(head[2], NEWEST)
        rest = text[sign + 1 : end]
        backend = BACKENDS.get(head[1])
        if backend and backend.role == "inference":
            rest = _new_letters(rest, new)
        return new.add(rest, sign + 1)
    if m := _NAMED.match(text, start, end):
        new.mark = BARE
        dims = text[text.index(":", m.end()) : end]
        new.add(_default_backend(dims), m.end(), copied=False)
        return new.add(text[m.end() : end], m.end())
    if m := _DIMS.match(text, start):
        return _bare(text, new, m.end(), end)
    return new.add(text[start:end], start)


def _bare(text: str, new: Component, start: int, end: int) -> Component:
    """A training component of dims alone, or of attn and ffn dims with a slash between."""
    new.mark = BARE
    slash = text.find("/", start, end)
    dims = _new_letters(text[start:end], new)
    if slash < 0:
        new.add(f"{_default_backend(dims)}:", start, copied=False)
        return new.add(dims, start)
    new.mark = min(new.mark, SLASH)
    at = slash - start
    new.add("megatron:(attn:", start, copied=False).add(dims[:at], start)
    new.add("|ffn:", slash, copied=False).add(dims[at + 1 :], slash + 1)
    return new.add(")", end, copied=False)


def _new_letters(dims: str, new: Component) -> str:
    """`dims` with the letters of older generations renamed."""

    def rename(m: re.Match[str]) -> str:
        letter, number = LETTERS[m[1]]
        new.mark = min(new.mark, number)
        return letter

    return _OLD_DIM.sub(rename, dims)


def _default_backend(dims: str) -> str:
    """The training backend that a half without one meant."""
    return "megatron" if _PIPELINE_OR_EXPERT.search(dims) else "fsdp"
