"""The grammar of backend strings: from text to sizes, or to every fault with its span.

    spec     = backend [ "[" name "]" ] ":" ( dims | moe )
    backend  = a name in the table of backends
    dims     = dim { dim }                     any order, each letter at most once
    dim      = ( "d" | "t" | "p" | "c" | "e" ) size
    moe      = "(" section ")" | section       parentheses both or neither
    section  = "attn" ":" dims "|" "ffn" ":" dims
    size     = a decimal integer from 1, no leading zero, ASCII digits only
    name     = [A-Za-z_][A-Za-z0-9_]*

Blanks (space, tab, line break) between tokens mean nothing.

`Grammar` has one method for each rule, and reads on after a fault as long as the rest makes sense.
A `Fault` says what is wrong and where; `areal_conf.spec.suggestions` knows what to write instead,
and is asked only where the text is refused.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable
from typing import Any, NamedTuple

from areal_conf.errors import clip
from areal_conf.spec.backends import (
    BACKENDS,
    DIMENSIONS,
    MAX_SIZE,
    SECTIONS,
    Backend,
    Sizes,
    broken_rules,
)

B = r"[ \t\r\n]*"
"""Blanks, as a part of patterns. Two side by side would take quadratic time."""
_MOE = re.compile(rf"{B}(?:(\(){B})?attn{B}:")
FFN = re.compile(rf"\|{B}ffn{B}:")
_DIM = re.compile(rf"{B}(?:([dtpce]){B}([1-9][0-9]{{0,6}})(?!\d)|([A-Za-z])(?:{B}(\d+))?)")
"""Letter and size of a dim; else, in the last two groups, what stands in its place."""
_CLOSE = re.compile(rf"{B}\)")
_END = re.compile(rf"{B}\Z")
_BLANK = re.compile(B)
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
FIRST_WORD = re.compile(r"(\w+)[^\s:：\[\](){}|+,.;=\\]*")
_BARE_DIMS = re.compile(r"(?:[a-z](?:[0-9]+|\*))+(?:@[0-9]*)?")
REVERSED = re.compile(rf"(?:[1-9][0-9]*[dtpce]{B})+(?:[|)]|\Z)", re.ASCII)
FLIPPED = re.compile(rf"(.*?:{B}\(?{B})(ffn{B}:.*)\|(.*?attn{B}:.*?)(\)?{B})", re.DOTALL)
_SECTION = re.compile(rf"{B}(?:(\(){B})?((?:attn|ffn)\b|[A-Za-z]{{2,}}(?={B}:))", re.ASCII)

MAX_FAULTS = 32
MAX_REPAIRED = 400
"""Characters of a text for which hints are sought; a longer one gets an example."""


class Spec(NamedTuple):
    """A backend string, read."""

    backend: Backend
    name: str | None
    sizes: Sizes


STAR = 0
"""The size that a pattern leaves open (``*``)."""


class Dim(NamedTuple):
    size: int
    start: int
    end: int


class Fault(NamedTuple):
    """One thing wrong.

    Attributes:
        code: one of `areal_conf.errors.CODES`.
        start: first character at fault.
        end: character after the last one; `start` where something is missing.
        message: what is wrong.
        kind: key of `areal_conf.spec.suggestions.CURES`.
        data: what the cure must know of the place.
    """

    code: str
    start: int
    end: int
    message: str
    kind: str
    data: tuple[Any, ...] = ()


class Grammar:
    """Reads one backend string: a `Spec`, or `faults`."""

    __slots__ = ("faults", "pos", "text")

    dim_rule = _DIM

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.faults: list[Fault] = []

    # -- the rules of the grammar ------------------------------------------------------------

    def spec(self) -> Spec | None:
        """spec = backend [ "[" name "]" ] ":" ( dims | moe )"""
        backend, name = self.head()
        if backend is None:
            return None
        moe = _MOE.match(self.text, self.pos)
        sizes = self.moe(backend, moe) if moe else self.plain(backend)
        if sizes is None or self.faults:
            return None
        return Spec(backend, name, sizes)

    def head(self) -> tuple[Backend | None, str | None]:
        """backend [ "[" name "]" ] ":" — the backend to read on with, also where it is guessed"""
        text = self.text
        start = self.skip_blanks(0)
        m = FIRST_WORD.match(text, start)
        if m is None:
            return self.bad_first_char(start)
        word = m[1]
        backend, end = BACKENDS.get(word), m.end(1)
        if backend is None:
            word, end = m[0], m.end()
            backend = self.bad_backend(word, start, end)
            if backend is None:
                return None, None
        self.pos = self.skip_blanks(end)
        name = self.bad_name() if text[self.pos : self.pos + 1] == "[" else None
        return (backend if self.colon(backend) else None), name

    def plain(self, backend: Backend) -> Sizes | None:
        """dims, and nothing after them"""
        start, faults = self.pos, len(self.faults)
        section = _SECTION.match(self.text, start)
        if section and nearest(section[2], SECTIONS):
            if section[1] and self.text.find(")", start) < 0:
                self.bad_opening(section.start(1))
            self.bad_section(section.start(2))
            return None
        if not (dims := self.dims(backend)) and len(self.faults) == faults:
            self.bad_start_of_dims(backend)
        self.end()
        return None if self.faults else self.unfolded(backend, dims, start)

    def unfolded(self, backend: Backend, dims: dict[str, Dim], start: int) -> Sizes:
        """Sizes of the plain form."""
        sizes = Sizes(*[dims[x].size if x in dims else 1 for x in "dtpce"])
        if sizes.world > MAX_SIZE:
            self.bad_world(start, sizes.world)
        elif sizes.e > 1 and (broken := broken_rules(backend, sizes)):
            self.bad_mesh(backend, sizes, broken, dims["e"])
        return sizes

    def moe(self, backend: Backend, opening: re.Match[str]) -> Sizes | None:
        """moe = "(" section ")" | section"""
        self.pos = opening.end()
        attn = self.dims(backend, in_section=True)
        if not attn:
            self.bad_empty_section("attn")
        if ffn_at := FFN.match(self.text, self.skip_blanks(self.pos)):
            self.pos = ffn_at.end()
            ffn = self.dims(backend, in_section=True)
            if not ffn:
                self.bad_empty_section("ffn")
        else:
            ffn = None
            self.bad_second_section()
        if opening[1]:
            if close := _CLOSE.match(self.text, self.pos):
                self.pos = close.end()
            elif self.text.find(")", self.pos) < 0 or self.at_end():
                self.bad_opening(opening.start(1))
                if ffn is not None and self.at_end():
                    self.pos = len(self.text)
        if ffn is not None:
            self.end()
        if self.faults or ffn is None:
            return None
        return self.folded(backend, attn, ffn, opening)

    def dims(self, backend: Backend, in_section: bool = False) -> dict[str, Dim]:
        """dims = dim { dim }, dim = letter size"""
        text = self.text
        # Inside a section, and for a backend that has none, which letters count is said later.
        allowed = "dtpce" if in_section else backend.dims
        found: dict[str, Dim] = {}
        while m := self.dim_rule.match(text, self.pos):
            letter, digits, odd, rest = m.groups()
            self.pos = end = m.end()
            start = m.start(3 if odd else 1)
            size = STAR if digits == "*" else int(digits or MAX_SIZE + 1)
            if size <= MAX_SIZE and letter not in found:
                found[letter] = Dim(size, start, end)
                if size != 1 and letter not in allowed:
                    self.bad_letter_for(backend, letter, size, found)
            elif in_section and text.startswith("ffn", start):
                self.pos = start
                break
            else:
                self.bad_dim(backend, odd or letter, rest or digits, start, found)
            if len(self.faults) >= MAX_FAULTS:
                break
        return found

    def end(self) -> None:
        """nothing but blanks up to the end of the text"""
        if not _END.match(self.text, self.pos) and len(self.faults) < MAX_FAULTS:
            self.bad_rest()

    def at_end(self) -> bool:
        """Whether nothing is left to read but what may end the text."""
        return _END.match(self.text, self.pos) is not None

    # -- meaning of the attn/ffn form ----------------------------------------------------------

    def folded(
        self,
        backend: Backend,
        attn: dict[str, Dim],
        ffn: dict[str, Dim],
        opening: re.Match[str],
    ) -> Sizes | None:
        """Sizes of the attn/ffn form: one world, dealt twice."""
        if not backend.folding:
            self.bad_folding(backend, opening)
            return None
        of_attn = {letter: dim.size for letter, dim in attn.items()}.get
        of_ffn = {letter: dim.size for letter, dim in ffn.items()}.get
        p = of_attn("p", 1)
        etp, e, ffn_p = of_ffn("t", 1), of_ffn("e", 1), of_ffn("p", p)
        sizes = Sizes(of_attn("d", 1), of_attn("t", 1), p, of_attn("c", 1), e, etp)
        world = sizes.world
        if world > MAX_SIZE:
            self.bad_world(opening.start(), world)
            return None
        if ffn_p != p:
            self.bad_ffn_p(ffn["p"], p)
        if "d" in ffn:
            if (other := ffn["d"].size * ffn_p * etp * e) != world:
                self.bad_ffn_world(backend, ffn, other, sizes)
        elif world % (p * etp * e):
            self.bad_ffn_d(backend, ffn, sizes)
        if not self.faults and (broken := broken_rules(backend, sizes)):
            self.fault("AC204", *_extent(ffn), "; ".join(broken), "ffn_mesh", backend, sizes)
        self.check_letters(attn, ffn)
        return sizes

    def check_letters(self, attn: dict[str, Dim], ffn: dict[str, Dim]) -> None:
        """Each section has its own letters; one it lacks may stand there at size 1."""
        for section, dims in (("attn", attn), ("ffn", ffn)):
            for letter, dim in dims.items():
                if dim.size != 1 and letter not in SECTIONS[section]:
                    self.bad_letter_in_section(section, letter, dim)

    # -- what is wrong ---------------------------------------------------------------------------

    def fault(self, code: str, start: int, end: int, message: str, kind: str, *data: Any) -> None:
        self.faults.append(Fault(code, start, end, message, kind, data))

    def skip_blanks(self, at: int) -> int:
        if self.text[at : at + 1] > " ":
            return at
        m = _BLANK.match(self.text, at)
        return m.end() if m else at

    def bad_first_char(self, start: int) -> tuple[None, None]:
        char = self.text[start : start + 1]
        if not char:
            self.fault("AC109", 0, start, "the backend string is empty", "empty")
        elif char in "+,|":
            self.bad_components(start)
        elif char in ")]}":
            self.fault("AC107", start, start + 1, f"'{char}' closes nothing", "closed_first")
        elif char in ":[(":
            self.fault("AC101", start, start + 1, "no backend before this", "backend_left_out")
        else:
            self.fault("AC111", start, start + 1, f"unexpected {clip(char)!r}", "odd_first_char")
        return None, None

    def bad_backend(self, word: str, start: int, end: int) -> Backend | None:
        """AC101, AC102, AC111: `word` is not a backend; the backend that was meant, if it shows."""
        if word[0].isdigit() or word in (*SECTIONS, *DIMENSIONS) or _BARE_DIMS.fullmatch(word):
            self.fault("AC101", start, end, f"no backend before {clip(word)!r}", "only_dims", word)
            return None
        for name in BACKENDS:
            tail = word[len(name) :].lstrip("-_")
            if word.startswith(name) and _BARE_DIMS.fullmatch(tail):
                message = f"':' missing after {name}"
                self.fault("AC111", start + len(name), end - len(tail), message, "replace", ":")
                return None
        near = nearest(word, BACKENDS)
        message = f"unknown backend {clip(word)!r}"
        self.fault("AC102", start, end, message, "unknown_backend", near)
        after = self.text[self.skip_blanks(end) :][:1]
        return BACKENDS[near] if near and after in (":", "[", ".") else None

    def bad_name(self) -> str | None:
        """What is wrong between the brackets that begin here (nothing, perhaps)."""
        text, start = self.text, self.pos
        end = text.find("]", start)
        if end < 0:
            m = NAME.match(text, self.skip_blanks(start + 1))
            self.pos = m.end() if m else start + 1
            message = "'[' is never closed"
            self.fault("AC107", start, start + 1, message, "insert", self.pos, "]")
            return None
        self.pos = self.skip_blanks(end + 1)
        name = text[start + 1 : end].strip(" \t\r\n")
        if NAME.fullmatch(name):
            return name
        message = f"bad component name {clip(name)!r}" if name else "the component name is empty"
        self.fault("AC112", start + 1, end, message, "bad_name", name)
        return None

    def colon(self, backend: Backend) -> bool:
        """ ":" — whether to read on after it"""
        text, at = self.text, self.pos
        char = text[at : at + 1]
        if char == ":":
            self.pos = at + 1
            return True
        if not char:
            message = f"no dimension after {backend.name}"
            self.fault("AC106", at, at, message, "ends_early", backend, ":d1")
            return False
        if char in "+,|":
            self.bad_components(at)
            return False
        if char in ")]}":
            self.fault("AC107", at, at + 1, f"'{char}' closes nothing", "replace", "")
            return False
        self.fault("AC111", at, at + 1, f"unexpected {clip(char)!r}, ':' expected", "colon")
        self.pos = at + 1
        return not (char.isalnum() or char in "_([{'\"")

    def bad_dim(
        self,
        backend: Backend,
        letter: str,
        digits: str | None,
        start: int,
        found: dict[str, Dim],
    ) -> None:
        """AC103 to AC106, AC110: a letter and its digits are not a dim of this backend."""
        end = self.pos
        word = NAME.match(self.text, start)
        if word and word[0] in BACKENDS:
            self.bad_components(start)
            self.pos = len(self.text)
        elif letter not in DIMENSIONS:
            unused = [x for x in backend.dims if x not in found]
            message = f"unknown dimension letter {letter!r}"
            self.fault("AC103", start, end, message, "unknown_letter", backend, letter, unused)
        elif digits is None:
            name = DIMENSIONS[letter].name
            message = f"size of the {name} dimension ({letter}) missing"
            self.fault("AC106", start, end, message, "missing_size", letter)
            if self.text[end : end + 1] == "*":
                self.pos = end + 1
        elif letter in found:
            message = f"{DIMENSIONS[letter].name} dimension ({letter}) given twice"
            self.fault("AC105", start, end, message, "twice", found[letter])
        else:
            self.bad_size(backend, letter, digits, end - len(digits))

    def bad_size(self, backend: Backend, letter: str, digits: str, at: int) -> None:
        """AC106: `digits` are not a size."""
        if not digits.isascii():
            why = "is not in ASCII digits"
        elif not digits.lstrip("0"):
            why = "is zero"
        elif digits[0] == "0":
            why = "has a leading zero"
        else:
            why = f"is over {MAX_SIZE} (2**20)"
        message = f"size of {letter} {why}"
        self.fault("AC106", at, at + len(digits), message, "bad_size", backend, digits)

    def bad_letter_for(
        self, backend: Backend, letter: str, size: int, found: dict[str, Dim]
    ) -> None:
        """AC104: a dimension over 1 that the backend lacks."""
        message = f"{backend.name} has no {DIMENSIONS[letter].name} dimension ({letter})"
        _, start, end = found[letter]
        self.fault("AC104", start, end, message, "not_of_backend", backend, letter, dict(found))

    def bad_start_of_dims(self, backend: Backend) -> None:
        """The text after the colon begins with no dim."""
        text, at = self.text, self.skip_blanks(self.pos)
        if self.faults and at < len(text):
            return
        if at == len(text):
            message = f"no dimension after {backend.name}:"
            self.fault("AC106", at, at, message, "ends_early", backend, "d1")
            self.pos = at
        elif text[at] == "(":
            if text.find(")", at) < 0:
                self.bad_opening(at)
            elif backend.folding:
                self.bad_section(at + 1)
            else:
                self.fault("AC111", at, at + 1, "unexpected '('", "needless_parentheses")
            self.pos = len(text)

    def bad_opening(self, at: int) -> None:
        """AC107: the '(' at `at` is never closed."""
        self.fault("AC107", at, at + 1, "'(' is never closed", "never_closed", self.pos)

    def bad_section(self, at: int) -> None:
        """AC108: after the '(' stands something other than ``attn:``."""
        at = self.skip_blanks(at)
        if self.text[at : at + 1] == "(":
            self.fault("AC111", at, at + 1, "unexpected '('", "doubled_parentheses")
            return
        m = FIRST_WORD.match(self.text, at)
        end = m.end() if m else at
        word = self.text[at:end]
        near = nearest(word, SECTIONS)
        if FLIPPED.fullmatch(self.text[:MAX_REPAIRED]):
            kind, message = "flipped_sections", "the attn section comes first, then ffn"
        elif near == "attn":
            kind, message = "attn_misspelt", f"'attn:' expected, not {clip(word)!r}"
        elif near == "ffn":
            kind, message = "attn_left_out", "the attn section is missing before ffn"
        else:
            kind = "no_section"
            message = "parentheses hold an attn and a ffn section; attn is missing"
        self.fault("AC108", at, end, message, kind, self.pos)

    def bad_second_section(self) -> None:
        """AC108: after the attn dims stands no ``| ffn :``."""
        text, at = self.text, self.skip_blanks(self.pos)
        char = text[at : at + 1]
        if char == "\\":
            message = "unexpected '\\' (copied from Markdown?)"
            self.fault("AC111", at, at + 1, message, "backslashes")
        elif char == "|":
            start = self.skip_blanks(at + 1)
            m = FIRST_WORD.match(text, start)
            end = m.end() if m else start
            if m and m[0] in BACKENDS:
                self.bad_components(at)
                return
            message = f"'ffn:' expected, not {clip(text[start:end])!r}"
            self.fault("AC108", start, end, message, "ffn_misspelt", m is not None)
        elif char in ("", ")"):
            self.fault("AC108", at, at, "the ffn section is missing", "ffn_left_out")
        elif text.startswith("ffn", at):
            self.fault("AC108", at, at + 3, "'|' missing before ffn", "insert", at, "|")
        elif text.startswith("ffn", self.skip_blanks(at + 1)):
            code = "AC110" if char in "+," else "AC111"
            message = f"unexpected {clip(char)!r}, '|' expected"
            self.fault(code, at, at + 1, message, "replace", "|")
        else:
            self.bad_rest()

    def bad_empty_section(self, section: str) -> None:
        at = self.pos
        if self.faults or self.text[self.skip_blanks(at) :][:1] not in ("", "|", ")"):
            return
        start = self.text.rindex(section, 0, at)
        message = f"the {section} section has no dimension"
        self.fault("AC108", start, at, message, "empty_section", section)

    def bad_rest(self) -> None:
        """What stands where a dim or the end was expected."""
        at = self.skip_blanks(self.pos)
        char = self.text[at]
        if char in "+,|":
            self.bad_components(at)
            return
        code, message = "AC111", f"unexpected {clip(char)!r}"
        if char in "()[]{}":
            code, message = "AC107", f"'{char}' is misplaced"
            if char in ")]}":
                message = f"'{char}' closes nothing"
        elif char == "\\":
            message += " (copied from Markdown?)"
        self.fault(code, at, at + 1, message, "odd_rest", self.pos)

    def bad_components(self, at: int) -> None:
        """AC110: '+', ',' or '|' between components."""
        message = f"{self.text[at]!r}: one engine's backend holds one component"
        self.fault("AC110", at, at + 1, message, "components")

    def bad_world(self, start: int, world: int) -> None:
        message = f"world size {world} is over {MAX_SIZE} (2**20)"
        self.fault("AC106", self.skip_blanks(start), len(self.text), message, "world")

    def bad_mesh(self, backend: Backend, sizes: Sizes, broken: list[str], e: Dim) -> None:
        self.fault("AC204", e.start, e.end, "; ".join(broken), "mesh", backend, sizes)

    def bad_folding(self, backend: Backend, opening: re.Match[str]) -> None:
        start, end = self.skip_blanks(opening.start()), len(self.text.rstrip())
        message = f"{backend.name} has no attn/ffn form"
        self.fault("AC205", start, end, message, "no_folding", backend, opening.end())

    def bad_ffn_p(self, dim: Dim, p: int) -> None:
        message = f"p is {p} in attn and {dim.size} in ffn"
        self.fault("AC201", dim.start, dim.end, message, "ffn_p", p)

    def bad_ffn_world(self, backend: Backend, ffn: dict[str, Dim], world: int, s: Sizes) -> None:
        message = f"world size is {s.world} in attn and {world} in ffn"
        self.fault("AC202", *_extent(ffn), message, "ffn_world", backend, s, ffn["d"])

    def bad_ffn_d(self, backend: Backend, ffn: dict[str, Dim], s: Sizes) -> None:
        message = f"d of ffn would be {s.world} / (p{s.p} * t{s.etp} * e{s.e}), which is not whole"
        self.fault("AC203", *_extent(ffn), message, "ffn_mesh", backend, s)

    def bad_letter_in_section(self, section: str, letter: str, dim: Dim) -> None:
        name = DIMENSIONS[letter].name
        other = "ffn" if section == "attn" else "attn"
        message = f"{section} has no {name} dimension ({letter}); it belongs in {other}"
        self.fault("AC206", dim.start, dim.end, message, "not_of_section")


def _extent(dims: dict[str, Dim]) -> tuple[int, int]:
    return min(d.start for d in dims.values()), max(d.end for d in dims.values())


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `word` may be a slip for; None where none is near."""
    word = unicodedata.normalize("NFKC", word[:40]).lower()
    close = difflib.get_close_matches(word, list(known), n=1)
    return close[0] if close else None
