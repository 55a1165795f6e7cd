"""Seconds for one plan: of a small experiment, of 16,384 GPUs, and of findings alone.

    python benchmarks/plans.py

The best of several passes counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from areal_conf import plan
from areal_conf.checks import check_only

SHARES = {"type": "colocation", "target": "actor"}
SMALL: dict[str, Any] = {
    "rollout": {"backend": "sglang:d2t4"},
    "actor": {"backend": "fsdp:d4t2"},
    "critic": {"scheduling_strategy": SHARES},
    "ref": {"scheduling_strategy": SHARES},
    "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
}
LARGE: dict[str, Any] = {
    "rollout": {"backend": "sglang:d512t8"},
    "actor": {"backend": "megatron:d32p8t8c2e16"},
    "critic": {"backend": "fsdp:d4096"},
    "teacher": {"rollout": {"backend": "vllm:d512t8"}},
    "ref": {"scheduling_strategy": SHARES},
    "cluster": {"n_nodes": 2048, "n_gpus_per_node": 8},
}
AWKWARD: dict[str, Any] = {
    "rollout": {"backend": "sglang:d2000t3"},
    "actor": {"backend": "fsdp:d2000t5"},
    "judge": {"backend": "vllm:d192t2"},
    "cluster": {"n_nodes": 2048, "n_gpus_per_node": 8},
}
PASSES = 7


def seconds(job: Callable[[], object], repeats: int) -> float:
    """Seconds of one `job` in the best pass."""
    best = float("inf")
    for _ in range(PASSES):
        start = time.perf_counter()
        for _ in range(repeats):
            job()
        best = min(best, (time.perf_counter() - start) / repeats)
    return best


def main() -> None:
    """Print one line a job."""
    jobs: list[tuple[str, Callable[[], object], int]] = [
        ("findings of a small experiment", lambda: check_only(SMALL), 200),
        ("plan of a small experiment", lambda: plan(SMALL), 200),
        ("plan of 16,384 GPUs, with its JSON", lambda: plan(LARGE).model_dump_json(), 1),
        ("plan of 16,384 GPUs, awkward sizes", lambda: plan(AWKWARD).model_dump_json(), 1),
    ]
    for name, job, repeats in jobs:
        print(f"{name:36} {seconds(job, repeats) * 1e6:12,.0f} us")


if __name__ == "__main__":
    main()
