"""Parsing one backend string, the first time and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from measure import Effort, Job, Row, compare

from areal_conf import ModelAllocation
from areal_conf.spec import allocation

TITLE = "Parsing a backend string"
SPECS = (
    "fsdp:d8",
    "sglang:d2t4",
    "megatron:d2p2t4e4",
    "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)",
)
AREAL = "AReaL 1.0.4, `ModelAllocation.from_str`"
_LOOPS = 1000


def rows(effort: Effort) -> Iterator[Row]:
    """Each string, with the cache empty and full."""
    for spec in SPECS:
        yield compare(
            f"`{spec}`, first time",
            partial(allocation._parse, spec),
            AREAL,
            partial(areal_job, spec),
            effort,
            most=30e-6,
            most_times=1 / 1000,
        )
    known = dict.fromkeys(SPECS, 1)
    for peer_name, look_up in (
        ("one look-up in a dictionary", known.get),
        ("a Python function that does one look-up", lambda spec: known[spec]),
    ):
        yield compare(
            f"`{SPECS[-1]}`, again",
            looped(ModelAllocation.from_str, SPECS[-1]),
            peer_name,
            partial(looped, look_up, SPECS[-1]),
            effort,
            whole=(1 / _LOOPS, 1 / _LOOPS),
            most=1e-6,
        )


def looped(function: Callable[[Any], Any], argument: Any) -> Job:
    """Many calls of what takes less than the loop around it does."""

    def job() -> None:
        for _ in range(_LOOPS):
            function(argument)

    return job


def areal_job(spec: str) -> Job:
    """AReaL's own parser, which keeps no results."""
    from areal.api.alloc_mode import ModelAllocation as Theirs

    return partial(Theirs.from_str, spec)


def here() -> None:
    """For the memory: every string once."""
    for spec in SPECS:
        ModelAllocation.from_str(spec)


def peer() -> None:
    """The same with AReaL."""
    for spec in SPECS:
        areal_job(spec)()
