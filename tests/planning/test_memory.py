"""Estimates in a plan: what each engine's keys change, what shared GPUs need, and what is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from areal_conf import AllocationError, plan
from areal_conf.model import read_model
from areal_conf.planning.result import EnginePlan, Plan

MODEL = "Qwen3-32B"


def experiment(**changes: Any) -> dict[str, Any]:
    """A GRPO experiment on two nodes."""
    config: dict[str, Any] = {
        "rollout": {"backend": "sglang:d4t2"},
        "actor": {
            "backend": "fsdp:d8",
            "mb_spec": {"max_tokens_per_mb": 10240},
            "gradient_checkpointing": True,
            "optimizer": {"type": "adam"},
        },
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
        "scheduler": {"type": "slurm"},
        "gconfig": {"max_new_tokens": 8192},
        "train_dataset": {"max_length": 1024},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            config[section] = {**config.get(section, {}), name: value}
        else:
            config[section] = value
    return config


def planned(model: Any = MODEL, gpu: Any = "H100", areal: str = "1.0.4", **changes: Any) -> Plan:
    return plan(experiment(**changes), model=model, gpu=gpu, areal=areal)


def codes(made: Plan) -> set[str]:
    return {warning.code for warning in made.warnings if warning.code.startswith("AC7")}


def step(engine: EnginePlan) -> tuple[float, float]:
    assert engine.memory is not None
    assert engine.memory.step is not None
    return engine.memory.step


def hint(made: Plan, code: str) -> str:
    return next(warning.hint for warning in made.warnings if warning.code == code)


def test_nothing_is_said_without_a_card() -> None:
    made = plan(experiment(), model=MODEL)
    assert not codes(made)
    assert made.memory is None
    printed = json.loads(made.model_dump_json())
    assert "memory" not in printed
    assert all("memory" not in engine for engine in printed["engines"].values())


def test_json_of_a_trainer_and_a_server() -> None:
    printed = json.loads(planned().model_dump_json())
    actor = printed["engines"]["actor"]["memory"]
    assert set(actor) == {
        *("unit", "gpu", "verdict", "step", "load", "stage", "parts", "unknown", "assumptions")
    }
    assert (actor["unit"], actor["gpu"]) == ("GiB", 79.1)
    assert list(actor["parts"]) == [
        *("parameters", "gradients", "optimizer", "activations", "logits", "gathered", "workspace")
    ]
    rollout = printed["engines"]["rollout"]["memory"]
    assert list(rollout["parts"]) == ["weights"]
    assert set(rollout["kv_cache"]) == {"bytes_per_token", "room", "tokens", "requests"}
    assert rollout["kv_cache"]["bytes_per_token"] == 64 * 2 * 4 * 128 * 2
    assert {tuple(one["engines"]) for one in printed["memory"]["gpus"]} == {
        ("actor",),
        ("rollout",),
    }


def test_the_config_names_model_and_card() -> None:
    own = {"model": MODEL, "gpu": "H100"}
    made = plan({**experiment(), "areal_plan": own}, areal="1.0.4")
    assert made == planned()


def test_areal_2_stores_twice_as_much() -> None:
    """AReaL 2.0 stores weights, gradients and moments of FSDP in fp32."""
    old, new = planned().engines["actor"].memory, planned(areal="2.0.0").engines["actor"].memory
    assert old is not None
    assert new is not None
    for part in ("parameters", "gradients", "optimizer"):
        assert new.parts[part] == pytest.approx(2 * old.parts[part], rel=0.01)
    low, high = planned(areal="2.0.0", actor__optimizer_dtype="bfloat16"), planned()
    assert step(low.engines["actor"]) == step(high.engines["actor"])


@pytest.mark.parametrize(
    ("section", "backend", "smaller"),
    [
        ("optimizer", "megatron:d2t4", {"type": "adam_bf16"}),
        ("optimizer", "megatron:d2t4", {"type": "sgd"}),
        ("mb_spec", "fsdp:d8", {"max_tokens_per_mb": 4096}),
        ("megatron", "megatron:d2t4", {"ddp": {"grad_reduce_in_fp32": False}}),
        (
            "megatron",
            "megatron:d2t4",
            {"use_precision_aware_optimizer": True, "exp_avg_dtype": "bfloat16"},
        ),
        ("fsdp", "fsdp:d8", {"offload_params": True}),
        ("fsdp", "fsdp:d8", {"per_layer_optim_step": True}),
        ("is_critic", "fsdp:d8", True),
    ],
)
def test_keys_that_make_a_step_smaller(section: str, backend: str, smaller: Any) -> None:
    usual = step(planned(actor__backend=backend).engines["actor"])
    changed = planned(actor__backend=backend, **{f"actor__{section}": smaller})
    assert step(changed.engines["actor"])[1] < usual[1]


@pytest.mark.parametrize(
    ("section", "backend", "value"),
    [
        ("gradient_checkpointing", "fsdp:d8", False),
        ("megatron", "megatron:d2t4", {"ddp": {"use_distributed_optimizer": False}}),
        ("mb_spec", "fsdp:d8", {"max_tokens_per_mb": 32768}),
        ("megatron", "megatron:d2t4", {"recompute_granularity": "selective"}),
    ],
)
def test_keys_that_make_a_step_larger(section: str, backend: str, value: Any) -> None:
    usual = step(planned(actor__backend=backend).engines["actor"])
    changed = planned(actor__backend=backend, **{f"actor__{section}": value})
    assert step(changed.engines["actor"])[1] > usual[1]


def test_megatron_bridge_recomputes_whatever_is_set() -> None:
    bridged = {"bridge_type": "megatron-bridge"}
    off = planned(
        actor__backend="megatron:d2t4", actor__gradient_checkpointing=False, actor__megatron=bridged
    )
    on = planned(actor__backend="megatron:d2t4")
    assert step(off.engines["actor"]) == step(on.engines["actor"])


def test_loading() -> None:
    made = planned(model="Qwen2.5-72B", actor__backend="fsdp:d8")
    assert "AC703" in codes(made)
    assert hint(made, "AC703") == "write ++actor.fsdp.memory_efficient_load=true"
    cured = planned(model="Qwen2.5-72B", actor__fsdp={"memory_efficient_load": True})
    assert "AC703" not in codes(cured)
    memory = cured.engines["actor"].memory
    assert memory is not None
    assert memory.load is None


@pytest.mark.parametrize(
    ("model", "backend"),
    [
        ("Qwen3-14B", "megatron:d8"),
        ("Qwen3-32B", "megatron:d8"),
        ("Qwen3-8B", "fsdp:d8"),
        ("Qwen3-30B-A3B", "megatron:d8"),
        ("Qwen3-8B", "archon:d4p2"),
    ],
)
def test_every_hint_helps(model: str, backend: str) -> None:
    """Each alternative of the hint, typed as overrides, fits."""
    usual = {"actor__backend": backend, "actor__gradient_checkpointing": False}
    made = planned(model=model, **usual)
    assert codes(made) & {"AC701", "AC702"}
    text = hint(made, "AC701" if "AC701" in codes(made) else "AC702").removeprefix("write ")
    for alternative in text.split(", or "):
        cfg = OmegaConf.create(experiment(**usual))
        for word in alternative.partition(" (")[0].split():
            key, _, value = word.lstrip("+").partition("=")
            OmegaConf.update(cfg, key, yaml.safe_load(value), force_add=True)
        cured = plan(cfg, model=model, gpu="H100", areal="1.0.4")
        assert not codes(cured) & {"AC701", "AC702"}, alternative


def test_gradient_checkpointing_that_decides() -> None:
    made = planned(model="Qwen3-8B", actor__gradient_checkpointing=False)
    assert "AC706" in codes(made)
    assert hint(made, "AC706") == "write actor.gradient_checkpointing=true"


@pytest.mark.parametrize(
    ("tokens", "told"), [(None, True), (4096, True), (9216, False), (10240, False)]
)
def test_tokens_of_a_micro_batch(tokens: int | None, told: bool) -> None:
    made = planned(actor__mb_spec={} if tokens is None else {"max_tokens_per_mb": tokens})
    assert ("AC705" in codes(made)) is told
    if told:
        assert hint(made, "AC705").endswith("actor.mb_spec.max_tokens_per_mb=9216")


def test_without_tokens_nothing_fits_for_sure() -> None:
    memory = planned(model="Qwen3-0.6B", actor__mb_spec={}).engines["actor"].memory
    assert memory is not None
    assert memory.verdict == "unknown"
    assert any("tokens" in text for text in memory.unknown)


def test_archon_under_a_pipeline() -> None:
    assert "AC707" in codes(planned(actor__backend="archon:d4p2"))
    assert "AC707" not in codes(planned(actor__backend="archon:d2t4"))


def test_a_request_that_does_not_fit() -> None:
    made = planned(
        model="Qwen2.5-32B", rollout__backend="sglang:d8", sglang={"context_length": 131072}
    )
    assert "AC704" in codes(made)


def test_weights_that_leave_no_room() -> None:
    made = planned(model={"rollout": "Qwen2.5-72B"}, rollout__backend="sglang:d8")
    assert "AC701" in codes(made)
    assert "rollout.backend=sglang:" in hint(made, "AC701")


def test_far_more_rollouts_than_the_cache_holds() -> None:
    made = planned(rollout__max_concurrent_rollouts=9999)
    assert "AC709" in codes(made)
    assert "AC709" not in codes(planned(rollout__max_concurrent_rollouts=128))


def test_an_engine_whose_model_is_not_known() -> None:
    made = planned(model={"actor": MODEL})
    assert [w.path for w in made.warnings if w.code == "AC708"] == ["rollout.backend"]
    memory = made.engines["rollout"].memory
    assert memory is not None
    assert (memory.verdict, memory.step) == ("unknown", None)


def test_a_model_that_lacks_sizes() -> None:
    sizes = {"num_attention_heads": 32, "num_hidden_layers": 4, "num_key_value_heads": 8}
    made = planned(model=sizes)
    assert "AC708" in codes(made)
    assert made.ok


@pytest.mark.parametrize("key", ["use_lora", "enable_tree_training", "offload"])
def test_what_is_not_known_is_said(key: str) -> None:
    memory = planned(**{f"actor__{key}": True}).engines["actor"].memory
    assert memory is not None
    assert any(text.startswith(key) for text in memory.unknown)


def test_values_of_strange_types_are_not_known() -> None:
    made = planned(
        actor__mb_spec={"max_tokens_per_mb": "many"},
        actor__gradient_checkpointing="yes",
        actor__optimizer={"type": ["adam"]},
        sglang={"mem_fraction_static": "0.9", "context_length": -1, "dp_size": {}},
    )
    actor, rollout = made.engines["actor"].memory, made.engines["rollout"].memory
    assert actor is not None
    assert rollout is not None
    assert any("max_tokens_per_mb" in text for text in actor.unknown)
    assert any("mem_fraction_static" in text for text in rollout.unknown)


def shared(config: dict[str, Any]) -> Any:
    made = plan(config, model=MODEL, gpu="H200", areal="1.0.4")
    assert made.memory is not None
    return {tuple(one.engines): one for one in made.memory.gpus}


COLOCATED = {"type": "colocation", "target": "actor"}


def test_engines_on_the_same_gpus() -> None:
    ref = {
        "backend": "fsdp:d8",
        "scheduling_strategy": COLOCATED,
        "mb_spec": {"max_tokens_per_mb": 10240},
    }
    both = shared(experiment(ref=ref))["actor", "ref"]
    alone = shared(experiment())["actor",]
    assert both.gpus == 8
    assert both.step[0] > alone.step[0]
    parts = 32.76e9 * 2 / 8 / 2**30
    assert both.step[0] - alone.step[0] == pytest.approx(parts, rel=0.3)


def test_offload_lets_engines_take_turns() -> None:
    config = experiment(rollout__scheduling_strategy=COLOCATED, rollout__backend="sglang:d4t2")
    kept = shared(config)["actor", "rollout"]
    left = shared({**config, "enable_offload": True})["actor", "rollout"]
    assert left.step[1] < kept.step[1]


def test_settings_of_an_app() -> None:
    entry = {
        "path": "trainer.policy",
        "role": "training",
        "settings": {
            "mb_spec": {"max_tokens_per_mb": 8192},
            "gradient_checkpointing": "${trainer.ckpt}",
            "optimizer.type": "adam",
            "nonsense": 1,
        },
    }
    config = {
        "trainer": {"policy": {"backend": "fsdp:d8"}, "ckpt": True},
        "areal_plan": {"engines": {"policy": entry}, "model": "Qwen3-8B", "gpu": 80},
    }
    made = plan(OmegaConf.create(config), areal="1.0.4")
    memory = made.engines["policy"].memory
    assert memory is not None
    assert memory.verdict == "fits"
    assert [w.path for w in made.warnings if w.code == "AC364"] == [
        "areal_plan.engines.policy.settings.nonsense"
    ]


@pytest.mark.parametrize("gpu", ["Z9", [], "0"])
def test_a_card_that_is_none(gpu: Any) -> None:
    with pytest.raises(AllocationError):
        planned(gpu=gpu)


def test_plans_with_memory_compare() -> None:
    assert planned() == planned()
    assert planned() != planned(gpu=80)


def test_facts_are_taken_too() -> None:
    assert step(planned(model=read_model(MODEL)).engines["actor"]) == step(
        planned().engines["actor"]
    )


def test_a_card_of_the_config_that_is_not_known_stops_no_job() -> None:
    made = plan({**experiment(), "areal_plan": {"model": MODEL, "gpu": "Z9"}})
    assert made.ok
    assert [(w.code, w.path) for w in made.warnings if w.code == "AC710"] == [
        ("AC710", "areal_plan.gpu")
    ]
