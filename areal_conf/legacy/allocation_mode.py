"""The deprecated `allocation_mode`: one string for all engines, in four generations of spelling.

`DIALECTS` holds the generations as data: what each one writes that later ones do not. The reader
below takes the union of them, since people's files mix them (``sglang.d4+megatron:d4``):

    mode      = part { "+" part } | word
    part      = component { "|" component } | pairs | half
    component = a backend string (`areal_conf.spec.grammar`), or an older spelling of one
    pairs     = key ":" dims { "," key ":" dims }
    half      = "eval" | "cpu"                       beside servers: no engine of its own

``+`` gives each side GPUs of its own, ``|`` shares them and binds tighter. Each component is
rewritten into today's language, character by character where it can be, and read by the one parser
of backend strings; what that finds is told at its place in the text the user wrote.

Source: AReaL's ``AllocationMode``: realhf/experiments/common/utils.py (0.1 to 0.3),
areal/api/io_struct.py (0.3.0-lite, 0.3.1), areal/api/alloc_mode.py (0.3.2 to 1.0.4).
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn

from areal_conf.errors import AllocationError, clip, counted, wrong_type
from areal_conf.legacy.dialects import (
    BARE,
    DEFAULT_ENGINES,
    EXAMPLE,
    HALVES,
    KEYS,
    LETTERS,
    NEWEST,
    SEPARATORS,
    SLASH,
    WORDS,
)
from areal_conf.spec.allocation import (
    ModelAllocation,
    ParallelStrategy,
    SchedulingStrategy,
    SchedulingStrategyType,
    trusted_allocation,
)
from areal_conf.spec.backends import BACKENDS, Backend, Role
from areal_conf.spec.parser import parse_spec

_B = r"[ \t\r\n]*"
_BACKEND = re.compile(
    rf"{_B}([a-z]\w*){_B}(?:\[[^\]]*\]{_B})?([:{re.escape(''.join(SEPARATORS))}])", re.ASCII
)
_NAMED = re.compile(rf"{_B}(?=\[[^\]]*\]{_B}:)")
_FOLDED = re.compile(rf"{_B}(?=\(?{_B}attn{_B}:)")
_DIMS = re.compile(rf"{_B}(?=[A-Za-z]{_B}[0-9])")
_OLD_DIM = re.compile(rf"([{''.join(LETTERS)}])(?={_B}[0-9])")
_PIPELINE_OR_EXPERT = re.compile(rf"[pe]{_B}(?:[2-9]|1[0-9])")
_KEY = re.compile(rf"{_B}(\*|[A-Za-z_]\w*){_B}:", re.ASCII)
_PIPE = re.compile(rf"[()]|\|(?!{_B}ffn{_B}:)")
_MAX_FAULTS = 32
_MAX_FIXED = 8
_MAX_COMPONENTS = 64


class AllocationType(enum.Enum):
    """What kind of allocation a mode is (AReaL's enumeration)."""

    COLOCATE = 0
    """Training and inference share GPUs; also training alone."""
    DECOUPLED_TRAIN = 1
    """Inference and training have GPUs of their own."""
    LLM_SERVER_ONLY = 2
    """Inference servers alone."""
    DECOUPLED_EVAL = 3
    """Inference servers, and processes that evaluate with them and need no GPU."""


@dataclass(frozen=True, slots=True)
class AllocationMode:
    """All engines' backends and layouts, as one `allocation_mode` says (AReaL's removed class).

    Equal where the allocations are, however they were spelled.

    Attributes:
        allocations: one for each component, in the order of the text; their names are those
            in brackets, and a colocated one has the engine whose GPUs it shares as target.
        evaluation: whether the second half is ``eval`` or ``cpu``.
        dialect: number of the oldest generation whose marks the text bears.
        notes: what today's reading changes, as sentences.
    """

    allocations: tuple[ModelAllocation, ...]
    evaluation: bool = False
    dialect: int = field(default=NEWEST, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    _spelled: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allocations", tuple(self.allocations))
        for allocation in self.allocations:
            if not isinstance(allocation, ModelAllocation):
                raise wrong_type(allocation, "a ModelAllocation", hint=f"read {EXAMPLE}")
        if not self._spelled:
            bare = (str(replace(a, name=None)) for a in self.allocations)
            object.__setattr__(self, "_spelled", tuple(bare))

    @classmethod
    def from_str(cls, allocation_mode: str) -> AllocationMode:
        """Read an `allocation_mode` of any generation.

        Raises:
            AllocationError: for any other string (AC1xx and AC2xx for faults of one component, at
                their place in the whole text; AC501 to AC508 for the whole), and AC309 for
                anything that is no str.
        """
        if not isinstance(allocation_mode, str):
            raise wrong_type(allocation_mode, "an allocation mode", hint=f"write {EXAMPLE}")
        return _Reader(allocation_mode).mode()

    def __getitem__(self, name: str) -> ModelAllocation:
        """The allocation of this name, or the unnamed one that stands for this engine.

        Raises:
            KeyError: there is none.
        """
        for allocation in self.allocations:
            if allocation.name == name:
                return allocation
        for allocation in self.allocations:
            if engine_of(allocation) == name:
                return allocation
        raise KeyError(f"no allocation is named {clip(str(name))!r}")

    @property
    def world_size(self) -> int:
        """GPUs that the whole mode reserves; colocated components reserve none."""
        return sum(allocation.gpus for allocation in self.allocations)

    @property
    def type_(self) -> AllocationType:
        """The kind of allocation.

        Raises:
            AttributeError: where it is neither one component nor one of each role.
        """
        if self.evaluation:
            return AllocationType.DECOUPLED_EVAL
        roles = [allocation.role for allocation in self.allocations]
        if roles == ["inference"]:
            return AllocationType.LLM_SERVER_ONLY
        if roles == ["training"]:
            return AllocationType.COLOCATE
        if sorted(roles) != ["inference", "training"]:
            raise AttributeError(
                f"type_ needs one component, or one of each role; here are {len(roles)}"
            )
        shared = any(allocation.gpus == 0 for allocation in self.allocations)
        return AllocationType.COLOCATE if shared else AllocationType.DECOUPLED_TRAIN

    @property
    def gen(self) -> ParallelStrategy | None:
        """Sizes of the one inference component; None where there is none.

        Raises:
            AttributeError: there are several.
        """
        only = self._only("inference", "gen")
        return only.parallel if only else None

    @property
    def train(self) -> ParallelStrategy | None:
        """Sizes of the one training component; None where there is none.

        Raises:
            AttributeError: there are several.
        """
        only = self._only("training", "train")
        return only.parallel if only else None

    @property
    def gen_backend(self) -> str | None:
        """Backend of the one inference component; None where there is none.

        Raises:
            AttributeError: there are several.
        """
        only = self._only("inference", "gen_backend")
        return only.backend if only else None

    @property
    def train_backend(self) -> str | None:
        """Backend of the one training component; None where there is none.

        Raises:
            AttributeError: there are several.
        """
        only = self._only("training", "train_backend")
        return only.backend if only else None

    @property
    def gen_instance_size(self) -> int:
        """GPUs of one inference server (t * p).

        Raises:
            AttributeError: there is no inference component, or several.
        """
        only = self._only("inference", "gen_instance_size")
        if only is None or only.instance_size is None:
            raise AttributeError("gen_instance_size: the mode has no inference component")
        return only.instance_size

    def _only(self, role: Role, what: str) -> ModelAllocation | None:
        found = [allocation for allocation in self.allocations if allocation.role == role]
        if len(found) > 1:
            raise AttributeError(
                f"{what} is ambiguous: the mode has {len(found)} {role} components; "
                "ask for one by its name"
            )
        return found[0] if found else None

    def engines(self) -> dict[str, ModelAllocation]:
        """What the mode says for each engine, without component names, in the text's order."""
        bare = (a if a.name is None else replace(a, name=None) for a in self.allocations)
        return dict(zip(map(engine_of, self.allocations), bare, strict=True))

    def spelled(self) -> dict[str, str]:
        """Each engine's backend string as the user spelled it: backend added, old letters renamed.

        ``sglang.d4p1m1+d4p1m1`` gives ``sglang:d4p1t1`` and ``fsdp:d4p1t1``.
        """
        names = (engine_of(allocation) for allocation in self.allocations)
        return dict(zip(names, self._spelled, strict=True))

    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The engines that share GPUs, together; an engine with GPUs of its own stands alone."""
        groups: dict[str, list[str]] = {}
        for allocation in self.allocations:
            strategy = allocation.scheduling_strategy
            engine = engine_of(allocation)
            groups.setdefault(strategy.target or engine, []).append(engine)
        return tuple(map(tuple, groups.values()))

    def modern(self) -> str:
        """The mode in the newest dialect, sizes as the user spelled them, ``eval`` left out."""
        several = len(self.allocations) > 2
        parts: list[str] = []
        for allocation, spec in zip(self.allocations, self._spelled, strict=True):
            shared = allocation.gpus == 0
            name = allocation.name or (engine_of(allocation) if several or shared else None)
            backend, _, dims = spec.partition(":")
            named = f"{backend}[{name}]:{dims}" if name else spec
            parts += ["|" if shared else "+", named]
        return "".join(parts[1:])


def engine_of(allocation: ModelAllocation) -> str:
    """The engine a component stands for: its name, or the first engine of its role."""
    return allocation.name or DEFAULT_ENGINES[allocation.role]


class _Component:
    """One component in today's language, and where its characters stand in the mode."""

    __slots__ = ("_at", "_from", "backend", "end", "mark", "start", "text")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.text = ""
        self.mark = NEWEST
        self.backend: Backend | None = None
        self._at: list[int] = []
        self._from: list[tuple[int, bool]] = []

    def add(self, text: str, origin: int, copied: bool = True) -> _Component:
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


class _Read(NamedTuple):
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


class _Reader:
    """Reads one mode. Faults of components hide those of the whole, as syntax hides meaning."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.faults: list[AllocationError] = []
        self.dialect = NEWEST
        self.read: list[_Read] = []
        self.halves: list[tuple[int, int]] = []
        self.notes: list[str] = []

    def mode(self) -> AllocationMode:
        """mode = part { "+" part } | word"""
        if not self.text.strip(" \t\r\n"):
            self.fault("AC109", 0, len(self.text), "the allocation mode is empty", _write(EXAMPLE))
            self.fail()
        start = 0
        for group, part in enumerate(self.text.split("+")):
            self.part(start, start + len(part), group)
            start += len(part) + 1
            if self.enough():
                break
        if self.faults:
            self.fail()
        for check in (self.names, self.roles, self.shared_gpus, self.evaluation):
            check()
        if self.faults:
            self.fail()
        return self.result()

    def result(self) -> AllocationMode:
        allocations = tuple(self.placed())
        if self.dialect < NEWEST:
            self.notes += list(self.old_expert_sizes())
        return AllocationMode(
            allocations,
            bool(self.halves),
            self.dialect,
            tuple(self.notes),
            tuple(read.spelled for read in self.read),
        )

    def placed(self) -> Iterator[ModelAllocation]:
        """The allocations, each after the first of its group colocated with the first."""
        anchor, group = "", -1
        for read in self.read:
            if read.group != group:
                anchor, group = engine_of(read.allocation), read.group
                yield read.allocation
            else:
                shared = SchedulingStrategy(SchedulingStrategyType.colocation, anchor)
                yield replace(read.allocation, scheduling_strategy=shared)

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
        seen: dict[str, _Read] = {}
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

    def pair(self, key: re.Match[str], end: int, group: int, seen: dict[str, _Read]) -> None:
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
        self.read.pop()
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
    ) -> _Read | None:
        """component = a backend string, or an older spelling of one"""
        if not self.text[start:end].strip(" \t\r\n"):
            self.empty(start, end)
            return None
        start, end = self.tight(start, end)
        if len(self.read) == _MAX_COMPONENTS:
            message = f"more than {_MAX_COMPONENTS} components"
            self.fault("AC508", start, end, message, f"give each engine one: {EXAMPLE}")
            return None
        modern = self.modernised(start, end)
        try:
            spec = parse_spec(modern.text)
        except AllocationError as error:
            self.faults += [self.shifted(e, modern) for e in error.errors]
            return None
        self.mark(modern.mark)
        allocation = trusted_allocation(spec.backend.name, name or spec.name, spec.sizes)
        backend, _, dims = modern.text.partition(":")
        spelled = "".join(f"{backend.partition('[')[0]}:{dims}".split())
        read = _Read(allocation, spelled, start, end, group, key)
        self.read.append(read)
        return read

    def modernised(self, start: int, end: int) -> _Component:
        """The component in today's language."""
        text, new = self.text, _Component(start, end)
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
                rest = self.new_letters(rest, new)
            return new.add(rest, sign + 1)
        if m := _NAMED.match(text, start, end):
            new.mark = BARE
            dims = text[text.index(":", m.end()) : end]
            new.add(_default_backend(dims), m.end(), copied=False)
            return new.add(text[m.end() : end], m.end())
        if m := _DIMS.match(text, start):
            return self.bare(new, m.end(), end)
        return new.add(text[start:end], start)

    def bare(self, new: _Component, start: int, end: int) -> _Component:
        """A training component of dims alone, or of attn and ffn dims with a slash between."""
        new.mark = BARE
        slash = self.text.find("/", start, end)
        dims = self.new_letters(self.text[start:end], new)
        if slash < 0:
            new.add(f"{_default_backend(dims)}:", start, copied=False)
            return new.add(dims, start)
        new.mark = min(new.mark, SLASH)
        at = slash - start
        new.add("megatron:(attn:", start, copied=False).add(dims[:at], start)
        new.add("|ffn:", slash, copied=False).add(dims[at + 1 :], slash + 1)
        return new.add(")", end, copied=False)

    def new_letters(self, dims: str, new: _Component) -> str:
        """`dims` with the letters of older generations renamed."""

        def rename(m: re.Match[str]) -> str:
            letter, number = LETTERS[m[1]]
            new.mark = min(new.mark, number)
            return letter

        return _OLD_DIM.sub(rename, dims)

    # -- what the whole must hold ----------------------------------------------------------------

    def names(self) -> None:
        """Three or more components, and colocated ones after the first, have names; all unique."""
        reads = self.read
        many = sum(read.key is None for read in reads) > 2
        first_of: dict[int, int] = {}
        seen: dict[str, _Read] = {}
        for i, read in enumerate(reads):
            shared = first_of.setdefault(read.group, i) != i
            if read.allocation.name is None and (many or shared) and read.key is None:
                why = "colocated components" if shared else "three or more components"
                message = f"{why} must have names; this one has none"
                self.fault("AC503", read.start, read.end, message, self.named_hint())
                return
            name = read.allocation.name
            if name is not None and name in seen:
                message = f"the name {clip(name)!r} is given twice"
                self.fault("AC504", read.start, read.end, message, self.named_hint())
                return
            if name is not None:
                seen[name] = read

    def roles(self) -> None:
        """No two components may stand for one engine."""
        if self.faults:
            return
        seen: dict[str, _Read] = {}
        for read in self.read:
            engine = engine_of(read.allocation)
            if engine in seen:
                unnamed = read if read.allocation.name is None else seen[engine]
                message = (
                    f"two {read.role} components, and nothing says which is {engine} "
                    "and what the other is"
                )
                self.fault("AC502", unnamed.start, unnamed.end, message, self.named_hint())
                return
            seen[engine] = read

    def shared_gpus(self) -> None:
        """Colocated components have the same number of GPUs."""
        anchors: dict[int, _Read] = {}
        for read in self.read:
            anchor = anchors.setdefault(read.group, read)
            mine, theirs = read.allocation.world_size, anchor.allocation.world_size
            if mine != theirs and len(self.faults) < _MAX_FAULTS:
                one, other = (clip(engine_of(r.allocation)) for r in (read, anchor))
                self.fault(
                    "AC505",
                    read.start,
                    read.end,
                    f"{one} shares the GPUs of {other} and has {mine}, not {theirs}",
                    f"give {one} {counted(theirs, 'GPU')}, or join it with + for GPUs of its own",
                )

    def evaluation(self) -> None:
        """``eval`` and ``cpu`` stand beside one inference component and nothing else."""
        roles = [read.role for read in self.read]
        if self.halves and (roles != ["inference"] or len(self.halves) > 1):
            start, end = self.halves[-1]
            word = self.text[start:end]
            message = f"{word!r} stands beside inference servers only, once"
            self.fault("AC507", start, end, message, "write sglang:d4+eval, or leave it out")

    def old_expert_sizes(self) -> Iterator[str]:
        """Where e and t are over 1 and etp is not given: an older default was t, today's is 1."""
        for read in self.read:
            sizes = read.allocation.parallel.sizes
            if sizes.e > 1 and sizes.t > 1 and sizes.etp == 1 and "attn" not in read.spelled:
                yield (
                    f"{engine_of(read.allocation)}: the expert tensor size is 1 today; up to "
                    f"AReaL 0.3.3 it defaulted to t ({sizes.t}), which is written "
                    f"{_with_etp(read.allocation)} now"
                )

    # -- what is wrong ---------------------------------------------------------------------------

    def enough(self) -> bool:
        """Whether reading on would tell nothing new."""
        return len(self.faults) >= _MAX_FAULTS or any(e.code == "AC508" for e in self.faults)

    def mark(self, number: int) -> None:
        self.dialect = min(self.dialect, number)

    def tight(self, start: int, end: int) -> tuple[int, int]:
        """The span without the blanks around it."""
        piece = self.text[start:end]
        left = len(piece) - len(piece.lstrip(" \t\r\n"))
        return start + left, start + max(left, len(piece.rstrip(" \t\r\n")))

    def fault(self, code: str, start: int, end: int, message: str, hint: str) -> None:
        self.faults.append(
            AllocationError(code, message, text=self.text, span=(start, end), hint=hint)
        )

    def fail(self) -> NoReturn:
        """Raise the faults: syntax by position, then meaning by number."""
        faults = sorted(
            self.faults[:_MAX_FAULTS],
            key=lambda e: (e.code if e.code >= "AC2" else "", e.span, e.code),
        )
        raise faults[0].followed_by(faults[1:])

    def shifted(self, error: AllocationError, component: _Component) -> AllocationError:
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

    def named_hint(self) -> str:
        """The mode with a name on every component, where it is short."""
        if len(self.read) > _MAX_FIXED:
            return "name the components: sglang[rollout]:d2+fsdp[actor]:d4|fsdp[critic]:d4"
        free = {
            "inference": ["rollout", "teacher"],
            "training": ["actor", "critic", "ref", "teacher"],
        }
        taken = {read.allocation.name for read in self.read}
        used: set[str] = set()
        written: list[str] = []
        group = -1
        for i, read in enumerate(self.read):
            name = read.allocation.name
            if name is None or name in used:
                left = [x for x in free[read.role] if x not in taken | used]
                name = left[0] if left else f"engine{i}"
            used.add(name)
            backend, _, dims = read.spelled.partition(":")
            sign = "|" if read.group == group else "+"
            written += [sign, f"{backend}[{name}]:{dims}"]
            group = read.group
        return f"name the components: {''.join(written[1:])}"


def _default_backend(dims: str) -> str:
    """The training backend that a half without one meant."""
    return "megatron" if _PIPELINE_OR_EXPERT.search(dims) else "fsdp"


def _with_etp(allocation: ModelAllocation) -> str:
    """The same layout with an expert tensor size of t, as AReaL read it up to 0.3.3."""
    s = allocation.parallel.sizes
    attn = "".join(f"{x}{n}" for x, n in zip("dptc", (s.d, s.p, s.t, s.c), strict=True) if n != 1)
    ffn = f"p{s.p}" * (s.p > 1) + f"t{s.t}e{s.e}"
    return f"{allocation.backend}:(attn:{attn}|ffn:{ffn})"


def _write(example: str) -> str:
    return f"write per-engine backends, or a mode such as {example}"
