"""Hydra overrides as people type them: `actor.backend=megatron:(attn:d4|ffn:e4)`.

Hydra's override grammar refuses bare parentheses and brackets in a value and splits it at commas.
`as_typed` puts quotes where that grammar needs them and nowhere else. It follows Hydra's own
``OverrideLexer.g4``, which is the same in the 1.3 and 1.4 lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, NamedTuple

from areal_conf.spec.backends import BACKENDS

_KEY = re.compile(r"\+{0,2}(?:[^=~]*\.backend|(?:[^=~]*[.@])?allocation_mode)(?:@[^=]*)?")
_PLAIN = re.compile(r"[A-Za-z0-9_:*@|+./\-, ]*")
_ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_PRIMITIVE = re.compile(
    r"""(?:[\w/\-+.$%*@?|:\ \t]              # what may stand in a value as it is
        | \\ [\\()\[\]{}:=,\ \t]             # an escaped character
        | \\ (?! [\\()\[\]{}:=,\ \t] )       # a backslash that escapes nothing
        | \$\{ [^}]+ \}                      # an interpolation
        )+""",
    re.ASCII | re.VERBOSE,
)
_OTHER_THAN_TEXT = re.compile(
    r"""[+-]?(?: [0-9][0-9_.eE+-]* | \.[0-9][0-9_eE+-]* | inf | nan ) | true | false | null""",
    re.IGNORECASE | re.VERBOSE,
)
"""What Hydra may read as something else than text, and a little more."""

_FUNCTION = re.compile(r"([A-Za-z_][\w-]*)[ \t]*\(", re.ASCII)
_TOKEN = re.compile(rf"{_QUOTED.pattern}|\\.|[,()\[\]{{}}]", re.DOTALL)
_OPENER = {")": "(", "]": "[", "}": "{"}


def as_typed(overrides: Sequence[str]) -> list[str]:
    """The overrides with backend strings quoted where Hydra would refuse or split them.

    Looked at are overrides whose key ends in ``.backend`` or is ``allocation_mode`` (under any
    package, with ``+`` or ``++``); each comma-separated element of the value is taken for itself.
    Elements that are quoted, escaped, a list, a mapping, an interpolation or a call of a function
    (``choice(...)``) stay as they are, and so do deletions (``~key``) and all other overrides.
    """
    return [_typed(override) for override in overrides]


def meant(refused: BaseException | None) -> str | None:
    """The key that an override was meant for where Hydra found none; None where no key is near.

    Hydra's error is caused by OmegaConf's, which knows the mapping that lacks the key.
    """
    cause = getattr(refused, "__cause__", None)
    key, path = getattr(cause, "key", None), getattr(cause, "full_key", None)
    mapping = getattr(cause, "parent_node", None)
    if mapping is None or not hasattr(mapping, "keys") or not isinstance(key, str) or not path:
        return None
    if key in mapping:  # the key is there, and its value is what was refused
        return None
    near = get_close_matches(key, [name for name in mapping if isinstance(name, str)], n=1)
    return f"{path.removesuffix(key)}{near[0]}" if near else None


_ASSIGNMENT = re.compile(
    r"(?<![\w.+~=/$\[{-])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|allocation_mode)=(?=\S)"
)
"""An override in a sentence: the key, and ``=`` before a value."""


def with_plus(text: str, cfg: Any) -> str:
    """`text` with ``+`` before each override of a key that `cfg` does not have.

    Hydra refuses a new key without it. Nothing changes where `cfg` takes every key, as a config
    does that Hydra did not compose.
    """
    if not getattr(cfg, "_get_flag", lambda name: None)("struct"):
        return text
    return _ASSIGNMENT.sub(lambda m: m[0] if _has_key(cfg, m[1]) else f"+{m[0]}", text)


def _has_key(cfg: Any, dotted: str) -> bool:
    """Whether there is such a key, as far as can be seen without resolving anything."""
    node = cfg
    for key in dotted.split("."):
        value = node._value()
        if isinstance(value, str):
            return True  # an interpolation: what it leads to is not asked
        if not isinstance(value, dict) or key not in value:
            return False
        node = value[key]
    return True


class RefusedOverride(NamedTuple):
    """An override that Hydra's grammar refuses.

    Attributes:
        override: the override.
        span: the characters at fault.
        quoted: the override in quotes, to be pasted into a shell; None where that does not help.
    """

    override: str
    span: tuple[int, int]
    quoted: str | None


def refused_override(error: BaseException | None) -> RefusedOverride | None:
    """The override that Hydra could not read; None where `error` is of another kind."""
    from hydra.errors import OverrideParseException

    if not isinstance(error, OverrideParseException):
        return None
    override = str(error.override)
    lines = str(error).splitlines()
    span = (0, len(override))
    for line, below in pairwise(lines):
        at = below.find("^") - line.find(override)
        if below.strip() == "^" and override in line and 0 <= at < len(override):
            span = (at, at + 1)
    return RefusedOverride(override, span, _in_quotes(override))


def _in_quotes(override: str) -> str | None:
    """`override` with its value in quotes, for a shell; None where Hydra refuses that too."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equal, value = override.partition("=")
    body = value if '"' in value or "\\" in value else f'"{value}"'
    text = f"{key}={body if body != value else quoted(value)}"
    try:
        parsed = OverridesParser.create().parse_override(text)
    except HydraException:
        return None
    return shlex.quote(text) if equal and parsed.value() == value else None


