"""Proves a migration: the file is planned before and after, and every other value compared.

The old file is planned as AReaL's launchers read it, the new one as what it was migrated for. The
environment is not read: what depends on it is the same on both sides.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from areal_conf.config.areal_defaults import ROLES
from areal_conf.config.compose import compose_file, compose_named
from areal_conf.config.overrides import quoted
from areal_conf.documents.isolation import environment_hidden, foreign_source
from areal_conf.documents.yaml_text import endless_interpolation
from areal_conf.errors import AllocationError
from areal_conf.planning.checks import examine
from areal_conf.planning.options import PlanOptions
from areal_conf.planning.state import Engine, ResolvedExperiment

KeyPath = tuple[str, ...]

_MANY = 500
"""Values of a section that is left out of the plans where nothing reads it."""

_SAME_BUDGET = {"AC306", "AC308"}
"""What more GPUs than the cluster has are called under either mode."""

_GIVEN = {"AC316", "AC359"}
"""What people give beside the layout: the scheduler, by the printed command, and what it grants."""


class UnprovenError(Exception):
    """Both sides differ, or one cannot be planned; the text says how."""


def changed_value(before: Any, after: Any, allowed: set[KeyPath]) -> KeyPath | None:
    """Path of a value that differs and is not at one of the `allowed` paths; None: there is none.

    Both sides are plain values as the loader gives them, merges and aliases followed.
    """
    stack: list[tuple[KeyPath, Any, Any]] = [((), before, after)]
    while stack:
        path, old, new = stack.pop()
        if path in allowed or old is new:
            continue
        if type(old) is not type(new):
            return path
        if isinstance(old, dict):
            missing = [key for key in old.keys() ^ new.keys() if (*path, key) not in allowed]
            if missing:
                return (*path, str(missing[0]))
            stack += [((*path, key), old[key], new[key]) for key in old.keys() & new.keys()]
        elif isinstance(old, list):
            if len(old) != len(new):
                return path
            stack += [((*path, "-"), *pair) for pair in zip(old, new, strict=True)]
        elif old != new and not (old != old and new != new):
            return path
    return None


def engine_paths() -> Iterator[KeyPath]:
    """Where a migration may change what an engine says; the plans prove what it means."""
    for name in ROLES:
        for section in ((name,), (name, "rollout"), (name, "train")):
            yield (*section, "backend")
            yield (*section, "scheduling_strategy")


def prove(before: Any, after: Any, launcher: str, scheduler: str | None, *, apart: bool) -> None:
    """Hold the plan of a migrated config to that of the old one.

    Args:
        before: the old config, of AReaL's launchers.
        after: the new one.
        launcher: the launcher that the old one ran under.
        scheduler: the scheduler that the new one runs under; None: the same launcher.
        apart: whether engines that shared GPUs may have their own now.

    Raises:
        UnprovenError: the plans differ.
    """
    new_options = PlanOptions(launcher=launcher if scheduler is None else None, strict=True)
    old_state, old_errors = _planned(before, PlanOptions(launcher=launcher, strict=True))
    new_state, new_errors = _planned(_scheduled(after, scheduler), new_options)
    old_engines = old_state.engines if old_state else {}
    new_engines = new_state.engines if new_state else {}
    for name in {**old_engines, **new_engines}:
        old, new = old_engines.get(name), new_engines.get(name)
        if old is None or new is None:
            raise UnprovenError(f"{name} would be {'an' if old is None else 'no'} engine")
        if old.active != new.active:
            raise UnprovenError(f"{name} would {'not ' if old.active else ''}run")
        if _layout(old) != _layout(new):
            raise UnprovenError(f"{name} would have another backend")
    if old_state and new_state and not apart:
        _hold_gpus(old_state, new_state)
    worse = new_errors.keys() - old_errors.keys() - _GIVEN
    if old_errors.keys() & _SAME_BUDGET or apart:
        worse -= _SAME_BUDGET
    if worse:
        code = min(worse)
        raise UnprovenError(f"AReaL would refuse it ({code}, {new_errors[code].message})")


def _hold_gpus(old: ResolvedExperiment, new: ResolvedExperiment) -> None:
    """Refuse where other engines share GPUs, or where more GPUs are reserved.

    Which engine of a group reserves them is another one under each mode.
    """
    for engine in old.engines.values():
        one, other = _group(old, engine), _group(new, new.engines[engine.name])
        if one != other:
            names = " and ".join(sorted(one ^ other))
            raise UnprovenError(f"{engine.name} and {names} would not share GPUs as they did")
    before, after = (sum(e.gpus for e in state.engines.values()) for state in (old, new))
    if before != after:
        raise UnprovenError(f"it would need {after} GPUs, not {before}")


def _group(state: ResolvedExperiment, engine: Engine) -> set[str]:
    """The engines that run and sit on the GPUs of `engine`, itself among them."""
    host = state.host(engine)
    return {e.name for e in state.engines.values() if e.active and state.host(e) is host}


def _layout(engine: Engine) -> object:
    allocation = engine.allocation
    return allocation and (allocation.backend, allocation.parallel)


def _planned(
    cfg: Any, options: PlanOptions
) -> tuple[ResolvedExperiment | None, dict[str, AllocationError]]:
    """The engines of a config (None where it has none to read), and its errors by code."""
    with environment_hidden():
        try:
            facts, findings = examine(cfg, options)
        except AllocationError as error:
            return None, {error.code: error}
    errors = {error.code: error for severity, error in findings if severity == "error"}
    return facts, errors


def _scheduled(cfg: Any, scheduler: str | None) -> Any:
    """`cfg` with the scheduler that its command names."""
    from omegaconf import OmegaConf

    if scheduler is not None and OmegaConf.is_config(cfg):
        OmegaConf.set_struct(cfg, False)
        section = OmegaConf.to_container(cfg).get("scheduler")  # type: ignore[union-attr]
        if section is None or isinstance(section, dict):
            OmegaConf.update(cfg, "scheduler.type", scheduler, force_add=True)
    return cfg


# -- what is planned ----------------------------------------------------------------------------


def configs(old: Any, new: Any, file: Path | None, new_text: str) -> tuple[Any, Any]:
    """The configs of a text before and after, composed where Hydra can.

    Raises:
        UnprovenError: the old one cannot be read.
    """
    from omegaconf import OmegaConf

    if path := endless_interpolation(old):
        raise UnprovenError(f"{path} cannot be resolved in time")
    if file is not None and isinstance(old, dict) and isinstance(old.get("defaults"), list):
        composed = _composed(old, file, new_text)
        if composed is not None:
            return composed
    unread = set(_unread(old))
    try:
        before, after = (
            OmegaConf.create({k: v for k, v in data.items() if k not in unread})
            for data in (old, new)
        )
    except Exception as error:  # a key or value that OmegaConf has no type for
        raise UnprovenError(f"OmegaConf cannot read it ({type(error).__name__})") from None
    return before, after


def _composed(old: dict[str, Any], file: Path, new_text: str) -> tuple[Any, Any] | None:
    """What Hydra composes from the file, and from the new text in its place; None: it cannot."""
    with tempfile.TemporaryDirectory() as folder, environment_hidden(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if foreign_source(old) is not None:
            return None
        hydra = old.get("hydra")
        paths = (hydra.get("searchpath") if isinstance(hydra, dict) else None) or []
        try:
            Path(folder, file.name).write_text(new_text, encoding="utf-8")
            paths = [f"file://{file.absolute().parent}", *map(str, paths)]
            override = f"hydra.searchpath=[{','.join(map(quoted, paths))}]"
            return compose_file(file), compose_named(folder, file.name, [override])
        except Exception:  # part of an app whose other configs are elsewhere
            return None


def _unread(data: dict[str, Any]) -> Iterator[str]:
    """Root keys of large sections that no plan reads: they are the same on both sides."""
    large = [
        key
        for key, value in data.items()
        if isinstance(value, (dict, list)) and key not in ROLES and _is_large(value)
    ]
    if not large:
        return
    asked = " ".join(_interpolations(data))
    for key in large:
        is_engine = isinstance(data[key], dict) and "backend" in data[key]
        if not is_engine and key not in ("cluster", "areal_plan") and str(key) not in asked:
            yield key


def _is_large(value: Any) -> bool:
    todo, count = [value], 0
    while todo and count < _MANY:
        count += 1
        top = todo.pop()
        todo += top.values() if isinstance(top, dict) else top if isinstance(top, list) else ()
    return count >= _MANY


def _interpolations(value: Any) -> Iterator[str]:
    todo, seen = [value], set()
    while todo:
        top = todo.pop()
        if isinstance(top, str):
            if "${" in top:
                yield top
        elif isinstance(top, (dict, list)) and id(top) not in seen:
            seen.add(id(top))
            todo += top.values() if isinstance(top, dict) else top
