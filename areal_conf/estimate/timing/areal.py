"""From the settings of an AReaL engine to the work of one of its steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from areal_conf.estimate.timing.layer import Work

if TYPE_CHECKING:
    from areal_conf.estimate.settings import TrainingSettings
    from areal_conf.spec.backends import Sizes

_SHARDING = {"nothing": 0, "optimizer": 1, "all": 3}


@dataclass(frozen=True)
class Workload:
    """What one training step has to do, whatever the layout.

    Attributes:
        tokens: tokens of a step, over all GPUs.
        sequence: tokens of a sequence.
        micro_batch: tokens of a micro-batch where the engine's settings say none.
    """

    tokens: int = 2**21
    sequence: int = 4096
    micro_batch: int = 10240


def training_work(
    backend: str, sizes: Sizes, settings: TrainingSettings, workload: Workload
) -> Work:
    """The work of one step of an AReaL engine.

    A data rank packs its share of the step into micro-batches of `settings.tokens`; under a
    pipeline of p stages there are at least 2p, which then are smaller (AReaL,
    engine/megatron_engine.py, v1.0.4:1870).
    """
    share = max(1.0, workload.tokens / sizes.d)
    tokens = float(settings.tokens or workload.micro_batch)
    count = max(math.ceil(share / tokens), 2 * sizes.p if sizes.p > 1 else 1)
    eager = settings.kernels == "eager"
    return Work(
        tokens=max(1, math.ceil(share / count)),
        micro_batches=count,
        sequence=workload.sequence,
        chunks=settings.chunks,
        recompute="selective" if settings.recompute == "op" else settings.recompute,
        sharding=_SHARDING[settings.shard],
        weight_bytes=settings.compute_bytes,
        gradient_bytes=settings.reduce_bytes,
        sequence_parallel=settings.sequence_parallel,
        eager_norm=eager,
        eager_mlp=eager,
        expert_split=settings.experts_split,
        context="ring" if backend == "megatron" else "all_to_all",
        balanced_stages=settings.balanced_stages,
    )
