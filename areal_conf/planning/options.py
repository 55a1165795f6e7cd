"""The options of a plan, as its callers hand them on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlanOptions:
    """What a plan is held to: the arguments of `areal_conf.plan` beside the config."""

    root: str = ""
    launcher: str | None = None
    model: Any = None
    allow: Iterable[str] = ()
    areal: str | None = None
    strict: bool = False
