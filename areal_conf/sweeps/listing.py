"""The jobs of a sweep as lines to read, and as rows of ``layouts.json``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from areal_conf.sweeps.combinations import Job
from areal_conf.sweeps.record import WAITING


def relative_times(jobs: Sequence[Job]) -> list[float | None]:
    """The time of each job beside the fastest of those that it may be compared with."""
    best: dict[object, float] = {}
    for job in jobs:
        if job.estimate is not None and job.estimate.time is not None:
            kind, time = job.estimate.kind, job.estimate.time
            best[kind] = min(best.get(kind, time), time)
    return [
        None
        if job.estimate is None or job.estimate.time is None
        else job.estimate.time / best[job.estimate.kind]
        for job in jobs
    ]


def rows_of(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """A row for each job, before it runs."""
    rows = []
    for job, time in zip(jobs, relative_times(jobs), strict=True):
        estimate = job.estimate
        rows.append(
            {
                "job": None,
                "directory": None,
                "overrides": job.overrides,
                "layouts": estimate.layouts if estimate else {},
                "gpus": estimate.gpus if estimate else None,
                "estimate": estimate.as_row(time) if estimate else None,
                "warnings": list(job.warnings),
                "state": WAITING,
                "seconds": None,
                "return_value": None,
            }
        )
    return rows


def listed(jobs: Sequence[Job]) -> Iterator[str]:
    """The jobs that would start, a line each, with what is known of them in front."""
    times = relative_times(jobs)
    estimated = any(job.estimate and job.estimate.verdict for job in jobs)
    yield "  #  fits     GiB of GPU   time  overrides" if estimated else "  #  overrides"
    for number, (job, time) in enumerate(zip(jobs, times, strict=True)):
        shown = ""
        if estimated:
            one = job.estimate
            verdict = (one and one.verdict) or "unknown"
            shown = f"{verdict:8} {_memory(job):>11}  {'-' if time is None else f'{time:.2f}':>5}  "
        yield f"{number:3}  {shown}{shlex.join(job.overrides)}"


def _memory(job: Job) -> str:
    if job.estimate is None or job.estimate.most is None:
        return "-"
    gpu = next(iter(job.estimate.memory.values()))["gpu"]
    return f"{job.estimate.most:.0f} of {gpu:.0f}"