def quoted(text: str) -> str:
    """`text` as a quoted element of an override, whatever is in it."""
    quote = '"' if "'" in text and '"' not in text else "'"
    body = re.sub(rf"(\\*){quote}", rf"\1\1\\{quote}", text)
    trailing = len(body) - len(body.rstrip("\\"))
    return f"{quote}{body}{body[len(body) - trailing :]}{quote}"


def for_hydra(text: str) -> str:
    """`text` as an element of an override that comes back as the same str.

    Quoted only where Hydra would refuse or split it, strip its blanks, or take it for a number, a
    truth value or null: ``2.0_1`` is the number 2.01 to Hydra.
    """
    plain = _PRIMITIVE.fullmatch(text) and not _OTHER_THAN_TEXT.fullmatch(text)
    if plain and "\\" not in text and text == text.strip(" \t"):
        return text
    return quoted(text)


def without_parentheses(spec: str) -> str:
    """A canonical backend string in its form that needs no quotes, with the name left out.

    Quotes are gone once Hydra has read ``choice(...)``: sweepers that write its elements into
    overrides of their own, such as Optuna's, fail with parentheses and brackets. A name in brackets
    has no meaning for a backend of one engine.
    """
    return re.sub(r"\[\w+\]|[()]", "", spec)


def _typed(override: str) -> str:
    key, equal, value = override.partition("=")
    if not equal or _PLAIN.fullmatch(value) or not _KEY.fullmatch(key):
        return override
    once = _quoting_elements(key, value)
    if once == override or _quoting_elements(key, once.partition("=")[2]) == once:
        return once
    # A lone quote in the value pairs with one that was added: then only the whole can be quoted.
    return f"{key}={quoted(value)}"


def _quoting_elements(key: str, value: str) -> str:
    """An override whose elements are quoted where they must be."""
    pairs = _brackets(value)
    parts = []
    for start, end in _elements(value, pairs):
        element = value[start:end]
        inner = element.strip(" \t")
        if _must_be_quoted(inner, pairs, start + element.find(inner)):
            element = quoted(inner)
        parts.append(element)
    return f"{key}={','.join(parts)}"


def _brackets(value: str) -> dict[int, int]:
    """Where each bracket that opens at one position is closed; those never closed are left out.

    What stands in quotes or behind a backslash is no bracket.
    """
    pairs: dict[int, int] = {}
    opened: list[int] = []
    waiting = dict.fromkeys("([{", 0)
    for token in _TOKEN.finditer(value):
        char = token[0]
        if char in waiting:
            opened.append(token.start())
            waiting[char] += 1
        elif (opener := _OPENER.get(char)) and waiting[opener]:
            while True:
                at = opened.pop()
                waiting[value[at]] -= 1
                if value[at] == opener:
                    break
            pairs[at] = token.start()
    return pairs


def _elements(value: str, pairs: dict[int, int]) -> Iterator[tuple[int, int]]:
    """The spans between the commas that stand outside of quotes and brackets."""
    start = closed = 0
    for token in _TOKEN.finditer(value):
        at = token.start()
        if at < closed:
            continue
        if token[0] == ",":
            yield start, at
            start = at + 1
        closed = pairs.get(at, closed)
    yield start, len(value)


def _must_be_quoted(element: str, pairs: dict[int, int], at: int) -> bool:
    """Whether Hydra's grammar has no reading of `element`, which stands at `at` of the value."""
    if not element or _PRIMITIVE.fullmatch(element) or _ESCAPED.search(element):
        return False
    if _QUOTED.fullmatch(element):
        return False
    last = at + len(element) - 1
    if element[0] in "[{":
        return pairs.get(at) != last
    call = _FUNCTION.match(element)
    if call and call[1] not in BACKENDS:
        return pairs.get(at + call.end() - 1) != last
    return True
