"""What to write instead of a faulty backend string, as texts that were tried and are valid.

`CURES` has one function for each kind of fault that `areal_conf.spec.grammar` finds. It returns
candidates; `Suggestions` reads them by the same grammar, mends what else is wrong with them, and
offers only those that are valid.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

from areal_conf.spec.backends import (
    BACKENDS,
    DIMENSIONS,
    OLD_LETTERS,
    Backend,
    Sizes,
    legal_expert_sizes,
    with_dimension,
)
from areal_conf.spec.grammar import (
    FLIPPED,
    MAX_REPAIRED,
    NAME,
    REVERSED,
    B,
    Fault,
    Grammar,
)

_PAIR = re.compile(rf"([a-z]){B}([0-9]+)")
_TURNED = re.compile("(?<![0-9])([0-9]+)([a-z])")
_SIZE_BEHIND = re.compile(r"[^\w\s]{1,2}([1-9][0-9]*)", re.ASCII)
_PATTERN = "belongs to patterns: list them by `areal-conf layouts`, or sweep them by "
_PATTERN += "-m hydra/sweeper=areal_layouts"
_SHELL = "in a shell, put the whole string in quotes: there | ends a command"
_MOST_SHOWN = 3
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
_ANY = tuple(_EXAMPLES[name] for name in ("fsdp", "sglang", "megatron"))


class Cure(NamedTuple):
    """Candidate texts, best first (of them only valid ones are shown), and what else to say."""

    texts: tuple[str, ...]
    advice: str = ""


class Suggestions:
    """The hints for one refused text."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.read = type(grammar)
        self.repairs = _MAX_REPAIRS

    def hint(self, fault: Fault) -> str:
        """What to write instead: only texts that parse are offered."""
        cure = cure_of(self.grammar, fault)
        texts = list(self.valid(cure.texts)) or list(_ANY)
        hint = f"write {texts[0]}"
        if len(texts) > 1:
            hint = f"write {', '.join(texts[:-1])} or {texts[-1]}"
        if cure.advice.endswith(_PATTERN):
            return f"{cure.advice}; for one layout {hint}"
        return f"{hint} ({cure.advice})" if cure.advice else hint

    def valid(self, texts: tuple[str, ...]) -> Iterator[str]:
        """The valid ones of `texts`: as they are, else in ASCII, else with more faults mended."""
        seen: set[str] = set()
        for mend in (self.as_is, self.in_ascii, self.repaired):
            for text in texts:
                good = mend(text.strip())
                if good and good not in seen and good != self.grammar.text:
                    seen.add(good)
                    yield good
                    if len(seen) == _MOST_SHOWN:
                        return
            if seen:
                return

    def as_is(self, text: str) -> str | None:
        return text if is_valid(self.read(text)) else None

    def in_ascii(self, text: str) -> str | None:
        """`text` with full-width signs and digits (of an input method) as their ASCII forms."""
        return self.as_is(unicodedata.normalize("NFKC", text))

    def repaired(self, text: str, depth: int = 4) -> str | None:
        """`text` with its other faults mended too, first fault first."""
        self.repairs -= 1
        grammar = self.read(text)
        if is_valid(grammar):
            return text
        # Each mending takes away a fault or two: far more of them are no slip of the hand.
        if self.repairs <= 0 or not 0 < len(grammar.faults) <= 2 * depth:
            return None
        fault = min(grammar.faults, key=lambda f: f.start)
        for candidate in cure_of(grammar, fault).texts[:4]:
            if good := self.repaired(candidate.strip(), depth - 1):
                return good
        return None


def is_valid(grammar: Grammar) -> bool:
    """Whether the text that `grammar` was made for has no fault."""
    return grammar.spec() is not None


def cure_of(grammar: Grammar, fault: Fault) -> Cure:
    """The cure of one fault that `grammar` found; no texts where its own is very long."""
    cure = CURES[fault.kind](grammar, fault)
    return cure if len(grammar.text) <= MAX_REPAIRED else cure._replace(texts=())


def _swap(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]


def _in_place(grammar: Grammar, fault: Fault, *new: str) -> tuple[str, ...]:
    """The text with each of `new` in place of the characters at fault."""
    return tuple(_swap(grammar.text, fault.start, fault.end, one) for one in new)


# -- any part of the text ------------------------------------------------------------------------


def _replace(grammar: Grammar, fault: Fault) -> Cure:
    return Cure(_in_place(grammar, fault, *fault.data))


def _insert(grammar: Grammar, fault: Fault) -> Cure:
    at, new = fault.data
    return Cure((_swap(grammar.text, at, at, new),))


def _example_only(grammar: Grammar, fault: Fault) -> Cure:
    return Cure(_ANY)


def _backslashes(grammar: Grammar, fault: Fault) -> Cure:
    return Cure((grammar.text.replace("\\", ""),))


