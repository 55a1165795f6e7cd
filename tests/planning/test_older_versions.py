"""Configs of older AReaL versions, judged by the version of their time and by today's."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf import to_areal
from areal_conf.migrate import migrate_yaml
from areal_conf.planning.result import Plan, plan

NODE = {"n_nodes": 1, "n_gpus_per_node": 8}


def specs(made: Plan) -> dict[str, str | None]:
    return {name: engine.spec for name, engine in made.engines.items()}


def codes(made: Plan) -> list[str]:
    return [one.code for one in (*made.errors, *made.warnings)]


# -- SPMD launchers of 1.0.3 and later ------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "backends", "said"),
    [
        ("sglang:d4+fsdp:d4", True, []),
        ("sglang:d4+d4", True, ["names its backend"]),
        ("sglang.d4+d4", True, ["names its backend"]),
        ("sglang:d4+fsdp:d4", False, ["which is unset"]),
        ("sglang[rollout]:d2+fsdp[actor]:d4|fsdp[critic]:d4", True, ["no more than 2"]),
    ],
)
def test_ac324_modes_that_todays_launchers_do_not_read(
    mode: str, backends: bool, said: list[str]
) -> None:
    config: dict[str, Any] = {"allocation_mode": mode, "rollout": {}, "actor": {}, "cluster": NODE}
    if "critic" in mode:
        config["critic"] = {"backend": "fsdp:d4"}
    if backends:
        servers = "sglang:d2" if "critic" in mode else "sglang:d4"
        config |= {"rollout": {"backend": servers}, "actor": {"backend": "fsdp:d4"}}
    found = [one for one in plan(config, launcher="local").warnings if one.code == "AC324"]
    assert len(found) == len(said)
    assert all(text in one.message for text, one in zip(said, found, strict=True))
    assert "AC324" not in codes(plan(config, launcher="local", areal="1.0.2"))
    assert "AC324" not in codes(plan(config))  # nothing is started yet


def test_ac511_does_not_take_the_mode_from_a_launcher() -> None:
    config = {
        "allocation_mode": "fsdp:d8",
        "actor": {"backend": "fsdp:d8"},
        "cluster": NODE,
    }
    (one,) = [one for one in plan(config).warnings if one.code == "AC511"]
    assert one.hint == "keep both for an SPMD launcher, else delete allocation_mode"


# -- before 1.0.3 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", [None, "slurm", "local"])
def test_the_mode_is_read_under_every_scheduler_before_1_0_3(scheduler: str | None) -> None:
    config: dict[str, Any] = {
        "allocation_mode": "sglang:d8+d8",
        "rollout": {},
        "actor": {},
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
        "scheduler": {"type": scheduler},
    }
    made = plan(config, areal="1.0.2")
    assert made.ok
    assert specs(made) == {"actor": "fsdp:d8", "rollout": "sglang:d8"}
    assert made.total_gpus == 16
    assert not {"AC512", "AC513"} & set(codes(made))
    if scheduler:
        assert {"AC513", "AC301"} <= set(codes(plan(config, areal="1.0.3")))


def test_ac324_backends_before_1_0_3() -> None:
    config = {"rollout": {"backend": "sglang:d4"}, "actor": {"backend": "fsdp:d4"}}
    (one,) = [one for one in plan(config, areal="1.0.2").warnings if one.code == "AC324"]
    assert one.hint == "write ++allocation_mode=sglang:d4+fsdp:d4"
    assert "AC324" not in codes(plan(config, areal="1.0.3"))


def test_the_trainer_of_sft_is_called_model_up_to_0_5_1() -> None:
    config = {"allocation_mode": "d8p1t1", "model": {"path": "m"}, "cluster": NODE}
    made = plan(config, areal="0.5.1")
    assert made.ok
    assert specs(made) == {"actor": "fsdp:d8"}
    assert made.total_gpus == 8
    assert "AC324" not in codes(plan(config, areal="0.5.1", strict=True))
    assert "AC324" in codes(plan(config, areal="0.5.2", strict=True))
    assert "AC350" not in codes(plan(config))


@pytest.mark.parametrize("areal", [None, "0.3.0", "0.4.0"])
def test_a_bare_name_is_a_label(areal: str | None) -> None:
    config = {
        "allocation_mode": "sglang.d4p1t1+d4p1t1",
        "actor": {"backend": "fsdp"},
        "ref": {"backend": "fsdp"},
        "rollout": {},
        "cluster": NODE,
    }
    made = plan(config, areal=areal)
    assert made.ok
    assert specs(made) == {"actor": "fsdp:d4", "ref": "fsdp:d4", "rollout": "sglang:d4"}
    assert made.total_gpus == 8


def test_without_a_mode_a_bare_name_is_no_backend() -> None:
    assert codes(plan({"actor": {"backend": "fsdp"}}))[0] in ("AC101", "AC106")


def test_migrate_gives_a_label_its_sizes() -> None:
    text = "allocation_mode: sglang.d4p1t1+d4p1t1\nactor:\n  backend: fsdp\nrollout:\n  a: 1\n"
    migrated = migrate_yaml(text).new
    assert migrated is not None
    assert 'backend: "fsdp:d4p1t1"' in migrated


# -- the teacher of 1.0.2 -------------------------------------------------------------------------


def teacher(**changes: Any) -> dict[str, Any]:
    return {
        "actor": {"backend": "fsdp:d8"},
        "rollout": {"backend": "sglang:d4"},
        "teacher": {"allocation_mode": "d1p1t4", "path": "m"},
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
        "scheduler": {"type": "ray"},
        **changes,
    }


def test_a_teacher_with_a_mode_of_its_own() -> None:
    made = plan(teacher(), areal="1.0.2")
    assert made.engines["teacher"].spec == "fsdp:t4"
    assert made.total_gpus == 16
    assert "AC324" in codes(plan(teacher(), areal="1.0.4", strict=True))
    made = plan(teacher(teacher={"allocation_mode": "d1p"}))
    assert [(one.code, one.path) for one in made.errors] == [("AC106", "teacher.allocation_mode")]


def test_such_a_teacher_is_exported_in_todays_form() -> None:
    out = to_areal(OmegaConf.create(teacher())).teacher
    assert OmegaConf.to_container(out) == {
        "engine_type": "train",
        "train": {"backend": "fsdp:d1p1t4", "path": "m"},
    }


def test_migrate_leaves_such_a_file_alone() -> None:
    text = (
        "allocation_mode: sglang.d4+d4\nactor:\n  a: 1\nrollout:\n  a: 1\n"
        "teacher:\n  allocation_mode: d1p1t4\n"
    )
    found = migrate_yaml(text)
    assert found.new is None
    assert [one.error.code for one in found.found] == ["AC522"]


# -- the first generation -------------------------------------------------------------------------


def test_the_first_generation_says_its_size_at_the_root() -> None:
    config = {
        "allocation_mode": "d32p1m4",
        "n_nodes": 16,
        "n_gpus_per_node": 8,
        "cluster": {"n_nodes": 64, "n_gpus_per_node": 8},
        "actor": {"path": "m"},
        "ref": {"path": "m"},
    }
    made = plan(config, areal="0.3.0")
    assert made.ok
    assert made.cluster is not None
    assert made.cluster.gpus == 128
    assert specs(made) == {"actor": "megatron:d32t4", "ref": "megatron:d32t4"}
    assert made.total_gpus == 128


def test_the_first_generation_has_no_section_of_servers() -> None:
    config = {"allocation_mode": "sglang.d4p1m1+d2p2m1", "n_nodes": 1, "actor": {"path": "m"}}
    made = plan(config)
    assert made.ok
    assert specs(made) == {"actor": "megatron:d2p2", "rollout": "sglang:d4"}
    assert made.total_gpus == 8
    assert made.cluster is not None
    assert made.cluster.gpus == 8
    assert "AC514" not in codes(made)


# -- tensor groups of experts ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "straddles"),
    [
        ("megatron:t16", True),
        ("megatron:(attn:d16|ffn:t16)", True),
        ("megatron:(attn:d16|ffn:d2t8)", False),
        ("megatron:(attn:d4t4|ffn:t16)", True),
    ],
)
def test_ac351_tensor_groups_of_experts(spec: str, straddles: bool) -> None:
    made = plan({"actor": {"backend": spec}, "cluster": {"n_nodes": 2, "n_gpus_per_node": 8}})
    assert ("AC351" in codes(made)) is straddles
