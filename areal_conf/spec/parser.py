"""The language of backend strings: from text to sizes, or to every fault with its span.

    spec     = backend [ "[" name "]" ] ":" ( dims | moe )
    backend  = a name in the table of backends
    dims     = dim { dim }                     any order, each letter at most once
    dim      = ( "d" | "t" | "p" | "c" | "e" ) size
    moe      = "(" section ")" | section       parentheses both or neither
    section  = "attn" ":" dims "|" "ffn" ":" dims
    size     = a decimal integer from 1, no leading zero, ASCII digits only
    name     = [A-Za-z_][A-Za-z0-9_]*

    pattern  = spec in which a size may be "*" [ "@" size ]

Blanks (space, tab, line break) between tokens mean nothing.

Two readers share this grammar. `_read` takes well-formed text in one regular expression and is what
good strings meet. `_Parser`, one method per rule, runs where that says no: it collects every fault
with its span (the methods named ``bad_...``) and is the reference that `_read` is tested against.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn

from areal_conf.errors import AllocationError, clip
from areal_conf.spec.backends import (
    BACKENDS,
    DIMENSIONS,
    MAX_SIZE,
    OLD_LETTERS,
    SECTIONS,
    Backend,
    Sizes,
    broken_rules,
    legal_expert_sizes,
    with_dimension,
)

_B = r"[ \t\r\n]*"
_MOE = re.compile(rf"{_B}(?:(\(){_B})?attn{_B}:")
_FFN = re.compile(rf"\|{_B}ffn{_B}:")
_DIM = re.compile(rf"{_B}([A-Za-z])(?:{_B}(\d+))?")
_DIM_OR_STAR = re.compile(rf"{_B}([A-Za-z])(?:{_B}(\d+|\*))?")
_COUNT = re.compile(rf"{_B}@{_B}([^\s()|]*)")
_CLOSE = re.compile(rf"{_B}\)")
_END = re.compile(rf"{_B}\Z")
_BLANK = re.compile(_B)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DIMS = rf"(?:[dtpce]{_B}[1-9][0-9]{{0,6}}{_B})+"
_WELL_FORMED = re.compile(
    rf"{_B}([a-z]\w*){_B}(?:\[{_B}([A-Za-z_]\w*){_B}\]{_B})?:{_B}"
    rf"(?:({_DIMS})|(?:(\(){_B})?attn{_B}:{_B}({_DIMS})\|{_B}ffn{_B}:{_B}({_DIMS})(?:(\)){_B})?)\Z",
    re.ASCII,
)
_PAIR = re.compile(rf"([a-z]){_B}([0-9]+)")
_FIRST_WORD = re.compile(r"(\w+)[^\s:：\[\](){}|+,.;=\\]*")
_BARE_DIMS = re.compile(r"(?:[a-z](?:[0-9]+|\*))+(?:@[0-9]*)?")
_SIZE_BEHIND = re.compile(r"[^\w\s]{1,2}([1-9][0-9]*)", re.ASCII)
_REVERSED = re.compile(rf"(?:[1-9][0-9]*[dtpce]{_B})+(?:[|)]|\Z)", re.ASCII)
_SECTION = re.compile(rf"{_B}(?:(\(){_B})?((?:attn|ffn)\b|[A-Za-z]{{2,}}(?={_B}:))", re.ASCII)

_PATTERN = "belongs to patterns: list them by `areal-conf layouts`, or sweep them by "
_PATTERN += "-m hydra/sweeper=areal_layouts"
_SHELL = "in a shell, put the whole string in quotes: there | ends a command"
_MAX_FAULTS = 32
_MAX_REPAIRED = 400
_MOST_FIXES = 3
"""Texts that a hint names."""
_MAX_REPAIRS = 150
"""Texts tried for the hints of one string: many faults, each with several cures, multiply."""
_EXAMPLES = {
    "sglang": "sglang:d2t4",
    "vllm": "vllm:d2t4",
    "fsdp": "fsdp:d8",
    "megatron": "megatron:d2p2t4",
    "archon": "archon:d8",
}
_FOLDED_EXAMPLE = "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)"

Span = tuple[int, int]


class Spec(NamedTuple):
    """A backend string, read."""

    backend: Backend
    name: str | None
    sizes: Sizes


STAR = 0
"""The size that a pattern leaves open (``*``)."""


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


class _Dim(NamedTuple):
    size: int
    start: int
    end: int


class _Fault(NamedTuple):
    """One thing wrong: `fixes` are candidate texts, of which only the valid ones are shown."""

    code: str
    start: int
    end: int
    message: str
    fixes: tuple[str, ...] = ()
    advice: str = ""


def parse_spec(text: str) -> Spec:
    """Read one backend string.

    Raises:
        AllocationError: with every fault in `errors`, syntax by position, then AC2xx by number.
    """
    spec = _read(text)
    if spec is None:
        parser = _Parser(text)
        spec = parser.spec()
        if spec is None:
            _fail(parser)
    return spec


def dimension_span(text: str, dim: str) -> Span:
    """Where a dimension stands in the backend string `text`: its letter and size.

    `dim` is a letter, or ``"etp"`` for t of ffn; p and d are those of attn. All of `text` where the
    dimension is not written (its size is 1), and for an empty `dim`.
    """
    start = text.find(":") + 1
    ffn = _FFN.search(text)
    if ffn is not None and dim in ("e", "etp"):
        start, end = ffn.end(), len(text)
    else:
        end = ffn.start() if ffn is not None else len(text)
    for m in _PAIR.finditer(text, start, end):
        if m.group(1) == dim or (dim == "etp" and ffn and m.group(1) == "t"):
            return m.span()
    return 0, len(text)


def parse_pattern(text: str) -> Pattern:
    """Read one layout pattern such as ``fsdp:d*t*@8``. A spec is a pattern too.

    Raises:
        AllocationError: with every fault in `errors`, as in `parse_spec`.
    """
    parser = _PatternParser(text)
    pattern = parser.pattern()
    if pattern is None:
        _fail(parser)
    return pattern


def _read(text: str) -> Spec | None:
    """The meaning of a well-formed and valid `text`, at once; None for anything else."""
    m = _WELL_FORMED.match(text)
    if m is None:
        return None
    word, name, plain, opened, attn, ffn, closed = m.groups()
    backend = BACKENDS.get(word)
    if backend is None:
        return None
    pairs = _PAIR.findall(plain or attn)
    dims = dict(pairs)
    get = dims.get
    d, t, p, c = int(get("d", 1)), int(get("t", 1)), int(get("p", 1)), int(get("c", 1))
    world = d * t * p * c
    if world > MAX_SIZE or len(dims) != len(pairs):
        return None
    if plain:
        e, etp = int(get("e", 1)), 1
        if world % (p * e):
            return None
        for letter, size in pairs:
            if letter not in backend.dims and size != "1":
                return None
    else:
        if not backend.folding or (opened is None) != (closed is None) or get("e", "1") != "1":
            return None
        ffn_pairs = _PAIR.findall(ffn)
        ffn_dims = dict(ffn_pairs)
        get = ffn_dims.get
        etp, e = int(get("t", 1)), int(get("e", 1))
        rest = p * etp * e
        if (
            len(ffn_dims) != len(ffn_pairs)
            or int(get("p", p)) != p
            or get("c", "1") != "1"
            or world % rest
            or int(get("d", world // rest)) * rest != world
        ):
            return None
    sizes = Sizes(d, t, p, c, e, etp)
    if backend.mesh is not None and backend.mesh(sizes):
        return None
    return Spec(backend, name, sizes)


class _Parser:
    __slots__ = ("faults", "pos", "repairs", "text")

    dim_rule = _DIM

    def __init__(self, text: str) -> None:
        self.text = text
        self.repairs = _MAX_REPAIRS
        self.pos = 0
        self.faults: list[_Fault] = []

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
        if _END.match(text):
            self.fault("AC109", 0, len(text), "the backend string is empty", *_examples())
            return None, None
        start = self.skip_blanks(0)
        m = _FIRST_WORD.match(text, start)
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
        if section and _nearest(section[2], SECTIONS):
            if section[1] and self.text.find(")", start) < 0:
                self.bad_opening(section.start(1))
            self.bad_section(section.start(2))
            return None
        if not (dims := self.dims(backend)) and len(self.faults) == faults:
            self.bad_start_of_dims(backend)
        self.end()
        return None if self.faults else self.unfolded(backend, dims, start)

    def unfolded(self, backend: Backend, dims: dict[str, _Dim], start: int) -> Sizes:
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
        if ffn_at := _FFN.match(self.text, self.skip_blanks(self.pos)):
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

    def dims(self, backend: Backend, in_section: bool = False) -> dict[str, _Dim]:
        """dims = dim { dim }, dim = letter size"""
        text = self.text
        # Inside a section, and for a backend that has none, which letters count is said later.
        allowed = "dtpce" if in_section else backend.dims
        found: dict[str, _Dim] = {}
        while m := self.dim_rule.match(text, self.pos):
            letter, digits = m.groups()
            self.pos = m.end()
            if (
                digits
                and digits[0] != "0"
                and len(digits) < 8
                and digits.isascii()
                and letter in DIMENSIONS
                and letter not in found
                and (size := STAR if digits == "*" else int(digits)) <= MAX_SIZE
            ):
                found[letter] = _Dim(size, m.start(1), m.end())
                if size != 1 and letter not in allowed:
                    self.bad_letter_for(backend, letter, size, found)
            elif in_section and text.startswith("ffn", m.start(1)):
                self.pos = m.start(1)
                break
            else:
                self.bad_dim(backend, m, found)
            if len(self.faults) >= _MAX_FAULTS:
                break
        return found

    def end(self) -> None:
        """nothing but blanks up to the end of the text"""
        if not _END.match(self.text, self.pos) and len(self.faults) < _MAX_FAULTS:
            self.bad_rest()

    def at_end(self) -> bool:
        """Whether nothing is left to read but what may end the text."""
        return _END.match(self.text, self.pos) is not None

    # -- meaning of the attn/ffn form ----------------------------------------------------------

    def folded(
        self,
        backend: Backend,
        attn: dict[str, _Dim],
        ffn: dict[str, _Dim],
        opening: re.Match[str],
    ) -> Sizes | None:
        """Sizes of the attn/ffn form: one world, dealt twice."""
        if not backend.folding:
            self.bad_folding(backend, opening)
            return None
        get_a = {x: attn[x].size if x in attn else 1 for x in SECTIONS["attn"]}
        get_f = {x: ffn[x].size for x in SECTIONS["ffn"] if x in ffn}
        p = get_a["p"]
        etp, e, ffn_p = get_f.get("t", 1), get_f.get("e", 1), get_f.get("p", p)
        sizes = Sizes(get_a["d"], get_a["t"], p, get_a["c"], e, etp)
        world = sizes.world
        if world > MAX_SIZE:
            self.bad_world(opening.start(), world)
            return None
        if ffn_p != p:
            self.bad_ffn_p(ffn["p"], p)
        if "d" in get_f:
            if (other := get_f["d"] * ffn_p * etp * e) != world:
                self.bad_ffn_world(backend, ffn, other, sizes)
        elif world % (p * etp * e):
            self.bad_ffn_d(backend, ffn, sizes)
        if not self.faults and (broken := broken_rules(backend, sizes)):
            self.bad_folded_mesh(backend, ffn, sizes, broken)
        self.check_letters(attn, ffn)
        return sizes

    def check_letters(self, attn: dict[str, _Dim], ffn: dict[str, _Dim]) -> None:
        """Each section has its own letters; one it lacks may stand there at size 1."""
        for section, dims in (("attn", attn), ("ffn", ffn)):
            for letter, dim in dims.items():
                if dim.size != 1 and letter not in SECTIONS[section]:
                    self.bad_letter_in_section(section, letter, dim)

    def takes(self, text: str) -> bool:
        """Whether `text`, offered in a hint, is valid where this text stands."""
        return _read(text) is not None

    # -- what is wrong ---------------------------------------------------------------------------

    def fault(
        self, code: str, start: int, end: int, message: str, *fixes: str, advice: str = ""
    ) -> None:
        if len(self.text) > _MAX_REPAIRED:
            fixes = ()
        self.faults.append(_Fault(code, start, end, message, fixes, advice))

    def swap(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]

    def bad_first_char(self, start: int) -> tuple[None, None]:
        char, rest = self.text[start], self.text[start:].strip()
        if char in "+,|":
            self.bad_components(start)
        elif char in ")]}":
            self.fault(
                "AC107", start, start + 1, f"'{char}' closes nothing", rest[1:], *_examples()
            )
        elif char in ":[(":
            prefixed = [b + ":" * (char == "(") + rest for b in BACKENDS]
            fixes = sorted(prefixed, key=lambda x: not x.startswith("fsdp"))
            self.fault("AC101", start, start + 1, "no backend before this", *fixes)
        else:
            self.fault("AC111", start, start + 1, f"unexpected {clip(char)!r}", rest[1:])
        return None, None

    def bad_backend(self, word: str, start: int, end: int) -> Backend | None:
        text = self.text
        after = text[self.skip_blanks(end) :][:1]
        rest = text[start:]
        if word[0].isdigit() or word in (*SECTIONS, *DIMENSIONS) or _BARE_DIMS.fullmatch(word):
            rest = f"d{rest}" if word.isdigit() else rest
            new = "".join(OLD_LETTERS.get(c, c) for c in rest[:_MAX_REPAIRED])
            fixes = [
                f"{b}:{x}" for x in (rest, new) for b in ("fsdp", "sglang", "megatron", *BACKENDS)
            ]
            fixes = list(dict.fromkeys(fixes))
            self.fault("AC101", start, end, f"no backend before {clip(word)!r}", *fixes)
            return None
        for name in BACKENDS:
            tail = word[len(name) :].lstrip("-_")
            if word.startswith(name) and _BARE_DIMS.fullmatch(tail):
                at, to = start + len(name), end - len(tail)
                self.fault("AC111", at, to, f"':' missing after {name}", self.swap(at, to, ":"))
                return None
        near = _nearest(word, BACKENDS)
        others = [self.swap(start, end, b) for b in ([near] if near else BACKENDS)]
        self.fault(
            "AC102",
            start,
            end,
            f"unknown backend {clip(word)!r}",
            *others,
            advice=f"known backends: {', '.join(BACKENDS)}",
        )
        return BACKENDS[near] if near and after in (":", "[", ".") else None

    def bad_name(self) -> str | None:
        """What is wrong between the brackets that begin here (nothing, perhaps)."""
        text, start = self.text, self.pos
        end = text.find("]", start)
        if end < 0:
            m = _NAME.match(text, self.skip_blanks(start + 1))
            at = m.end() if m else start + 1
            self.fault("AC107", start, start + 1, "'[' is never closed", self.swap(at, at, "]"))
            self.pos = at
            return None
        self.pos = self.skip_blanks(end + 1)
        name = text[start + 1 : end].strip(" \t\r\n")
        if _NAME.fullmatch(name):
            return name
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "actor"
        plain = plain if _NAME.match(plain) else f"_{plain}"
        self.fault(
            "AC112",
            start + 1,
            end,
            f"bad component name {clip(name)!r}" if name else "the component name is empty",
            self.swap(start + 1, end, plain),
            advice="a name is letters, digits and '_', and begins with no digit",
        )
        return None

    def colon(self, backend: Backend) -> bool:
        """ ":" — whether to read on after it"""
        text, at = self.text, self.pos
        char = text[at : at + 1]
        if char == ":":
            self.pos = at + 1
            return True
        if not char:
            fixes = (f"{text.rstrip()}:d1", _example(backend))
            self.fault("AC106", at, at, f"no dimension after {backend.name}", *fixes)
            return False
        if char in "+,|":
            self.bad_components(at)
            return False
        if char in ")]}":
            self.fault("AC107", at, at + 1, f"'{char}' closes nothing", self.swap(at, at + 1, ""))
            return False
        replaced = self.swap(at, at + 1, ":")
        before = self.swap(at, at, ":")
        shown = clip(char)
        self.fault("AC111", at, at + 1, f"unexpected {shown!r}, ':' expected", replaced, before)
        self.pos = at + 1
        return not (char.isalnum() or char in "_([{'\"")

    def bad_dim(self, backend: Backend, m: re.Match[str], found: dict[str, _Dim]) -> None:
        letter, digits = m.groups()
        text, start, end = self.text, m.start(1), m.end()
        word = _NAME.match(text, start)
        if word and word[0] in BACKENDS:
            self.bad_components(start)
            self.pos = len(text)
        elif letter not in DIMENSIONS:
            self.bad_letter(backend, letter, start, end, found)
        elif digits is None:
            self.bad_missing_size(letter, start, end)
        elif letter in found:
            first = found[letter]
            fixes = (self.swap(start, end, ""), self.swap(first.start, first.end, ""))
            name = DIMENSIONS[letter].name
            self.fault("AC105", start, end, f"{name} dimension ({letter}) given twice", *fixes)
        else:
            at = m.start(2)
            plain = digits.lstrip("0")
            if not digits.isascii():
                why = f"size of {letter} is not in ASCII digits"
                fix = self.swap(at, end, "".join(str(unicodedata.decimal(c)) for c in digits))
            elif not plain:
                why, fix = f"size of {letter} is zero", self.swap(at, end, "1")
            elif digits[0] == "0":
                why, fix = f"size of {letter} has a leading zero", self.swap(at, end, plain)
            else:
                why = f"size of {letter} is over {MAX_SIZE} (2**20)"
                fix = self.swap(at, end, "8")
            self.fault("AC106", at, end, why, fix, _example(backend))

    def bad_letter(
        self, backend: Backend, letter: str, start: int, end: int, found: dict[str, _Dim]
    ) -> None:
        new = OLD_LETTERS.get(letter.lower()) or letter.lower()
        size = self.text[start + 1 : end]
        if new in DIMENSIONS:
            why = "letters are lower case" if letter.lower() == new else "its old name"
            advice = f"the {DIMENSIONS[new].name} dimension is {new} ({letter}: {why})"
            fixes = [self.swap(start, end, new + size), self.swap(start, end, "")]
        else:
            advice = "dimensions: " + ", ".join(f"{x} {DIMENSIONS[x].name}" for x in backend.dims)
            unused = [x for x in backend.dims if x not in found]
            fixes = [self.swap(start, end, x + size) for x in unused]
            fixes.append(self.swap(start, end, ""))
        self.fault(
            "AC103", start, end, f"unknown dimension letter {letter!r}", *fixes, advice=advice
        )

    def bad_missing_size(self, letter: str, start: int, end: int) -> None:
        text, advice = self.text, ""
        fixes = [self.swap(start, end, f"{letter}1")]
        if text[end : end + 1] == "*":
            advice = f"'*' {_PATTERN}"
            fixes = [self.swap(start, end + 1, f"{letter}1")]
            self.pos = end + 1
        elif behind := _SIZE_BEHIND.match(text, end):  # d=4, d-4
            fixes = [self.swap(end, behind.start(1), "")]
        elif text[end : end + 1] == "p":  # dp4, tp2: names of code and papers
            fixes.insert(0, self.swap(end, end + 1, ""))
        name = DIMENSIONS[letter].name
        message = f"size of the {name} dimension ({letter}) missing"
        self.fault("AC106", start, end, message, *fixes, advice=advice)

    def bad_letter_for(
        self, backend: Backend, letter: str, size: int, found: dict[str, _Dim]
    ) -> None:
        """AC104: a dimension over 1 that the backend lacks."""
        dim = found[letter]
        have = with_dimension(letter, backend.role) or with_dimension(letter)
        word = self.text.find(backend.name)
        fixes = []
        dropped = self.swap(dim.start, dim.end, "")
        if letter == "e":
            fixes.append(dropped)
        else:
            for other in backend.dims:
                if other not in found and _DIM.match(dropped):
                    fixes.append(self.swap(dim.start, dim.end, f"{other}{size or '*'}"))
            if "d" in found:
                d = found["d"]
                grown = f"d{d.size * size or '*'}"
                fixes.insert(0, self._swap_both(d, grown, dim, ""))
            else:
                fixes.insert(0, self.swap(dim.start, dim.end, f"d{size or '*'}"))
        if word >= 0:
            fixes += [self.swap(word, word + len(backend.name), name) for name in have]
        self.fault(
            "AC104",
            dim.start,
            dim.end,
            f"{backend.name} has no {DIMENSIONS[letter].name} dimension ({letter})",
            *fixes,
            advice=f"backends with {letter}: {', '.join(have)}; "
            f"{backend.name} has {' '.join(backend.dims)}",
        )

    def _swap_both(self, first: _Dim, new: str, second: _Dim, other: str) -> str:
        (a, x), (b, y) = sorted([(first, new), (second, other)], key=lambda pair: pair[0].start)
        t = self.text
        return t[: a.start] + x + t[a.end : b.start] + y + t[b.end :]

    def bad_start_of_dims(self, backend: Backend) -> None:
        """The text after the colon begins with no dim."""
        text, at = self.text, self.skip_blanks(self.pos)
        if self.faults and at < len(text):
            return
        if at == len(text):
            fixes = (text.rstrip() + "d1", _example(backend))
            self.fault("AC106", at, at, f"no dimension after {backend.name}:", *fixes)
            self.pos = at
        elif text[at] == "(":
            if text.find(")", at) < 0:
                self.bad_opening(at)
            elif backend.folding:
                self.bad_section(at + 1)
            else:
                inner = text[at + 1 : text.rindex(")")]
                self.fault("AC111", at, at + 1, "unexpected '('", text[:at] + inner)
            self.pos = len(text)

    def bad_opening(self, at: int) -> None:
        """AC107: the '(' at `at` is never closed."""
        closed = (self.text.rstrip() + ")", self.swap(self.pos, self.pos, ")"))
        fixes = (*closed, self.swap(at, at + 1, ""))
        self.fault("AC107", at, at + 1, "'(' is never closed", *fixes)

    def bad_section(self, at: int) -> None:
        """AC108: after the '(' stands something other than ``attn:``."""
        at = self.skip_blanks(at)
        if self.text[at : at + 1] == "(":
            single = self.swap(at, at + 1, "").replace("))", ")")
            self.fault("AC111", at, at + 1, "unexpected '('", single)
            return
        m = _FIRST_WORD.match(self.text, at)
        end = m.end() if m else at
        word = self.text[at:end]
        fixes = [_FOLDED_EXAMPLE]
        flipped = re.fullmatch(
            rf"(.*?:{_B}\(?{_B})(ffn{_B}:.*)\|(.*?attn{_B}:.*?)(\)?{_B})",
            self.text[:_MAX_REPAIRED],
            re.DOTALL,
        )
        if flipped:
            head, ffn, attn, close = flipped.groups()
            fixes.insert(0, f"{head}{attn}|{ffn}{close}")
            message = "the attn section comes first, then ffn"
        elif _nearest(word, SECTIONS) == "attn":
            fixes[:0] = [self.swap(at, end, "attn"), self.swap(at, end, "attn:")]
            message = f"'attn:' expected, not {clip(word)!r}"
        elif _nearest(word, SECTIONS) == "ffn":
            sizes = [int(size[:7]) for _, size in _PAIR.findall(self.text[end:_MAX_REPAIRED])]
            fixes.insert(0, self.swap(at, end, f"attn:d{math.prod(sizes)}|ffn"))
            message = "the attn section is missing before ffn"
        else:
            inner = self.text[at:].rstrip().rstrip(")")
            fixes.insert(0, self.text[: self.pos] + inner)
            message = "parentheses hold an attn and a ffn section; attn is missing"
        self.fault("AC108", at, end, message, *fixes)

    def bad_second_section(self) -> None:
        """AC108: after the attn dims stands no ``| ffn :``."""
        text, at = self.text, self.skip_blanks(self.pos)
        char = text[at : at + 1]
        if char == "\\":
            bare = text.replace("\\", "")
            self.fault("AC111", at, at + 1, "unexpected '\\' (copied from Markdown?)", bare)
        elif char == "|":
            word_at = self.skip_blanks(at + 1)
            m = _FIRST_WORD.match(text, word_at)
            end = m.end() if m else word_at
            if m and m[0] in BACKENDS:
                self.bad_components(at)
                return
            prefixed = self.swap(word_at, word_at, "ffn:")
            renamed = [self.swap(word_at, end, word) for word in ("ffn", "ffn:", "ffn:e1")]
            fixes = (*(renamed[:2] if m else renamed), prefixed, _FOLDED_EXAMPLE)
            shown = clip(text[word_at:end])
            self.fault("AC108", word_at, end, f"'ffn:' expected, not {shown!r}", *fixes)
        elif char in ("", ")"):
            with_ffn = self.swap(at, at, "|ffn:e1")
            message, advice = "the ffn section is missing", "" if "(" in text else _SHELL
            self.fault("AC108", at, at, message, with_ffn, _FOLDED_EXAMPLE, advice=advice)
        elif text.startswith("ffn", at):
            self.fault("AC108", at, at + 3, "'|' missing before ffn", self.swap(at, at, "|"))
        elif text.startswith("ffn", self.skip_blanks(at + 1)):
            code = "AC110" if char in "+," else "AC111"
            message = f"unexpected {clip(char)!r}, '|' expected"
            self.fault(code, at, at + 1, message, self.swap(at, at + 1, "|"))
        else:
            self.bad_rest()

    def bad_empty_section(self, section: str) -> None:
        at = self.pos
        if self.faults or self.text[self.skip_blanks(at) :][:1] not in ("", "|", ")"):
            return
        start = self.text.rindex(section, 0, at)
        self.fault(
            "AC108",
            start,
            at,
            f"the {section} section has no dimension",
            self.swap(at, at, "d1" if section == "attn" else "e1"),
            _FOLDED_EXAMPLE,
        )

    def bad_rest(self) -> None:
        """What stands where a dim or the end was expected."""
        text, at = self.text, self.skip_blanks(self.pos)
        char = text[at]
        joins = text[at - 1].isdigit() and text[at + 1 : at + 2].isdigit()
        without = "" if joins else self.swap(at, at + 1, "")
        code, what, advice = "AC111", f"unexpected {clip(char)!r}", ""
        fixes = [without, text[:at], self.swap(at, at, "d")]
        if char in "+,|":
            self.bad_components(at)
            return
        if char in "()[]{}":
            code, what = (
                "AC107",
                f"'{char}' {'closes nothing' if char in ')]}' else 'is misplaced'}",
            )
        elif char == "\\":
            what += " (copied from Markdown?)"
            fixes = [text.replace("\\", ""), text[:at]]
        elif char == "@":
            fixes, advice = [text[:at]], f"'@' {_PATTERN}"
        elif _REVERSED.match(text, at):  # 4d2t
            fixes = [text[:at] + re.sub("(?<![0-9])([0-9]+)([a-z])", r"\2\1", text[at:])]
        elif char.isdigit() and text[self.pos - 1].isdigit():  # d1 6
            fixes = [text[: self.pos] + text[at:], text[:at]]
        self.fault(code, at, at + 1, what, *fixes, advice=advice)

    def bad_components(self, at: int) -> None:
        """AC110: '+', ',' or '|' between components."""
        short = self.text[:_MAX_REPAIRED]
        parts = [part.strip() for part in re.split(r"[+,]|\|(?!\s*ffn)|\s(?=[a-z]+:)", short)]
        named = [part if ":" in part else f"fsdp:{part}" for part in parts if part]
        advice = "give each engine its own backend field"
        joined = self.text[:at].rstrip() + self.text[at + 1 :].lstrip()
        if self.takes(joined):  # fsdp:d8,t2
            named, advice = [joined], ""
        self.fault(
            "AC110",
            at,
            at + 1,
            f"{self.text[at]!r}: one engine's backend holds one component",
            *named,
            advice=advice,
        )

    def bad_world(self, start: int, world: int) -> None:
        message = f"world size {world} is over {MAX_SIZE} (2**20)"
        self.fault("AC106", self.skip_blanks(start), len(self.text), message, *_examples())

    def bad_mesh(self, backend: Backend, sizes: Sizes, broken: list[str], e: _Dim) -> None:
        legal = legal_expert_sizes(backend, sizes)
        near = sorted(legal, key=lambda x: (abs(x - sizes.e), x))
        fixes = [self.swap(e.start, e.end, f"e{x}") for x in near]
        self.fault(
            "AC204",
            e.start,
            e.end,
            "; ".join(broken),
            *fixes,
            advice=f"legal e here: {_listed(legal)}",
        )

    def bad_folded_mesh(
        self, backend: Backend, ffn: dict[str, _Dim], sizes: Sizes, broken: list[str]
    ) -> None:
        fixes, advice = self.other_ffn(backend, ffn, sizes)
        self.fault("AC204", *_extent(ffn), "; ".join(broken), *fixes, advice=advice)

    def other_ffn(self, backend: Backend, ffn: dict[str, _Dim], s: Sizes) -> tuple[list[str], str]:
        """The text with every other e in its ffn section, nearest first, and what to say of it.

        The expert tensor size stays as it is, unless no e goes with it.
        """
        start, end = _extent(ffn)
        etp, legal = s.etp, legal_expert_sizes(backend, s)
        advice = f"legal e with etp {etp}: {_listed(legal)}"
        if not legal:
            advice = f"etp {etp} goes with no e: here it is 1"
            etp, legal = 1, legal_expert_sizes(backend, s._replace(etp=1))
        near = sorted(legal, key=lambda x: (abs(x - s.e), x))
        sections = (f"t{etp}" * (etp > 1) + f"e{x}" for x in near if (etp, x) != (s.etp, s.e))
        return [self.swap(start, end, section) for section in sections], advice

    def bad_folding(self, backend: Backend, opening: re.Match[str]) -> None:
        start = self.skip_blanks(opening.start())
        folding = [b.name for b in BACKENDS.values() if b.folding]
        word = self.text.index(backend.name)
        fixes = [self.swap(word, word + len(backend.name), name) for name in folding]
        attn = self.text[opening.end() : self.text.index("|")].strip()
        fixes.append(self.text[:start] + attn)
        self.fault(
            "AC205",
            start,
            len(self.text.rstrip()),
            f"{backend.name} has no attn/ffn form",
            *fixes,
            advice=f"backends with it: {', '.join(folding)}",
        )

    def bad_ffn_p(self, dim: _Dim, p: int) -> None:
        message = f"p is {p} in attn and {dim.size} in ffn"
        fixes = (self.swap(dim.start, dim.end, f"p{p}"), self.swap(dim.start, dim.end, ""))
        self.fault("AC201", dim.start, dim.end, message, *fixes, advice="p of ffn may be left out")

    def bad_ffn_world(self, backend: Backend, ffn: dict[str, _Dim], world: int, s: Sizes) -> None:
        d = ffn["d"]
        fixes, advice = self.other_ffn(backend, ffn, s)
        rest = s.p * s.etp * s.e
        if s.world % rest == 0:
            derived = [self.swap(d.start, d.end, new) for new in (f"d{s.world // rest}", "")]
            fixes = [*derived, *fixes]
            advice = f"d of ffn may be left out: it is derived; {advice}"
        message = f"world size is {s.world} in attn and {world} in ffn"
        self.fault("AC202", *_extent(ffn), message, *fixes, advice=advice)

    def bad_ffn_d(self, backend: Backend, ffn: dict[str, _Dim], s: Sizes) -> None:
        fixes, advice = self.other_ffn(backend, ffn, s)
        message = f"d of ffn would be {s.world} / (p{s.p} * t{s.etp} * e{s.e}), which is not whole"
        self.fault("AC203", *_extent(ffn), message, *fixes, advice=advice)

    def bad_letter_in_section(self, section: str, letter: str, dim: _Dim) -> None:
        name = DIMENSIONS[letter].name
        other = "ffn" if section == "attn" else "attn"
        self.fault(
            "AC206",
            dim.start,
            dim.end,
            f"{section} has no {name} dimension ({letter}); it belongs in {other}",
            self.swap(dim.start, dim.end, ""),
            _FOLDED_EXAMPLE,
        )

    def skip_blanks(self, at: int) -> int:
        m = _BLANK.match(self.text, at)
        return m.end() if m else at


class _PatternParser(_Parser):
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

    def unfolded(self, backend: Backend, dims: dict[str, _Dim], start: int) -> Sizes:
        self.sections = [_sizes(dims)]
        if self.is_open():
            self.check_world(start)
            return Sizes()
        return super().unfolded(backend, dims, start)

    def folded(
        self,
        backend: Backend,
        attn: dict[str, _Dim],
        ffn: dict[str, _Dim],
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

    def takes(self, text: str) -> bool:
        return _PatternParser(text).pattern() is not None

    def bad_count(self, count: re.Match[str]) -> None:
        start, end = count.span(1)
        what = f"not {clip(count[1])!r}" if count[1] else "and nothing stands there"
        self.fault(
            "AC602",
            start,
            end,
            f"after '@' a number of GPUs from 1 to {MAX_SIZE} is expected, {what}",
            self.swap(start, end, "8"),
        )


def _sizes(dims: dict[str, _Dim]) -> dict[str, int]:
    return {letter: dim.size for letter, dim in dims.items()}


def _extent(dims: dict[str, _Dim]) -> Span:
    return min(d.start for d in dims.values()), max(d.end for d in dims.values())


def _listed(values: list[int]) -> str:
    shown = ", ".join(map(str, values[:12]))
    return shown + (", …" if len(values) > 12 else "")


def _example(backend: Backend) -> str:
    return _EXAMPLES.get(backend.name, f"{backend.name}:d8")


def _examples() -> tuple[str, ...]:
    return tuple(_EXAMPLES[name] for name in ("fsdp", "sglang", "megatron"))


def _nearest(word: str, known: Iterable[str]) -> str | None:
    word = unicodedata.normalize("NFKC", word[:40]).lower()
    close = difflib.get_close_matches(word, list(known), n=1)
    return close[0] if close else None


# -- from faults to the error --------------------------------------------------------------------


def _fail(parser: _Parser) -> NoReturn:
    text, faults = parser.text, parser.faults
    faults.sort(key=lambda f: (f.code if f.code >= "AC2" else "", f.start, f.code))
    errors = [
        AllocationError(f.code, f.message, text=text, span=(f.start, f.end), hint=_hint(parser, f))
        for f in faults
    ]
    raise errors[0].followed_by(errors[1:])


def _hint(parser: _Parser, fault: _Fault) -> str:
    """What to write instead: only texts that parse are offered."""
    fixes = list(_first_valid(parser, fault.fixes)) or list(_examples())
    if len(fixes) > 1:
        hint = f"write {', '.join(fixes[:-1])} or {fixes[-1]}"
    else:
        hint = f"write {fixes[0]}"
    if fault.advice.endswith(_PATTERN):
        return f"{fault.advice}; for one layout {hint}"
    return f"{hint} ({fault.advice})" if fault.advice else hint


def _first_valid(parser: _Parser, fixes: tuple[str, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for mend in (_as_is, _ascii_form, _repaired):
        for fix in fixes:
            good = mend(parser, fix.strip())
            if good and good not in seen and good != parser.text:
                seen.add(good)
                yield good
                if len(seen) == _MOST_FIXES:
                    return
        if seen:
            return


def _as_is(parser: _Parser, text: str) -> str | None:
    return text if parser.takes(text) else None


def _ascii_form(parser: _Parser, text: str) -> str | None:
    """`text` with full-width signs and digits (of an input method) as their ASCII forms."""
    return _as_is(parser, unicodedata.normalize("NFKC", text))


def _repaired(parser: _Parser, text: str, depth: int = 4) -> str | None:
    """`text` with its other faults mended too, first fault first."""
    parser.repairs -= 1
    reader = type(parser)(text)
    if reader.spec():
        return text
    # Each mending takes away a fault or two: far more of them are no slip of the hand.
    if parser.repairs <= 0 or not 0 < len(reader.faults) <= 2 * depth:
        return None
    fault = min(reader.faults, key=lambda f: f.start)
    for fix in fault.fixes[:4]:
        if good := _repaired(parser, fix.strip(), depth - 1):
            return good
    return None
