"""The order of layouts, held to published runs, and what each part of a step answers to."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys

import pytest
from paths import CASES, ROOT

from areal_conf.estimate.cards import CARDS, read_card
from areal_conf.estimate.timing.layer import Work
from areal_conf.estimate.timing.speed import Fitted, speed_of
from areal_conf.estimate.timing.step import PARTS, StepTime, step_time
from areal_conf.model import read_model
from areal_conf.spec.allocation import ModelAllocation

sys.path.insert(0, str(ROOT))
fit_speed = importlib.import_module("benchmarks.fit_speed")
memory = importlib.import_module("benchmarks.memory")
ranking = importlib.import_module("benchmarks.ranking")

RUNS = CASES / "layouts-measured.tsv"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "vocab_size": 151936,
}
WORK = Work(tokens=8192, micro_batches=16, sequence=4096)


def timed(spec: str, work: Work = WORK, config: object = LLAMA, gpu: object = "H100") -> StepTime:
    sizes = ModelAllocation.from_str(spec).parallel.sizes
    facts = read_model(config)  # type: ignore[arg-type]
    found = step_time(sizes, facts, work, speed_of(read_card(gpu)))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def figures() -> dict[str, dict[str, float]]:
    groups: dict[str, dict[str, float]] = ranking.report(memory.read_rows([str(RUNS)]))["groups"]
    return groups


def test_the_order_of_published_layouts_is_met(figures: dict[str, dict[str, float]]) -> None:
    assert sum(row["n"] for row in figures.values()) == 539
    assert sum(row["tau"] for row in figures.values()) / len(figures) > 0.8
    assert sum(row["regret"] for row in figures.values()) / len(figures) < 0.03


def test_layouts_that_ran_are_not_refused(figures: dict[str, dict[str, float]]) -> None:
    for row in figures.values():
        assert row["good_refused"] < 0.05
        assert row["oom_said"] > 0.6


def test_the_constants_are_those_of_the_fit() -> None:
    """A third of any constant more or less fits no better."""
    runs = [run for row in memory.read_rows([str(RUNS)]) if (run := ranking.read_run(row))]
    groups = {
        name: [run for run in group if run.seconds]
        for name, group in ranking.by_source(runs).items()
    }
    here = fit_speed.loss(Fitted(), groups)
    for field in dataclasses.fields(Fitted):
        for factor in (0.7, 1.4):
            value = getattr(Fitted(), field.name) * factor
            if field.name in fit_speed.SHARES and value > 1:
                continue
            other = dataclasses.replace(Fitted(), **{field.name: value})
            assert fit_speed.loss(other, groups) > here * 0.99, (field.name, factor)


def test_figures_are_printed_as_the_contract_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert ranking.main([str(RUNS), "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert set(groups["llama_65B_bfloat16_128_GPUs_all_runs.xlsx"]) == {
        "n",
        "tau",
        "regret",
        "oom_said",
        "good_refused",
    }
    assert ranking.main([str(RUNS)]) == 0
    assert "llama_65B" in capsys.readouterr().out


ROW = {
    "id": "x",
    "kind": "train",
    "framework": "megatron-lm",
    "model": "qwen3-30b-a3b",
    "gpu": "H100",
    "layout": "megatron:d8t2e8",
    "settings": "seq=4096 tokens=8192 n_mb=8 ac=full sp=1",
    "metric": "step time",
    "measured value": "12.5",
    "unit": "s",
    "source": "somewhere.tsv",
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"framework": "torchtitan", "model": "llama3-8b", "layout": "fsdp:d8"},
        {"model": f"cfg={json.dumps(MOE)}", "layout": "megatron:(attn:d4t4|ffn:d2t2e4)"},
        {"settings": ""},
        {"gpu": "a card nobody knows"},
        {"gpu": "H100-80G", "unit": "ms"},
        {"settings": "seq=2048 tokens=2048 kernel=torch ac=selective"},
        {"settings": "seq=2048 tokens=2048 kernel=megatron ac=none sp=1"},
    ],
)
def test_rows_of_other_models_and_frameworks_are_read(changes: dict[str, str]) -> None:
    rows = [ROW | changes, ROW | changes | {"measured value": "OOM", "metric": "OOM"}]
    [figures] = ranking.report(rows)["groups"].values()
    assert figures["n"] == 2
    assert figures["tau"] is None
    assert figures["regret"] == 0
    assert figures["oom_said"] in (0, 1)


def test_a_row_that_cannot_be_read_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [ROW | {"model": "a-model-nobody-knows", "id": "odd"}, ROW | {"layout": "megatron:x8"}]
    assert ranking.report([*rows, ROW])["groups"]["somewhere.tsv"]["n"] == 1
    assert "odd is left out" in capsys.readouterr().err


def test_rows_of_other_metrics_are_left_out() -> None:
    assert ranking.report([ROW | {"metric": "peak", "unit": "GiB"}])["groups"] == {}


def test_tau_counts_pairs() -> None:
    assert ranking.kendall_tau([1, 2, 3], [10, 20, 30]) == 1
    assert ranking.kendall_tau([1, 2, 3], [30, 20, 10]) == -1
    assert ranking.kendall_tau([1, 1], [1, 2]) == 0
    assert ranking.regret([2, 1, 3], [10.0, 12.0, 20.0]) == pytest.approx(0.2)


def test_parts_add_up() -> None:
    found = timed("megatron:d2p2t4")
    assert found.total == pytest.approx(sum(getattr(found, part) for part in PARTS))
    assert not found.rough


def test_each_dimension_has_its_price() -> None:
    assert timed("megatron:d8").tensor == timed("megatron:d8").context == 0
    assert timed("megatron:d4t2").tensor > 0
    assert timed("megatron:d4c2").data > timed("megatron:d4t2").data
    assert timed("megatron:d1").data == 0
    assert timed("megatron:d4p2").pipeline > timed("megatron:d8").pipeline
    assert timed("megatron:d16").data > timed("megatron:d8").data


def test_a_pipeline_of_more_chunks_waits_less() -> None:
    chunked = dataclasses.replace(WORK, chunks=2, micro_batches=4)
    plain = dataclasses.replace(WORK, micro_batches=4)
    assert timed("megatron:d2p4", chunked).pipeline < timed("megatron:d2p4", plain).pipeline


def test_recomputation_costs_a_forward() -> None:
    none = timed("megatron:d8", dataclasses.replace(WORK, recompute="none"))
    full = timed("megatron:d8")
    assert 1.2 < full.matmul / none.matmul < 1.4


def test_tensor_groups_over_nodes_are_slow() -> None:
    assert timed("megatron:t16").tensor > 3 * timed("megatron:d2t8").tensor


def test_experts_are_dealt_and_said_to_be_rough() -> None:
    within = timed("megatron:d8e8", config=MOE)
    over = timed("megatron:d16e16", config=MOE)
    assert within.rough
    assert over.experts > within.experts > 0


def test_a_model_without_sizes_is_not_timed() -> None:
    facts = dataclasses.replace(read_model(LLAMA), vocabulary=None)
    sizes = ModelAllocation.from_str("megatron:d8").parallel.sizes
    assert step_time(sizes, facts, WORK, speed_of(CARDS["H100"])) is None


def test_a_card_of_which_only_the_memory_is_known_counts_as_an_a100() -> None:
    assert speed_of(read_card(79.1)).flops == speed_of(CARDS["A100-80GB"]).flops
