"""Positions in the YAML of a file, and what a finding there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from areal_conf.config.areal_defaults import ROLES
from areal_conf.config.view import UNSET
from areal_conf.errors import AllocationError, Severity
from areal_conf.spec.allocation import looks_like_spec

MERGE = "tag:yaml.org,2002:merge"
TEXT = "tag:yaml.org,2002:str"


class Place(NamedTuple):
    """Where something stands in a file: lines and columns from 1, the end exclusive."""

    line: int = 1
    column: int = 1
    end_line: int = 1
    end_column: int = 1


@dataclass(frozen=True)
class FileFinding:
    """One thing wrong in one file.

    Attributes:
        file: the file as it was named.
        place: the characters at fault; those of the value, or of the section, where the fault has
            none of its own.
        severity: an error, or a warning.
        error: what is wrong.
    """

    file: str
    place: Place
    severity: Severity
    error: AllocationError


def at_index(text: str, index: int) -> Place:
    line = text.count("\n", 0, index) + 1
    column = index - (text.rfind("\n", 0, index) + 1) + 1
    return Place(line, column, line, column)


# -- nodes --------------------------------------------------------------------------------------


def pair(node: Any, key: str) -> tuple[Any, Any] | None:
    """Key and value of `node` under `key` (``[3]`` in a list), merged mappings included."""
    if isinstance(node, yaml.SequenceNode):
        index = int(key[1:-1]) if re.fullmatch(r"\[\d{1,6}\]", key) else -1
        return (None, node.value[index]) if 0 <= index < len(node.value) else None
    seen: set[int] = set()
    stack = [node]
    while stack:  # merges may be many, and of themselves
        node = stack.pop()
        if not isinstance(node, yaml.MappingNode) or id(node) in seen:
            continue
        seen.add(id(node))
        bases: list[Any] = []
        for name, value in node.value:
            if name.value == key:
                return name, value
            if name.tag == MERGE:
                bases += value.value if isinstance(value, yaml.SequenceNode) else [value]
        stack += reversed(bases)
    return None


def child(node: Any, key: str) -> Any:
    found = pair(node, key)
    return found[1] if found else None


def is_set(node: Any) -> bool:
    """Whether a value says anything (empty, null and ``???`` say nothing)."""
    if not isinstance(node, yaml.ScalarNode):
        return node is not None
    return node.value not in UNSET and node.tag != "tag:yaml.org,2002:null"


def has_engine(node: Any) -> bool:
    """Whether a mapping has a standard engine whose backend says something."""
    for name in ROLES:
        section = child(node, name)
        if is_set(child(section, "backend")) or _has_misspelt(section):
            return True
        if name == "teacher":
            kinds = (child(section, kind) for kind in ("rollout", "train"))
            if any(is_set(child(kind, "backend")) for kind in kinds):
                return True
    return False


def _has_misspelt(section: Any) -> bool:
    """Whether a backend string is under another key: ``backedn: fsdp:d8``."""
    if not isinstance(section, yaml.MappingNode):
        return False
    values = (value for key, value in section.value if "back" in str(key.value))
    return any(isinstance(v, yaml.ScalarNode) and looks_like_spec(v.value) for v in values)


def mappings(top: Any) -> Iterator[tuple[str, Any]]:
    """Every mapping below `top`, once, with the path where it stands first."""
    todo, seen = [("", top)], set()
    while todo:
        path, node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield path, node
            pairs = [(join(path, str(key.value)), value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            pairs = [(f"{path}[{i}]", value) for i, value in enumerate(node.value)]
        else:
            continue
        todo += reversed(pairs)


def specs(top: Any) -> Iterator[tuple[str, str]]:
    """Path and text of every ``backend`` that begins as a backend string does."""
    for path, node in mappings(top):
        for key, value in node.value:
            if key.value == "backend" and isinstance(value, yaml.ScalarNode):
                text = value.value
                if looks_like_spec(text) and "${" not in text:
                    yield join(path, "backend"), text


def join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
