"""Interpolations of an exported config: each resolves where AReaL reads it to what it was here.

AReaL's process knows OmegaConf's own resolvers, and nothing outside of what is exported. Where an
interpolation would mean something else there, its value is written, unless that came from the
environment: a value of the environment is never written.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from areal_conf.config.redaction import environment_read, put_back
from areal_conf.errors import AllocationError
from areal_conf.spec.allocation import ModelAllocation

_RESOLVER = re.compile(r"\$\{\s*([A-Za-z_][\w.]*)\s*:")
_SIZES = re.compile(
    r"\$\{\s*areal\.(?:backend|dp|tp|pp|cp|ep|etp|edp|world_size|instances|instance_size|gpus|nodes"
    r"|gpus_per_node|canonical)\s*:[^}]*(?:\}|\$\{[^}]*\}\s*\})"
)
"""Resolvers of this package whose results are made from a backend string that was understood."""

_ROUNDS = 5

_PIECE = 3
"""Characters of a value of the environment that are too many to be left in a text."""

Key = str | int
Path = tuple[Any, ...]


class UnresolvedError(Exception):
    """A value cannot be resolved here: nobody knows what it is."""


def settle(plain: Any, source: Any, origin: Callable[[Path], Path], prefix: str) -> None:
    """Change the interpolations in `plain` that would mean something else in AReaL's process.

    Args:
        plain: the config that is exported, as mappings and lists; it is changed.
        source: the config that it was made of.
        origin: where the value at a path of `plain` stands in `source`.
        prefix: config path of `source`, and a dot; for messages.

    Raises:
        AllocationError: AC326: a value of the environment would have to be written.
    """
    from omegaconf import OmegaConf

    OmegaConf.clear_cache(source._get_root())
    alone = OmegaConf.create(copy.deepcopy(plain))
    wanted = {path: _Wanted(source, origin(path), raw) for path, raw in _interpolations(plain)}
    # Those first that AReaL cannot resolve at all: others lead to them.
    order = sorted(wanted, key=lambda path: not wanted[path].foreign)
    for _ in range(_ROUNDS):
        changed = False
        for path in order:
            want = wanted[path]
            if want.unresolved or ((not want.foreign or want.settled) and want.is_met(alone, path)):
                continue
            for candidate in want.candidates():
                _put(alone, path, candidate)
                if want.is_met(alone, path):
                    break
            else:
                raise _refusal(want, prefix)
            want.settled = changed = True
            _put(plain, path, candidate)
        if not changed:
            return


class _Wanted:
    """What the interpolation at one place of the source resolves to."""

    def __init__(self, source: Any, path: Path, raw: str) -> None:
        self.source = source
        self.path = path
        self.raw = raw
        self.foreign = any(not name.startswith("oc.") for name in _RESOLVER.findall(raw))
        self.settled = False
        self.unresolved = False
        with environment_read() as names:
            try:
                self.value = _resolved(source, path)
            except UnresolvedError:
                self.unresolved = True
        self.names = sorted(name for name in names if os.environ.get(name))

    def is_met(self, alone: Any, path: Path) -> bool:
        """Whether the value at `path` of the config that is exported is this one."""
        try:
            return _same(_resolved(alone, path), self.value)
        except UnresolvedError:
            return False

    def candidates(self) -> Iterator[Any]:
        """What may be written, the most telling first."""
        if not self.foreign:
            yield self.raw
        if not self.names or self.is_known():
            yield _escaped(self.value)
            return
        if isinstance(self.value, str):
            yield from _hidden(self.value, self.names)
        for name in self.names:
            yield f"${{oc.env:{name}}}"
            yield f"${{oc.decode:${{oc.env:{name}}}}}"
        if isinstance(self.value, (dict, list)):
            with contextlib.suppress(UnresolvedError):
                yield _spelled(_node(self.source, self.path))

    def alone(self) -> Any:
        """What means this value whatever is around it.

        Raises:
            UnresolvedError: nothing does.
        """
        from omegaconf import OmegaConf

        for candidate in self.candidates():
            config = OmegaConf.create({"value": candidate})
            if self.is_met(config, ("value",)):
                return candidate
        raise UnresolvedError

    def is_known(self) -> bool:
        """Whether the value is none of the environment's, though it depends on it."""
        if self.value is None or isinstance(self.value, bool):
            return True
        if isinstance(self.value, str) and _is_spec(self.value):
            return True
        return _SIZES.fullmatch(self.raw) is not None


def _is_spec(text: str) -> bool:
    try:
        ModelAllocation.from_str(text)
    except AllocationError:
        return False
    return True


def _interpolations(plain: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    pairs = plain.items() if isinstance(plain, dict) else enumerate(plain)
    for key, value in pairs:
        if isinstance(value, str) and "${" in value:
            yield (*path, key), value
        elif isinstance(value, (dict, list)):
            yield from _interpolations(value, (*path, key))


def _resolved(config: Any, path: Path) -> Any:
    """The value at a path, everything in it resolved, as plain mappings and lists."""
    from omegaconf import OmegaConf

    node = config
    try:
        for key in path:
            node = node[key]
        if OmegaConf.is_config(node):
            return OmegaConf.to_container(
                node, resolve=True, enum_to_str=True, throw_on_missing=True
            )
    except Exception as error:  # of OmegaConf, or of whatever resolver
        raise UnresolvedError from error
    return node


def _put(config: Any, path: Path, value: Any) -> None:
    for key in path[:-1]:
        config = config._get_node(key) if hasattr(config, "_get_node") else config[key]
    config[path[-1]] = value


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of one type, all the way down."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


def _escaped(value: Any) -> Any:
    """`value` as it is written so that nothing in it is an interpolation."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, str) and "${" in value:
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return value


def _hidden(text: str, names: list[str]) -> Iterator[str]:
    """`text` with interpolations for the values of all the variables `names`; nothing where parts
    of a value would be left in it."""
    found = put_back(text, names)
    rest = re.sub(r"\$\{oc\.env:[^}]*\}", "\0", found)
    values = [os.environ[name] for name in names]
    whole = all(f"${{oc.env:{name}}}" in found for name in names)
    pieces = {rest[i : i + _PIECE] for i in range(len(rest) - _PIECE + 1)}
    if whole and not any(piece in value for value in values for piece in pieces):
        yield found


def _spelled(node: Any) -> Any:
    """A section that an interpolation leads to, written out: what the environment gave stays an
    interpolation.

    Raises:
        UnresolvedError: it cannot be written so.
    """
    from omegaconf import DictConfig

    spelled = {}
    for key in list(node) if isinstance(node, DictConfig) else range(len(node)):
        raw = node._get_node(key)._value()
        if not isinstance(raw, str) or "${" not in raw:
            inner = node[key]
            spelled[key] = _spelled(inner) if hasattr(inner, "_get_node") else _escaped(inner)
            continue
        want = _Wanted(node, (key,), raw)
        if want.unresolved:
            raise UnresolvedError
        spelled[key] = want.alone()
    return spelled if isinstance(node, DictConfig) else list(spelled.values())


def _node(config: Any, path: Path) -> Any:
    for key in path:
        config = config[key]
    return config


def _refusal(want: _Wanted, prefix: str) -> AllocationError:
    path = prefix + ".".join(map(str, want.path))
    return AllocationError(
        "AC326",
        "AReaL's process cannot resolve this, and its value is of the environment "
        f"({', '.join(want.names) or 'not known'}), which is never written out",
        text=want.raw[:200],
        path=path,
        hint="write an interpolation of OmegaConf's own, such as ${oc.env:NAME}, or the value",
    )
