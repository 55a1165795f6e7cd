"""Whole experiments to try: each fits, fills the cluster, and can be pasted."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from areal_conf import AllocationError, ModelAllocation, plan
from areal_conf.cli import main
from areal_conf.config.compose import compose_default
from areal_conf.planning.options import PlanOptions
from areal_conf.suggest.experiment import Gpus
from areal_conf.suggest.result import Suggestions
from areal_conf.suggest.suggestions import suggest


def suggested(
    *overrides: str,
    gpus: int | Gpus = 32,
    model: str = "Qwen3-8B",
    gpu: str | None = "H100",
    top: int = 5,
    bare: bool = True,
) -> Suggestions:
    words = overrides or ("areal/experiment=grpo",)
    there = Gpus.of_count(gpus) if isinstance(gpus, int) else gpus
    options = PlanOptions(model=model, gpu=gpu)
    return suggest(compose_default(words), options, there, top, bare=bare)


def spec(suggestion: Any, engine: str) -> str:
    return str(suggestion.engines[engine]["spec"])


@pytest.mark.slow
def test_every_suggestion_fills_the_cluster_and_plans() -> None:
    for suggestion in suggested().suggestions:
        cfg = compose_default(["areal/experiment=grpo", *suggestion.overrides])
        made = plan(cfg, model="Qwen3-8B", gpu="H100")
        assert made.ok
        assert made.total_gpus == 32
        assert {name: e.spec for name, e in made.engines.items()} == {
            name: e["spec"] for name, e in suggestion.engines.items()
        }


def test_each_split_has_its_best() -> None:
    found = suggested(top=4).suggestions
    splits = [(s.engines["rollout"]["gpus"], s.engines["actor"]["gpus"]) for s in found]
    assert list(dict.fromkeys(splits)) == [(8, 24), (16, 16), (24, 8)]
    assert all(splits.count(split) <= 4 for split in splits)
    for suggestion in found:
        assert suggestion.reasons
        time_ = suggestion.engines["actor"]["time"]
        assert time_["relative"] == suggestion.time
        assert suggestion.engines["rollout"]["memory"]["kv_cache"]["requests"]
        assert suggestion.engines["actor"]["memory"]["verdict"] in ("fits", "may")


def test_engines_of_different_kinds_are_all_there_and_not_ordered() -> None:
    found = suggested(top=6)
    kinds = {spec(s, "actor").split(":")[0] for s in found.suggestions}
    assert kinds == {"fsdp", "megatron", "archon"}
    assert sum("not ordered" in note for note in found.unknown) == 3


def test_the_kind_that_the_config_names_comes_first() -> None:
    found = suggested("areal/experiment=grpo", "actor.backend=megatron:d1").suggestions
    assert spec(found[0], "actor").startswith("megatron")


def test_what_does_not_fit_is_counted() -> None:
    found = suggested(model="Qwen2.5-72B", gpus=32)
    assert found.left_out["AC701"] > 0
    assert found.left_out["AC401"] > 0
    assert all(s.engines["actor"]["memory"]["verdict"] != "no" for s in found.suggestions)


def test_data_ranks_divide_the_batch() -> None:
    found = suggested("areal/experiment=grpo", "+train_dataset.batch_size=20", gpus=32)
    assert found.left_out["AC353"] > 0
    for suggestion in found.suggestions:
        assert 20 % suggestion.engines["actor"]["dims"]["d"] == 0


def test_a_trainer_alone_has_all_gpus() -> None:
    found = suggested("areal/experiment=sft", gpus=16)
    assert found.suggestions
    assert {s.engines["actor"]["gpus"] for s in found.suggestions} == {16}
    assert not any("servers" in note for note in found.unknown)


def test_colocated_engines_have_the_same_gpus() -> None:
    words = [
        "areal/experiment=grpo",
        "rollout.scheduling_strategy.type=colocation",
        "rollout.scheduling_strategy.target=actor",
        "+enable_offload=true",
    ]
    found = suggested(*words, gpus=8)
    assert found.suggestions
    for suggestion in found.suggestions:
        assert suggestion.engines["rollout"]["world_size"] == 8
        assert suggestion.engines["actor"]["world_size"] == 8


def test_a_critic_with_gpus_of_its_own_is_counted() -> None:
    words = ["areal/experiment=ppo", "critic.scheduling_strategy.type=separation"]
    for suggestion in suggested(*words, gpus=32).suggestions:
        engines = suggestion.engines
        assert engines["rollout"]["gpus"] + 2 * engines["actor"]["gpus"] == 32


def test_inside_one_node_gpus_are_split_one_by_one() -> None:
    found = suggested(gpus=8, model="Qwen2.5-1.5B").suggestions
    assert {s.engines["rollout"]["gpus"] for s in found} == set(range(1, 8))


def test_splits_that_no_trainer_gains_by_are_told_and_left_out() -> None:
    """Seven GPUs, which a batch of 256 cannot be dealt to, train no faster than four."""
    words = ["areal/experiment=grpo", "+train_dataset.batch_size=256"]
    found = suggested(*words, gpus=8, model="Qwen2.5-1.5B")
    shares = {s.engines["actor"]["gpus"] for s in found.suggestions}
    assert {1, 2, 4} <= shares
    assert 7 not in shares
    assert any("1 + 7 GPUs" in note for note in found.unknown)


def test_one_gpu_has_no_split() -> None:
    found = suggested(gpus=1, model="Qwen2.5-1.5B")
    assert not found.suggestions
    assert any("no split" in note for note in found.unknown)


def test_a_legacy_config_is_migrated_first() -> None:
    with pytest.raises(AllocationError, match="allocation_mode") as raised:
        suggested("areal/experiment=grpo", "allocation_mode=sglang:d4+fsdp:d4", gpus=8)
    assert "migrate" in raised.value.hint


def test_keys_that_are_there_are_not_added() -> None:
    config = ["areal/experiment=grpo", "+actor.mb_spec.max_tokens_per_mb=4096"]
    [suggestion, *_] = suggested(*config, gpus=16, bare=False).suggestions
    assert not any("max_tokens" in word for word in suggestion.overrides)
    assert not any("checkpointing" in word for word in suggestion.overrides)
    assert "cluster.n_nodes=2" in suggestion.overrides


@pytest.mark.parametrize(
    ("options", "code"),
    [({"gpu": None}, "AC710"), ({"gpu": "H1000"}, "AC710"), ({"model": None}, "AC362")],
)
def test_what_is_missing_is_said(options: dict[str, Any], code: str) -> None:
    with pytest.raises(AllocationError) as raised:
        suggested(**options)
    assert raised.value.code == code


def test_gpus_fill_nodes() -> None:
    with pytest.raises(AllocationError) as raised:
        Gpus.of_count(12)
    assert raised.value.code == "AC602"


@pytest.mark.parametrize(("gpus", "bar"), [(64, 2), (512, 10)])
@pytest.mark.slow
def test_it_is_fast(gpus: int, bar: float) -> None:
    """In seconds of the processor, three times the bar: the machine may be busy."""
    start = time.process_time()
    assert suggested(gpus=gpus, model="Qwen3-30B-A3B").suggestions
    assert time.process_time() - start < 3 * bar


# -- the command -----------------------------------------------------------------------------------

WORDS = ["suggest", "--model", "Qwen3-8B", "--gpu", "H100"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--gpus", "16", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"suggestions", "left_out", "unknown"}
    first = found["suggestions"][0]
    assert set(first) == {"overrides", "engines", "time", "reasons"}
    assert set(first["engines"]["actor"]) >= {"spec", "dims", "gpus", "memory", "time", "devices"}


def test_hydra_lines_fill_the_cluster_in_every_combination(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*WORDS, "--gpus", "32", "--format", "hydra"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line in lines:
        values = dict(word.split("=", 1) for word in line.split())
        sizes = {
            key: {ModelAllocation.from_str(x).world_size for x in values[key].split(",")}
            for key in ("rollout.backend", "actor.backend")
        }
        assert all(len(found) == 1 for found in sizes.values())
        assert sum(min(found) for found in sizes.values()) == 32


def test_table_lines_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--gpus", "16", "--top", "1"]) == 0
    out = capsys.readouterr().out
    [line] = [line for line in out.splitlines() if "rollout.backend=" in line]
    assert main(["plan", "areal/experiment=grpo", *line.split()]) == 0
    assert "not ordered" in out


def test_the_cluster_of_the_config(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS, "cluster.n_nodes=2", "cluster.n_gpus_per_node=8", "--format", "json"]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)["suggestions"][0]
    assert first["engines"]["rollout"]["gpus"] + first["engines"]["actor"]["gpus"] == 16


def test_without_a_size_it_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(WORDS)
    assert raised.value.code == 2
    assert "--gpus N" in capsys.readouterr().err


def test_nothing_that_fits_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["suggest", "--model", "Qwen2.5-72B", "--gpu", "24", "--gpus", "8"]
    assert main(words) == 1
    assert "nothing fits" in capsys.readouterr().out


def test_errors_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--cluster", "nowhere", "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "AC607"


def test_a_slower_layout_names_the_faster_one_and_why_it_is_not_first() -> None:
    words = ("areal/experiment=grpo", "actor.backend=megatron:d1")
    found = suggested(*words, model="Qwen3-32B", top=3)
    reasons = [reason for one in found.suggestions for reason in one.reasons]
    slower = [reason for reason in reasons if "slower than" in reason]
    assert slower
    assert all(re.search(r"than \w+:\S+, the fastest \w+ of this split", one) for one in slower)
    assert any(one.endswith(", which may not fit") for one in slower)


def test_without_a_config_every_engine_has_the_tokens_of_a_micro_batch() -> None:
    found = suggested()
    first = found.suggestions[0].overrides
    assert "++actor.mb_spec.max_tokens_per_mb=10240" in first
    assert "++ref.mb_spec.max_tokens_per_mb=10240" in first
    assert not any("not counted" in note for note in found.unknown)
