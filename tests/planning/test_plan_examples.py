"""Whole experiments: budgets, and configs as people have them, with totals written out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf
from paths import CASES

from areal_conf.planning.result import Plan, plan

SHARED = CASES

BUDGETS = [
    ("1x4", "rollout=sglang:d4 actor=fsdp:d4", 8, "AC306"),
    ("1x4", "rollout=sglang:d2 actor=fsdp:d2", 4, None),
    ("5x1", "rollout=sglang:d4 actor=fsdp:d1", 5, None),
    ("1x8", "rollout=sglang:d1 actor=fsdp:d7", 8, None),
    ("2x8", "rollout=vllm:d12 actor=fsdp:d4", 16, None),
    ("4x8", "rollout=sglang:d4t8 actor=megatron:(attn:d4t4c2|ffn:d4e8)", 64, "AC306"),
    ("1x8", "rollout=sglang:d4 actor=megatron:d2p2 judge_engine=sglang:d1", 9, "AC306"),
    ("1x2", "rollout=sglang:t2 actor=megatron:d2", 4, "AC306"),
    ("1x2", "rollout@actor=sglang:t2 actor=megatron:d2", 2, None),
    ("10x8", "rollout=sglang:d4t8 actor=megatron:(attn:d1p12t4|ffn:d1p12e4)", 80, None),
    ("8x8", "rollout=sglang:d8t4 actor=megatron:(attn:d4p4t2|ffn:d2p4e4)", 64, None),
    ("4x16", "rollout=vllm:d4t4 actor=megatron:(attn:d2p4t4|ffn:d1p4e8)", 48, None),
    ("1x0", "rollout=vllm:d1 actor=fsdp:d1", 2, None),
    ("1x3", "rollout=vllm:t2 actor=fsdp:d1", 3, None),
    ("2x8", "rollout=sglang:d2t4 actor=fsdp:d4t2 critic@actor= ref@actor=", 16, None),
    ("1x8", "rollout=sglang:d4 actor=fsdp:d4 critic@actor=fsdp:d2", 8, "AC304"),
]


def budget(cluster: str, engines: str) -> dict[str, Any]:
    nodes, per_node = cluster.split("x")
    config: dict[str, Any] = {
        "cluster": {"n_nodes": int(nodes), "n_gpus_per_node": int(per_node)},
        "scheduler": {"type": "local"},
    }
    for engine in engines.split():
        name, _, spec = engine.partition("=")
        name, _, target = name.partition("@")
        config[name] = {"backend": spec}
        if target:
            config[name]["scheduling_strategy"] = {"type": "colocation", "target": target}
    return config


def check_budget(cluster: str, engines: str, total: int, code: str | None) -> Plan:
    made = plan(budget(cluster, engines))
    assert made.total_gpus == total
    assert [one.code for one in made.errors] == ([code] if code else [])
    return made


@pytest.mark.parametrize(("cluster", "engines", "total", "code"), BUDGETS)
def test_budgets(cluster: str, engines: str, total: int, code: str | None) -> None:
    made = check_budget(cluster, engines, total, code)
    idle = [one.code for one in made.warnings if one.code in ("AC350", "AC357")]
    expected = {"4x16": ["AC350"], "1x0": ["AC357"]}.get(cluster, [])
    assert idle == expected


@pytest.mark.skipif(not SHARED.exists(), reason="no shared cases here")
def test_shared_budgets() -> None:
    rows = (SHARED / "budgets.tsv").read_text().splitlines()
    for row in rows[1:]:
        cluster, engines, total, verdict = row.split("\t")
        code = verdict if verdict.startswith("AC") else None
        check_budget(cluster, engines, int(total), code)


EXAMPLES: dict[str, tuple[str, int, dict[str, int], list[str]]] = {
    # file: mode, total, GPUs of each engine, errors
    "agent_workflow__config": ("single_controller", 8, {"rollout": 4, "actor": 4, "ref": 0}, []),
    "alignment__hhrlhf_rw": ("single_controller", 8, {"actor": 8}, []),
    "distillation__gsm8k_grpo_distill_mode_rolloutEngine": (
        "single_controller",
        4,
        {"rollout": 1, "actor": 1, "ref": 0, "teacher": 2},
        [],
    ),
    "experimental__prox_approx__gsm8k_grpo_prox_approx": (
        "single_controller",
        8,
        {"rollout": 4, "actor": 4, "ref": 0},
        [],
    ),
    "math__boba_grpo": ("single_controller", 8, {"rollout": 4, "actor": 4, "ref": 0}, []),
    "math__gsm8k_grpo": ("single_controller", 8, {"rollout": 4, "actor": 4, "ref": 0}, []),
    "math__gsm8k_grpo_lora": ("single_controller", 8, {"rollout": 4, "actor": 4, "ref": 0}, []),
    "math__gsm8k_grpo_megatron_lora": (
        "single_controller",
        8,
        {"rollout": 4, "actor": 4, "ref": 0},
        [],
    ),
    "math__gsm8k_gspo": ("single_controller", 8, {"rollout": 4, "actor": 4, "ref": 0}, []),
    "math__gsm8k_liteppo": ("single_controller", 8, {"rollout": 4, "actor": 4, "ref": 0}, []),
    "math__gsm8k_ppo_megatron": (
        "single_controller",
        8,
        {"rollout": 4, "actor": 4, "critic": 0, "ref": 0},
        [],
    ),
    "math__gsm8k_rloo": ("single_controller", 8, {"rollout": 4, "actor": 4, "ref": 0}, []),
    "math__gsm8k_sft_archon_fp8": ("single_controller", 8, {"actor": 8}, []),
    "openclaw__config": ("single_controller", 2, {"rollout": 1, "actor": 1}, []),
    # one GPU, shared by the local launcher's round robin: refused, unless allowed
    "scaffolding__gsm8k_rlvr_scaffolding": (
        "spmd",
        2,
        {"rollout": 1, "actor": 1, "ref": 0},
        ["AC306"],
    ),
    "search_agent__local_1.5b_example": (
        "single_controller",
        8,
        {"rollout": 4, "actor": 4, "ref": 0},
        [],
    ),
    "tau2__config_1.7b_airline": (
        "single_controller",
        8,
        {"rollout": 6, "actor": 2, "ref": 0},
        [],
    ),
    "tau2__config_8b_airline": (
        "single_controller",
        24,
        {"rollout": 16, "actor": 8, "ref": 0},
        [],
    ),
    "tir__tir_math_config": ("single_controller", 8, {"rollout": 4, "actor": 4, "ref": 0}, []),
    "vlm__geometry3k_grpo": ("single_controller", 8, {"rollout": 4, "actor": 4, "ref": 0}, []),
    "vlm__qwen3_6_27b_geometry3k_grpo": ("single_controller", 8, {"rollout": 4, "actor": 4}, []),
    "vlm_npu__qwen2_5_vl_3b_geometry3k_grpo": (
        "single_controller",
        8,
        {"rollout": 4, "actor": 4, "ref": 0},
        [],
    ),
}
"""What every example of AReaL asks for; two more files there are no configs of an experiment."""

NO_EXPERIMENT = {"environ_ref", "skypilot__ray_cluster.sky"}


@pytest.mark.skipif(not SHARED.exists(), reason="no shared cases here")
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_areal(name: str) -> None:
    mode, total, gpus, errors = EXAMPLES[name]
    made = plan(OmegaConf.load(SHARED / "areal-examples" / f"{name}.yaml"))
    assert made.mode == mode
    assert made.total_gpus == total
    assert {engine: it.gpus for engine, it in made.engines.items()} == gpus
    assert [one.code for one in made.errors] == errors
    assert "AC359" not in [one.code for one in made.warnings]


@pytest.mark.skipif(not SHARED.exists(), reason="no shared cases here")
def test_every_example_has_its_total_here() -> None:
    files = {path.stem for path in (SHARED / "areal-examples").glob("*.yaml")}
    assert files == set(EXAMPLES) | NO_EXPERIMENT


# -- excerpts of such configs, of our own ---------------------------------------------------------


def test_a_math_experiment() -> None:
    config = OmegaConf.create(
        {
            "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
            "scheduler": {"type": None},
            "rollout": {"backend": "sglang:d4p1t1", "scheduling_spec": "${actor.scheduling_spec}"},
            "actor": {"backend": "fsdp:d4p1t1", "kl_ctl": 0.0, "scheduling_spec": [{"gpu": 1}]},
            "ref": {
                "backend": "${actor.backend}",
                "scheduling_strategy": {"type": "colocation", "target": "actor"},
            },
            "train_dataset": {"batch_size": 256},
        }
    )
    made = plan(config)
    assert made.ok
    assert [one.code for one in made.warnings] == ["AC316"]
    assert made.total_gpus == 8
    ref = made.engines["ref"]
    assert (ref.active, ref.gpus, ref.devices) == (False, 0, [])
    assert ref.inactive_because == "actor.kl_ctl is 0.0"


def test_a_critic_that_shares_the_actors_gpus() -> None:
    shares = {"type": "colocation", "target": "actor"}
    config = {
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
        "rollout": {"backend": "sglang:d2t4"},
        "actor": {"backend": "megatron:d2t2p2"},
        "critic": {"backend": "megatron:d8", "scheduling_strategy": shares},
        "ref": {"scheduling_strategy": shares},
    }
    made = plan(config)
    assert made.ok
    assert made.total_gpus == 16
    assert made.engines["critic"].devices == made.engines["actor"].devices
    assert made.engines["ref"].spec == "megatron:d2p2t2"
    assert made.engines["ref"].inherited_from == "actor"


def test_servers_for_a_distilling_teacher() -> None:
    config = {
        "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
        "rollout": {"backend": "vllm:d1"},
        "actor": {"backend": "fsdp:d1", "kl_ctl": 0},
        "teacher": {"engine_type": "rollout", "rollout": {"backend": "vllm:d1p1t2"}},
    }
    made = plan(config)
    assert made.total_gpus == 4
    assert made.engines["actor"].devices == [(0, 0)]
    assert made.engines["rollout"].devices == [(0, 1)]
    assert made.engines["teacher"].devices == [(0, 2), (0, 3)]
