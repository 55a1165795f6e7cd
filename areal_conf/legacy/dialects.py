"""The dialects of ``allocation_mode``, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from areal_conf.spec.allocation import ModelAllocation
from areal_conf.spec.backends import OLD_LETTERS, Role

EXAMPLE = "sglang:d4+fsdp:d4"
DEFAULT_ENGINES: dict[Role, str] = {"inference": "rollout", "training": "actor"}
"""The engine that an unnamed component of each role stands for."""


def engine_of(allocation: ModelAllocation) -> str:
    """The engine a component stands for: its name, or the first engine of its role."""
    return allocation.name or DEFAULT_ENGINES[allocation.role]


class Dialect(NamedTuple):
    """One generation of `allocation_mode`: what it writes that later ones do not.

    Attributes:
        number: 1 is the oldest.
        versions: of AReaL, that wrote it.
        example: a string of this generation.
        separators: between backend and dimensions, where it is not ``:``.
        letters: of dimensions, and their names today.
        words: that stand for a whole mode and hold no layout, each with what it meant.
        halves: words that stand for a half without an engine.
        keys: of the key-value form, and the engine each is today (None: no engine any more).
        slash: whether ``attn/ffn`` sizes are written ``dims/dims``.
        backend_optional: whether a training half may leave its backend out.
    """

    number: int
    versions: str
    example: str
    separators: str = ""
    letters: Mapping[str, str] = {}
    words: Mapping[str, str] = {}
    halves: tuple[str, ...] = ()
    keys: Mapping[str, str | None] = {}
    slash: bool = False
    backend_optional: bool = False


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        1,
        "0.1 to 0.3.1",
        "sglang.d80m2p1+d4m2p4",
        letters=OLD_LETTERS,
        words={
            "manual": "each part of the workflow gave its GPUs in fields of its own",
            "heuristic": "the layout was guessed when the experiment started",
            "search": "the layout was searched for when the experiment started",
            "pipe_data": "the layout was all data and pipeline parallelism, filling the cluster",
            "pipe_model": "the layout was all tensor and pipeline parallelism, filling the cluster",
        },
        keys={
            "actor_train": "actor",
            "actor_inf": "actor",
            "actor_gen": "rollout",
            "critic_train": "critic",
            "critic_inf": "critic",
            "ref_inf": "ref",
            "rew_inf": None,
            "trainDefault": "actor",
            "*": "actor",
        },
        slash=True,
    ),
    Dialect(
        2,
        "0.3.0 to 0.4.0",
        "sglang.d4p1t1+d4p1t1",
        separators=".",
        halves=("eval", "cpu"),
        slash=True,
    ),
    Dialect(3, "0.3.2 to 1.0.2", "sglang:d4p1t1+d4p1t1", backend_optional=True),
    Dialect(4, "0.3.2 to 1.0.4", "sglang[rollout]:d2+fsdp[actor]:d4|fsdp[critic]:d4"),
)
"""The generations, oldest first. In the first three the expert tensor size may have been meant to
be t: that was its default up to AReaL 0.3.3 (areal/api/alloc_mode.py)."""

NEWEST = DIALECTS[-1].number
WORDS = {word: meant for row in DIALECTS for word, meant in row.words.items()}
HALVES = {word: row.number for row in DIALECTS for word in row.halves}
KEYS = {key: (engine, row.number) for row in DIALECTS for key, engine in row.keys.items()}
LETTERS = {old: (new, row.number) for row in DIALECTS for old, new in row.letters.items()}
SEPARATORS = {sign: row.number for row in DIALECTS for sign in row.separators}
SLASH = min(row.number for row in DIALECTS if row.slash)
BARE = next(row.number for row in DIALECTS if row.backend_optional)
