"""What AReaL's trainer refuses at start: one test a rule, with what it takes to be right."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf.config.versions import MAIN, V1_0_4, areal_version
from areal_conf.errors import CODES, AllocationError
from areal_conf.planning.result import Plan, plan

ON_ACTOR = {"type": "colocation", "target": "actor"}


def experiment(**changes: Any) -> dict[str, Any]:
    """An experiment of rollout and actor; `changes` by dotted path, dots written as two lines."""
    config: dict[str, Any] = {
        "experiment_name": "mine",
        "trial_name": "first",
        "rollout": {"backend": "sglang:d4"},
        "actor": {"backend": "fsdp:d4"},
        "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
        "scheduler": {"type": "local"},
    }
    for dotted, value in changes.items():
        *sections, key = dotted.split("__")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    return config


def found(plan: Plan, code: str) -> str | None:
    """Severity and config path of the finding with `code`; None where there is none."""
    for severity, found in (("error", plan.errors), ("warning", plan.warnings)):
        for one in found:
            if one.code == code:
                return f"{severity} at {one.path}"
    return None


def test_a_plain_experiment_breaks_none() -> None:
    made = plan(experiment(), strict=True)
    assert made.ok
    assert {one.code for one in made.warnings} == {"AC359"}  # no scheduling_spec


@pytest.mark.parametrize(
    ("code", "path", "broken", "mended"),
    [
        (
            "AC310",
            "enable_offload",
            {"rollout__scheduling_strategy": ON_ACTOR, "actor__weight_update_mode": "disk"},
            {"enable_offload": True},
        ),
        ("AC310", "enable_offload", {"actor__offload": True}, {"enable_offload": True}),
        (
            "AC310",
            "enable_offload",
            {"ref__offload": True, "ref__scheduling_strategy": ON_ACTOR},
            {"enable_offload": True},
        ),
        (
            "AC311",
            "actor.weight_update_mode",
            {"rollout__scheduling_strategy": ON_ACTOR, "enable_offload": True},
            {"actor__weight_update_mode": "disk"},
        ),
        (
            "AC311",
            "actor.weight_update_mode",
            {"actor__weight_update_mode": "awex", "actor__backend": "megatron:d4"},
            {"actor__weight_update_mode": "xccl"},
        ),
        (
            "AC312",
            "actor.backend",
            {"actor__weight_update_mode": "awex"},
            {"actor__backend": "megatron:d4"},
        ),
        (
            "AC312",
            "rollout.backend",
            {
                "actor__weight_update_mode": "awex",
                "actor__backend": "megatron:d4",
                "rollout__backend": "vllm:d4",
            },
            {"rollout__backend": "sglang:d4"},
        ),
        (
            "AC313",
            "actor.use_lora",
            {"actor__use_lora": True, "actor__backend": "megatron:d4"},
            {"rollout__backend": "vllm:d4"},
        ),
        (
            "AC314",
            "rollout.return_routed_experts",
            {"rollout__return_routed_experts": True, "rollout__backend": "vllm:d4"},
            {"rollout__backend": "sglang:d4"},
        ),
        ("AC316", "scheduler.type", {"scheduler__type": None}, {"scheduler__type": "ray"}),
        (
            "AC317",
            "rollout.agent.mode",
            {"rollout__agent__mode": "online", "scheduler__type": "ray"},
            {"scheduler__type": "local"},
        ),
    ],
)
def test_a_warning_in_a_plan_and_an_error_where_it_is_launched(
    code: str, path: str, broken: dict[str, Any], mended: dict[str, Any]
) -> None:
    config = experiment(**broken)
    assert found(plan(config), code) == f"warning at {path}"
    assert found(plan(config, strict=True), code) == f"error at {path}"
    assert found(plan(config, strict=True, allow=[code]), code) == f"warning at {path}"
    assert found(plan(experiment(**{**broken, **mended}), strict=True), code) is None
    assert all(one.hint for one in plan(config).warnings)


SHARED = {"rollout__scheduling_strategy": ON_ACTOR}
AWEX = {"actor__weight_update_mode": "awex"}
DISK = "actor.weight_update_mode=disk"


@pytest.mark.parametrize(
    ("code", "areal", "broken", "text", "hint"),
    [
        ("AC310", None, {"actor__offload": True}, "", "write enable_offload=true"),
        ("AC311", None, SHARED, "xccl", f"write {DISK}"),
        ("AC311", "main", SHARED, "xccl", f"write {DISK} or actor.weight_update_mode=awex"),
        ("AC311", None, AWEX, "awex", f"write {DISK}, or install a newer AReaL"),
        ("AC312", "main", AWEX, "fsdp:d4", f"write a megatron backend, or {DISK}"),
        ("AC315", None, {"rollout___version": "v2"}, "v1", "write actor._version=v2, or the other"),
        ("AC316", None, {"scheduler__type": None}, "", "write scheduler.type=local, ray or slurm"),
        (
            "AC316",
            None,
            {"scheduler__type": None, "cluster__n_nodes": 2},
            "",
            "write scheduler.type=ray or slurm",
        ),
        (
            "AC317",
            None,
            {"rollout__agent__mode": "online", "scheduler__type": "ray"},
            "online",
            "write scheduler.type=local or slurm",
        ),
        ("AC360", None, {"trial_name": "a-b"}, "a-b", "write trial_name without '-' and '/'"),
    ],
)
def test_what_is_shown_and_offered(
    code: str, areal: str | None, broken: dict[str, Any], text: str, hint: str
) -> None:
    made = plan(experiment(**broken), areal=areal)
    (one,) = [one for one in made.warnings if one.code == code]
    assert one.text == text
    assert one.hint.startswith(hint)


def test_versions_of_the_controllers_must_agree() -> None:
    config = experiment(actor___version="v2")
    assert found(plan(config), "AC315") == "warning at actor._version"
    assert found(plan(config, areal="1.0.4", strict=True), "AC315") == "error at actor._version"
    assert found(plan(config, areal="1.0.3", strict=True), "AC315") == "warning at actor._version"
    assert found(plan(config, areal="2.0.0", strict=True), "AC315") == "error at actor._version"
    both = experiment(actor___version="v2", rollout___version="v2")
    assert found(plan(both, areal="main"), "AC315") is None


def test_awex_is_a_mode_of_main_and_needs_no_offload_there() -> None:
    config = experiment(
        actor__weight_update_mode="awex",
        actor__backend="megatron:d4",
        rollout__scheduling_strategy=ON_ACTOR,
    )
    old = plan(config, areal="2.0.0", strict=True)
    assert [one.code for one in old.errors] == ["AC310", "AC311"]
    assert plan(config, areal="main", strict=True).errors == []
    config["actor"]["offload"] = True
    assert plan(config, areal="main", strict=True).errors == []
    config["ref"] = {"offload": True, "scheduling_strategy": ON_ACTOR}
    assert found(plan(config, areal="main"), "AC310") == "warning at enable_offload"


def test_a_controller_v2_never_reads_the_mode() -> None:
    config = experiment(
        actor__weight_update_mode="awex", actor___version="v2", rollout___version="v2"
    )
    made = plan(config, areal="main", strict=True)
    assert made.errors == []
    assert made.engines["rollout"].colocated_with is None


def test_an_app_without_a_scheduler_section_is_told_only_at_launch() -> None:
    config = experiment()
    del config["scheduler"]
    assert found(plan(config), "AC316") is None
    assert found(plan(config, strict=True), "AC316") == "error at scheduler.type"


def test_spmd_has_neither_lora_nor_proxies() -> None:
    config = experiment(actor__use_lora=True, rollout__agent__mode="online")
    made = plan(config, launcher="local")
    assert [one.path for one in made.warnings if one.code == "AC317"] == [
        "actor.use_lora",
        "rollout.agent.mode",
    ]
    hints = {one.hint for one in made.warnings if one.code == "AC317"}
    assert hints == {"start it by the single controller: scheduler.type=local"}


def test_the_launchers_override_the_seed_of_the_servers_and_read_some_sections() -> None:
    config = experiment(recover__mode="disabled")
    missing = plan(config, launcher="local", strict=True)
    assert found(missing, "AC319") == "error at sglang.random_seed"
    config["sglang"] = {"random_seed": "${nowhere}"}
    assert found(plan(config, launcher="local", strict=True), "AC319") is None
    assert found(plan(config), "AC319") is None
    del config["recover"], config["trial_name"]
    (one,) = [w for w in plan(config, launcher="ray").warnings if w.code == "AC319"]
    assert "trial_name, recover" in one.message
    assert one.hint == "write ++trial_name=first ++recover.mode=disabled"


def test_a_section_that_leads_nowhere_is_there() -> None:
    config = {**experiment(recover__mode="disabled"), "sglang": "${nowhere}"}
    made = plan(OmegaConf.create(config), launcher="local")
    assert found(made, "AC319") is None


@pytest.mark.parametrize("unset", [None, "???", ""])
def test_what_is_unset_is_missing(unset: str | None) -> None:
    config = experiment(recover__mode="disabled", sglang__random_seed=1)
    for key in ("experiment_name", "trial_name", "recover", "cluster.fileroot"):
        broken = OmegaConf.create(config)
        OmegaConf.update(broken, key, unset, force_add=True)
        made = plan(broken, launcher="local", strict=True)
        assert found(made, "AC319") == f"error at {key}"


def test_spmd_needs_no_scheduler() -> None:
    config = experiment(scheduler__type=None)
    assert found(plan(config, launcher="local", strict=True), "AC316") is None


def test_names_with_characters_that_areal_asks_not_to_use() -> None:
    made = plan(experiment(experiment_name="my_run/x", trial_name="a-b"), strict=True)
    told = [(one.code, one.path) for one in made.warnings if one.code != "AC359"]
    assert told == [
        ("AC360", "experiment_name"),
        ("AC360", "trial_name"),
    ]
    assert made.ok


def test_engines_of_an_app_of_its_own_are_not_held_to_areals_trainer() -> None:
    config = experiment(actor__offload=True, scheduler__type=None)
    config["areal_plan"] = {
        "engines": {
            "actor": {"path": "actor", "role": "training"},
            "rollout": {"path": "rollout", "role": "inference"},
        }
    }
    assert plan(config, strict=True).warnings == []


def test_keys_that_lead_nowhere_are_left_alone() -> None:
    config = OmegaConf.create(
        experiment(enable_offload="${oc.env:SURELY_NOT_SET}", actor__use_lora="${nowhere}")
    )
    assert plan(config, strict=True).errors == []


def test_the_version_judged_by() -> None:
    assert areal_version("1.0.4") == V1_0_4
    assert areal_version("v2.0.0") == (2, 0, 0)
    assert areal_version("main") == MAIN
    assert areal_version() in (V1_0_4, MAIN)
    for wrong in ("newest", "", 2):
        with pytest.raises(AllocationError, match="AC309"):
            areal_version(wrong)  # type: ignore[arg-type]


def test_every_code_of_the_trainer_has_a_meaning() -> None:
    assert {f"AC{n}" for n in (310, 311, 312, 313, 314, 315, 316, 317, 319, 360)} <= set(CODES)
