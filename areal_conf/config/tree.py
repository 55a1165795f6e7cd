"""A composed config as plain mappings, for reading it fast, also thousands of times over.

`Tree` is what is planned instead of a whole DictConfig. It resolves interpolations as OmegaConf
does: ``${a.b}`` by itself, all others by the DictConfig it came from. The values that a sweep
varies are set in place, and only those are looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig


_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*)\}", re.ASCII)
_ABSENT = object()


class Tree(Mapping[str, Any]):
    """One mapping of a config; the mappings below it are made when they are asked for.

    `reads` holds the keys that were read: changes under any other key cannot affect the result
    (unless `Source.all_read`).
    """

    __slots__ = ("_children", "_data", "_path", "_source", "reads")

    def __init__(self, data: dict[Any, Any], source: Source, path: tuple[str, ...] = ()) -> None:
        self._data = data
        self._source = source
        self._path = path
        self._children: dict[str, Tree] = {}
        self.reads: set[object] = set()

    def __contains__(self, key: object) -> bool:
        self.reads.add(key)
        return key in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, key: str) -> Any:
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def sections(self) -> list[str]:
        """Keys under which mappings may stand. Of other keys nothing is read by this."""
        return [
            key
            for key, value in self._data.items()
            if type(value) is dict or (type(value) is str and "${" in value)
        ]

    def get(self, key: str, default: Any = None) -> Any:
        """The value under `key`, resolved.

        Raises:
            Exception: of OmegaConf, for an interpolation that leads nowhere.
        """
        self.reads.add(key)
        value = self._data.get(key, default)
        kind = type(value)
        if kind is str:
            return self._resolved(key, value) if "${" in value else value
        if kind is dict:
            return self.child(key, value)
        if kind is list:
            return [self._item(key, i, item) for i, item in enumerate(value)]
        return value

    def child(self, key: str, data: dict[Any, Any]) -> Tree:
        """The mapping `data` that stands under `key`."""
        child = self._children.get(key)
        if child is None or child._data is not data:
            child = self._children[key] = Tree(data, self._source, (*self._path, key))
        return child

    def raw(self, key: str) -> str | None:
        """The interpolation under `key` as it is written; None where the value is none."""
        self.reads.add(key)
        value = self._data.get(key)
        return value if isinstance(value, str) and "${" in value else None

    def _item(self, key: str, index: int, value: Any) -> Any:
        if type(value) is dict:
            return self.child(f"{key}[{index}]", value)
        return value

    def _resolved(self, key: str, text: str) -> Any:
        if reference := _REFERENCE.fullmatch(text):
            found = self._source.lookup(reference[1])
            if found is not _ABSENT and found != "???":
                return found
        return self._source.resolve((*self._path, key))


def as_tree(cfg: Any) -> Any:
    """A whole DictConfig as a `Tree`; anything else (also a part of a DictConfig) as it is."""
    parent = getattr(cfg, "_get_parent", None)
    whole = parent is not None and isinstance(cfg, Mapping) and parent() is None
    return Source(cfg).tree if whole else cfg


class Source:
    """The whole config that a `Tree` is part of.

    Attributes:
        tree: its root.
        config: what it was made of.
        all_read: whether something was resolved by OmegaConf, so that any key may have been read.
    """

    def __init__(self, cfg: DictConfig) -> None:
        from omegaconf import OmegaConf

        data = OmegaConf.to_container(cfg, resolve=False)
        assert isinstance(data, dict)
        data.pop("hydra", None)
        self.tree = Tree(data, self)
        self.all_read = False
        self.config = cfg
        self._changed: dict[tuple[str, ...], Any] = {}

    def place(self, path: tuple[str, ...]) -> Place | None:
        """Where a value at `path` can be set; None where that is below a list or a value."""
        node = self.tree
        for key in path[:-1]:
            value = node._data.setdefault(key, {})
            if type(value) is not dict:
                return None
            node = node.child(key, value)
        return Place(node, path, self)

    def lookup(self, dotted: str) -> Any:
        """The value at an absolute path; `_ABSENT` where there is none."""
        value: Any = self.tree
        for key in dotted.split("."):
            value = value.get(key, _ABSENT) if isinstance(value, Tree) else _ABSENT
        return value

    def has(self, dotted: str) -> bool:
        """Whether there is such a key, set or not."""
        *sections, last = dotted.split(".")
        node: Any = self.tree
        for key in sections:
            node = node.get(key) if isinstance(node, Tree) else None
        return isinstance(node, Tree) and last in node

    def resolve(self, path: tuple[str, ...]) -> Any:
        """The value at `path` as OmegaConf resolves it."""
        from omegaconf import OmegaConf

        self.all_read = True
        for changed, value in self._changed.items():
            OmegaConf.update(self.config, ".".join(changed), value, merge=False, force_add=True)
        self._changed.clear()
        node: Any = self.config
        for key in path:
            name, _, index = key.partition("[")
            node = node[name][int(index[:-1])] if index else node[name]
        return node

    def note(self, path: tuple[str, ...], value: Any) -> None:
        """Remember that `value` was set at `path`."""
        self._changed[path] = value


class Place:
    """Where one value of a config stands, to be set again and again."""

    __slots__ = ("_key", "_node", "_path", "_source")

    def __init__(self, node: Tree, path: tuple[str, ...], source: Source) -> None:
        self._node = node
        self._key = path[-1]
        self._path = path
        self._source = source

    def set(self, value: Any) -> None:
        """Put `value` there."""
        if isinstance(value, str) and "${" in value:  # it may lead to a section
            self._node.reads.add(self._key)
        self._node._data[self._key] = value
        self._source.note(self._path, value)

    def was_read(self) -> bool:
        """Whether anybody may have looked at the value."""
        return self._source.all_read or self._key in self._node.reads
