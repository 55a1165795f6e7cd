"""One YAML config: its `allocation_mode` replaced by a backend in each engine's section.

Only what must change is changed (`areal_conf.migrate.document`), and the result is proven before
it is handed out (`areal_conf.migrate.proof`): its plan is the old one's, and everything else is
what it was. What cannot be decided is left alone, with the reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from areal_conf.config.areal_defaults import (
    DEFAULT_KL_CTL,
    INHERITS,
    LAUNCHERS,
    ROLES,
    turns_ref_off,
)
from areal_conf.documents.roots import config_place
from areal_conf.documents.yaml_text import BadYamlError, load
from areal_conf.errors import AllocationError, clip, counted
from areal_conf.legacy.allocation_mode import AllocationMode
from areal_conf.legacy.carry_over import FIELD, means
from areal_conf.legacy.dialects import NEWEST
from areal_conf.migrate import proof
from areal_conf.migrate.document import Document, Edit, Node, YamlError, apply, scalars, shape
from areal_conf.migrate.outcome import Found, LeftAloneError, Migration
from areal_conf.migrate.proof import KeyPath, UnprovenError
from areal_conf.spec.allocation import ModelAllocation

Target = Literal["controller", "spmd"]

_AS_KEY = re.compile(rf"""\b{FIELD}(?:["']\s*:|\s*:(?:\s|$))|\?\s+["']?{FIELD}\b""")
_READER = re.compile(rf"\$\{{|\}}|\b{FIELD}\b")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_ANCHOR = re.compile(r"&\S+")
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\r\n\x85\u2028\u2029]*")
_LINE_END = re.compile(r"[\r\n\x85\u2028\u2029]*\Z")
_NULLS = ("", "~", "null", "Null", "NULL")


def _may_hold_a_mode(text: str) -> bool:
    """Whether to parse at all: the word stands where a key could, in no line of comment."""
    return any(
        _AS_KEY.search(line) is not None and not line.lstrip("\ufeff \t").startswith("#")
        for line in text.splitlines()
    )


def migrate_yaml(
    text: str, target: Target = "controller", *, file: Path | None = None, apart: bool = False
) -> Migration:
    """Move the `allocation_mode` of one YAML text into its engines' sections.

    Args:
        text: the file, line ends and byte order mark as they are.
        target: ``controller`` removes the mode; ``spmd`` keeps it, in the newest dialect.
        file: where the text is from, so that the configs around it are known.
        apart: give engines that shared the trainer's GPUs their own, instead of writing colocation.
    """
    if not _may_hold_a_mode(text):
        return Migration()
    try:
        document = Document(text)
        root = document.root
        if root is None:
            return Migration()
        data = load(text.removeprefix("\ufeff"), lenient=True)
    except (YamlError, BadYamlError) as fault:
        hint = "fix the YAML, then migrate again"
        error = AllocationError("AC521", f"no config can be read here: {fault.message}", hint=hint)
        return Migration(found=[Found(fault.line, "error", error)])
    migrating = _File(document, root, data, target, file, apart)
    try:
        new = migrating.migrated()
    except LeftAloneError as reason:
        return Migration(found=sorted(reason.found, key=lambda f: f.line))
    found = sorted(migrating.found, key=lambda f: f.line)
    return Migration(
        new, found, migrating.scheduler(), migrating.has_scheduler(), migrating.several_nodes()
    )


class _File:
    def __init__(
        self,
        document: Document,
        root: Node,
        data: Any,
        target: Target,
        file: Path | None,
        apart: bool,
    ) -> None:
        self.document = document
        self.text = document.text
        self.root = root
        self.data = data
        self.target = target
        self.file = file
        self.apart = apart
        self.found: list[Found] = []
        self.edits: list[Edit] = []
        self.written: set[KeyPath] = set()
        self.replaced_aliases: set[KeyPath] = set()

    def migrated(self) -> str | None:
        """The new text; None where nothing changes.

        Raises:
            LeftAloneError: the file cannot be decided.
        """
        if nested := list(self.nested()):
            raise LeftAloneError(nested)
        entry = self.root.entry(FIELD)
        if entry is None or _unset(self.document.resolved(entry[1])):
            return None
        mode = self.mode(entry)
        self.check_readers(entry)
        faults: list[Found] = []
        for engine, allocation in mode.engines().items():
            try:
                self.give(engine, allocation, mode.spelled()[engine])
            except LeftAloneError as reason:
                faults += reason.found
        if faults:
            raise LeftAloneError(faults)
        for engine, parent in INHERITS.items():
            self.inherit(engine, parent, mode)
        line = self.document.line_of(entry[0].start)
        for note in mode.notes:
            hint = "keep what was written, or write the old meaning"
            self.found.append(Found(line, "warning", AllocationError("AC515", note, hint=hint)))
        if self.target == "controller":
            self.remove(entry)
            self.share_gpus(mode)
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
            raise LeftAloneError([Found(line, "error", e) for e in error.errors]) from None

    def nested(self) -> Iterator[Found]:
        """Keys of this name that are not the top-level field: no file is migrated by half."""
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
        readers = [n for n in scalars(self.root) if n is not value and _reads_mode(n.value)]
        if value.anchor:
            readers += [n for n in _aliases(self.root) if n.value == value.anchor]
        if readers:
            raise LeftAloneError(
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

    def section(self, engine: str, role: str, spec: str) -> tuple[KeyPath, Node, Node]:
        """Path, key and value of the section that holds an engine's backend, which is `spec`."""
        entry = self.root.entry(engine)
        path: KeyPath = (engine,)
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

    def value(self, path: KeyPath) -> Any:
        """What the loader has at a path, merges and aliases followed; None: nothing."""
        found = self.data
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def backend(self, path: KeyPath, meant: ModelAllocation | None) -> Any:
        """The backend of the section at `path`; None where it is unset, or only a label of what is
        `meant` (``backend: fsdp`` beside a mode that gives the sizes)."""
        value = self.value((*path, "backend"))
        is_label = meant is not None and value == meant.backend
        return None if value in ("", None, "???") or is_label else value

    # -- what is written -----------------------------------------------------------------------

    def give(self, engine: str, allocation: ModelAllocation, spec: str) -> None:
        """Write the backend that the mode gives `engine`, unless it is there."""
        path, key, section = self.section(engine, allocation.role, spec)
        value = self.backend(path, allocation)
        if value is None:
            self.write(path, key, section, "backend", f'"{spec}"')
            return
        own = section.get("backend")
        line = self.document.line_of((own or key).start)
        name = ".".join((*path, "backend"))
        if not isinstance(value, str) or not means(value, allocation):
            raise self.alone(
                own or key,
                "AC510",
                f"allocation_mode gives {clip(engine)} {spec}, {name} says {clip(str(value))}",
                f"keep one of them: {name}={spec}, or delete allocation_mode",
                str(value),
            )
        message = f"{name} says what allocation_mode says already"
        error = AllocationError("AC511", message, hint="nothing to do")
        self.found.append(Found(line, "warning", error))

    def inherit(self, engine: str, parent: str, mode: AllocationMode) -> None:
        """Let a section that the mode does not name take its parent's backend, as it did."""
        entry, engines = self.root.entry(engine), mode.engines()
        if engine in engines or entry is None or entry[1].kind != "mapping":
            return
        has_parent = parent in engines or self.backend((parent,), None) is not None
        if has_parent and self.backend((engine,), engines.get(parent)) is None:
            up = ".." if self.file and config_place(self.file, self.text).is_elsewhere else ""
            self.write((engine,), *entry, "backend", f"${{{up}{parent}.backend}}")

    def write(self, path: KeyPath, key: Node, section: Node, name: str, value: str) -> None:
        """Set `name` in a section: in place where it is there, else as its first key."""
        self.written.add((*path, name))
        if section.flow and "${" in value:
            value = f'"{value}"'
        if entry := section.entry(name):
            self.edits.append(self.replaced(entry, value))
        elif section.flow:
            at = self.text.index("{", section.start) + 1
            if section.entries:
                value = f"{value}, "
            elif any(edit.start == at for edit in self.edits):
                name = f", {name}"
            self.edits.append(Edit(at, at, f"{name}: {value}"))
        else:
            self.edits.append(self.first_line(key, section, f"{name}: {value}"))

    def first_line(self, key: Node, section: Node, line: str) -> Edit:
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
                f"write {line} into it, and delete allocation_mode",
            )
        return Edit(at, at, f"{indent}{line}{document.line_break(header)}")

    def replaced(self, entry: tuple[Node, Node], value: str) -> Edit:
        """Another scalar in the place of one; its anchor and comments stay, a tag goes."""
        key, node = entry
        if node.start == node.end:  # nothing stands after the colon
            at = self.text.index(":", key.end) + 1
            return Edit(at, at, f" {value}")
        properties = _PROPERTIES.match(f"{self.text[node.start : node.end]} ")
        anchor = _ANCHOR.search(properties[0]) if properties else None
        value = f"{anchor[0]} {value}" if anchor else value
        new = "  ".join([value, *self.inner_comments(node)])
        return Edit(node.start, self.end_of(node), new)

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
        """Read the new text: the same plan, and everything else as it was."""
        try:
            after = Document(new).root
            data = load(new.removeprefix("\ufeff"), lenient=True)
        except (YamlError, BadYamlError) as fault:
            raise self.unlike(line, fault.message) from None
        skip = frozenset({(FIELD,), *self.written, *self.replaced_aliases})
        if after is None or shape(self.root, skip) != shape(after, skip):
            raise self.unlike(line, "something else would change")
        allowed = {(FIELD,), *self.written, *proof.engine_paths()}
        changed = proof.changed_value(self.data, data, allowed)
        if changed is not None:
            raise self.unlike(line, f"an alias would change {clip('.'.join(changed))} too")
        left = after.get(FIELD)
        if (left is None) is not (self.target == "controller"):
            raise self.unlike(line, "allocation_mode would not be what it shall be")
        if left is not None and AllocationMode.from_str(left.value).engines() != mode.engines():
            raise self.unlike(line, "allocation_mode would mean something else")
        kind = self.next_scheduler()
        launcher = kind if kind in LAUNCHERS else "local"
        try:
            old, planned = proof.configs(self.data, data, self.file, new)
            scheduler = kind if self.target == "controller" else None
            proof.prove(old, planned, launcher, scheduler, apart=self.apart)
        except UnprovenError as reason:
            raise self.unlike(line, str(reason)) from None

    def next_scheduler(self) -> str:
        """The scheduler that the command of the migrated file names."""
        return self.scheduler() or ("slurm" if self.several_nodes() else "local")

    def unlike(self, line: int, why: str) -> LeftAloneError:
        message = f"the migrated file would not mean the same: {why}"
        hint = f"{_EDIT}; or migrate with --no-colocation" if "share" in why else _EDIT
        return LeftAloneError([Found(line, "error", AllocationError("AC527", message, hint=hint))])

    def share_gpus(self, mode: AllocationMode) -> None:
        """Let engines that shared GPUs under the SPMD launcher share them still."""
        for engine, host in self.shared(mode).items():
            entry = self.root.entry(engine)
            if entry is None or self.is_off(engine) or not isinstance(self.value((engine,)), dict):
                continue
            path = self.engine_path(engine)
            entry = entry[1].entry(path[1]) if path[1:] else entry
            if entry is None:
                continue
            strategy = self.value((*path, "scheduling_strategy"))
            if isinstance(strategy, dict) and strategy.get("type") == "colocation":
                continue
            if self.apart:
                self.found.append(self.added_gpus(entry[0], engine, host, mode))
            else:
                self.colocate(path, *entry, host)

    def shared(self, mode: AllocationMode) -> dict[str, str]:
        """Each engine that shared the GPUs of another, which AReaL creates before it."""
        engines = mode.engines()
        shared: dict[str, str] = {}
        for group in mode.groups():
            order = sorted(group, key=lambda e: [*ROLES, e].index(e))
            shared.update(dict.fromkeys(order[1:], order[0]))
        hosts = {e for e in engines if e not in shared}
        for engine, parent in INHERITS.items():
            if engine not in shared and parent in hosts:
                runs_in_trainer = engine in engines or self.value((engine,)) is not None
                if runs_in_trainer:
                    shared[engine] = parent
        teacher = engines.get("teacher")
        if "teacher" not in shared and teacher and teacher.role == "training" and "actor" in hosts:
            shared["teacher"] = "actor"
        return shared

    def engine_path(self, engine: str) -> KeyPath:
        """Where an engine is: a teacher may be below ``teacher.train`` or ``teacher.rollout``."""
        if engine == "teacher" and self.value((engine, "backend")) in ("", None, "???"):
            written = {path[:-1] for path in self.written if path[0] == engine}
            for path in ((engine, "train"), (engine, "rollout")):
                if path in written or self.value((*path, "backend")):
                    return path
        return (engine,)

    def colocate(self, path: KeyPath, key: Node, section: Node, host: str) -> None:
        """Write ``scheduling_strategy`` into the section at `path`."""
        engine = ".".join(path)
        own = section.entry("scheduling_strategy")
        if section.kind == "alias":
            value = f"{{<<: *{section.value}, scheduling_strategy: {_colocation(host)}}}"
            self.edits.append(Edit(section.start, section.end, value))
            self.written.add((*path, "scheduling_strategy"))
            self.replaced_aliases.add(path)
        elif own is None or _unset(own[1]):
            self.write(path, key, section, "scheduling_strategy", _colocation(host))
        elif own[1].kind == "mapping" and own[1].entries:
            below = (*path, "scheduling_strategy")
            self.write(below, *own, "target", host)
            self.write(below, *own, "type", "colocation")
        else:
            raise self.alone(
                own[0],
                "AC523",
                f"the scheduling_strategy of {engine} cannot be changed here",
                f"write scheduling_strategy: {_colocation(host)} below {engine}, or migrate with "
                "--no-colocation",
            )

    def added_gpus(self, key: Node, engine: str, host: str, mode: AllocationMode) -> Found:
        engines = mode.engines()
        gpus = counted(engines.get(engine, engines[host]).world_size, "GPU")
        message = f"{engine} shared the GPUs of {host}, and adds {gpus} of its own now"
        line = f"scheduling_strategy: {_colocation(host)}"
        hint = f"to share them again add below {engine}: the line {line}"
        error = AllocationError("AC530", message, hint=hint)
        return Found(self.document.line_of(key.start), "warning", error)

    def is_off(self, engine: str) -> bool:
        """Whether AReaL builds no ref here: ``actor.kl_ctl`` is 0 beside a rollout."""
        if engine != "ref" or self.root.get("rollout") is None:
            return False
        actor = self.root.get("actor")
        node = actor.get("kl_ctl") if actor else None
        return turns_ref_off(node.value if node else DEFAULT_KL_CTL)

    # -- what is wrong ---------------------------------------------------------------------------

    def fault(self, node: Node, code: str, message: str, hint: str, text: str = "") -> Found:
        error = AllocationError(code, message, hint=hint, text=text)
        return Found(self.document.line_of(node.start), "error", error)

    def alone(
        self, node: Node, code: str, message: str, hint: str, text: str = ""
    ) -> LeftAloneError:
        return LeftAloneError([self.fault(node, code, message, hint, text)])

    def no_section(
        self, path: KeyPath, spec: str, entry: tuple[Node, Node] | None = None
    ) -> LeftAloneError:
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


def _colocation(host: str) -> str:
    return f"{{type: colocation, target: {host}}}"


def _reads_mode(text: str) -> bool:
    """Whether an interpolation in a text names the mode; in one pass, however many open."""
    if FIELD not in text:
        return False
    depth = 0
    for found in _READER.finditer(text):
        if found[0] == "${":
            depth += 1
        elif found[0] == "}":
            depth = max(0, depth - 1)
        elif depth:
            return True
    return False


def _aliases(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.kind == "alias":
            yield node
        stack += [*node.items, *(part for entry in node.entries for part in entry)]
