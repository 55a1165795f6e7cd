"""Layouts that are one move from another: a factor of 2 goes from one dimension to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from areal_conf.config.overrides import for_hydra
from areal_conf.errors import AllocationError
from areal_conf.spec.allocation import ModelAllocation, trusted_allocation
from areal_conf.spec.backends import BACKENDS

_MOVES = (
    ("d", "t"), ("t", "d"), ("d", "p"), ("p", "d"), ("d", "c"), ("c", "d"), ("t", "p"), ("p", "t"),
)  # fmt: skip
"""From the first to the second; those that are tried first stand first."""


def neighbours_of(job: Mapping[str, Any]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Overrides and layouts of the neighbours of a job, for each engine that its overrides name."""
    overrides: list[str] = list(job["overrides"] or ())
    for at, override in enumerate(overrides):
        key, equal, _ = override.partition("=")
        engine = key.lstrip("+").split(".")[-2] if key.count(".") else ""
        spec = (job["layouts"] or {}).get(engine)
        if not equal or not key.endswith(".backend") or spec is None:
            continue
        followers = [name for name, other in job["layouts"].items() if other == spec]
        for moved in _moved(spec):
            changed = [*overrides[:at], f"{key}={for_hydra(moved)}", *overrides[at + 1 :]]
            kept = [one for one in changed if not one.lstrip("+").startswith("trial_name=")]
            names = {name: moved for name in followers if name in (engine, "ref", "critic")}
            yield kept, {**job["layouts"], **names}


def _moved(spec: str) -> Iterator[str]:
    try:
        allocation = ModelAllocation.from_str(spec)
    except AllocationError:
        return
    sizes = allocation.parallel.sizes
    if sizes.etp > 1:
        return
    for source, target in _MOVES:
        size = getattr(sizes, source)
        if size % 2:
            continue
        changed = sizes._replace(**{source: size // 2, target: getattr(sizes, target) * 2})
        if BACKENDS[allocation.backend].takes(changed):
            yield str(trusted_allocation(allocation.backend, None, changed))
