"""The fields of AReaL's config classes by version, and the known key that an unknown one is near.

``areal_fields.json`` holds them, made by ``tools/areal_fields.py`` from AReaL's repository; it says
the commit of each version. An app may add keys of its own to any section, so that an unknown key
says nothing; one that is a slip of the keyboard away from a key that AReaL reads is worth a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

ROOTS = ("PPOConfig", "GRPOConfig", "SFTConfig", "RWConfig", "DPOConfig")
"""Classes of whole experiments; which of them a config is for, it does not say."""

FIRST_GENERATION = ("realhf.PPOMATHConfig", "realhf.AsyncPPOMATHConfig", "realhf.SFTConfig")
"""The same of AReaL's first generation, which was part of it up to 0.5.1."""

_PARTS = 3
_LAST_RELEASE = (2, 0, 0)
_SHORT = 5
"""Letters up to which a key with more than one slip is taken for another word."""

_NUMBERED = re.compile(r"[_-]?[0-9]+$")

Kinds = tuple[str, ...]
"""Classes that a section may be of."""


class _Spans:
    """Of one field of one class: the class of its value, by version."""

    __slots__ = ("_spans",)

    def __init__(self, spans: list[list[str]]) -> None:
        self._spans = [(kind, _rank(first), _rank(last)) for kind, first, last in spans]

    def at(self, rank: int) -> str | None:
        """The class of the value, empty where it is none of AReaL's; None: no such field."""
        for kind, first, last in self._spans:
            if first <= rank <= last:
                return kind
        return None

    def kinds(self) -> set[str]:
        """The classes of the value in all versions."""
        return {kind for kind, *_ in self._spans}


def versions() -> tuple[str, ...]:
    """The versions whose fields are known, in their order; the last is ``main``."""
    return tuple(_data()["versions"])


def commits_of(version: str) -> tuple[str, ...]:
    """The commits of AReaL that the facts of `version` were read from."""
    return tuple(_data()["versions"][version])


def nearest_version(version: tuple[int, ...]) -> str:
    """The newest of `versions` that is no newer than `version`, else the oldest."""
    padded = version + (0,) * (_PARTS - len(version))
    found = versions()[0]
    for name in versions()[:-1]:
        if tuple(map(int, name.split("."))) <= padded:
            found = name
    return versions()[-1] if padded > _LAST_RELEASE else found


@lru_cache(maxsize=256)
def fields_of(kinds: Kinds, version: str) -> dict[str, Kinds]:
    """The fields that sections of these classes have in `version`, and the classes of values."""
    rank = _rank(version)
    found: dict[str, set[str]] = {}
    for kind in kinds:
        for field, spans in _classes().get(kind, {}).items():
            value = spans.at(rank)
            if value is not None:
                found.setdefault(field, set()).update(filter(None, {value}))
    return {field: tuple(sorted(kinds)) for field, kinds in found.items()}


@lru_cache(maxsize=256)
def ever_known(kinds: Kinds) -> dict[str, Kinds]:
    """The same of all versions together: a key of another version is no slip."""
    found: dict[str, set[str]] = {}
    for kind in kinds:
        for field, spans in _classes().get(kind, {}).items():
            found.setdefault(field, set()).update(filter(None, spans.kinds()))
    return {field: tuple(sorted(kinds)) for field, kinds in found.items()}


def near_keys(keys: Iterable[str], kinds: Kinds, version: str) -> dict[str, str]:
    """The unknown ones of `keys` that look like slips, and the key that each is near.

    Args:
        keys: keys of one section.
        kinds: the classes of AReaL that the section may be of, such as ``("TrainEngineConfig",)``.
        version: one of `versions`.
    """
    known, ever = fields_of(kinds, version), ever_known(kinds)
    found = {}
    for key in keys:
        if key in ever or (key.startswith("_") and _slips(key, "_version") > 2):
            continue  # such keys are Hydra's, or the app's; AReaL has the one
        near = near_key(key, known)
        if near and _NUMBERED.sub("", key) != near:
            found[key] = near
    return found


def near_key(key: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `key` is a slip or two away from; None where there is none.

    A slip is a letter too many, one missing, one for another, or two that changed places:
    ``backedn``, ``n_node`` and ``schedulling_strategy`` are one away, ``eval_dataset`` and
    ``valid_dataset`` three.
    """
    most = 1 if len(key) <= _SHORT else 2
    alike = [one for one in known if abs(len(one) - len(key)) <= most]
    for one in get_close_matches(key, alike, n=3, cutoff=0.7):
        if _slips(key, one) <= most:
            return one
    return None


def _slips(one: str, other: str) -> int:
    """How many slips lie between two words (optimal string alignment)."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != wanted))
            swapped = i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted
            row.append(min(cost, before[j - 2] + 1) if swapped else cost)
        before, last = last, row
    return last[-1]


@lru_cache(maxsize=1)
def _data() -> dict[str, dict[str, dict[str, list[list[str]]]]]:
    path = Path(__file__).with_name("areal_fields.json")
    found: dict[str, dict[str, dict[str, list[list[str]]]]] = json.loads(
        path.read_text(encoding="utf-8")
    )
    return found


@lru_cache(maxsize=1)
def _classes() -> dict[str, dict[str, _Spans]]:
    classes = _data()["classes"]
    return {
        name: {field: _Spans(spans) for field, spans in fields.items()}
        for name, fields in classes.items()
    }


@lru_cache(maxsize=64)
def _rank(version: str) -> int:
    return versions().index(version)
