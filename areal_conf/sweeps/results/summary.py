"""What a sweep found out: its jobs best first, how far off the estimates were, what to try next."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from areal_conf.sweeps.record import COMPLETED, FILE, OUT_OF_MEMORY, STOPPED, WAITING, gather
from areal_conf.sweeps.results.neighbours import neighbours_of
from areal_conf.sweeps.results.runs import read_runs

_NO_PART = ("save", "eval", "checkpoint_for_recover", "clear_batches")
"""Times that are no part of a training step (areal/trainer of AReaL 1.0.4)."""

_TRAINING = ("train_step", "critic_train_step")
"""The parts that the estimate of a step's time is about."""

_MOST_NEXT = 5


class NoSweepError(Exception):
    """A directory that holds no sweep, or several."""


def find_sweep(directory: Path) -> Path:
    """The sweep at or below a directory.

    Raises:
        NoSweepError: there is none, or several.
        OSError: there is no such directory.
    """
    if not directory.is_dir():
        raise FileNotFoundError(2, "no such directory", str(directory))
    if (directory / FILE).exists() or any(directory.glob("*/.hydra")):
        return directory
    found = sorted({path.parent for path in directory.glob(f"*/{FILE}")})
    found = found or sorted({path.parent for path in directory.glob(f"*/*/{FILE}")})
    if len(found) == 1:
        return found[0]
    if not found:
        raise NoSweepError(f"{directory} holds no {FILE}, and no jobs of a Hydra multirun")
    names = ", ".join(map(str, found[-5:]))
    raise NoSweepError(f"{directory} holds {len(found)} sweeps; name one, such as {names}")


def results(directory: Path, maximize: bool = False) -> dict[str, Any]:
    """The results of the sweep in `directory`, as ``areal-conf results --format json`` has them.

    Args:
        directory: of a sweep with `areal_layouts`, or of any Hydra multirun.
        maximize: whether larger return values are better, where jobs are ordered by these.

    Raises:
        OSError: the record cannot be read.
        ValueError: it is no record of a sweep.
        NoSweepError: as `find_sweep`.
    """
    sweep = find_sweep(directory)
    found = gather(sweep) if (sweep / FILE).exists() else read_runs(sweep)
    rows = [_row(row) for row in found["jobs"]]
    _compare_times(rows)
    key = _key_of(rows)
    rows = _best_first(rows, key, maximize)
    return {
        "directory": str(sweep),
        "ordered_by": f"{key}, largest first" if maximize and key == "return_value" else key,
        "jobs": rows,
        "left_out": found.get("left_out", {}),
        "accuracy": _accuracy(rows),
        "next": list(_next(rows))[:_MOST_NEXT],
    }


def _row(job: Mapping[str, Any]) -> dict[str, Any]:
    typical = job.get("typical") or {}
    parts = {name: value for name, value in typical.items() if name not in _NO_PART}
    training = [typical[name] for name in _TRAINING if name in typical]
    keys = ("job", "directory", "overrides", "layouts", "gpus", "estimate", "warnings", "state")
    row: dict[str, Any] = {key: job.get(key) for key in keys}
    row.update(
        seconds=job.get("seconds"),
        return_value=job.get("return_value"),
        error=job.get("error"),
        step=round(sum(parts.values()), 4) if parts else None,
        training=round(sum(training), 4) if training else None,
        steps=job.get("steps"),
        memory=job.get("memory"),
        timeperf=job.get("timeperf"),
        memory_off=None,
        memory_inside=None,
        time_off=None,
    )
    _compare_memory(row)
    return row


# -- order ----------------------------------------------------------------------------------------


def _key_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """What jobs are ordered by: the time of a step, else what they returned, else their time."""
    for key in ("step", "return_value"):
        if any(_number(row[key]) is not None for row in rows if row["state"] == COMPLETED):
            return key
    return "step" if any(row["step"] is not None for row in rows) else "seconds"


def _best_first(rows: list[dict[str, Any]], key: str, maximize: bool) -> list[dict[str, Any]]:
    """Jobs that ended well by `key`; then those that did not, then those that have not run."""
    sign = -1 if maximize and key == "return_value" else 1

    def order(row: Mapping[str, Any]) -> tuple[int, float]:
        value = _number(row[key])
        if row["state"] == COMPLETED:
            return (0, sign * value) if value is not None else (1, 0.0)
        return (3 if row["state"] == WAITING else 2, value or 0.0)

    return sorted(rows, key=order)


