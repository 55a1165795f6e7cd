"""One backend string, as the arguments of other programs."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import Any

import pytest

from areal_conf import AllocationError, ModelAllocation
from areal_conf.cli.engine_args import add_arguments, run
from areal_conf.engine_args import FRAMEWORKS, TARGETS, as_mapping, engine_args
from areal_conf.spec.backends import BACKENDS, Sizes

VERL = "actor_rollout_ref."
MEGATRON = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "


@pytest.mark.parametrize(
    ("spec", "framework", "args"),
    [
        ("sglang:d2t4", "", "--tp-size 4 --pp-size 1"),
        ("sglang:d2t4p2", "sglang", "--tp-size 4 --pp-size 2"),
        ("vllm:d2t4", "sglang", "--tp-size 4 --pp-size 1"),
        ("vllm:t4p2", "", "--tensor-parallel-size 4 --pipeline-parallel-size 2"),
        (
            "megatron:(attn:d4t4p2|ffn:t2e2)",
            "",
            MEGATRON + "--context-parallel-size 1 --expert-model-parallel-size 2 "
            "--expert-tensor-parallel-size 2 --sequence-parallel",
        ),
        (
            "megatron:d8c2",
            "megatron",
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 "
            "--context-parallel-size 2 --expert-model-parallel-size 1 "
            "--expert-tensor-parallel-size 1",
        ),
        (
            "archon:d4t2e2",
            "torchtitan",
            "--parallelism.data_parallel_replicate_degree 1 "
            "--parallelism.data_parallel_shard_degree 4 --parallelism.tensor_parallel_degree 2 "
            "--parallelism.pipeline_parallel_degree 1 --parallelism.context_parallel_degree 1 "
            "--parallelism.expert_parallel_degree 2",
        ),
        (
            "sglang:d4t2",
            "verl",
            f"{VERL}rollout.tensor_model_parallel_size=2 "
            f"{VERL}rollout.pipeline_model_parallel_size=1",
        ),
        (
            "fsdp:d4c2",
            "verl",
            f"{VERL}actor.fsdp_config.fsdp_size=8 {VERL}actor.ulysses_sequence_parallel_size=2",
        ),
        (
            "vllm:d4t2",
            "nemo-rl",
            "policy.generation.vllm_cfg.tensor_parallel_size=2 "
            "policy.generation.vllm_cfg.pipeline_parallel_size=1",
        ),
        (
            "fsdp:d4t2",
            "nemo-rl",
            "policy.dtensor_cfg.enabled=true policy.megatron_cfg.enabled=false "
            "policy.dtensor_cfg.tensor_parallel_size=2 policy.dtensor_cfg.context_parallel_size=1 "
            "policy.dtensor_cfg.sequence_parallel=true",
        ),
    ],
)
def test_arguments(spec: str, framework: str, args: str) -> None:
    assert engine_args(spec, framework) == args.split()
    assert engine_args(ModelAllocation.from_str(spec), framework) == args.split()


def test_mapping_keeps_types() -> None:
    assert as_mapping("megatron:d2p2t2e2", "nemo-rl") == {
        "policy.dtensor_cfg.enabled": False,
        "policy.megatron_cfg.enabled": True,
        "policy.megatron_cfg.tensor_model_parallel_size": 2,
        "policy.megatron_cfg.pipeline_model_parallel_size": 2,
        "policy.megatron_cfg.context_parallel_size": 1,
        "policy.megatron_cfg.expert_model_parallel_size": 2,
        "policy.megatron_cfg.expert_tensor_parallel_size": 1,
        "policy.megatron_cfg.sequence_parallel": True,
    }
    assert (
        as_mapping("sglang:d2t4p1", "nemo-rl")[
            "policy.generation.sglang_cfg.sglang_server_config.num_gpus_per_engine"
        ]
        == 4
    )


@pytest.mark.parametrize(
    ("spec", "framework", "marked", "hint"),
    [
        ("fsdp:d8", "megatron", "fsdp", "torchtitan, verl or nemo-rl"),
        ("sglang:d8", "torchtitan", "sglang", "sglang, vllm, verl or nemo-rl"),
        ("archon:d8", "verl", "archon", "torchtitan"),
        ("fsdp:d2t4", "verl", "t4", "torchtitan or nemo-rl"),
        ("sglang:t2p2", "nemo-rl", "p2", "sglang, vllm or verl"),
        ("archon:(attn:d4t2|ffn:t2e2)", "torchtitan", "t2", "t of ffn of 1"),
    ],
)
def test_what_cannot_be_said(spec: str, framework: str, marked: str, hint: str) -> None:
    with pytest.raises(AllocationError) as caught:
        engine_args(spec, framework)
    error = caught.value
    assert error.code == "AC321"
    assert error.text[slice(*error.span)] == marked
    assert hint in error.hint


@pytest.mark.parametrize("framework", ["megatron-lm", "x" * 9999])
def test_unknown_framework(framework: str) -> None:
    with pytest.raises(AllocationError, match="unknown framework") as caught:
        as_mapping("fsdp:d8", framework)
    assert caught.value.code == "AC309"
    assert len(str(caught.value)) < 5000


def test_framework_of_another_type() -> None:
    wrong: Any = 8
    with pytest.raises(AllocationError, match="expected the name of a framework"):
        as_mapping("fsdp:d8", wrong)


def test_the_table() -> None:
    sizes = Sizes(d=2, t=2, p=2, c=2, e=2, etp=2)
    for row in TARGETS:
        assert row.source
        assert set(row.backends) <= set(BACKENDS)
        assert row.values(sizes).keys() == row.keys.keys()
    pairs = [(row.framework, backend) for row in TARGETS for backend in row.backends]
    assert len(pairs) == len(set(pairs))
    for backend in BACKENDS:
        assert engine_args(f"{backend}:d1")


def _cli(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(argv))


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli("sglang:d2t4") == 0
    captured = capsys.readouterr()
    assert captured.out == "--tp-size 4 --pp-size 1\n"
    assert captured.err == "note: for each of 2 servers\n"
    assert _cli("megatron:d2t4", "--for", "verl") == 0
    assert all("=" in word for word in shlex.split(capsys.readouterr().out))
    assert _cli("vllm:t4", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 1,
    }


@pytest.mark.parametrize("argv", [("fsdp:d8", "--for", "megatron"), ("fsdp:d8p2",)])
def test_command_line_refuses(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert _cli(*argv) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hint:" in captured.err


def test_frameworks() -> None:
    assert FRAMEWORKS == ("sglang", "vllm", "megatron", "torchtitan", "verl", "nemo-rl")
