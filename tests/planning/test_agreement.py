"""The plan agrees with AReaL on random experiments, whose answers were kept.

`tests/interop/differential.py` asks AReaL; here its answers are held against the plan of today, for
1.0.4 and for main (cbff54d645d2 of 2026-08-22), without AReaL.
"""

from __future__ import annotations

from collections import Counter

import pytest
from interop.differential import kept, ours, verdict

VERSIONS = ("1.0.4", "main")
LEAST = 0.97
NO_GPU = "grants no GPU"


def reason(config: dict[str, object], difference: str) -> str:
    """Why the two differ, by the classes of docs/reference/differences.md."""
    engines = [one for one in config.values() if isinstance(one, dict) and "backend" in one]
    engines += [e["rollout"] for e in config.values() if isinstance(e, dict) and "rollout" in e]
    for engine in engines:
        spec = engine.get("scheduling_spec", [{}])[0]
        if not spec.get("gpu") and difference.startswith("refused by the plan alone"):
            return NO_GPU
    return difference


@pytest.mark.parametrize("version", VERSIONS)
def test_verdicts_and_gpus_agree(version: str) -> None:
    count: Counter[str] = Counter()
    agree: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for row in kept():
        config = row["config"]
        difference = verdict(config, row[version], ours(config, version))
        count[config["scheduler"]["type"]] += 1
        agree[config["scheduler"]["type"]] += not difference
        if difference:
            reasons[reason(config, difference)] += 1
    assert set(reasons) <= {NO_GPU}, reasons
    assert sum(count.values()) >= 900
    for scheduler, number in count.items():
        assert agree[scheduler] / number >= LEAST, (scheduler, agree[scheduler])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_experiments_are_worth_asking(version: str) -> None:
    """Each scheduler accepts many of them, refuses many, and for many reasons."""
    accepted: Counter[str] = Counter()
    refused: dict[str, set[str]] = {}
    for row in kept():
        kind, answer = row["config"]["scheduler"]["type"], row[version]
        assert "broken" not in answer
        if "gpus" in answer and not answer.get("shared"):
            accepted[kind] += 1
        else:
            refused.setdefault(kind, set()).add(answer.get("raised", "shared")[:40])
    assert all(accepted[kind] >= 60 for kind in ("local", "slurm", "ray")), accepted
    assert all(len(found) >= 10 for found in refused.values()), refused
