"""Reading backend strings and patterns: what is valid, or an error with every fault and its cure.

`areal_conf.spec.grammar` reads; `areal_conf.spec.suggestions` says what to write instead.
"""

from __future__ import annotations

import re
from typing import NoReturn

from areal_conf.errors import AllocationError
from areal_conf.spec.grammar import FFN, STAR, B, Fault, Grammar, Spec
from areal_conf.spec.patterns import Pattern, PatternGrammar

__all__ = ["STAR", "Pattern", "Spec", "dimension_span", "parse_pattern", "parse_spec"]

_PAIR = re.compile(rf"([a-z]){B}([0-9]+)")


def parse_spec(text: str) -> Spec:
    """Read one backend string.

    Raises:
        AllocationError: with every fault in `errors`, syntax by position, then AC2xx by number.
    """
    grammar = Grammar(text)
    spec = grammar.spec()
    if spec is None:
        _refuse(grammar)
    return spec


def parse_pattern(text: str) -> Pattern:
    """Read one layout pattern such as ``fsdp:d*t*@8``. A spec is a pattern too.

    Raises:
        AllocationError: with every fault in `errors`, as in `parse_spec`.
    """
    grammar = PatternGrammar(text)
    pattern = grammar.pattern()
    if pattern is None:
        _refuse(grammar)
    return pattern


def _refuse(grammar: Grammar) -> NoReturn:
    from areal_conf.spec.suggestions import Suggestions

    text, hints = grammar.text, Suggestions(grammar)
    faults = sorted(grammar.faults, key=_syntax_first)
    errors = [
        AllocationError(f.code, f.message, text=text, span=(f.start, f.end), hint=hints.hint(f))
        for f in faults
    ]
    raise errors[0].followed_by(errors[1:])


def _syntax_first(fault: Fault) -> tuple[str, int, str]:
    return fault.code if fault.code >= "AC2" else "", fault.start, fault.code


def dimension_span(text: str, dim: str) -> tuple[int, int]:
    """Where a dimension stands in the backend string `text`: its letter and size.

    `dim` is a letter, or ``"etp"`` for t of ffn; p and d are those of attn. All of `text` where the
    dimension is not written (its size is 1), and for an empty `dim`.
    """
    start = text.find(":") + 1
    ffn = FFN.search(text)
    if ffn is not None and dim in ("e", "etp"):
        start, end = ffn.end(), len(text)
    else:
        end = ffn.start() if ffn is not None else len(text)
    for m in _PAIR.finditer(text, start, end):
        if m.group(1) == dim or (dim == "etp" and ffn and m.group(1) == "t"):
            return m.span()
    return 0, len(text)
