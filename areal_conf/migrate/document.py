"""YAML with the places of everything in it, and edits that leave every other character as it is.

A parser only says where things stand; the text is changed by `apply`, character by character. Round
trips through a YAML writer do not keep these files: they fold long lines, move comments and drop
quotes (tests/test_migrate.py shows it on AReaL's own configs). The parser is the one Hydra reads
configs with (PyYAML, in C where it can be), so that both see the same file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Kind = Literal["scalar", "mapping", "sequence", "alias"]

_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""What ends a line in YAML 1.1."""
_BOM = "\ufeff"
_MAX_DEPTH = 200


class YamlError(Exception):
    """The text is no YAML that a config can be; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message, line)
        self.message = message
        self.line = line


@dataclass(slots=True)
class Node:
    """One value, and where it stands: ``text[start:end]``, anchor and tag included.

    `end` of a block mapping or sequence is that of its opening.
    """

    kind: Kind
    start: int
    end: int
    value: str = ""
    style: str = ""
    anchor: str | None = None
    tag: str | None = None
    entries: Sequence[tuple[Node, Node]] = ()
    items: Sequence[Node] = ()

    @property
    def flow(self) -> bool:
        """Whether a mapping is written in braces."""
        return self.style == "flow"

    def get(self, key: str) -> Node | None:
        """The value under `key` of a mapping; None where there is none."""
        entry = self.entry(key)
        return entry[1] if entry else None

    def entry(self, key: str) -> tuple[Node, Node] | None:
        """Key and value under `key` of a mapping; None where there is none."""
        return next((e for e in self.entries if e[0].kind == "scalar" and e[0].value == key), None)


class Edit(NamedTuple):
    """``text[start:end]`` becomes `new`."""

    start: int
    end: int
    new: str


class Document:
    """A YAML text of one document, read.

    Raises:
        YamlError: it cannot be parsed, holds several documents, or is nested deeper than any
            config.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._offset = len(_BOM) if text.startswith(_BOM) else 0
        self._lines = [0, *(m.end() for m in _BREAK.finditer(text))]
        self.anchors: dict[str, Node] = {}
        self.root = self._read()

    def line_of(self, at: int) -> int:
        """Number of the line that holds the character `at`, from 1."""
        return bisect_right(self._lines, min(at, max(0, len(self.text) - 1)))

    def line_start(self, at: int) -> int:
        """Where the line that holds the character `at` begins (after a byte order mark)."""
        return max(self._offset, self._lines[bisect_right(self._lines, at) - 1])

    def next_line(self, at: int) -> int:
        """Where the line after that of the character `at` begins; the end where there is none."""
        found = _BREAK.search(self.text, at)
        return found.end() if found else len(self.text)

    def line_break(self, at: int) -> str:
        """The characters that end the line of the character `at`."""
        found = _BREAK.search(self.text, at)
        return found[0] if found else "\n"

    def resolved(self, node: Node) -> Node:
        """The node an alias stands for; any other node itself."""
        return self.anchors.get(node.value, node) if node.kind == "alias" else node

    # -- reading ------------------------------------------------------------------------------

    def _read(self) -> Node | None:
        import yaml  # type: ignore[import-untyped]

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        builder = _Builder(self)
        try:
            for event in yaml.parse(self.text[self._offset :], Loader=loader):
                builder.take(type(event).__name__, event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = " ".join(filter(None, (error.context, error.problem)))
            raise YamlError(message, mark.line + 1 if mark else 1) from None
        except yaml.YAMLError as error:
            raise YamlError(str(error).splitlines()[0], 1) from None
        except (UnicodeError, ValueError) as error:
            raise YamlError(str(error), 1) from None
        return builder.root

    def span(self, event: Any) -> tuple[int, int]:
        """Where an event of the parser stands in the text."""
        return event.start_mark.index + self._offset, event.end_mark.index + self._offset


class _Builder:
    """Builds nodes from the parser's events, without recursion."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.root: Node | None = None
        self.documents = 0
        self.open: list[_Open] = []

    def take(self, name: str, event: Any) -> None:
        if name == "ScalarEvent":
            start, end = self.document.span(event)
            style = event.style or ""
            self.add(Node("scalar", start, end, event.value, style, event.anchor, event.tag))
        elif name == "AliasEvent":
            self.add(Node("alias", *self.document.span(event), event.anchor))
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            node = self.open.pop().node
            if node.flow:
                node.end = self.document.span(event)[1]
        elif name in ("MappingStartEvent", "SequenceStartEvent"):
            self.begin("mapping" if name.startswith("M") else "sequence", event)
        elif name == "DocumentStartEvent":
            self.documents += 1
            if self.documents > 1:
                raise YamlError("the file holds several documents", event.start_mark.line + 1)

    def begin(self, kind: Kind, event: Any) -> None:
        if len(self.open) >= _MAX_DEPTH:
            message = f"nested deeper than {_MAX_DEPTH} levels"
            raise YamlError(message, event.start_mark.line + 1)
        style = "flow" if event.flow_style else "block"
        node = Node(kind, *self.document.span(event), "", style, event.anchor, event.tag)
        self.add(node)
        opened = _Open(node)
        if kind == "mapping":
            node.entries = opened.entries
        else:
            node.items = opened.items
        self.open.append(opened)

    def add(self, node: Node) -> None:
        if node.anchor:
            self.document.anchors[node.anchor] = node
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        if parent.node.kind == "sequence":
            parent.items.append(node)
        elif parent.key is not None:
            parent.entries.append((parent.key, node))
            parent.key = None
        else:
            parent.key = node


class _Open:
    """A mapping or sequence that is being read."""

    __slots__ = ("entries", "items", "key", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.key: Node | None = None
        self.entries: list[tuple[Node, Node]] = []
        self.items: list[Node] = []


def apply(text: str, edits: Iterable[Edit]) -> str:
    """`text` with `edits`, which do not overlap; several at one place in the order given."""
    out: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda e: e.start):
        out += [text[at : edit.start], edit.new]
        at = edit.end
    return "".join([*out, text[at:]])


def shape(node: Node, skip: frozenset[tuple[str, ...]] = frozenset()) -> list[tuple[str, ...]]:
    """All that `node` holds, as a list that two documents can be compared by.

    Entries of mappings at a path in `skip` (key by key, from `node`) are left out.
    """
    out: list[tuple[str, ...]] = []
    stack: list[tuple[Node, tuple[str, ...]] | None] = [(node, ())]
    while stack:
        top = stack.pop()
        if top is None:
            out.append(("end",))
            continue
        node, path = top
        out.append((node.kind, node.value, node.style, node.anchor or "", node.tag or ""))
        stack.append(None)
        for item in reversed(node.items):
            stack.append((item, (*path, "-")))
        for key, value in reversed(node.entries):
            here = (*path, key.value)
            if here not in skip:
                stack += [(value, here), (key, here)]
    return out


def scalars(node: Node) -> Iterator[Node]:
    """Every scalar at or below `node`, keys included, in order."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node.kind == "scalar":
            yield node
        children = [*node.items, *(part for entry in node.entries for part in entry)]
        stack += reversed(children)
