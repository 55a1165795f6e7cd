"""What AReaL's controllers and schedulers refuse when they start workers."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf.planning.result import Plan, plan

GRANTED = {"gpu": 1, "cmd": "python -m areal.infra.rpc.rpc_server"}
ON_ACTOR = {"type": "colocation", "target": "actor"}


def experiment(scheduler: str = "ray", **changes: Any) -> dict[str, Any]:
    """Actor and rollout with a GPU for each rank; ``actor__x=1`` sets ``actor.x``."""
    config = OmegaConf.create(
        {
            "cluster": {"n_nodes": 4, "n_gpus_per_node": 8},
            "scheduler": {"type": scheduler},
            "actor": {"backend": "megatron:d8", "scheduling_spec": [GRANTED]},
            "rollout": {"backend": "sglang:d4t2", "scheduling_spec": [GRANTED]},
        }
    )
    for key, value in changes.items():
        OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    plain = OmegaConf.to_container(config)
    assert isinstance(plain, dict)
    return plain  # type: ignore[return-value]


def told(made: Plan, *codes: str) -> list[tuple[str, str | None]]:
    found = [(one.code, one.path) for one in (*made.errors, *made.warnings)]
    return [one for one in found if one[0] in codes]


@pytest.mark.parametrize(
    ("changes", "areal", "found"),
    [
        # scheduler local starts what cmd says
        ({"scheduler": "local", "actor__scheduling_spec": [{"gpu": 1}]}, "main", "AC325"),
        ({"scheduler": "slurm", "actor__scheduling_spec": [{"gpu": 1}]}, "main", None),
        # ray of main has no additional_bash_cmds
        ({"actor__scheduling_spec": [{**GRANTED, "additional_bash_cmds": ["x"]}]}, "main", "AC325"),
        ({"actor__scheduling_spec": [{**GRANTED, "additional_bash_cmds": ["x"]}]}, "2.0.0", None),
        # fractions of several GPUs
        ({"actor__scheduling_spec": [{**GRANTED, "gpu": 2}]}, "2.0.0", "AC325"),
        ({"actor__scheduling_spec": [{**GRANTED, "gpu": 10}]}, "2.0.0", None),
        ({"actor__scheduling_spec": [{**GRANTED, "gpu": 2}]}, "main", None),
        ({"actor___version": "v2", "rollout___version": "v2"}, "1.0.4", "AC325"),
        ({"actor___version": "v2", "rollout___version": "v2"}, "main", None),
        ({"rollout__backend": "sglang:d8t1"}, "1.0.4", None),
        # servers of a teacher over several nodes
        (
            {"teacher": {"rollout": {"backend": "sglang:t16", "scheduling_spec": [GRANTED]}}},
            "main",
            "AC325",
        ),
        ({"rollout__backend": "sglang:t16"}, "main", None),
    ],
)
def test_ac325(changes: dict[str, Any], areal: str, found: str | None) -> None:
    config = experiment(**changes)
    codes = [code for code, _ in told(plan(config, areal=areal, strict=True), "AC325")]
    assert codes == ([found] if found else [])
    assert plan(config, areal=areal).ok  # a warning, as long as nothing is started


def test_two_entries_are_too_many_for_the_controller_v2() -> None:
    config = experiment(
        "slurm", actor__scheduling_spec=[GRANTED, GRANTED], actor__backend="fsdp:d2"
    )
    config["cluster"]["n_gpus_per_node"] = 2
    assert told(plan(config, strict=True), "AC363") == []
    config["actor"]["_version"] = config["rollout"]["_version"] = "v2"
    assert told(plan(config, strict=True), "AC363") == [("AC363", "actor.scheduling_spec")]


@pytest.mark.parametrize(
    ("fork", "mode", "refused"), [(False, "", True), (False, "online", False), (True, "", False)]
)
def test_the_evaluation_needs_workers_of_rollout(fork: bool, mode: str, refused: bool) -> None:
    config = experiment(
        "slurm",
        rollout__backend="sglang:d8",
        rollout__scheduling_strategy={**ON_ACTOR, "fork": fork},
        rollout__agent={"mode": mode},
        enable_offload=True,
        actor__weight_update_mode="disk",
    )
    assert bool(told(plan(config, strict=True), "AC305")) is refused


# -- the controller v2 ----------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["local", "slurm", "ray"])
@pytest.mark.parametrize("areal", ["1.0.4", "main"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_helper_finds_no_actor_of_the_controller_v2(
    scheduler: str, areal: str, version: str
) -> None:
    config = experiment(scheduler, actor___version="v2", rollout___version="v2")
    config["ref"] = {"backend": "megatron:d8", "scheduling_strategy": ON_ACTOR, "_version": version}
    config["ref"]["scheduling_spec"] = [GRANTED]
    made = plan(config, areal=areal)
    (one,) = [error for error in made.errors if error.code == "AC303"]
    assert "actor-guard" in one.message
    assert one.hint.startswith("write ref.scheduling_strategy.target=actor-guard")
    config["ref"]["scheduling_strategy"] = {"type": "colocation", "target": "actor-guard"}
    found = plan(config, areal=areal)
    assert told(found, "AC303", "AC304") == []
    assert found.engines["ref"].colocated_with == "actor"


def test_the_controller_v2_does_not_read_the_strategy_of_rollout() -> None:
    config = experiment("slurm", actor___version="v2", rollout___version="v2")
    config["rollout"]["scheduling_strategy"] = ON_ACTOR
    made = plan(config, areal="main")
    assert made.total_gpus == 16
    assert ("AC364", "rollout.scheduling_strategy") in told(made, "AC364")


def test_only_the_controller_v2_reads_api_url() -> None:
    config = experiment("local", rollout__api_url="http://host:1/v1")
    config["cluster"]["n_nodes"] = 1
    config["rollout"]["backend"] = "sglang:d8"
    made = plan(config)
    assert told(made, "AC306", "AC364") == [("AC306", "cluster"), ("AC364", "rollout.api_url")]
    config["actor"]["_version"] = config["rollout"]["_version"] = "v2"
    made = plan(config)
    assert told(made, "AC306", "AC364") == []
    assert made.total_gpus == 8


# -- keys of a version ----------------------------------------------------------------------------


def test_ac324_a_flat_teacher() -> None:
    config = experiment("slurm", teacher={"backend": "fsdp:d8"})
    for areal, found in (("1.0.3", []), ("1.0.4", ["AC324"]), ("main", ["AC324"])):
        made = plan(config, areal=areal)
        assert [code for code, _ in told(made, "AC324")] == found
        assert made.ok


DELTA = {
    "actor__enable_delta_weight_update": True,
    "actor__weight_update_mode": "awex",
    "actor___version": "v2",
    "rollout___version": "v2",
}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, None),
        ({"rollout__backend": "vllm:d4t2"}, "rollout.backend"),
        ({"actor__backend": "fsdp:d8"}, "actor.backend"),
        ({"actor__weight_update_mode": "xccl"}, "actor.weight_update_mode"),
        ({"actor__use_lora": True}, "actor.use_lora"),
        ({"actor__ppo_n_minibatches": 4}, "actor.ppo_n_minibatches"),
    ],
)
def test_delta_weight_updates(changes: dict[str, Any], path: str | None) -> None:
    config = experiment("slurm", **{**DELTA, **changes})
    made = plan(config, areal="main", strict=True)
    assert told(made, "AC311") == ([("AC311", path)] if path else [])
    assert told(plan(config, areal="2.0.0"), "AC311") == []
