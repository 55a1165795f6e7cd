"""Rankings and suggestions as they are printed as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

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
        {"code": x.code, "message": x.message, "hint": x.hint} for x in ranked.warnings
    ]
    return found


class Suggestion(BaseModel):
    """One experiment to try.

    Attributes:
        overrides: what to put behind the command of the experiment.
        engines: as in a plan, with memory; the trainer's with ``time``.
        time: of a training step, relative to the fastest layout of the same engine in the same
            split; None without a trainer.
        reasons: why it is suggested, and what it costs.
    """

    model_config = ConfigDict(frozen=True)

    overrides: list[str]
    engines: dict[str, dict[str, Any]]
    time: float | None
    reasons: list[str]


class Suggestions(BaseModel):
    """What to try first, and what is not among it.

    Attributes:
        suggestions: by split of the GPUs, servers rising; within a split best first.
        left_out: layouts that were left out, by the code of what is wrong with them.
        unknown: what the estimates rest on, and what they cannot order.
    """

    model_config = ConfigDict(frozen=True)

    suggestions: list[Suggestion]
    left_out: dict[str, int]
    unknown: list[str]


def time_of(ranked: Ranked) -> dict[str, Any]:
    """The time of a trainer's step: relative, whether about equal, rough, and its parts."""
    fields = as_json(ranked)
    return {
        "relative": fields["time"],
        "about_equal": fields["about_equal"],
        "rough": fields["rough"],
        "parts": fields["parts"],
    }
