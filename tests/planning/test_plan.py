"""The plan itself: its JSON, its groups, what may be allowed, how long it takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_conf.config.experiment import read_experiment
from areal_conf.errors import AllocationError
from areal_conf.planning.checks import check_only, first_error
from areal_conf.planning.options import PlanOptions
from areal_conf.planning.result import plan

PPO: dict[str, Any] = {
    "rollout": {"backend": "sglang:d2t4"},
    "actor": {"backend": "fsdp:d4p1t2"},
    "critic": {"scheduling_strategy": {"type": "colocation", "target": "actor"}},
    "ref": {"backend": "", "scheduling_strategy": {"type": "colocation", "target": "actor"}},
    "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
}

SMALL = {"n_nodes": 1, "n_gpus_per_node": 8}
BIG = {"n_nodes": 4, "n_gpus_per_node": 8}


# -- JSON -----------------------------------------------------------------------------------------


def test_the_shape_of_the_json() -> None:
    written = json.loads(plan(PPO).model_dump_json())
    assert list(written) == ["engines", "total_gpus", "cluster", "mode", "errors", "warnings"]
    assert list(written["engines"]) == ["rollout", "actor", "critic", "ref"]
    assert written["engines"]["actor"] == {
        "backend": "fsdp",
        "role": "training",
        "spec": "fsdp:d4t2",
        "active": True,
        "dims": {"d": 4, "t": 2, "p": 1, "c": 1, "e": 1, "etp": 1, "edp": 4},
        "world_size": 8,
        "gpus": 8,
        "instances": None,
        "instance_size": None,
        "inherited_from": None,
        "colocated_with": None,
        "devices": [[0, gpu] for gpu in range(8)],
    }
    rollout = written["engines"]["rollout"]
    assert (rollout["instances"], rollout["instance_size"]) == (2, 4)
    assert rollout["devices"] == [[1, gpu] for gpu in range(8)]
    critic = written["engines"]["critic"]
    assert (critic["gpus"], critic["inherited_from"], critic["colocated_with"]) == (
        0,
        "actor",
        "actor",
    )
    assert critic["devices"] == written["engines"]["actor"]["devices"]
    assert written["cluster"] == {"n_nodes": 2, "n_gpus_per_node": 8, "gpus": 16}
    assert (written["total_gpus"], written["mode"]) == (16, "single_controller")
    assert written["errors"] == written["warnings"] == []


def test_the_shape_of_an_error() -> None:
    written = json.loads(plan({"actor": {"backend": "fsdp:d4p2"}}).model_dump_json())
    (error,) = written["errors"]
    assert list(error) == ["code", "path", "message", "hint", "text", "span"]
    assert error["code"] == "AC104"
    assert error["path"] == "actor.backend"
    assert error["text"] == "fsdp:d4p2"
    assert error["span"] == [7, 9]
    assert error["hint"]
    engine = written["engines"]["actor"]
    assert (engine["spec"], engine["dims"], engine["world_size"]) == (None, None, 0)
    assert written["cluster"] is None


def test_devices_where_no_cluster_is_known() -> None:
    made = plan({"actor": {"backend": "fsdp:d2"}})
    assert made.engines["actor"].devices == [None, None]


# -- mode and order -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "launcher", "mode"),
    [
        ({}, None, "single_controller"),
        ({}, "local", "spmd"),
        ({"allocation_mode": "fsdp:d8"}, None, "spmd"),
        ({"allocation_mode": "fsdp:d8", "scheduler": {"type": None}}, None, "spmd"),
        ({"allocation_mode": "fsdp:d8", "scheduler": {"type": "ray"}}, None, "single_controller"),
        ({"allocation_mode": "fsdp:d8", "scheduler": {"type": "ray"}}, "ray", "spmd"),
        ({"allocation_mode": ""}, None, "single_controller"),
    ],
)
def test_mode(config: dict[str, Any], launcher: str | None, mode: str) -> None:
    made = plan({"actor": {"backend": "fsdp:d8"}, **config}, launcher=launcher)
    assert made.mode == mode
    assert made.launcher == launcher


@pytest.mark.parametrize("launcher", ["kubernetes", "", 8])
def test_an_unknown_launcher(launcher: Any) -> None:
    with pytest.raises(AllocationError, match="AC309"):
        plan(PPO, launcher=launcher)


def test_the_single_controller_places_trainers_first_then_servers_then_others() -> None:
    config = {
        "judge": {"backend": "sglang:d1"},
        "teacher": {"rollout": {"backend": "vllm:d1"}},
        "rollout": {"backend": "sglang:d1"},
        "ref": {"backend": "fsdp:d1"},
        "critic": {"backend": "fsdp:d1"},
        "actor": {"backend": "fsdp:d1"},
        "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    }
    made = plan(config)
    order = sorted(made.engines, key=lambda name: str(made.engines[name].devices[0]))
    assert order == ["actor", "critic", "ref", "rollout", "teacher", "judge"]
    config["teacher"] = {"engine_type": "train", "train": {"backend": "fsdp:d1"}}
    made = plan(config)
    order = sorted(made.engines, key=lambda name: str(made.engines[name].devices[0]))
    assert order == ["actor", "critic", "ref", "teacher", "rollout", "judge"]


def test_spmd_places_servers_first() -> None:
    made = plan(PPO, launcher="slurm")
    assert made.engines["rollout"].devices[0] == (0, 0)
    assert made.engines["actor"].devices[0] == (1, 0)
    half = {**PPO, "rollout": {"backend": "sglang:d1t4"}, "actor": {"backend": "fsdp:d4"}}
    made = plan(half, launcher="slurm")
    assert made.engines["actor"].devices[0] == (1, 0)  # on a node of its own


def test_spmd_places_other_trainers_beside_the_actor_and_other_servers_last() -> None:
    specs = {"rollout": "vllm", "judge": "vllm", "value": "fsdp", "actor": "fsdp"}
    config = {name: {"backend": f"{backend}:d1"} for name, backend in specs.items()}
    made = plan({**config, "cluster": {"n_nodes": 1, "n_gpus_per_node": 8}}, launcher="local")
    order = sorted(made.engines, key=lambda name: str(made.engines[name].devices[0]))
    assert order == ["rollout", "actor", "value", "judge"]


def test_an_instance_that_fits_a_node_does_not_straddle_one() -> None:
    made = plan(
        {
            "rollout": {"backend": "sglang:d2t6"},
            "actor": {"backend": "fsdp:d4"},
            "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
        }
    )
    assert made.warnings == []
    devices = made.engines["rollout"].devices
    assert len({device[0] for device in devices[:6] if device}) == 1
    assert len({device[0] for device in devices[6:] if device}) == 1


SPECS = {
    "actor": st.sampled_from(["fsdp:d4", "fsdp:d2t2", "megatron:d2p2t2e2", "archon:d3"]),
    "critic": st.sampled_from(["", "fsdp:d2", "megatron:d4t2"]),
    "rollout": st.sampled_from(["sglang:d2t4", "vllm:d3t2", "sglang:d1t4p2", "sglang:d5"]),
    "judge": st.sampled_from(["sglang:d1", "vllm:t3"]),
}


@given(
    st.fixed_dictionaries({}, optional=SPECS),
    st.integers(1, 4),
    st.sampled_from([1, 2, 3, 4, 6, 8, 16]),
    st.booleans(),
)
def test_no_gpu_is_given_to_two_engines_that_are_not_colocated(
    specs: dict[str, str], nodes: int, per_node: int, together: bool
) -> None:
    config: dict[str, Any] = {name: {"backend": spec} for name, spec in specs.items()}
    config["cluster"] = {"n_nodes": nodes, "n_gpus_per_node": per_node}
    if together and "critic" in config:
        shares = {"type": "colocation", "target": "actor"}
        config["critic"] = {"backend": "", "scheduling_strategy": shares}
    made = plan(config)
    owners: dict[tuple[int, int], str] = {}
    for name, engine in made.engines.items():
        assert len(engine.devices) == engine.world_size
        placed = [device for device in engine.devices if device is not None]
        assert len(placed) == len(set(placed))
        if made.ok:
            assert len(placed) == engine.world_size
        for node, gpu in placed:
            assert node < nodes
            assert gpu < per_node
            owner = owners.setdefault((node, gpu), engine.colocated_with or name)
            assert owner == (engine.colocated_with or name)


# -- groups ---------------------------------------------------------------------------------------


def test_ranks_and_groups_of_an_engine() -> None:
    actor = plan({"actor": {"backend": "megatron:(attn:d2p2t2|ffn:p2t2e2)"}}).engines["actor"]
    assert actor.tensor_groups() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert actor.data_groups() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert actor.pipeline_groups() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert actor.context_groups() == [[rank] for rank in range(8)]
    assert actor.expert_groups() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert actor.expert_tensor_groups() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert actor.expert_data_groups() == [[rank] for rank in range(8)]
    assert actor.rank() == 0
    assert actor.rank(d=1, p=1, t=1) == 7
    assert actor.coordinates(7) == (1, 1, 0, 1, 1, 1, 0)
    long = plan({"actor": {"backend": "megatron:t2c2e2"}}).engines["actor"]
    assert long.context_groups() == [[0, 2], [1, 3]]
    assert long.expert_data_groups() == [[0, 2], [1, 3]]


def test_ranks_of_an_engine_without_a_layout() -> None:
    actor = plan({"actor": {"backend": "fsdp:d4p2"}}).engines["actor"]
    with pytest.raises(AllocationError, match="AC301"):
        actor.tensor_groups()


# -- nodes ----------------------------------------------------------------------------------------


def test_nodes_needed() -> None:
    assert plan(PPO).nodes == 2
    config = {**PPO, "cluster": {"n_gpus_per_node": 4}}
    assert plan(config).nodes == 4
    assert plan({**PPO, "cluster": {"n_nodes": 1, "n_gpus_per_node": 8}}).nodes == 2
    with pytest.raises(AllocationError, match="AC357"):
        _ = plan({**PPO, "cluster": {}}).nodes


# -- errors and allowing them ---------------------------------------------------------------------


def test_everything_wrong_is_collected_and_raised_at_once() -> None:
    config = {
        "rollout": {"backend": "sglang:d4"},
        "actor": {"backend": "fsdp:d4p2"},
        "teacher": {},
        "cluster": {"n_nodes": 1, "n_gpus_per_node": 2},
    }
    made = plan(config)
    assert sorted(one.code for one in made.errors) == ["AC104", "AC301", "AC306"]
    with pytest.raises(AllocationError) as caught:
        made.raise_for_errors()
    assert len(caught.value.errors) == 3
    for raised, told in zip(caught.value.errors, made.errors, strict=True):
        assert (raised.code, raised.path) == (told.code, told.path)
        assert (raised.message, raised.hint) == (told.message, told.hint)
        assert (raised.text, raised.span) == (told.text, told.span)
    plan(PPO).raise_for_errors()


def test_a_plan_with_one_more_error() -> None:
    made = plan(PPO)
    worse = made.with_error(AllocationError("AC322", "no such script", hint="name one"))
    assert made.ok
    assert [one.code for one in worse.errors] == ["AC322"]
    assert worse.nodes == made.nodes
    assert made.with_error() is made


def test_backends_that_the_legacy_mode_filled_in() -> None:
    config = {"allocation_mode": "sglang.d4+d4", "rollout": {}, "actor": {"backend": "fsdp:d4"}}
    assert plan(config).filled_in() == {"rollout.backend": "sglang:d4"}
    assert plan(PPO).filled_in() == {}


@pytest.mark.parametrize("where", ["argument", "config", "text"])
def test_an_error_that_is_allowed_is_a_warning_that_says_so(where: str) -> None:
    config: dict[str, Any] = {**PPO, "cluster": {"n_nodes": 1, "n_gpus_per_node": 8}}
    assert not plan(config).ok
    if where == "argument":
        made = plan(config, allow=["AC306"])
    else:
        config["areal_plan"] = {"allow": ["AC306"] if where == "config" else "AC306"}
        made = plan(config)
    assert made.ok
    (one,) = made.warnings
    assert one.code == "AC306"
    assert "allowed" in one.message


@pytest.mark.parametrize("code", ["AC101", "AC204", "AC999", "AC320", "306", "", 306])
def test_what_cannot_be_allowed(code: Any) -> None:
    with pytest.raises(AllocationError, match="AC309"):
        plan(PPO, allow=[code])
    made = plan({**PPO, "areal_plan": {"allow": [code]}})
    assert [(one.code, one.path) for one in made.errors] == [("AC309", "areal_plan.allow")]


@pytest.mark.parametrize(
    ("argument", "value"),
    [("allow", None), ("allow", 5), ("allow", {"AC306": True}), ("root", None), ("root", ["a"])],
)
def test_an_argument_of_the_wrong_type(argument: str, value: Any) -> None:
    with pytest.raises(AllocationError) as caught:
        plan(PPO, **{argument: value})
    assert (caught.value.code, caught.value.path) == ("AC309", None)


def test_a_code_that_was_allowed_counts_for_what_is_found_later_too() -> None:
    late = AllocationError("AC308", "torchrun started 4 ranks", hint="start 8")
    assert [one.code for one in plan(PPO).with_error(late, late).errors] == ["AC308"] * 2
    made = plan(PPO, allow=["AC308"]).with_error(late)
    assert made.ok
    assert made.warnings[-1].message.endswith("(allowed: AC308 counts as a warning)")


def test_findings_alone_are_those_of_the_plan() -> None:
    config = {**PPO, "cluster": {"n_nodes": 1, "n_gpus_per_node": 8}, "judge": {"backend": "vllm:"}}
    made = plan(config)
    found = check_only(config)
    assert [e.code for s, e in found if s == "error"] == [one.code for one in made.errors]
    assert [e.code for s, e in found if s == "warning"] == [one.code for one in made.warnings]
    under_slurm = check_only(config, PlanOptions(launcher="slurm"))
    assert {e.code for s, e in under_slurm if s == "error"} == {"AC106", "AC308"}


@pytest.mark.parametrize(
    ("changes", "model", "code"),
    [
        ({}, None, None),
        ({"cluster": BIG}, None, None),  # a warning alone
        ({"rollout": {"backend": "sglang:"}}, None, "AC106"),
        ({"cluster": SMALL}, None, "AC306"),
        ({"rollout": {"backend": "sglang:t12"}, "cluster": BIG}, None, "AC307"),
        ({"scheduler": {"type": "kubernetes"}}, None, "AC309"),
        ({}, {"num_attention_heads": 6, "num_hidden_layers": 8}, "AC401"),
        ({"cluster": SMALL, "areal_plan": {"allow": ["AC306"]}}, None, None),
        ({"areal_plan": {"allow": ["AC101"]}}, None, "AC309"),
    ],
)
def test_the_first_error_is_that_of_the_plan(
    changes: dict[str, Any], model: Any, code: str | None
) -> None:
    config = {**PPO, **changes}
    state, error = first_error(read_experiment(config), model)
    assert list(state.engines) == ["actor", "critic", "ref", "rollout"]
    assert (error and error.code) == code
    made = plan(config, model=model)
    assert (made.errors[0].code if made.errors else None) == code


def test_findings_alone_need_no_pydantic() -> None:
    script = (
        "import sys; from areal_conf.planning.checks import check_only;"
        "assert check_only({'actor': {'backend': 'fsdp:d4p2'}});"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# -- time -----------------------------------------------------------------------------------------


def test_sixteen_thousand_gpus_in_a_second() -> None:
    config = {
        "rollout": {"backend": "sglang:d512t8"},
        "actor": {"backend": "megatron:d32p8t8c2e16"},
        "critic": {"backend": "fsdp:d4096"},
        "teacher": {"rollout": {"backend": "vllm:d512t8"}},
        "ref": {"scheduling_strategy": {"type": "colocation", "target": "actor"}},
        "cluster": {"n_nodes": 2048, "n_gpus_per_node": 8},
    }
    started = time.process_time()
    made = plan(config)
    written = made.model_dump_json()
    assert time.process_time() - started < 1
    assert made.total_gpus == 16_384
    assert len(json.loads(written)["engines"]["actor"]["devices"]) == 4096
    assert made.ok


def test_plans_of_one_config_are_equal() -> None:
    cfg = {"actor": {"backend": "fsdp:d8"}, "rollout": {"backend": "sglang:d4"}}
    assert plan(cfg) == plan(cfg)
    assert plan(cfg) != plan({**cfg, "actor": {"backend": "fsdp:d4"}})
