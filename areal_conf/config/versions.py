"""Which AReaL a config is for: some of its rules came, and some went, with a version."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import metadata

from areal_conf.errors import AllocationError, clip, wrong_type

Version = tuple[int, ...]

V0_5_1: Version = (0, 5, 1)
"""The last whose SFT and RW configs call the trainer's section ``model``."""

V1_0_3: Version = (1, 0, 3)
"""The first whose engines have backends of their own, and whose trainers read them alone."""

V1_0_4: Version = (1, 0, 4)
"""The AReaL that is assumed where none is installed and none is named."""

V2_0: Version = (2, 0)
AFTER_2_0: Version = (2, 0, 1)
"""What AReaL's main branch has and the release 2.0.0 has not."""

MAIN: Version = (2**30,)

_NUMBERS = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})", re.ASCII)


def areal_version(named: str | None = None) -> Version:
    """The AReaL to judge by: the one named, else the installed one, else 1.0.4.

    A checkout of AReaL's main branch still calls itself 2.0.0, so that an installed 2.0.0 counts as
    main: what may well run is not refused.

    Args:
        named: a version such as ``"1.0.4"``, or ``"main"``.

    Raises:
        AllocationError: AC309 for anything else.
    """
    if named is None:
        return _installed()
    hint = "write a version such as 1.0.4, or main"
    if not isinstance(named, str):
        raise wrong_type(named, "a version of AReaL", hint=hint)
    if named == "main":
        return MAIN
    match = _NUMBERS.match(named)
    if match is None:
        message = f"{clip(named)!r} is no version of AReaL"
        raise AllocationError("AC309", message, text=clip(named), hint=hint)
    return tuple(map(int, match[1].split(".")))


@lru_cache(maxsize=1)
def _installed() -> Version:
    try:
        match = _NUMBERS.match(metadata.version("areal"))
    except metadata.PackageNotFoundError:
        return V1_0_4
    if match is None:
        return MAIN
    found = tuple(map(int, match[1].split(".")))
    return MAIN if found[:2] == V2_0 else found
