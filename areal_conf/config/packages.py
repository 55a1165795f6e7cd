"""Finds the package that holds an experiment: ``rl`` for ``areal/experiment@rl: ppo``.

Values are looked at as they are written. An interpolation may read the environment, or ask for the
very plan that is being made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from areal_conf.config.areal_defaults import ROLES
from areal_conf.config.view import UNSET
from areal_conf.errors import AllocationError, clip
from areal_conf.spec.allocation import looks_like_spec

_SHOWN = 5


def find_root(cfg: Any, named: str = "") -> str:
    """The dotted path of the experiment in `cfg`; empty where it is the root itself.

    That is `named`, else ``areal_plan.root``, else the one package with engines where the root has
    none.

    Raises:
        AllocationError: AC301 where several packages hold an experiment, and none is named.
    """
    if named != "" or _has_engine(cfg):
        return named
    data = _plain(cfg)
    own = data.get("areal_plan")
    root = dict.get(own, "root") if isinstance(own, dict) else None
    if isinstance(root, str) and root not in UNSET:
        return root
    packages = list(experiment_packages(data))
    if len(packages) > 1 and "" not in packages:
        shown = ", ".join(clip(package, 80) for package in packages[:_SHOWN])
        raise AllocationError(
            "AC301",
            f"{len(packages)} packages of this config hold an experiment: {shown}",
            path="areal_plan.root",
            hint=f"name one of them: --root {clip(packages[0], 80)}, or areal_plan.root in the "
            "config",
        )
    return packages[0] if len(packages) == 1 else ""


def experiment_packages(data: dict[Any, Any]) -> Iterator[str]:
    """Dotted paths of the mappings that hold an experiment; the root is the empty path."""
    own = data.get("areal_plan")
    if isinstance(own, dict) and dict.get(own, "engines"):
        yield ""
        return
    todo: list[tuple[str, dict[Any, Any]]] = [("", data)]
    while todo:
        path, section = todo.pop()
        if _holds_experiment(section, at_root=not path):
            yield path
        for key, value in section.items():
            ours = key in ROLES or not isinstance(key, str) or "." in key
            if isinstance(value, dict) and not ours:
                todo.append((f"{path}.{key}" if path else key, value))


def _has_engine(cfg: Any) -> bool:
    """Whether the root itself says what an engine runs on: then nothing is searched."""
    if not hasattr(cfg, "_get_node"):
        return False
    if cfg._is_none() or cfg._is_missing() or cfg._is_interpolation():
        return True  # whoever reads it says what is wrong
    nodes = (cfg._get_node(name, validate_access=False) for name in ROLES)
    return any(_holds_backend(node) for node in nodes)


def _holds_backend(node: Any) -> bool:
    if node is None or not isinstance(node._value(), dict):
        return False
    backend = node._get_node("backend", validate_access=False)
    return backend is not None and backend._value() not in UNSET


def _plain(cfg: Any) -> dict[Any, Any]:
    """`cfg` as plain mappings, nothing resolved; empty for other kinds of configs."""
    from omegaconf import DictConfig, OmegaConf

    if isinstance(cfg, DictConfig):
        data = OmegaConf.to_container(cfg, resolve=False)
        assert isinstance(data, dict)
        data.pop("hydra", None)
        return data
    return cfg if type(cfg) is dict else {}


def _holds_experiment(section: dict[Any, Any], *, at_root: bool) -> bool:
    if at_root:
        mode = dict.get(section, "allocation_mode")
        if isinstance(mode, str) and mode not in UNSET:
            return True
        # Not their own `get`: what a mapping of the user's does in it is not known.
        inner = (value for value in section.values() if isinstance(value, dict))
        if any(looks_like_spec(dict.get(value, "backend")) for value in inner):
            return True
    return any(_sets_backend(dict.get(section, name), at_root) for name in ROLES)


def _sets_backend(engine: Any, any_value: bool) -> bool:
    """Whether a section, or the engine below a teacher's, sets a backend (that reads as one)."""
    if not isinstance(engine, dict):
        return False
    for section in (engine, dict.get(engine, "rollout"), dict.get(engine, "train")):
        value = dict.get(section, "backend") if isinstance(section, dict) else None
        if value not in UNSET and (any_value or looks_like_spec(value)):
            return True
    return False
