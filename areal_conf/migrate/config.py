"""One YAML config: its `allocation_mode` replaced by a backend in each engine's section.

Only what must change is changed (`areal_conf.migrate.document`), and the result is read again
before it is handed out: each engine that the mode names must have the same backend and sizes, and
everything else must be what it was. What cannot be decided is left alone, with the reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from areal_conf.config.areal_defaults import DEFAULT_KL_CTL, INHERITS
from areal_conf.errors import AllocationError, clip, counted
from areal_conf.legacy.allocation_mode import AllocationMode
from areal_conf.legacy.carry_over import FIELD
from areal_conf.legacy.dialects import NEWEST
from areal_conf.migrate.document import Document, Edit, Node, YamlError, apply, scalars, shape
from areal_conf.spec.allocation import ModelAllocation

Target = Literal["controller", "spmd"]
Path = tuple[str, ...]

_AS_KEY = re.compile(rf"""\b{FIELD}(?:["']\s*:|\s*:(?:\s|$))|\?\s+["']?{FIELD}\b""")
_READER = re.compile(rf"\$\{{[^}}]*\b{FIELD}\b")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\r\n\x85\u2028\u2029]*")
_LINE_END = re.compile(r"[\r\n\x85\u2028\u2029]*\Z")
_NULLS = ("", "~", "null", "Null", "NULL")


class Found(NamedTuple):
    """Something to tell of a file: an error says why it is left alone."""

    line: int
    severity: Literal["error", "warning"]
    error: AllocationError


@dataclass
class Migration:
    """What becomes of one file.

    Attributes:
        new: its new text; None where nothing changes.
        found: errors (why something was left alone) and warnings, by line.
        scheduler: ``scheduler.type`` of the file; None where it has none.
        has_scheduler: whether ``scheduler.type`` stands in the file, so that an override needs no
            ``+``.
        several_nodes: whether ``cluster.n_nodes`` is over 1, where scheduler local will not do.
    """

    new: str | None = None
    found: list[Found] = field(default_factory=list)
    scheduler: str | None = None
    has_scheduler: bool = field(default=False, compare=False)
    several_nodes: bool = field(default=False, compare=False)

    @property
    def undecided(self) -> bool:
        """Whether something was left alone that has to change."""
        return any(found.severity == "error" for found in self.found)


def _may_hold_a_mode(text: str) -> bool:
    """Whether to parse at all: the word stands where a key could, in no line of comment."""
    return any(
        _AS_KEY.search(line) is not None and not line.lstrip("\ufeff \t").startswith("#")
        for line in text.splitlines()
    )


class _LeftAloneError(Exception):
    def __init__(self, found: list[Found]) -> None:
        super().__init__(found)
        self.found = found


def migrate_yaml(text: str, target: Target = "controller") -> Migration:
    """Move the `allocation_mode` of one YAML text into its engines' sections.

    Args:
        text: the file, line ends and byte order mark as they are.
        target: ``controller`` removes the mode; ``spmd`` keeps it, in the newest dialect.
    """
    if not _may_hold_a_mode(text):
        return Migration()
    try:
        document = Document(text)
    except YamlError as fault:
        hint = "mend the YAML, then migrate again"
        error = AllocationError("AC521", f"no config can be read here: {fault.message}", hint=hint)
        return Migration(found=[Found(fault.line, "error", error)])
    root = document.root
    if root is None:
        return Migration()
    file = _File(document, root, target)
    nested = list(file.nested())
    try:
        new = file.migrated()
    except _LeftAloneError as reason:
        return Migration(found=sorted(nested + reason.found, key=lambda f: f.line))
    found = sorted(nested + file.found, key=lambda f: f.line)
    return Migration(new, found, file.scheduler(), file.has_scheduler(), file.several_nodes())


class _File:
    def __init__(self, document: Document, root: Node, target: Target) -> None:
        self.document = document
        self.text = document.text
        self.root = root
        self.target = target
        self.found: list[Found] = []
        self.edits: list[Edit] = []
        self.written: set[Path] = set()

    def migrated(self) -> str | None:
        """The new text; None where nothing changes.

        Raises:
            _LeftAloneError: the file cannot be decided.
        """
        entry = self.root.entry(FIELD)
        if entry is None or _unset(self.document.resolved(entry[1])):
            return None
        mode = self.mode(entry)
        self.check_readers(entry)
        faults: list[Found] = []
        for engine, allocation in mode.engines().items():
            try:
                self.give(engine, allocation, mode.spelled()[engine])
            except _LeftAloneError as reason:
                faults += reason.found
        if faults:
            raise _LeftAloneError(faults)
        for engine, parent in INHERITS.items():
            self.inherit(engine, parent, mode)
        line = self.document.line_of(entry[0].start)
        for note in mode.notes:
            hint = "keep what was written, or write the old meaning"
            self.found.append(Found(line, "warning", AllocationError("AC515", note, hint=hint)))
        if self.target == "controller":
            self.remove(entry)
            self.added_gpus(mode)
        else:
            self.modernise(entry, mode)
        if not self.edits:
            return None
        new = apply(self.text, self.edits)
        self.check(new, mode, line)
        return new

    # -- what the file says ------------------------------------------------------------------

    def mode(self, entry: tuple[Node, Node]) -> AllocationMode:
        """The mode of the file."""
        key, value = entry[0], self.document.resolved(entry[1])
        if value.kind != "scalar" or "${" in value.value:
            what = "an interpolation" if value.kind == "scalar" else f"a {value.kind}"
            raise self.alone(
                key,
                "AC522",
                f"allocation_mode is {what}",
                "write each engine's backend, and delete allocation_mode",
                value.value,
            )
        try:
            return AllocationMode.from_str(value.value)
        except AllocationError as error:
            line = self.document.line_of(key.start)
            raise _LeftAloneError([Found(line, "error", e) for e in error.errors]) from None

    def nested(self) -> Iterator[Found]:
        """Keys of this name that are not the top-level field."""
        top = {id(key) for key, _ in self.root.entries}
        stack: list[Node] = [self.root]
        while stack:
            node = stack.pop()
            stack += node.items
            for key, value in node.entries:
                stack.append(value)
                if key.kind == "scalar" and key.value == FIELD and id(key) not in top:
                    yield self.fault(
                        key,
                        "AC522",
                        "allocation_mode stands inside another section or list here; "
                        "only the top-level field is migrated",
                        "write each engine's backend beside it, and delete it",
                    )

    def check_readers(self, entry: tuple[Node, Node]) -> None:
        """Nothing else in the file may read a mode that is removed."""
        if self.target != "controller":
            return
        value = entry[1]
        readers = [n for n in scalars(self.root) if n is not value and _READER.search(n.value)]
        if value.anchor:
            readers += [n for n in _aliases(self.root) if n.value == value.anchor]
        if readers:
            raise _LeftAloneError(
                [
                    self.fault(
                        node,
                        "AC524",
                        f"this reads allocation_mode: {clip(node.value)}",
                        "let it read an engine's backend, then migrate again",
                    )
                    for node in readers
                ]
            )

    def has_scheduler(self) -> bool:
        """Whether ``scheduler.type`` stands in the file."""
        section = self.root.get("scheduler")
        return section is not None and section.get("type") is not None

    def scheduler(self) -> str | None:
        """``scheduler.type`` of the file."""
        section = self.root.get("scheduler")
        kind = section.get("type") if section else None
        if kind is None or _unset(kind) or "${" in kind.value:
            return None
        return kind.value

    def several_nodes(self) -> bool:
        """Whether ``cluster.n_nodes`` is a number over 1."""
        section = self.root.get("cluster")
        nodes = section.get("n_nodes") if section else None
        return nodes is not None and re.fullmatch("0*[1-9][0-9]+|0*[2-9]", nodes.value) is not None

    def section(self, engine: str, role: str, spec: str) -> tuple[Path, Node, Node]:
        """Path, key and value of the section that holds an engine's backend, which is `spec`."""
        entry = self.root.entry(engine)
        path: Path = (engine,)
        if entry is None or _unset(entry[1]):
            raise self.no_section(path, spec)
        if engine == "teacher" and entry[1].get("backend") is None:
            inner = "rollout" if role == "inference" else "train"
            if below := entry[1].entry(inner):
                entry, path = below, (engine, inner)
            elif entry[1].get("engine_type"):
                raise self.no_section((engine, inner), spec)
        if entry[1].kind != "mapping":
            raise self.no_section(path, spec, entry)
        return path, *entry

    def backend(self, section: Node) -> Node | None:
        """The backend of a section, its own or merged into it."""
        own = section.get("backend")
        if own is not None:
            return own
        merged = self.document.resolved(section.get("<<") or section)
        bases = merged.items if merged.kind == "sequence" else [merged]
        for base in map(self.document.resolved, bases):
            if found := base.get("backend"):
                return found
        return None

    # -- what is written -----------------------------------------------------------------------

    def give(self, engine: str, allocation: ModelAllocation, spec: str) -> None:
        """Write the backend that the mode gives `engine`, unless it is there."""
        path, key, section = self.section(engine, allocation.role, spec)
        node = self.backend(section)
        if node is None or _unset(node):
            self.write(path, key, section, f'"{spec}"')
            return
        line = self.document.line_of(node.start)
        name = ".".join((*path, "backend"))
        value = self.document.resolved(node).value
        if not _means(value, allocation):
            raise self.alone(
                node,
                "AC510",
                f"allocation_mode gives {clip(engine)} {spec}, {name} says {clip(value)}",
                f"keep one of them: {name}={spec}, or delete allocation_mode",
                value,
            )
        message = f"{name} says what allocation_mode says already"
        error = AllocationError("AC511", message, hint="nothing to do")
        self.found.append(Found(line, "warning", error))

    def inherit(self, engine: str, parent: str, mode: AllocationMode) -> None:
        """Let a section that the mode does not name take its parent's backend, as it did."""
        entry = self.root.entry(engine)
        if engine in mode.engines() or entry is None or entry[1].kind != "mapping":
            return
        own, base = self.backend(entry[1]), self.root.get(parent)
        has_parent = parent in mode.engines() or (
            base is not None and (node := self.backend(base)) is not None and not _unset(node)
        )
        if has_parent and (own is None or _unset(own)):
            self.write((engine,), *entry, f"${{{parent}.backend}}")

    def write(self, path: Path, key: Node, section: Node, value: str) -> None:
        """Set ``backend`` in a section: in place where it is unset, else as its first key."""
        self.written.add((*path, "backend"))
        if section.flow and not value.startswith('"'):
            value = f'"{value}"'
        if entry := section.entry("backend"):
            self.edits.append(self.replaced(entry, value))
        elif section.flow:
            at = self.text.index("{", section.start) + 1
            more = ", " if section.entries else ""
            self.edits.append(Edit(at, at, f"backend: {value}{more}"))
        else:
            self.edits.append(self.first_line(key, section, value))

    def first_line(self, key: Node, section: Node, value: str) -> Edit:
        """A new line after the one that opens a block section."""
        document = self.document
        header = section.start if section.anchor or section.tag else key.end
        at = document.next_line(header)
        first = section.entries[0][0]
        indent = self.text[document.line_start(first.start) : first.start]
        if first.start < at or indent.strip(" "):
            raise self.alone(
                key,
                "AC523",
                f"no line can be put into the section {clip(key.value)}",
                f"write backend: {value} into it, and delete allocation_mode",
            )
        return Edit(at, at, f"{indent}backend: {value}{document.line_break(header)}")

    def replaced(self, entry: tuple[Node, Node], value: str) -> Edit:
        """Another scalar in the place of one; anchor, tag and comments stay."""
        key, node = entry
        if node.start == node.end:  # nothing stands after the colon
            at = self.text.index(":", key.end) + 1
            return Edit(at, at, f" {value}")
        properties = _PROPERTIES.match(self.text, node.start, node.end)
        start, end = properties.end() if properties else node.start, self.end_of(node)
        return Edit(start, end, "  ".join([value, *self.inner_comments(node)]))

    def end_of(self, scalar: Node) -> int:
        """Where a scalar ends; of a block scalar without the blank lines after it."""
        return len(self.text[: scalar.end].rstrip()) if scalar.style in _BLOCK else scalar.end

    def inner_comments(self, scalar: Node) -> list[str]:
        """The comment behind the sign that opens a block scalar."""
        if scalar.style not in _BLOCK:
            return []
        header = self.text[scalar.start : self.document.next_line(scalar.start)]
        return [comment.rstrip() for comment in _COMMENT.findall(header)]

    def remove(self, entry: tuple[Node, Node]) -> None:
        """Take the mode out; comments on its lines stay, and say what they are about."""
        key, value = entry
        if self.root.flow:
            self.edits.append(self.removed_from_flow(entry))
            return
        text, document = self.text, self.document
        start, colon = document.line_start(key.start), text.index(":", key.end) + 1
        end = max(self.end_of(value), colon)
        indent, after = text[start : key.start], document.next_line(end)
        if indent.strip(" "):
            raise self.alone(key, "AC522", "allocation_mode is not written as a plain key", _EDIT)
        comments = [*_COMMENT.findall(text[colon : value.start]), *self.inner_comments(value)]
        comments += _COMMENT.findall(text[end:after])
        lines = [indent + comment.rstrip() for comment in comments]
        if lines:
            mode = " ".join(document.resolved(value).value.split())
            lines[-1] += f" (of the former {mode})" + _LINE_END.findall(text[end:after])[0]
        self.edits.append(Edit(start, after, document.line_break(start).join(lines)))

    def removed_from_flow(self, entry: tuple[Node, Node]) -> Edit:
        """The entry of a mapping in braces, with one comma."""
        entries = self.root.entries
        i = next(i for i, (key, _) in enumerate(entries) if key is entry[0])
        if i + 1 < len(entries):
            edit = Edit(entry[0].start, entries[i + 1][0].start, "")
        else:
            edit = Edit(entries[i - 1][1].end if i else entry[0].start, entry[1].end, "")
        if "#" in self.text[edit.start : edit.end]:
            raise self.alone(entry[0], "AC522", "a comment stands inside what is removed", _EDIT)
        return edit

    def modernise(self, entry: tuple[Node, Node], mode: AllocationMode) -> None:
        """Bring the mode into the newest dialect, in the quotes it has."""
        key, value = entry
        if mode.dialect == NEWEST:
            return
        if value.kind == "alias":
            raise self.alone(key, "AC522", "allocation_mode is an alias", _EDIT)
        quote = value.style if value.style in ("'", '"') else ""
        if not quote and (self.root.flow or value.style):
            quote = '"'
        self.edits.append(self.replaced(entry, f"{quote}{mode.modern()}{quote}"))
        self.written.add((FIELD,))

    # -- what the result must hold -----------------------------------------------------------

    def check(self, new: str, mode: AllocationMode, line: int) -> None:
        """Read the new text: the same engines, and everything else as it was."""
        skip = frozenset({(FIELD,), *self.written})
        try:
            document = Document(new)
        except YamlError as fault:
            raise self.unlike(line, fault.message) from None
        after = document.root
        if after is None or shape(self.root, skip) != shape(after, skip):
            raise self.unlike(line, "something else would change")
        if changed := self.changed_elsewhere(document, after, mode):
            raise self.unlike(line, f"an alias would change {clip(changed)} too")
        left = after.get(FIELD)
        if (left is None) is not (self.target == "controller"):
            raise self.unlike(line, "allocation_mode would not be what it shall be")
        if left is not None and AllocationMode.from_str(left.value).engines() != mode.engines():
            raise self.unlike(line, "allocation_mode would mean something else")
        file = _File(document, after, self.target)
        for engine, allocation in mode.engines().items():
            section = file.section(engine, allocation.role, mode.spelled()[engine])[2]
            node = file.backend(section)
            if node is None or not _means(document.resolved(node).value, allocation):
                raise self.unlike(line, f"{engine} would have another backend")

    def changed_elsewhere(self, document: Document, after: Node, mode: AllocationMode) -> str:
        """Where aliases and merges carry something to that was not written there; "": nowhere."""
        if not self.document.anchors:
            return ""
        skip = {(FIELD,), *self.written, *self.heirs(document, after, mode)}
        above = {path[:depth] for path in skip for depth in range(len(path))}
        stack: list[tuple[Node, Node, Path]] = [(self.root, after, ())]
        seen = set()
        while stack:
            old, new, path = stack.pop()
            old, new = self.document.resolved(old), document.resolved(new)
            if path not in above:  # nothing is skipped below: once is enough
                if (id(old), id(new)) in seen:
                    continue
                seen.add((id(old), id(new)))
            before, now = self.document.merged(old), document.merged(new)
            keys = {key for key in before.keys() | now.keys() if (*path, key) not in skip}
            if not keys <= before.keys() & now.keys():
                return ".".join(path)
            stack += [(before[key], now[key], (*path, key)) for key in keys]
            stack += [(*pair, (*path, "-")) for pair in zip(old.items, new.items, strict=True)]
        return ""

    def heirs(self, document: Document, after: Node, mode: AllocationMode) -> Iterator[Path]:
        """Backends that an alias brings to an engine that inherited the same one before."""
        engines = mode.engines()
        for engine, parent in INHERITS.items():
            section = after.get(engine)
            backend = document.merged(section).get("backend") if section else None
            value = document.resolved(backend).value if backend else ""
            if parent in engines and _means(value, engines[parent]):
                yield engine, "backend"

    def unlike(self, line: int, why: str) -> _LeftAloneError:
        message = f"the migrated file would not mean the same: {why}"
        return _LeftAloneError(
            [Found(line, "error", AllocationError("AC527", message, hint=_EDIT))]
        )

    def added_gpus(self, mode: AllocationMode) -> None:
        """Engines that shared GPUs under the SPMD launcher and have GPUs of their own now."""
        engines = mode.engines()
        shared = {e: group[0] for group in mode.groups() for e in group[1:]}
        for engine, parent in INHERITS.items():
            if engine not in engines and parent in engines:
                shared[engine] = parent
        for engine, host in shared.items():
            entry = self.root.entry(engine)
            if entry is None or _unset(entry[1]) or self.is_off(engine):
                continue
            strategy = self.document.merged(entry[1]).get("scheduling_strategy")
            strategy = self.document.resolved(strategy) if strategy else None
            kind = strategy.get("type") if strategy else None
            if strategy and (strategy.kind != "mapping" or (kind and kind.value == "colocation")):
                continue
            gpus = counted(engines.get(engine, engines[host]).world_size, "GPU")
            strategy_line = f"scheduling_strategy: {{type: colocation, target: {host}}}"
            message = f"{engine} shared the GPUs of {host}, and adds {gpus} of its own now"
            hint = f"to share them again add below {engine}: the line {strategy_line}"
            line = self.document.line_of(entry[0].start)
            error = AllocationError("AC530", message, hint=hint)
            self.found.append(Found(line, "warning", error))

    def is_off(self, engine: str) -> bool:
        """Whether AReaL builds no ref here: ``actor.kl_ctl`` is 0 beside a rollout."""
        if engine != "ref" or self.root.get("rollout") is None:
            return False
        actor = self.root.get("actor")
        node = actor.get("kl_ctl") if actor else None
        try:
            value = node.value if node else str(DEFAULT_KL_CTL)
            return value.isascii() and float(value) <= 0
        except ValueError:
            return False

    # -- what is wrong ---------------------------------------------------------------------------

    def fault(self, node: Node, code: str, message: str, hint: str, text: str = "") -> Found:
        error = AllocationError(code, message, hint=hint, text=text)
        return Found(self.document.line_of(node.start), "error", error)

    def alone(
        self, node: Node, code: str, message: str, hint: str, text: str = ""
    ) -> _LeftAloneError:
        return _LeftAloneError([self.fault(node, code, message, hint, text)])

    def no_section(
        self, path: Path, spec: str, entry: tuple[Node, Node] | None = None
    ) -> _LeftAloneError:
        """AC523 for the section at `path`, which is missing, or the `entry` that is no mapping."""
        name = clip(".".join(path))
        line = f'backend: "{spec}"'
        if entry:
            kind = entry[1].kind
            why = f"its section is {'an' if kind == 'alias' else 'a'} {kind}"
            line = f"the line {line} where its section is"
        else:
            why = "the file has no such section"
            line = f"the line {clip(path[-1])}: {{{line}}}" + " below teacher" * (len(path) > 1)
        bare = spec.replace("(", "").replace(")", "")  # which Hydra takes without quotes
        override = shlex.quote(f"++{name}.backend={bare}")
        hint = f"write {line}, or {override} on the command line, and delete allocation_mode"
        key = entry or self.root.entry(FIELD)
        message = f"allocation_mode gives {name} a backend, and {why}"
        return self.alone(key[0] if key else self.root, "AC523", message, hint)


_BLOCK = ("|", ">")
"""Styles of block scalars."""

_EDIT = "edit the file by hand: give each engine its backend, and delete allocation_mode"


def _unset(node: Node) -> bool:
    """Whether a value says nothing: empty, null or ``???``."""
    if node.kind != "scalar":
        return False
    return node.value in ("", "???") or (not node.style and node.value in _NULLS)


def _means(value: str, allocation: ModelAllocation) -> bool:
    try:
        other = ModelAllocation.from_str(value)
    except AllocationError:
        return False
    return (other.backend, other.parallel) == (allocation.backend, allocation.parallel)


def _aliases(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.kind == "alias":
            yield node
        stack += [*node.items, *(part for entry in node.entries for part in entry)]
