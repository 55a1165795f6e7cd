"""Keys that AReaL does not read and that look like slips for those that it does.

An app may keep keys of its own in any section, so that this is never more than a warning.
`areal_conf.config.areal_fields` says which keys AReaL reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from areal_conf.config.areal_fields import (
    FIRST_GENERATION,
    ROOTS,
    Kinds,
    ever_known,
    near_keys,
    nearest_version,
)
from areal_conf.config.view import View, is_mapping
from areal_conf.errors import AllocationError, Diagnostic, clip
from areal_conf.planning.state import ResolvedExperiment

_LAST_OF_THE_FIRST = "0.5.1"
_OWN = ("areal_plan", "hydra", "defaults")
_DEEPEST = 5
"""Sections of AReaL lie within each other no deeper: ``rollout.agent.scheduling_spec[0]``."""


def check(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """What the rule finds; of an app's own engines only ``cluster`` is AReaL's."""
    experiment = facts.experiment
    version = nearest_version(facts.areal)
    if not experiment.own_engines:
        if experiment.first_generation:
            yield from _misspelt(experiment.root, FIRST_GENERATION, _LAST_OF_THE_FIRST)
        else:
            yield from _misspelt(experiment.root, ROOTS, version)
        return
    cluster = _value(experiment.root, "cluster")
    if is_mapping(cluster):
        view = View(cluster, experiment.root.at("cluster"))
        yield from _misspelt(view, ("ClusterSpecConfig",), version)


def _misspelt(view: View, kinds: Kinds, version: str, depth: int = 0) -> Iterator[Diagnostic]:
    """AC365: unknown keys near known ones, of one section and of those below it."""
    try:
        keys = [key for key in view.keys() if depth or key not in _OWN]  # noqa: SIM118
    except AllocationError:
        return
    for key, near in near_keys(keys, kinds, version).items():
        error = AllocationError(
            "AC365",
            f"AReaL reads no {clip(key)} here",
            text=clip(key),
            path=view.at(key),
            hint=f"did you mean {view.at(near)}?",
        )
        yield Diagnostic.of("warning", error)
    known = ever_known(kinds)
    for key in keys if depth < _DEEPEST else ():
        if known.get(key):
            for section in _sections(view, key):
                yield from _misspelt(section, known[key], version, depth + 1)


def _sections(view: View, key: str) -> Iterator[View]:
    """The mapping under `key`, or those of a list there; none behind an interpolation."""
    if view.raw(key) is not None:
        return
    value, path = _value(view, key), view.at(key)
    if is_mapping(value):
        yield View(value, path)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index in range(len(value)):
            try:
                entry = value[index]
            except Exception:  # an interpolation that leads nowhere
                continue
            if is_mapping(entry):
                yield View(entry, f"{path}[{index}]")


def _value(view: View, key: str) -> Any:
    try:
        return view.get(key)
    except AllocationError:
        return None
