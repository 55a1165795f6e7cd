"""Rankings and suggestions as they are printed as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from areal_conf.estimate.timing.step import PARTS
from areal_conf.suggest.ranking import EQUAL, Ranked, requests_at_once

if TYPE_CHECKING:
    from areal_conf.estimate.timing.step import StepTime


def time_shares(time: StepTime | None) -> dict[str, float]:
    """The parts of a step as shares of it, without those that are nothing."""
    if time is None or not time.total:
        return {}
    shares = {part: round(getattr(time, part) / time.total, 3) for part in PARTS}
    return {part: share for part, share in shares.items() if share}


def as_json(ranked: Ranked) -> dict[str, Any]:
    """Verdict, memory, relative time and warnings of one layout."""
    memory, time = ranked.memory, ranked.time
    found: dict[str, Any] = {"verdict": ranked.verdict}
    if memory is not None:
        found["memory"] = None if memory.step is None else [round(x, 2) for x in memory.step]
    if ranked.allocation.role == "inference":
        found["requests"] = requests_at_once(ranked)
    else:
        found["time"] = None if ranked.relative is None else round(ranked.relative, 3)
        found["about_equal"] = ranked.relative is not None and ranked.relative < EQUAL
        found["rough"] = time is not None and time.rough
        found["parts"] = time_shares(time)
    found["warnings"] = [
        {"code": x.error.code, "message": x.error.message, "hint": x.error.hint}
        for x in ranked.warnings
    ]
    return found