def _components(grammar: Grammar, fault: Fault) -> Cure:
    text, at = grammar.text, fault.start
    joined = text[:at].rstrip() + text[at + 1 :].lstrip()
    if is_valid(type(grammar)(joined)):  # fsdp:d8,t2
        return Cure((joined,))
    parts = re.split(r"[+,]|\|(?!\s*ffn)|\s(?=[a-z]+:)", text[:MAX_REPAIRED])
    stripped = filter(None, (part.strip() for part in parts))
    named = tuple(part if ":" in part else f"fsdp:{part}" for part in stripped)
    return Cure(named, "give each engine its own backend field")


# -- backend and name ----------------------------------------------------------------------------


def _closed_first(grammar: Grammar, fault: Fault) -> Cure:
    return Cure((grammar.text[fault.start :].strip()[1:], *_ANY))


def _odd_first_char(grammar: Grammar, fault: Fault) -> Cure:
    return Cure((grammar.text[fault.start :].strip()[1:],))


def _backend_left_out(grammar: Grammar, fault: Fault) -> Cure:
    rest = grammar.text[fault.start :].strip()
    colon = ":" if rest[0] == "(" else ""
    backends = sorted(BACKENDS, key=lambda name: name != "fsdp")
    return Cure(tuple(f"{backend}{colon}{rest}" for backend in backends))


def _only_dims(grammar: Grammar, fault: Fault) -> Cure:
    (word,) = fault.data
    rest = grammar.text[fault.start :]
    rest = f"d{rest}" if word.isdigit() else rest
    renamed = "".join(OLD_LETTERS.get(char, char) for char in rest[:MAX_REPAIRED])
    texts = (f"{b}:{x}" for x in (rest, renamed) for b in ("fsdp", "sglang", "megatron", *BACKENDS))
    return Cure(tuple(dict.fromkeys(texts)))


def _unknown_backend(grammar: Grammar, fault: Fault) -> Cure:
    (near,) = fault.data
    names = [near] if near else BACKENDS
    return Cure(_in_place(grammar, fault, *names), f"known backends: {', '.join(BACKENDS)}")


def _bad_name(grammar: Grammar, fault: Fault) -> Cure:
    (name,) = fault.data
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "actor"
    plain = plain if NAME.match(plain) else f"_{plain}"
    advice = "a name is letters, digits and '_', and begins with no digit"
    return Cure(_in_place(grammar, fault, plain), advice)


def _colon(grammar: Grammar, fault: Fault) -> Cure:
    before = _swap(grammar.text, fault.start, fault.start, ":")
    return Cure((*_in_place(grammar, fault, ":"), before))


def _ends_early(grammar: Grammar, fault: Fault) -> Cure:
    backend, missing = fault.data
    return Cure((grammar.text.rstrip() + missing, _example(backend)))


# -- dimensions ----------------------------------------------------------------------------------


def _unknown_letter(grammar: Grammar, fault: Fault) -> Cure:
    backend, letter, unused = fault.data
    new = OLD_LETTERS.get(letter.lower()) or letter.lower()
    size = grammar.text[fault.start + 1 : fault.end]
    if new in DIMENSIONS:
        why = "letters are lower case" if letter.lower() == new else "its old name"
        advice = f"the {DIMENSIONS[new].name} dimension is {new} ({letter}: {why})"
        return Cure(_in_place(grammar, fault, new + size, ""), advice)
    advice = "dimensions: " + ", ".join(f"{x} {DIMENSIONS[x].name}" for x in backend.dims)
    return Cure(_in_place(grammar, fault, *(x + size for x in unused), ""), advice)


def _missing_size(grammar: Grammar, fault: Fault) -> Cure:
    (letter,) = fault.data
    text, start, end = grammar.text, fault.start, fault.end
    if text[end : end + 1] == "*":
        return Cure((_swap(text, start, end + 1, f"{letter}1"),), f"'*' {_PATTERN}")
    if behind := _SIZE_BEHIND.match(text, end):  # d=4, d-4
        return Cure((_swap(text, end, behind.start(1), ""),))
    one = _swap(text, start, end, f"{letter}1")
    if text[end : end + 1] == "p":  # dp4, tp2: names of code and papers
        return Cure((_swap(text, end, end + 1, ""), one))
    return Cure((one,))


def _twice(grammar: Grammar, fault: Fault) -> Cure:
    (first,) = fault.data
    return Cure((*_in_place(grammar, fault, ""), _swap(grammar.text, first.start, first.end, "")))


def _bad_size(grammar: Grammar, fault: Fault) -> Cure:
    backend, digits = fault.data
    plain = digits.lstrip("0")
    if not digits.isascii():
        new = "".join(str(unicodedata.decimal(char)) for char in digits)
    elif not plain:
        new = "1"
    elif digits[0] == "0":
        new = plain
    else:
        new = "8"
    return Cure((*_in_place(grammar, fault, new), _example(backend)))


