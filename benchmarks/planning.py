"""Plans of small and large experiments, and how they grow with the number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from measure import Effort, Row, compare

from areal_conf import plan
from areal_conf.planning.checks import check_only

TITLE = "Planning an experiment"
GPUS = (64, 512, 4096, 16384)
SHARES = {"type": "colocation", "target": "actor"}
FIVE_ENGINES: dict[str, Any] = {
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


def experiment(gpus: int) -> dict[str, Any]:
    """Half of the GPUs generate and half train."""
    return {
        "rollout": {"backend": f"sglang:d{gpus // 8}t4"},
        "actor": {"backend": f"fsdp:d{gpus // 2}"},
        "cluster": {"n_nodes": gpus // 8, "n_gpus_per_node": 8},
        "scheduler": {"type": "slurm"},
    }


def planned(cfg: dict[str, Any]) -> None:
    """A plan, of which nothing is read."""
    plan(cfg)


def dumped(cfg: dict[str, Any]) -> None:
    """A plan and all that it holds, the GPU of every rank included, as JSON."""
    plan(cfg).model_dump_json()


def rows(effort: Effort) -> Iterator[Row]:
    """Each size against 8 GPUs: at worst it may grow as the number of GPUs does."""
    small = experiment(8)
    yield compare(
        "findings alone, 8 GPUs",
        lambda: check_only(small),
        "the plan of 8 GPUs",
        lambda: partial(planned, small),
        effort,
    )
    for what, job in (("plan", planned), ("plan as JSON", dumped)):
        for gpus in GPUS:
            yield compare(
                f"{what}, {gpus:,} GPUs",
                partial(job, experiment(gpus)),
                f"{what}, 8 GPUs",
                partial(partial, job, small),
                effort,
                most=1 if gpus == GPUS[-1] else None,
                most_times=gpus / 8,
            )
    for what, cfg in (("five engines", FIVE_ENGINES), ("sizes that fit no node", AWKWARD)):
        yield compare(
            f"plan as JSON, 16,384 GPUs, {what}",
            partial(dumped, cfg),
            "plan as JSON, 8 GPUs",
            lambda: partial(dumped, small),
            effort,
            most=1,
            most_times=GPUS[-1] / 8,
        )


def here() -> None:
    """For the memory: 16,384 GPUs, as JSON."""
    dumped(experiment(GPUS[-1]))


def peer() -> None:
    """8 GPUs, as JSON."""
    dumped(experiment(8))
