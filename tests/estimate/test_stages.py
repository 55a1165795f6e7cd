"""Pipeline stages as AReaL balances them, and what they hold at once."""

from __future__ import annotations

import itertools
import time

import pytest

import areal_conf
from areal_conf.config.versions import V1_0_4, V2_0
from areal_conf.estimate import EngineKeys, TrainingSettings, training_memory
from areal_conf.estimate.stages import _balanced_lengths, in_flight, pipeline_stages
from areal_conf.model import read_model
from areal_conf.model.parameters import ModelParameters, model_parameters


def parameters(name: str) -> ModelParameters:
    found = model_parameters(read_model(name))
    assert found is not None
    return found


def largest(lengths: tuple[int, ...], of: ModelParameters) -> float:
    layers = [of.dense.total] * of.dense_layers + [of.moe.total] * of.moe_layers
    loads, start = [], 0
    for index, length in enumerate(lengths):
        ends = of.embedding * ((index == 0) + (index == len(lengths) - 1))
        loads.append(sum(layers[start : start + length]) + ends)
        start += length
    return max(loads)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("name", ["Qwen2.5-0.5B", "Qwen3-30B-A3B", "Moonlight-16B-A3B"])
def test_no_other_split_is_better_balanced(name: str, count: int) -> None:
    of = parameters(name)
    layers = of.dense_layers + of.moe_layers
    lengths = _balanced_lengths(of, count)
    assert sum(lengths) == layers
    cuts = itertools.combinations(range(1, layers), count - 1)
    best = min(
        largest(tuple(b - a for a, b in itertools.pairwise((0, *cut, layers))), of) for cut in cuts
    )
    assert largest(tuple(lengths), of) <= best


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize(("stages", "chunks"), [(1, 1), (2, 1), (4, 3), (8, 2), (64, 1), (200, 1)])
def test_all_layers_are_dealt_once(stages: int, chunks: int, balanced: bool) -> None:
    of = parameters("DeepSeek-V3")
    found = pipeline_stages(of, stages, chunks, balanced)
    assert sum(stage.dense for stage in found) == of.dense_layers
    assert sum(stage.moe for stage in found) == of.moe_layers
    assert all(stage.dense >= 0 and stage.moe >= 0 for stage in found)


def test_in_flight() -> None:
    assert [in_flight(rank, 4, 1, 8) for rank in range(4)] == [4, 3, 2, 1]
    assert in_flight(0, 4, 1, 2) == 2
    assert in_flight(0, 8, 3, 512) == pytest.approx(31 / 3)
    assert in_flight(0, 1, 1, 8) == 1


def test_a_thousand_estimates_a_second() -> None:
    """The bar, with room for a busy machine: the median of five."""
    facts = read_model("Qwen3-30B-A3B")
    settings = TrainingSettings(tokens=16384, micro_batches=8, balanced_stages=True)
    layouts = list(areal_conf.layouts("megatron:d*t*p*c*e*@64"))
    rates = []
    for _ in range(5):
        start = time.process_time()
        for layout in layouts:
            training_memory(layout, facts, settings, 79.1)
        rates.append(len(layouts) / (time.process_time() - start))
    assert sorted(rates)[2] > 1000


@pytest.mark.parametrize("model", ["Qwen2.5-0.5B", "Qwen3-1.7B", "Qwen3-8B", "Qwen3-30B-A3B"])
def test_ranges_of_steps_are_narrow(model: str) -> None:
    """Complete settings of AReaL: the upper end is at most half more than the lower one."""
    facts = read_model(model)
    for pattern in ("fsdp:d*t*c*@8", "megatron:d*t*p*e*@16", "archon:d*t*p*@16"):
        for layout in areal_conf.layouts(pattern, model=facts):
            for tokens in (4096, 10240, 32768):
                set_keys = {
                    "mb_spec.max_tokens_per_mb": tokens,
                    "gradient_checkpointing": True,
                    "optimizer.type": "adam",
                }
                for version in (V1_0_4, V2_0):
                    step = EngineKeys(set_keys.get, version).memory(layout, facts, 79.1).step
                    assert step is not None
                    assert step[0] < step[1] < 1.5 * step[0], (str(layout), tokens)