def _not_of_backend(grammar: Grammar, fault: Fault) -> Cure:
    backend, letter, found = fault.data
    size = found[letter].size
    have = with_dimension(letter, backend.role) or with_dimension(letter)
    texts: list[str] = []
    if letter == "e":
        texts += _in_place(grammar, fault, "")
    else:
        if d := found.get("d"):
            texts.append(_without_but_d(grammar.text, fault, d.start, d.end, d.size * size))
        else:
            texts += _in_place(grammar, fault, f"d{size or '*'}")
        unused = [other for other in backend.dims if other not in found]
        texts += _in_place(grammar, fault, *(f"{other}{size or '*'}" for other in unused))
    word = grammar.text.find(backend.name)
    if word >= 0:
        end = word + len(backend.name)
        texts += [_swap(grammar.text, word, end, name) for name in have]
    advice = f"backends with {letter}: {', '.join(have)}; "
    return Cure(tuple(texts), f"{advice}{backend.name} has {' '.join(backend.dims)}")


def _without_but_d(text: str, fault: Fault, start: int, end: int, size: int) -> str:
    """The text without the dimension at fault, and d (from `start` to `end`) of `size` instead."""
    d = f"d{size or '*'}"
    if fault.start < start:
        return text[: fault.start] + text[fault.end : start] + d + text[end:]
    return text[:start] + d + text[end : fault.start] + text[fault.end :]


def _odd_rest(grammar: Grammar, fault: Fault) -> Cure:
    (pos,) = fault.data
    text, at = grammar.text, fault.start
    char = text[at]
    joins = text[at - 1].isdigit() and text[at + 1 : at + 2].isdigit()
    without = "" if joins else _swap(text, at, at + 1, "")
    usual = (without, text[:at], _swap(text, at, at, "d"))
    if char in "()[]{}":
        return Cure(usual)
    if char == "\\":
        return Cure((text.replace("\\", ""), text[:at]))
    if char == "@":
        return Cure((text[:at],), f"'@' {_PATTERN}")
    if REVERSED.match(text, at):  # 4d2t
        return Cure((text[:at] + _TURNED.sub(r"\2\1", text[at:]),))
    if char.isdigit() and text[pos - 1].isdigit():  # d1 6
        return Cure((text[:pos] + text[at:], text[:at]))
    return Cure(usual)


# -- sections ------------------------------------------------------------------------------------


def _needless_parentheses(grammar: Grammar, fault: Fault) -> Cure:
    text, at = grammar.text, fault.start
    return Cure((text[:at] + text[at + 1 : text.rindex(")")],))


def _never_closed(grammar: Grammar, fault: Fault) -> Cure:
    (pos,) = fault.data
    closed = (grammar.text.rstrip() + ")", _swap(grammar.text, pos, pos, ")"))
    return Cure((*closed, *_in_place(grammar, fault, "")))


def _doubled_parentheses(grammar: Grammar, fault: Fault) -> Cure:
    (without,) = _in_place(grammar, fault, "")
    return Cure((without.replace("))", ")"),))


def _flipped_sections(grammar: Grammar, fault: Fault) -> Cure:
    flipped = FLIPPED.fullmatch(grammar.text[:MAX_REPAIRED])
    assert flipped is not None
    head, ffn, attn, close = flipped.groups()
    return Cure((f"{head}{attn}|{ffn}{close}", _FOLDED_EXAMPLE))


def _attn_misspelt(grammar: Grammar, fault: Fault) -> Cure:
    return Cure((*_in_place(grammar, fault, "attn", "attn:"), _FOLDED_EXAMPLE))


def _attn_left_out(grammar: Grammar, fault: Fault) -> Cure:
    pairs = _PAIR.findall(grammar.text[fault.end : MAX_REPAIRED])
    world = math.prod(int(size[:7]) for _, size in pairs)
    return Cure((*_in_place(grammar, fault, f"attn:d{world}|ffn"), _FOLDED_EXAMPLE))


def _no_section(grammar: Grammar, fault: Fault) -> Cure:
    (pos,) = fault.data
    inner = grammar.text[fault.start :].rstrip().rstrip(")")
    return Cure((grammar.text[:pos] + inner, _FOLDED_EXAMPLE))


def _ffn_misspelt(grammar: Grammar, fault: Fault) -> Cure:
    (has_word,) = fault.data
    names = ("ffn", "ffn:") if has_word else ("ffn", "ffn:", "ffn:e1")
    prefixed = _swap(grammar.text, fault.start, fault.start, "ffn:")
    return Cure((*_in_place(grammar, fault, *names), prefixed, _FOLDED_EXAMPLE))


