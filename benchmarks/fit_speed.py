"""Fit the constants of the estimate of time that no source says.

    python benchmarks/fit_speed.py FILE.tsv ...

Minimises, over the rows that ran, the squared error of the logarithm of the estimate within each
source: only the order in a source counts, and a source weighs the same however many rows it has.
Then it leaves out each source in turn, fits to the others, and says how well that orders the one
left out. The first object printed is what `areal_conf.estimate.timing.speed.Fitted` holds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from areal_conf.estimate.timing.speed import Fitted
from benchmarks.memory import read_rows
from benchmarks.ranking import Run, by_source, estimated_seconds, judge, read_runs

Groups = Mapping[str, Sequence[Run]]

START = Fitted(
    matmul=0.8,
    narrow=300,
    memory=0.5,
    link=0.7,
    network=0.3,
    crowd=0.03,
    send=0.3,
    launch=3e-4,
    replay=1e-3,
)
"""Where the search begins: orders of magnitude."""

SHARES = ("matmul", "memory", "link", "network", "send")
"""Constants that cannot be over 1."""

OUTLIER = 0.3
"""Errors over this (35 per cent) count no more: one odd run must not bend all constants."""

LEVEL = 0.05
"""Weight of the error that a whole source has in common: keeps constants physical."""


def loss(fitted: Fitted, groups: Groups) -> float:
    """Mean over the groups of the mean squared error of the logarithm."""
    total = 0.0
    for runs in groups.values():
        errors = [
            math.log(estimated_seconds(run, fitted) / run.seconds) for run in runs if run.seconds
        ]
        level = fmean(errors)
        spread = fmean(min(abs(error - level), OUTLIER) ** 2 for error in errors)
        total += spread + LEVEL * level**2
    return total / len(groups)


def fit(groups: Groups, rounds: int = 60) -> Fitted:
    """Search along one constant after the other, with steps that grow and shrink."""
    best = START
    least = loss(best, groups)
    steps = {field.name: 0.3 for field in dataclasses.fields(Fitted)}
    for _ in range(rounds):
        for name in steps:
            for sign in (1, -1):
                value = getattr(best, name) * math.exp(sign * steps[name])
                tried = dataclasses.replace(best, **{name: value})
                if name in SHARES and value > 1:
                    continue
                if (found := loss(tried, groups)) < least:
                    best, least = tried, found
                    steps[name] *= 1.3
                    break
            else:
                steps[name] *= 0.6
        if max(steps.values()) < 2e-3:
            break
    return best


def rounded(fitted: Fitted) -> dict[str, float]:
    """The constants with the digits that mean something."""
    return {key: float(f"{value:.2g}") for key, value in dataclasses.asdict(fitted).items()}


def validate(groups: Groups) -> list[dict[str, object]]:
    """Each source ordered by constants that were fitted to the others."""
    rows: list[dict[str, object]] = []
    for name, runs in groups.items():
        others = {key: group for key, group in groups.items() if key != name}
        figures = judge(runs, Fitted(**rounded(fit(others))))
        rows.append({"left_out": name, "tau": figures["tau"], "regret": figures["regret"]})
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Print the constants, how well they order, and how well others would have."""
    parser = argparse.ArgumentParser(description="Fit the constants of the estimate of time.")
    parser.add_argument("files", nargs="+", metavar="FILE.tsv", help="published runs")
    chosen = parser.parse_args(arguments)
    groups = {
        name: [run for run in group if run.seconds is not None]
        for name, group in by_source(read_runs(read_rows(chosen.files))).items()
    }
    groups = {name: group for name, group in groups.items() if len(group) > 1}
    constants = rounded(fit(groups))
    print(json.dumps(constants, indent=1))
    for name, group in groups.items():
        figures = judge(group, Fitted(**constants))
        print(f"fitted    tau {figures['tau']:.3f} regret {figures['regret']:.3f}  {name}")
    rows = validate(groups)
    for row in rows:
        print(f"left out  tau {row['tau']:.3f} regret {row['regret']:.3f}  {row['left_out']}")
    taus = [float(str(row["tau"])) for row in rows]
    print(f"left out, on average: tau {fmean(taus):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
