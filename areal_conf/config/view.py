"""Typed reading of a config that nobody vouches for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from areal_conf.config.tree import Tree
from areal_conf.errors import AllocationError, clip

UNSET = ("", None, "???")
"""Values that say nothing; a missing key does so too."""


def is_unset(value: object) -> bool:
    """Whether `value` is unset (None, "" or ???). Never calls ``__eq__`` of foreign types."""
    return value is None or (isinstance(value, str) and value in UNSET)


_MAX_BITS = 4096
"""Of a number: Python refuses to print longer ones."""


class View:
    """One mapping of a config, read without resolving its neighbours."""

    __slots__ = ("_data", "path")

    def __init__(self, data: Any, path: str = "") -> None:
        self._data = data
        self.path = path

    def at(self, key: str) -> str:
        """The config path of `key`."""
        return f"{self.path}.{key}" if self.path else key

    def keys(self) -> list[str]:
        """Keys of the mapping as text, in their order.

        Raises:
            AllocationError: AC309 for a mapping that fails to give them.
        """
        if _is_dataclass(self._data):
            return [f.name for f in dataclasses.fields(self._data)]
        try:
            return [key for key in self._data if isinstance(key, str)]
        except Exception as error:
            raise self._unresolved("", error) from None

    def other_keys(self) -> list[object]:
        """The non-string keys, which `keys` omits."""
        if _is_dataclass(self._data):
            return []
        return [key for key in self._data if not isinstance(key, str)]

    def sections(self) -> list[str]:
        """Keys of the mapping that may hold mappings, as text, in their order."""
        return self._data.sections() if type(self._data) is Tree else self.keys()

    def get(self, key: str, default: Any = None) -> Any:
        """The value under `key`, resolved; `default` where it is absent or ``???``.

        Raises:
            AllocationError: AC309 for an interpolation that leads nowhere, and for a mapping or a
                dataclass that fails to give its value.
        """
        data = self._data
        try:
            if type(data) not in (dict, Tree) and _is_dataclass(data):
                value = getattr(data, key, default)
            else:
                value = data.get(key, default) if key in data else default
        except Exception as error:
            raise self._unresolved(key, error) from None
        if type(value) is int and value.bit_length() > _MAX_BITS:
            raise self._unresolved(key, OverflowError())
        return default if isinstance(value, str) and value == "???" else value

    def section(self, key: str) -> View | None:
        """The mapping under `key`; None where it is absent, null or no mapping."""
        value = self.get(key)
        return View(value, self.at(key)) if is_mapping(value) else None

    def select(self, dotted: str) -> Any:
        """The value at a dotted path below this mapping; None where there is none."""
        view: View | None = self
        *heads, last = dotted.split(".")
        for head in heads:
            view = view.section(head) if view else None
        return view.get(last) if view else None

    def leads_nowhere(self, dotted: str) -> bool:
        """Whether the dotted path names a key that is not there; a null on its way is there."""
        head, dot, rest = dotted.partition(".")
        if head not in self.keys():
            return True
        value = self.get(head)
        if not dot or is_unset(value):
            return False
        return not is_mapping(value) or View(value, self.at(head)).leads_nowhere(rest)

    def raw(self, key: str) -> str | None:
        """The interpolation under `key` as it is written; None where the value is none."""
        data = self._data
        if type(data) is Tree:
            return data.raw(key)
        if not hasattr(data, "_get_node"):
            return None
        node = data._get_node(key, validate_access=False)
        value = node._value() if node is not None else None
        return value if isinstance(value, str) and "${" in value else None

    def _unresolved(self, key: str, error: Exception) -> AllocationError:
        raw = self.raw(key)
        what = "the value cannot be read" if raw is None else "the interpolation cannot be resolved"
        return AllocationError(
            "AC309",
            f"{what} ({type(error).__name__})",
            text=clip(raw or "", 200),
            path=self.at(key) if key else self.path,
            hint="write the value itself, such as fsdp:d8, or an interpolation that leads to it",
        )


_PLAIN = {dict, Tree, str, int, float, bool, type(None), list}
"""Types of which it is plain whether they are a section; the others are asked."""


def _is_dataclass(data: object) -> bool:
    return dataclasses.is_dataclass(data) and not isinstance(data, type)


def is_mapping(value: object) -> bool:
    """Whether `value` is a section of a config: a mapping, a DictConfig or a dataclass."""
    if type(value) in _PLAIN:
        return type(value) in (dict, Tree)
    return isinstance(value, Mapping) or _is_dataclass(value)


def whole_number(text: str) -> int | None:
    """The number that at most eight ASCII digits are; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