def _ffn_left_out(grammar: Grammar, fault: Fault) -> Cure:
    advice = "" if "(" in grammar.text else _SHELL
    return Cure((*_in_place(grammar, fault, "|ffn:e1"), _FOLDED_EXAMPLE), advice)


def _empty_section(grammar: Grammar, fault: Fault) -> Cure:
    (section,) = fault.data
    least = "d1" if section == "attn" else "e1"
    return Cure((_swap(grammar.text, fault.end, fault.end, least), _FOLDED_EXAMPLE))


def _not_of_section(grammar: Grammar, fault: Fault) -> Cure:
    return Cure((*_in_place(grammar, fault, ""), _FOLDED_EXAMPLE))


# -- meshes --------------------------------------------------------------------------------------


def _mesh(grammar: Grammar, fault: Fault) -> Cure:
    backend, sizes = fault.data
    legal = legal_expert_sizes(backend, sizes)
    near = sorted(legal, key=lambda e: (abs(e - sizes.e), e))
    texts = _in_place(grammar, fault, *(f"e{e}" for e in near))
    return Cure(texts, f"legal e here: {_listed(legal)}")


def _ffn_mesh(grammar: Grammar, fault: Fault) -> Cure:
    """Every other e in the ffn section, nearest first.

    The expert tensor size stays as it is, unless no e goes with it.
    """
    backend: Backend
    s: Sizes
    backend, s = fault.data[:2]
    etp, legal = s.etp, legal_expert_sizes(backend, s)
    advice = f"legal e with etp {etp}: {_listed(legal)}"
    if not legal:
        advice = f"etp {etp} goes with no e: here it is 1"
        etp, legal = 1, legal_expert_sizes(backend, s._replace(etp=1))
    near = sorted(legal, key=lambda e: (abs(e - s.e), e))
    sections = (f"t{etp}" * (etp > 1) + f"e{e}" for e in near if (etp, e) != (s.etp, s.e))
    return Cure(_in_place(grammar, fault, *sections), advice)


def _ffn_world(grammar: Grammar, fault: Fault) -> Cure:
    cure = _ffn_mesh(grammar, fault)
    _, s, d = fault.data
    rest = s.p * s.etp * s.e
    if s.world % rest:
        return cure
    derived = (_swap(grammar.text, d.start, d.end, new) for new in (f"d{s.world // rest}", ""))
    advice = f"d of ffn may be left out: it is derived; {cure.advice}"
    return Cure((*derived, *cure.texts), advice)


def _ffn_p(grammar: Grammar, fault: Fault) -> Cure:
    (p,) = fault.data
    return Cure(_in_place(grammar, fault, f"p{p}", ""), "p of ffn may be left out")


def _no_folding(grammar: Grammar, fault: Fault) -> Cure:
    backend, inside = fault.data
    text = grammar.text
    folding = [row.name for row in BACKENDS.values() if row.folding]
    word = text.index(backend.name)
    renamed = (_swap(text, word, word + len(backend.name), name) for name in folding)
    plain = text[: fault.start] + text[inside : text.index("|")].strip()
    return Cure((*renamed, plain), f"backends with it: {', '.join(folding)}")


def _example(backend: Backend) -> str:
    return _EXAMPLES.get(backend.name, f"{backend.name}:d8")


def _listed(values: list[int]) -> str:
    shown = ", ".join(map(str, values[:12]))
    return shown + (", …" if len(values) > 12 else "")


CURES: dict[str, Callable[[Grammar, Fault], Cure]] = {
    "attn_left_out": _attn_left_out,
    "attn_misspelt": _attn_misspelt,
    "backend_left_out": _backend_left_out,
    "backslashes": _backslashes,
    "bad_name": _bad_name,
    "bad_size": _bad_size,
    "closed_first": _closed_first,
    "colon": _colon,
    "components": _components,
    "doubled_parentheses": _doubled_parentheses,
    "empty": _example_only,
    "empty_section": _empty_section,
    "ends_early": _ends_early,
    "ffn_left_out": _ffn_left_out,
    "ffn_mesh": _ffn_mesh,
    "ffn_misspelt": _ffn_misspelt,
    "ffn_p": _ffn_p,
    "ffn_world": _ffn_world,
    "flipped_sections": _flipped_sections,
    "insert": _insert,
    "mesh": _mesh,
    "missing_size": _missing_size,
    "needless_parentheses": _needless_parentheses,
    "never_closed": _never_closed,
    "no_folding": _no_folding,
    "no_section": _no_section,
    "not_of_backend": _not_of_backend,
    "not_of_section": _not_of_section,
    "odd_first_char": _odd_first_char,
    "odd_rest": _odd_rest,
    "only_dims": _only_dims,
    "replace": _replace,
    "twice": _twice,
    "unknown_backend": _unknown_backend,
    "unknown_letter": _unknown_letter,
    "world": _example_only,
}
"""What to try for each kind of `Fault`."""
