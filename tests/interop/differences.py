"""Where this package reads a backend string otherwise than AReaL 1.0.4, and why.

docs/reference/differences.md shows the same rows; the tests hold both to AReaL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class Difference(NamedTuple):
    """One row.

    Attributes:
        title: what it is about, as the docs say it.
        example: a string that shows it.
        ours: code of the error here; empty where the string is accepted.
        areals: what AReaL makes of the example: ``refused``, or what it accepts it as.
        why: why it stays.
        covers: whether a string shows it.
    """

    title: str
    example: str
    ours: str
    areals: str
    why: str
    covers: Callable[[str], bool]


def _compact(spec: str) -> str:
    return re.sub(r"\s", "", spec)


def _twice(spec: str) -> bool:
    parts = re.split(r"\||attn:|ffn:", _compact(spec).partition(":")[2])
    letters = [re.sub(r"[^a-z]", "", part) for part in parts]
    return any(len(set(text)) < len(text) for text in letters)


def _unbalanced(spec: str) -> bool:
    return spec.count("(") != spec.count(")")


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "a dimension given twice",
        "fsdp:d2d3",
        "AC105",
        "d3: the last one counts",
        "one of the two is a slip, and nobody can tell which",
        _twice,
    ),
    Difference(
        "parentheses not balanced",
        "megatron:(attn:d2|ffn:e2",
        "AC107",
        "accepted",
        "a string that was cut off should not run",
        _unbalanced,
    ),
    Difference(
        "Archon's device mesh",
        "archon:d2t4e2",
        "AC204",
        "accepted",
        "Archon refuses it when its mesh is built, after the workers have started",
        lambda spec: _compact(spec).startswith("archon"),
    ),
    Difference(
        "attn and ffn for fsdp",
        "fsdp:(attn:d2|ffn:t2)",
        "AC205",
        "accepted",
        "FSDP has no expert mesh: the ffn half would be ignored",
        lambda spec: _compact(spec).startswith("fsdp") and "attn" in spec,
    ),
    Difference(
        "sizes and world sizes over 2**20",
        "fsdp:d1048577",
        "AC106",
        "accepted",
        "a slip of the keyboard",
        lambda spec: any(len(size) > 6 for size in re.findall(r"[0-9]+", spec)),
    ),
    Difference(
        "a name beside attn and ffn",
        "megatron[actor]:(attn:d2|ffn:e2)",
        "",
        "refused",
        "AReaL takes it after 2.0.0; `to_areal` leaves the name out",
        lambda spec: "[" in spec and "attn" in spec,
    ),
    Difference(
        "a dimension of size 1 that the backend lacks",
        "sglang:d2c1",
        "",
        "refused",
        "it says nothing; AReaL takes `fsdp:d2p1e1`, which is the same; `to_areal` leaves it out",
        lambda spec: re.search(r"[ce]1(?![0-9])", _compact(spec)) is not None,
    ),
    Difference(
        "edp where e is 1 and the expert tensor size is not",
        "megatron:(attn:d4|ffn:t2)",
        "",
        "edp 4: d",
        "the experts are spread over the ranks all the same: world size / (p * etp) replicas",
        lambda spec: "attn" in spec,
    ),
)
