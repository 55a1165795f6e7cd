"""Reads configs of others without the environment and without importing what they name."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_hidden: ContextVar[list[str] | None] = ContextVar("hidden", default=None)
_lock = threading.RLock()
_users = 0
_real: dict[str, Any] = {}
_NAMES = ("oc.env", "env")


class EnvironmentHiddenError(Exception):
    """A value depends on the environment, which is not read here."""


@contextlib.contextmanager
def environment_hidden() -> Iterator[list[str]]:
    """Inside, ``${oc.env:...}`` cannot be resolved, in this thread; gives the names asked for.

    OmegaConf keeps its resolvers for the whole process. Other threads read the environment as ever.
    """
    asked: list[str] = []
    token = _hidden.set(asked)
    _wrap()
    try:
        yield asked
    finally:
        _unwrap()
        _hidden.reset(token)


def is_environment_hidden() -> bool:
    """Whether this thread is inside `environment_hidden`."""
    return _hidden.get() is not None


def _wrap() -> None:
    global _users
    from omegaconf.basecontainer import BaseContainer

    with _lock:
        _users += 1
        if _users > 1:
            return
        for name in _NAMES:
            real = BaseContainer._resolvers.get(name)
            if real is not None:
                _real[name] = real
                BaseContainer._resolvers[name] = _guarded(real)


def _unwrap() -> None:
    global _users
    from omegaconf.basecontainer import BaseContainer

    with _lock:
        _users -= 1
        if not _users:
            BaseContainer._resolvers.update(_real)
            _real.clear()


def _guarded(real: Any) -> Any:
    """The resolver `real` of OmegaConf, which refuses where the environment is hidden.

    Its arguments differ between versions of OmegaConf, and are only handed on.
    """

    def resolver(*args: Any, **options: Any) -> Any:
        asked = _hidden.get()
        if asked is None:
            return real(*args, **options)
        asked.append("")
        raise EnvironmentHiddenError("the environment is not read here")

    return resolver


def foreign_source(data: Any) -> str | None:
    """The entry of ``hydra.searchpath`` in a primary config that Hydra would import code for.

    ``pkg://`` imports the package it names; only directories are taken.
    """
    from omegaconf import OmegaConf

    if not isinstance(data, dict) or "hydra" not in data:
        return None
    try:
        listed = OmegaConf.select(OmegaConf.create(data), "hydra.searchpath")
        paths = [str(path) for path in listed] if listed is not None else []
    except Exception:  # Hydra refuses it, or it takes the environment
        return "an interpolation"
    return next((p for p in paths if "://" in p and not p.startswith("file://")), None)
