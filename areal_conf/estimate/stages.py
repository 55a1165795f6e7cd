"""Pipeline stages: which layers each one has, and how many micro-batches it holds at once."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from areal_conf.model.parameters import ModelParameters


class Stage(NamedTuple):
    """One pipeline rank.

    Attributes:
        rank: its place, from 0.
        dense: dense layers on it.
        moe: layers with routed experts on it.
        first: whether it has the embedding.
        last: whether it has the head.
    """

    rank: int
    dense: int
    moe: int
    first: bool
    last: bool


def in_flight(index: int, stages: int, chunks: int, micro_batches: int) -> float:
    """Micro-batches whose activations a stage holds at once, in units of all its layers.

    1F1B holds ``p - r`` (Narayanan et al. 2021, arXiv 2104.04473, section 2.2); interleaved
    schedules ``2(p-r-1) + (v-1)p + 1`` chunks of 1/v of the layers (Megatron-LM,
    core/pipeline_parallel/schedules.py). Never more than there are micro-batches.
    """
    if stages == 1:
        return 1.0
    if chunks == 1:
        return float(min(micro_batches, stages - index))
    held = 2 * (stages - index - 1) + (chunks - 1) * stages + 1
    return min(held, micro_batches * chunks) / chunks


@lru_cache(maxsize=1024)
def pipeline_stages(
    parameters: ModelParameters, stages: int, chunks: int, balanced: bool
) -> tuple[Stage, ...]:
    """The stages of a pipeline, each with all its chunks.

    Args:
        parameters: of the model.
        stages: p.
        chunks: virtual stages of one rank; chunk ``k`` of rank ``r`` is virtual stage ``k*p + r``.
        balanced: by parameters, as AReaL does (engine/megatron_utils/pipeline_parallel.py), or by
            the number of layers, embedding and head each counted as one layer where the layers do
            not divide evenly (torchtitan's and Archon's generate_llm_fqn_per_model_part).
    """
    layers = parameters.dense_layers + parameters.moe_layers
    count = stages * chunks
    if stages == 1:
        lengths = [layers]
        count = 1
    elif balanced:
        lengths = _balanced_lengths(parameters, count)
    else:
        lengths = _even_lengths(layers, count)
    dense, moe = [0] * stages, [0] * stages
    start = 0
    for virtual, length in enumerate(lengths):
        in_dense = max(0, min(start + length, parameters.dense_layers) - start)
        dense[virtual % stages] += in_dense
        moe[virtual % stages] += length - in_dense
        start += length
    return tuple(
        Stage(rank, dense[rank], moe[rank], rank == 0, rank == stages - 1) for rank in range(stages)
    )


def _even_lengths(layers: int, count: int) -> list[int]:
    if layers % count == 0:
        return [layers // count] * count
    each, more = divmod(layers + 2, count)
    lengths = [each + (1 if index < more else 0) for index in range(count)]
    lengths[0] -= 1
    lengths[-1] -= 1
    for index, length in enumerate(lengths):  # fewer layers than stages: none is negative
        if length < 0:
            lengths[lengths.index(max(lengths))] -= 1
            lengths[index] = 0
    return lengths


def _balanced_lengths(parameters: ModelParameters, count: int) -> list[int]:
    """Layers of each virtual stage with the smallest largest share of parameters.

    Gives what the dynamic programme of AReaL gives, each stage taken as early as it can end.
    """
    layers = [parameters.dense.total] * parameters.dense_layers
    layers += [parameters.moe.total] * parameters.moe_layers
    if count > len(layers) + 2:
        return _even_lengths(len(layers), count)
    sums = [0]
    for layer in layers:
        sums.append(sums[-1] + layer)
    ends = parameters.embedding, parameters.embedding
    best: list[list[float]] = [[float("inf")] * len(sums) for _ in range(count + 1)]
    choice = [[0] * len(sums) for _ in range(count + 1)]
    best[0][0] = 0
    for stage in range(1, count + 1):
        base = ends[0] if stage == 1 else ends[1] if stage == count else 0
        outer = stage in (1, count)
        _best_stage(sums, base, outer, best[stage - 1], best[stage], choice[stage])
    lengths, end = [0] * count, len(layers)
    for stage in range(count, 0, -1):
        lengths[stage - 1] = end - choice[stage][end]
        end = choice[stage][end]
    return lengths


def _best_stage(
    sums: list[int],
    base: int,
    may_be_empty: bool,
    before: list[float],
    best: list[float],
    choice: list[int],
) -> None:
    """One stage of the dynamic programme; the best start only grows with the end."""
    start = next(index for index, load in enumerate(before) if load != float("inf"))
    for end in range(start, len(sums)):
        last = end if may_be_empty else end - 1
        if last < start:
            continue
        while start < last and max(before[start + 1], base + sums[end] - sums[start + 1]) < max(
            before[start], base + sums[end] - sums[start]
        ):
            start += 1
        best[end] = max(before[start], base + sums[end] - sums[start])
        choice[end] = start
