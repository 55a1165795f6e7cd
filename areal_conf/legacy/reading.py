"""An `allocation_mode` split into its components, each read by the parser of backend strings.

    mode      = part { "+" part } | word
    part      = component { "|" component } | pairs | half
    component = a backend string (`areal_conf.spec.grammar`), or an older spelling of one
    pairs     = key ":" dims { "," key ":" dims }
    half      = "eval" | "cpu"                       beside servers: no engine of its own

``+`` gives each side GPUs of its own, ``|`` shares them and binds tighter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from areal_conf.errors import AllocationError, clip
from areal_conf.legacy.dialects import DEFAULT_ENGINES, EXAMPLE, HALVES, KEYS, NEWEST, WORDS
from areal_conf.legacy.modernise import Component, modernise
from areal_conf.spec.allocation import ModelAllocation, trusted_allocation
from areal_conf.spec.backends import BACKENDS, Role
from areal_conf.spec.grammar import B
from areal_conf.spec.parser import parse_spec

_KEY = re.compile(rf"{B}(\*|[A-Za-z_]\w*){B}:", re.ASCII)
_PIPE = re.compile(rf"[()]|\|(?!{B}ffn{B}:)")
MAX_FAULTS = 32
_MAX_COMPONENTS = 64


class Read(NamedTuple):
    """A component that was read; `group` counts the parts, `key` is that of a pair."""

    allocation: ModelAllocation
    spelled: str
    start: int
    end: int
    group: int
    key: str | None = None

    @property
    def role(self) -> Role:
        return self.allocation.role


class Reader:
    """Reads one mode into its components; what is wrong with each is in `faults`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.faults: list[AllocationError] = []
        self.dialect = NEWEST
        self.components: list[Read] = []
        self.halves: list[tuple[int, int]] = []
        self.notes: list[str] = []

    def read_all(self) -> None:
        """mode = part { "+" part } | word"""
        if not self.text.strip(" \t\r\n"):
            self.fault("AC109", 0, len(self.text), "the allocation mode is empty", _write(EXAMPLE))
            return
        start = 0
        for group, part in enumerate(self.text.split("+")):
            self.part(start, start + len(part), group)
            start += len(part) + 1
            if self.enough():
                break

    # -- the rules of the grammar ------------------------------------------------------------

    def part(self, start: int, end: int, group: int) -> None:
        """part = component { "|" component } | pairs | half"""
        stripped = self.text[start:end].strip(" \t\r\n")
        if not stripped:
            self.empty(start, end)
        elif stripped in WORDS:
            self.word(stripped, start, end)
        elif stripped in HALVES:
            self.halves.append(self.tight(start, end))
            self.mark(HALVES[stripped])
        elif (key := _KEY.match(self.text, start)) and (
            key[1] in KEYS or ("," in stripped and key[1] not in BACKENDS)
        ):
            self.pairs(start, end, group)
        else:
            for a, b in self.split_pipes(start, end):
                self.component(a, b, group)
                if self.enough():
                    break

    def split_pipes(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the components of a part stand: between ``|`` outside parentheses."""
        depth, at = 0, start
        for sign in _PIPE.finditer(self.text, start, end):
            if sign[0] == "|":
                if depth == 0:
                    yield at, sign.start()
                    at = sign.end()
            else:
                depth = max(0, depth + (1 if sign[0] == "(" else -1))
        yield at, end

    def pairs(self, start: int, end: int, group: int) -> None:
        """pairs = key ":" dims { "," key ":" dims }: one layout each, on the same GPUs"""
        seen: dict[str, Read] = {}
        at = start
        for pair in self.text[start:end].split(","):
            stop = at + len(pair)
            key = _KEY.match(self.text, at)
            if key is None:
                self.empty_or_odd_pair(at, stop)
            elif key[1] not in KEYS:
                known = ", ".join(KEYS)
                message = f"unknown key {clip(key[1])!r}"
                self.fault("AC506", *key.span(1), message, f"known keys: {known}")
            else:
                self.pair(key, stop, group, seen)
            at = stop + 1
            if self.enough():
                break

    def pair(self, key: re.Match[str], end: int, group: int, seen: dict[str, Read]) -> None:
        engine, number = KEYS[key[1]]
        self.mark(number)
        if engine is None:
            self.notes.append(f"{key[1]}: no engine runs this any more; it is left out")
            return
        if engine == DEFAULT_ENGINES["inference"]:
            self.fault(
                "AC506",
                *key.span(1),
                f"{key[1]}: the string does not say which backend generates",
                f"name the servers: {EXAMPLE}",
            )
            return
        read = self.component(key.end(), end, group, engine, key[1])
        if read is None:
            return
        if engine not in seen:
            seen[engine] = read
            return
        self.components.pop()
        first = seen[engine]
        if first.key == key[1]:
            message = f"{key[1]} is given twice"
        elif first.allocation.parallel == read.allocation.parallel:
            return
        else:
            message = f"{first.key} and {key[1]} are one engine today, {engine}, and differ"
        self.fault("AC506", *key.span(1), message, f"keep one of them for {engine}")

    def component(
        self, start: int, end: int, group: int, name: str | None = None, key: str | None = None
    ) -> Read | None:
        """component = a backend string, or an older spelling of one"""
        if not self.text[start:end].strip(" \t\r\n"):
            self.empty(start, end)
            return None
        start, end = self.tight(start, end)
        if len(self.components) == _MAX_COMPONENTS:
            message = f"more than {_MAX_COMPONENTS} components"
            self.fault("AC508", start, end, message, f"give each engine one: {EXAMPLE}")
            return None
        modern = modernise(self.text, start, end)
        try:
            spec = parse_spec(modern.text)
        except AllocationError as error:
            self.faults += [self.shifted(e, modern) for e in error.errors]
            return None
        self.mark(modern.mark)
        allocation = trusted_allocation(spec.backend.name, name or spec.name, spec.sizes)
        backend, _, dims = modern.text.partition(":")
        spelled = "".join(f"{backend.partition('[')[0]}:{dims}".split())
        read = Read(allocation, spelled, start, end, group, key)
        self.components.append(read)
        return read

    # -- what is wrong ---------------------------------------------------------------------------

    def enough(self) -> bool:
        """Whether reading on would tell nothing new."""
        return len(self.faults) >= MAX_FAULTS or any(e.code == "AC508" for e in self.faults)

    def mark(self, number: int) -> None:
        self.dialect = min(self.dialect, number)

    def tight(self, start: int, end: int) -> tuple[int, int]:
        """The span without the blanks around it."""
        piece = self.text[start:end]
        left = len(piece) - len(piece.lstrip(" \t\r\n"))
        return start + left, start + max(left, len(piece.rstrip(" \t\r\n")))

    def fault(self, code: str, start: int, end: int, message: str, hint: str) -> None:
        self.faults.append(self.error(code, start, end, message, hint))

    def error(self, code: str, start: int, end: int, message: str, hint: str) -> AllocationError:
        """The error of the characters from `start` to `end` of the mode."""
        return AllocationError(code, message, text=self.text, span=(start, end), hint=hint)

    def shifted(self, error: AllocationError, component: Component) -> AllocationError:
        """A component's error at its place in the whole text."""
        start, end = (component.origin(at) for at in error.span)
        piece = clip(self.text[component.start : component.end])
        code, message, hint = error.code, error.message, f"for {piece}: {error.hint}"
        if code == "AC110":  # several components are the rule here; it is the sign that is wrong
            code, message = "AC111", f"unexpected {clip(self.text[start : start + 1])!r}"
            hint = f"join components with + (own GPUs) or | (shared GPUs): {EXAMPLE}"
        return AllocationError(
            code, message, text=self.text, span=(start, max(start, end)), hint=hint
        )

    def empty(self, start: int, end: int) -> None:
        message = "a component is missing here"
        hint = f"write components on both sides of + and |: {EXAMPLE}"
        self.fault("AC109", start, end, message, hint)

    def empty_or_odd_pair(self, start: int, end: int) -> None:
        if not self.text[start:end].strip(" \t\r\n"):
            self.empty(start, end)
            return
        message = "a key is missing here"
        hint = "write key:sizes, as in actor_train:d4p1m1,ref_inf:d4p1m1"
        self.fault("AC506", *self.tight(start, end), message, hint)

    def word(self, word: str, start: int, end: int) -> None:
        message = f"{word!r} holds no layout ({WORDS[word]}), and nothing reads it today"
        hint = (
            "write each engine's layout: rollout.backend=sglang:d4 actor.backend=fsdp:d4, "
            "sizes filling your GPUs (areal-conf layouts lists them)"
        )
        self.fault("AC501", *self.tight(start, end), message, hint)


def _write(example: str) -> str:
    return f"write per-engine backends, or a mode such as {example}"
