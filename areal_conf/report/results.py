"""The results of a sweep as text, CSV and a page."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from areal_conf.report.page import Column, table_page

_ENDS = {"out_of_memory": "out of memory"}


def table(found: Mapping[str, Any]) -> str:
    """Lines to read: a job a line, then what follows from them. No override is broken."""
    rows = [_cells(number, row) for number, row in enumerate(found["jobs"], 1)]
    heads = ("#", "job", "end", "step s", "GiB (estimate)", "time (estimate)", "value", "overrides")
    shown = [heads, *rows]
    used = [n for n in range(len(heads)) if any(row[n] for row in rows) or n == 0]
    widths = {n: max(len(row[n]) for row in shown) for n in used}
    lines = ["  ".join(row[n].ljust(widths[n]) for n in used).rstrip() for row in shown]
    return "\n".join([*lines, "", *_said(found)]).rstrip() + "\n"


def _cells(number: int, row: Mapping[str, Any]) -> tuple[str, ...]:
    estimate = row["estimate"] or {}
    used = (row["memory"] or {}).get("most_used")
    memory = "" if used is None else f"{used:.1f}"
    if estimate.get("most") is not None:
        memory += f" ({_range(estimate)})"
    time = "" if row["training"] is None else f"{row['training']:.2f} s"
    if estimate.get("time") is not None:
        time += f" ({estimate['time']:.2f})"
    return (
        str(number),
        "" if row["job"] is None else str(row["job"]),
        _ENDS.get(row["state"], row["state"] or ""),
        "" if row["step"] is None else f"{row['step']:.2f}",
        memory.strip(),
        time.strip(),
        "" if row["return_value"] is None else _short(row["return_value"]),
        " ".join(row["overrides"] or ()),
    )


def _range(estimate: Mapping[str, Any]) -> str:
    for shared in estimate.get("shared") or ():
        low, high = shared["step"]
        if high == estimate["most"]:
            return f"{low:.0f}-{high:.0f}"
    return f"to {estimate['most']:.0f}"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def _said(found: Mapping[str, Any]) -> Iterator[str]:
    """What follows from the rows, in words."""
    yield f"{len(found['jobs'])} jobs of {found['directory']}, by {found['ordered_by']}"
    accuracy = found["accuracy"]
    if memory := accuracy.get("memory_off"):
        yield (
            f"memory: {memory['inside']} of {memory['jobs']} inside the estimate; its middle is "
            f"{100 * memory['median']:.0f} % off (median)"
        )
    if time := accuracy.get("time_off"):
        off = 100 * time["median"]
        yield f"time: relative times are {off:.0f} % off (median of {time['jobs']})"
    if ends := accuracy.get("out_of_memory"):
        said = ends["jobs"] - ends["not_said"]
        yield f"out of memory: {ends['jobs']}, of which the estimate had warned of {said}"
    for code, count in found["left_out"].items():
        yield f"left out before the start: {count} by {code}"
    for row in found["jobs"]:
        if row["error"]:
            yield f"job {row['job']}: {_line(row['error'])}"
    if found["next"]:
        yield "try next:"
    for one in found["next"]:
        words = f"{shlex.join(one['overrides'])}  " if one["overrides"] else ""
        yield f"  {words}# {one['reason']}"


def _line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 200 else f"{line[:197]}..."


_CSV = ("job", "state", "step", "training", "seconds", "steps", "memory_off", "memory_inside",
        "time_off")  # fmt: skip


def as_csv(found: Mapping[str, Any]) -> str:
    """A line a job; layouts have a column each."""
    engines = list(dict.fromkeys(name for row in found["jobs"] for name in row["layouts"] or ()))
    heads = ["rank", *_CSV, "gib_used", "estimated_gib", "verdict", "estimated_time"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*heads, *engines, "return_value", "overrides"])
    for number, row in enumerate(found["jobs"], 1):
        estimate, layouts = row["estimate"] or {}, row["layouts"] or {}
        figures = [(row["memory"] or {}).get("most_used"), estimate.get("most")]
        figures += [estimate.get("verdict"), estimate.get("time")]
        last = [row["return_value"], " ".join(row["overrides"] or ())]
        specs = [layouts.get(name) for name in engines]
        writer.writerow([number, *(row[key] for key in _CSV), *figures, *specs, *last])
    return out.getvalue()


def results_page(found: Mapping[str, Any]) -> str:
    """One HTML file: the jobs to sort, and what follows from them."""
    engines = list(dict.fromkeys(name for row in found["jobs"] for name in row["layouts"] or ()))
    columns = [
        Column("#", "#", number=True),
        Column("job", "job", number=True),
        Column("end", "end"),
    ]
    columns += [Column(name, f"layout {name}", code=True) for name in engines]
    columns += _figures(found["jobs"])
    columns += [Column("overrides", "overrides", code=True)]
    rows = [_page_row(number, row) for number, row in enumerate(found["jobs"], 1)]
    return table_page("Results of a sweep", columns, rows, list(_said(found)))


def _figures(jobs: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Columns of figures that some job has."""
    columns = [
        Column("step, s", "step", number=True),
        Column("training, s", "training", number=True),
        Column("relative time, estimated", "time", number=True),
        Column("GiB used", "used", number=True),
        Column("GiB, estimated", "gib"),
        Column("fits, estimated", "verdict"),
        Column("seconds", "seconds", number=True),
        Column("returned", "value", number=True),
    ]
    rows = [_page_row(0, row) for row in jobs]
    return [c for c in columns if any(row[c.key] not in (None, "") for row in rows)]


def _page_row(number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    estimate = row["estimate"] or {}
    value = row["return_value"]
    out: dict[str, Any] = {
        "#": number,
        "job": row["job"],
        "end": _ENDS.get(row["state"], row["state"]),
        "step": row["step"],
        "training": row["training"],
        "time": estimate.get("time"),
        "used": (row["memory"] or {}).get("most_used"),
        "gib": _range(estimate) if estimate.get("most") is not None else "",
        "verdict": estimate.get("verdict", ""),
        "seconds": row["seconds"],
        "value": value
        if isinstance(value, (int, float))
        else None
        if value is None
        else str(value),
        "overrides": " ".join(row["overrides"] or ()),
    }
    out.update({f"layout {name}": spec for name, spec in (row["layouts"] or {}).items()})
    return out