def _number(value: Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number else None


# -- estimate beside measurement ------------------------------------------------------------------


def _compare_memory(row: dict[str, Any]) -> None:
    """How far the middle of the estimate of the trainers' GPUs is from what the device had used."""
    used = (row["memory"] or {}).get("most_used")
    step = _trainers_step(row["estimate"] or {})
    if not used or step is None:
        return
    row["memory_off"] = round((sum(step) / 2 - used) / used, 4)
    row["memory_inside"] = step[0] <= used <= step[1]


def _trainers_step(estimate: Mapping[str, Any]) -> list[float] | None:
    names = {kind[0] for kind in estimate.get("compare_within") or ()}
    for shared in estimate.get("shared") or ():
        if names & set(shared["engines"]):
            step: list[float] = shared["step"]
            return step
    return None


def _compare_times(rows: Sequence[dict[str, Any]]) -> None:
    """How far the estimated ratio to the fastest job of a kind is from the measured one."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        estimate = row["estimate"] or {}
        if row["training"] and estimate.get("time"):
            kinds.setdefault(repr(estimate.get("compare_within")), []).append(row)
    for members in kinds.values():
        best = min(members, key=lambda row: row["training"])
        for row in members:
            if row is best:
                continue
            estimated = row["estimate"]["time"] / best["estimate"]["time"]
            measured = row["training"] / best["training"]
            row["time_off"] = round(estimated / measured - 1, 4)


def _accuracy(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over all jobs: how far off the estimates were, and which ends they had not said."""
    out: dict[str, Any] = {}
    for key in ("memory_off", "time_off"):
        values = [abs(row[key]) for row in rows if row[key] is not None]
        if values:
            out[key] = {"jobs": len(values), "median": statistics.median(values)}
    if "memory_off" in out:
        out["memory_off"]["inside"] = sum(row["memory_inside"] is True for row in rows)
    ends = [
        row
        for row in rows
        if row["state"] == OUT_OF_MEMORY and (row["estimate"] or {}).get("verdict")
    ]
    if ends:
        unsaid = sum(row["estimate"]["verdict"] == "fits" for row in ends)
        out["out_of_memory"] = {"jobs": len(ends), "not_said": unsaid}
    return out


# -- what to try next -----------------------------------------------------------------------------


def _next(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    waiting = [row for row in rows if row["state"] in (WAITING, STOPPED)]
    for row in sorted(waiting, key=_promise):
        yield {"overrides": row["overrides"], "reason": _why_waiting(row)}
    ended = [row for row in rows if row["state"] == COMPLETED]
    ran_out = [row for row in rows if row["state"] == OUT_OF_MEMORY]
    if ended and any(row["layouts"] for row in rows):
        seen = {_layouts_key(row["layouts"]) for row in rows if row["layouts"]}
        for overrides, layouts in neighbours_of(ended[0]):
            if _layouts_key(layouts) not in seen:
                yield {
                    "overrides": overrides,
                    "reason": "one move from the best layout, and not in this sweep",
                }
    elif ran_out and not waiting:
        keys = "more t or p, a smaller actor.mb_spec.max_tokens_per_mb, or more GPUs"
        yield {"overrides": [], "reason": f"every job that ran was out of memory: try {keys}"}


def _promise(row: Mapping[str, Any]) -> tuple[bool, float]:
    time = (row["estimate"] or {}).get("time")
    return time is None, time or 0.0


def _why_waiting(row: Mapping[str, Any]) -> str:
    estimate = row["estimate"] or {}
    reason = "stopped before its end" if row["state"] == STOPPED else "not run yet"
    if estimate.get("verdict") in ("fits", "may"):
        reason += f"; {'fits' if estimate['verdict'] == 'fits' else 'may fit'} by the estimate"
    if estimate.get("time"):
        reason += f", {estimate['time']:.2f} times the fastest of its kind"
    return reason


def _layouts_key(layouts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(layouts.items()))
