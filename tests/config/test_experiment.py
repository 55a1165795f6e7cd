"""What a config says of its engines: unset, inherited, absent, inactive; what an engine is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf.config.experiment import read_experiment
from areal_conf.config.view import View, whole_number
from areal_conf.errors import AllocationError
from areal_conf.planning.result import Plan, plan
from areal_conf.spec.allocation import looks_like_spec


def found(made: Plan) -> list[tuple[str, str | None]]:
    return [(one.code, one.path) for one in made.errors]


# -- unset and inherited --------------------------------------------------------------------------


@pytest.mark.parametrize("unset", [{"backend": ""}, {"backend": None}, {"backend": "???"}, {}])
@pytest.mark.parametrize("kind", [dict, OmegaConf.create])
def test_unset_in_every_way(unset: dict[str, Any], kind: Any) -> None:
    made = plan(kind({"rollout": dict(unset), "actor": {"backend": "fsdp:d8"}, "ref": dict(unset)}))
    assert found(made) == [("AC301", "rollout.backend")]
    assert made.engines["ref"].spec == "fsdp:d8"
    assert made.engines["ref"].inherited_from == "actor"


def test_critic_and_ref_inherit_from_the_actor_and_no_other_does() -> None:
    sections = ("rollout", "critic", "ref", "teacher")
    made = plan({"actor": {"backend": "fsdp:d8"}, **{name: {} for name in sections}})
    assert found(made) == [("AC301", "teacher.backend"), ("AC301", "rollout.backend")]
    inherited = {name: it.inherited_from for name, it in made.engines.items()}
    assert inherited == {
        "rollout": None,
        "actor": None,
        "critic": "actor",
        "ref": "actor",
        "teacher": None,
    }


def test_nothing_to_inherit_is_said_once() -> None:
    made = plan({"actor": {}, "critic": {}, "ref": {}})
    assert found(made) == [("AC301", "actor.backend")]
    assert made.errors[0].hint == (
        "write actor.backend=fsdp:d8 or actor.backend=megatron:d2p2t2 "
        "(critic and ref will take it too)"
    )


@pytest.mark.parametrize("kind", [dict, OmegaConf.create])
def test_a_misspelt_backend_is_named(kind: Any) -> None:
    made = plan(kind({"rollout": {"bakend": "sglang:d8", "backend": ""}}))
    assert found(made) == [("AC301", "rollout.backend")]
    assert made.errors[0].hint.startswith("did you mean rollout.backend by rollout.bakend? Oth")
    made = plan(kind({"rollout": {"dtype": "bf16"}}))
    assert made.errors[0].hint.startswith("write rollout.backend=")


def test_an_heir_with_a_line_of_its_own_is_told_it() -> None:
    mode = "fsdp[actor]:d4|fsdp[critic]:d2t2"
    scheduler = {"type": "local"}
    made = plan({"allocation_mode": mode, "scheduler": scheduler, "actor": {}, "critic": {}})
    assert [one.hint.partition(" (")[0] for one in made.errors] == [
        "write actor.backend=fsdp:d4",
        "write critic.backend=fsdp:d2t2",
    ]


def test_what_is_wrong_with_an_inherited_backend_is_said_where_it_stands() -> None:
    made = plan({"actor": {"backend": "fsdp:d4p2"}, "critic": {}, "ref": {"backend": ""}})
    assert found(made) == [("AC104", "actor.backend")]


def test_what_is_wrong_with_an_interpolated_backend_is_said_where_it_stands() -> None:
    config = {"actor": {"backend": "fsdp:d4p2"}, "ref": {"backend": "${actor.backend}"}}
    assert found(plan(OmegaConf.create(config))) == [("AC104", "actor.backend")]


@pytest.mark.parametrize(
    ("value", "shown"), [("fsdp:d4p2", "fsdp:d4p2"), ("secret", "${spec}"), ("8", "${spec}")]
)
def test_an_interpolated_value_that_is_no_backend_string_is_not_shown(
    value: str, shown: str
) -> None:
    config = {"spec": value, "actor": {"backend": "${spec}"}}
    (one,) = plan(OmegaConf.create(config)).errors
    assert (one.path, one.text) == ("actor.backend", shown)


@pytest.mark.parametrize(("value", "quotes"), [(484, True), (4.5, False), (["fsdp:d8"], False)])
def test_a_number_where_yaml_had_no_quotes(value: Any, quotes: bool) -> None:
    (one,) = plan({"actor": {"backend": value}}).errors
    assert one.code == "AC309"
    assert one.hint.startswith("write actor.backend=fsdp:d8")
    assert one.hint.endswith("quotes") is quotes


def test_all_that_is_wrong_with_one_string() -> None:
    made = plan({"actor": {"backend": "fsdp:d4d2p2"}})
    assert [one.code for one in made.errors] == ["AC105", "AC104"]
    assert {one.path for one in made.errors} == {"actor.backend"}


# -- absent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [dict, OmegaConf.create])
def test_a_section_that_is_absent_or_null_is_no_engine(kind: Any) -> None:
    made = plan(kind({"actor": {"backend": "fsdp:d8"}, "critic": None}))
    assert list(made.engines) == ["actor"]
    assert made.ok


def test_a_section_that_leads_nowhere_hides_no_engine_behind_it() -> None:
    config = {"lost": "${nowhere}", "areal_plan": {"backend": "fsdp:d8"}}
    made = plan(OmegaConf.create({**config, "judge": {"backend": "vllm:d1"}}))
    assert list(made.engines) == ["judge"]


def test_a_config_without_an_engine() -> None:
    made = plan({})
    assert found(made) == [("AC301", "actor.backend")]


@pytest.mark.parametrize("value", ["fsdp:d8", 8, ["fsdp:d8"]])
def test_a_standard_section_that_is_no_section(value: Any) -> None:
    made = plan({"actor": value, "rollout": value})
    assert {("AC309", "actor"), ("AC309", "rollout")} <= set(found(made))
    hints = {one.hint for one in made.errors}
    assert {"write actor.backend=fsdp:d8", "write rollout.backend=sglang:d2t4"} <= hints


# -- ref ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kl_ctl", "runs"),
    [
        (0, False),
        (0.0, False),
        ("0.0", False),
        (-1, False),
        (0.1, True),
        (None, True),
        ("x", True),
        ("\uff10", True),
    ],
)
def test_ref_runs_where_kl_ctl_is_over_0(kl_ctl: Any, runs: bool) -> None:
    made = plan(
        {
            "rollout": {"backend": "sglang:d4"},
            "actor": {"backend": "fsdp:d4", "kl_ctl": kl_ctl},
            "ref": {},
        }
    )
    assert made.engines["ref"].active is runs
    assert made.total_gpus == (12 if runs else 8)
    assert made.ok


def test_kl_ctl_is_over_0_by_default() -> None:
    made = plan({"rollout": {"backend": "sglang:d4"}, "actor": {"backend": "fsdp:d4"}, "ref": {}})
    assert made.engines["ref"].active


def test_ref_runs_without_an_actor() -> None:
    made = plan({"rollout": {"backend": "sglang:d4"}, "ref": {"backend": "fsdp:d4"}})
    assert made.engines["ref"].active


def test_ref_always_runs_without_a_rollout() -> None:
    made = plan({"actor": {"backend": "fsdp:d4", "kl_ctl": 0}, "ref": {"backend": "fsdp:d4"}})
    assert made.engines["ref"].active
    assert made.total_gpus == 8


def test_an_inactive_ref_is_listed_and_not_judged() -> None:
    made = plan(
        {
            "rollout": {"backend": "sglang:d4"},
            "actor": {"backend": "fsdp:d4", "kl_ctl": 0},
            "ref": {
                "backend": "sglang:d9t9",
                "scheduling_strategy": {"type": "colocation", "target": "nobody"},
            },
            "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
        }
    )
    assert made.ok
    assert made.warnings == []
    assert made.engines["ref"].gpus == 0
    assert made.engines["ref"].devices == []


# -- teacher --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("teacher", "role", "path"),
    [
        ({"backend": "fsdp:d4"}, "training", "teacher.backend"),
        ({"backend": "sglang:d4"}, "inference", "teacher.backend"),
        ({"rollout": {"backend": "sglang:d4"}}, "inference", "teacher.rollout.backend"),
        (
            {"engine_type": "rollout", "rollout": {"backend": "vllm:d4"}},
            "inference",
            "teacher.rollout.backend",
        ),
        (
            {"engine_type": "train", "train": {"backend": "fsdp:d4"}},
            "training",
            "teacher.train.backend",
        ),
        (
            {
                "engine_type": "train",
                "train": {"backend": "fsdp:d4"},
                "rollout": {"backend": "vllm:d8"},
            },
            "training",
            "teacher.train.backend",
        ),
    ],
)
def test_both_shapes_of_a_teacher(teacher: dict[str, Any], role: str, path: str) -> None:
    config = {"actor": {"backend": "fsdp:d4"}, "teacher": teacher}
    made = plan(config)
    assert made.ok
    assert made.engines["teacher"].role == role
    assert made.total_gpus == 8
    assert read_experiment(config).engines["teacher"].backend_path == path


@pytest.mark.parametrize(
    ("teacher", "error"),
    [
        ({}, ("AC301", "teacher.backend")),
        ({"engine_type": "rollout"}, ("AC301", "teacher.rollout.backend")),
        ({"engine_type": "train", "train": {}}, ("AC301", "teacher.train.backend")),
        ({"rollout": {"backend": "fsdp:d4"}}, ("AC302", "teacher.rollout.backend")),
        (
            {"engine_type": "train", "train": {"backend": "vllm:d4"}},
            ("AC302", "teacher.train.backend"),
        ),
        (
            {"engine_type": "both", "train": {"backend": "fsdp:d4"}},
            ("AC309", "teacher.engine_type"),
        ),
    ],
)
def test_what_is_wrong_with_a_teacher(teacher: dict[str, Any], error: tuple[str, str]) -> None:
    assert error in found(plan({"actor": {"backend": "fsdp:d4"}, "teacher": teacher}))


# -- servers elsewhere ----------------------------------------------------------------------------


def test_an_external_server_needs_no_gpus() -> None:
    made = plan(
        {
            "rollout": {"api_url": "http://x", "_version": "v2", "backend": "sglang:d4"},
            "actor": {"backend": "fsdp:d4"},
        }
    )
    assert made.ok
    assert made.total_gpus == 4
    assert made.engines["rollout"].gpus == 0
    assert made.engines["rollout"].devices == [None] * 4


def test_an_external_server_needs_no_backend() -> None:
    made = plan(
        {"rollout": {"api_url": "http://x", "_version": "v2"}, "actor": {"backend": "fsdp:d4"}}
    )
    assert made.ok


@pytest.mark.parametrize("unset", ["", None])
def test_an_api_url_that_is_unset(unset: str | None) -> None:
    made = plan({"rollout": {"api_url": unset, "_version": "v2", "backend": "sglang:d4"}})
    assert made.total_gpus == 4


# -- other engines --------------------------------------------------------------------------------


def test_any_other_section_with_a_backend_string_is_an_engine() -> None:
    made = plan(
        {
            "actor": {"backend": "fsdp:d4"},
            "judge_engine": {"backend": "sglang:d1"},
            "reward": {"backend": "fsdp[reward]:d2"},
        }
    )
    assert made.ok
    assert {name: it.gpus for name, it in made.engines.items()} == {
        "actor": 4,
        "judge_engine": 1,
        "reward": 2,
    }


@pytest.mark.parametrize(
    "backend", ["postgres", 8, None, "", "sglang", "sglang/d4", ["sglang:d1"], {"sglang": "d1"}]
)
def test_a_section_with_any_other_kind_of_backend_is_none_of_ours(backend: Any) -> None:
    made = plan({"actor": {"backend": "fsdp:d4"}, "db": {"backend": backend}})
    assert list(made.engines) == ["actor"]
    assert made.ok


def test_another_engine_with_a_fault_is_told() -> None:
    made = plan({"actor": {"backend": "fsdp:d4"}, "judge": {"backend": "sglang:d1c2"}})
    assert found(made) == [("AC104", "judge.backend")]


@pytest.mark.parametrize("backend", [8, 484, 10000.0, ["fsdp:d8"], {"fsdp": "d8"}, True])
def test_ac309_for_the_standard_engines(backend: Any) -> None:
    made = plan({"actor": {"backend": backend}})
    assert ("AC309", "actor.backend") in found(made)
    (one,) = [one for one in made.errors if one.code == "AC309"]
    assert type(backend).__name__ in one.message
    assert repr(backend) in one.message


# -- apps with names of their own -----------------------------------------------------------------


def own_app() -> dict[str, Any]:
    return {
        "areal_plan": {
            "engines": {
                "policy": {"path": "actor_rollout_ref.actor", "role": "training"},
                "gen": {"path": "actor_rollout_ref.rollout", "role": "inference"},
            },
            "cluster": {
                "n_nodes": "${trainer.nnodes}",
                "n_gpus_per_node": "${trainer.n_gpus_per_node}",
            },
        },
        "actor_rollout_ref": {
            "actor": {"backend": "fsdp:d8"},
            "rollout": {"backend": "vllm:d2t4"},
        },
        "trainer": {"nnodes": 2, "n_gpus_per_node": 8},
        "rollout": {"backend": "not ours"},
    }


def test_engines_of_an_app_of_its_own() -> None:
    made = plan(OmegaConf.create(own_app()))
    assert made.ok
    assert list(made.engines) == ["policy", "gen"]
    assert made.total_gpus == 16
    assert made.cluster is not None
    assert made.cluster.gpus == 16


def test_errors_of_an_app_of_its_own_have_its_paths() -> None:
    config = own_app()
    config["actor_rollout_ref"]["actor"]["backend"] = "vllm:d8"
    del config["actor_rollout_ref"]["rollout"]["backend"]
    assert found(plan(OmegaConf.create(config))) == [
        ("AC301", "actor_rollout_ref.rollout.backend"),
        ("AC302", "actor_rollout_ref.actor.backend"),
    ]


def test_a_path_to_the_string_itself() -> None:
    config = {
        "areal_plan": {"engines": {"policy": {"path": "layout.train"}}},
        "layout": {"train": "fsdp:d4"},
    }
    assert plan(config).total_gpus == 4
    config["areal_plan"]["engines"]["policy"]["role"] = "inference"
    assert found(plan(config)) == [("AC302", "layout.train")]


def test_engines_of_an_app_are_its_own() -> None:
    assert read_experiment(own_app()).own_engines
    assert not read_experiment({"areal_plan": {"allow": ["AC306"]}, "actor": {}}).own_engines


@pytest.mark.parametrize("entry", ["policy", {}, {"path": ""}, {"path": "a", "role": "judge"}])
def test_an_entry_that_names_no_engine(entry: Any) -> None:
    made = plan({"areal_plan": {"engines": {"policy": entry}}, "a": {"backend": "fsdp:d4"}})
    assert ("AC309", "areal_plan.engines.policy") in found(made)


@pytest.mark.parametrize("path", ["actr", "actor.backend.x", "a.b", ".", "actor."])
@pytest.mark.parametrize("kind", [dict, OmegaConf.create])
def test_a_path_to_nowhere_loses_no_engine_in_silence(path: str, kind: Any) -> None:
    config = {
        "areal_plan": {"engines": {"policy": {"path": path}}},
        "actor": {"backend": "fsdp:d8"},
    }
    assert found(plan(kind(config))) == [("AC309", "areal_plan.engines.policy.path")]


def test_the_path_that_was_meant_is_named() -> None:
    config = {
        "areal_plan": {"engines": {"policy": {"path": "actr"}}},
        "actor": {"backend": "fsdp:d8"},
    }
    (one,) = plan(config).errors
    assert one.hint == "did you mean actor?"


def test_a_path_to_null_is_no_engine() -> None:
    engines = {"policy": {"path": "policy"}, "judge": {"path": "judge.model"}}
    config = {"areal_plan": {"engines": engines}, "policy": {"backend": "fsdp:d8"}, "judge": None}
    made = plan(config)
    assert (found(made), list(made.engines)) == ([], ["policy"])


def test_names_of_engines_are_text() -> None:
    config = {"areal_plan": {"engines": {0: {"path": "actor"}}}, "actor": {"backend": "fsdp:d8"}}
    assert found(plan(OmegaConf.create(config))) == [("AC309", "areal_plan.engines")]


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"areal_plan": 5}, "areal_plan"),
        ({"areal_plan": [1]}, "areal_plan"),
        ({"areal_plan": {"engines": [1]}}, "areal_plan.engines"),
        ({"areal_plan": {"engines": "x"}}, "areal_plan.engines"),
        ({"areal_plan": {"cluster": 8}}, "areal_plan.cluster"),
        ({"areal_plan": {"allow": {"AC306": True}}}, "areal_plan.allow"),
        ({"scheduler": "slurm"}, "scheduler"),
        ({"scheduler": True}, "scheduler"),
        ({"scheduler": ["slurm"]}, "scheduler"),
        ({"cluster": 8}, "cluster"),
        ({"cluster": "1x8"}, "cluster"),
    ],
)
@pytest.mark.parametrize("kind", [dict, OmegaConf.create])
def test_a_section_of_the_wrong_type(config: dict[str, Any], path: str, kind: Any) -> None:
    made = plan(kind({"actor": {"backend": "fsdp:d8"}, **config}))
    assert found(made) == [("AC309", path)]
    assert made.errors[0].hint.startswith("write ")


@pytest.mark.parametrize("config", [{"scheduler": None}, {"cluster": ""}, {"areal_plan": None}])
def test_a_section_that_is_unset_is_absent(config: dict[str, Any]) -> None:
    assert not plan({"actor": {"backend": "fsdp:d8"}, **config}).errors


def test_an_app_with_engines_of_its_own_may_call_anything_a_scheduler() -> None:
    config = OmegaConf.create({**own_app(), "scheduler": "cosine", "cluster": "gpu01"})
    assert not plan(config).errors


def test_keys_of_areal_plan_that_nobody_reads_are_told() -> None:
    config = own_app()
    config["areal_plan"]["alow"] = ["AC306"]
    config["areal_plan"]["engines"]["policy"]["rol"] = "training"
    told = [(one.path, one.hint) for one in plan(config).warnings if one.code == "AC364"]
    assert told == [
        ("areal_plan.engines.policy.rol", "did you mean role?"),
        ("areal_plan.alow", "did you mean allow?"),
    ]


def test_a_target_without_colocation_is_told() -> None:
    backend = {"backend": "fsdp:d8"}
    config = {"actor": backend, "critic": {**backend, "scheduling_strategy": {"target": "actor"}}}
    made = plan(config)
    (one,) = [one for one in made.warnings if one.code == "AC364"]
    assert one.path == "critic.scheduling_strategy.target"
    assert (made.total_gpus, found(made)) == (16, [])
    config["critic"]["scheduling_strategy"] = {"type": "separation", "target": "actor"}
    assert "AC364" not in [one.code for one in plan(config).warnings]


def test_numbers_of_the_cluster_are_taken_from_areal_plan_first() -> None:
    made = plan(
        {
            "actor": {"backend": "fsdp:d8"},
            "cluster": {"n_nodes": 4, "n_gpus_per_node": 8},
            "areal_plan": {"cluster": {"n_nodes": 1}},
        }
    )
    assert made.cluster is not None
    assert (made.cluster.n_nodes, made.cluster.n_gpus_per_node) == (1, 8)


# -- what is resolved -----------------------------------------------------------------------------


def test_only_the_keys_that_a_plan_reads_are_resolved() -> None:
    calls = []
    register: Any = OmegaConf.register_new_resolver
    if "annotation_validation" in (OmegaConf.register_resolver.__kwdefaults__ or {}):
        register = OmegaConf.register_resolver  # the name of an older function before 2.4
    register("test_secret", lambda: calls.append(1), replace=True)
    config = OmegaConf.create(
        {
            "actor": {"backend": "fsdp:d8", "token": "${test_secret:}", "path": "${nowhere}"},
            "rollout": {"backend": "sglang:d8", "api_key": "${oc.env:SURELY_NOT_SET}"},
            "logger": {"password": "${test_secret:}"},
            "broken": "${nowhere}",
            "cluster": {"n_nodes": 2, "n_gpus_per_node": 8, "fileroot": "${nowhere}"},
        }
    )
    made = plan(config)
    assert made.ok
    assert made.total_gpus == 16
    assert calls == []


def test_a_secret_in_the_place_of_a_backend_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AREAL_TEST_SECRET", "hunter2:d8")
    made = plan(OmegaConf.create({"actor": {"backend": "${oc.env:AREAL_TEST_SECRET}"}}))
    (one,) = made.errors
    assert one.path == "actor.backend"
    assert "hunter2" not in made.model_dump_json()
    assert "oc.env" in one.text


def test_an_interpolation_that_leads_nowhere() -> None:
    made = plan(OmegaConf.create({"actor": {"backend": "${nowhere}"}}))
    (one,) = [one for one in made.errors if one.code == "AC309"]
    assert (one.path, one.text) == ("actor.backend", "${nowhere}")


# -- kinds of configs -----------------------------------------------------------------------------


@dataclass
class Engine:
    backend: str = "fsdp:d8"


@dataclass
class Config:
    actor: Engine = field(default_factory=Engine)
    critic: Engine | None = None


@pytest.mark.parametrize(
    "config",
    [Config(), OmegaConf.structured(Config), {"actor": Engine()}, OmegaConf.create(Config())],
)
def test_dataclasses_and_structured_configs(config: Any) -> None:
    made = plan(config)
    assert made.ok
    assert list(made.engines) == ["actor"]


@pytest.mark.parametrize("config", [None, 8, "fsdp:d8", [], OmegaConf.create([])])
def test_what_is_no_config(config: Any) -> None:
    with pytest.raises(AllocationError, match="AC309"):
        plan(config)


def test_a_package_of_the_config() -> None:
    inner = {"actor": {"backend": "fsdp:d4p2"}, "cluster": {"n_nodes": 1, "n_gpus_per_node": 4}}
    made = plan(
        OmegaConf.create({"my": {"rl": inner}, "actor": {"backend": "fsdp:d1"}}), root="my.rl"
    )
    assert found(made) == [("AC104", "my.rl.actor.backend")]
    inner["actor"] = {"backend": "fsdp:d8"}
    made = plan({"my": {"rl": inner}}, root="my.rl")
    assert found(made) == [("AC306", "my.rl.cluster")]


@pytest.mark.parametrize("root", ["nowhere", "actor.backend", "actor.deeper"])
def test_a_package_that_is_not_there(root: str) -> None:
    with pytest.raises(AllocationError, match="AC309"):
        plan({"actor": {"backend": "fsdp:d8"}}, root=root)


# -- numbers of the cluster -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "error"),
    [
        ({"n_nodes": 0, "n_gpus_per_node": 8}, "cluster.n_nodes"),
        ({"n_nodes": "two", "n_gpus_per_node": 8}, "cluster.n_nodes"),
        ({"n_nodes": 2.5, "n_gpus_per_node": 8}, "cluster.n_nodes"),
        ({"n_nodes": True, "n_gpus_per_node": 8}, "cluster.n_nodes"),
        ({"n_nodes": 1, "n_gpus_per_node": -8}, "cluster.n_gpus_per_node"),
    ],
)
def test_a_cluster_of_the_wrong_type(cluster: dict[str, Any], error: str) -> None:
    assert ("AC309", error) in found(plan({"actor": {"backend": "fsdp:d8"}, "cluster": cluster}))


@pytest.mark.parametrize(
    ("config", "path", "value"),
    [
        ({"scheduler": {"type": 8}}, "scheduler.type", "8"),
        ({"allocation_mode": ["d8"]}, "allocation_mode", "['d8']"),
        ({"areal_plan": {"allow": 306}}, "areal_plan.allow", "306"),
        ({"cluster": {"n_nodes": "two"}}, "cluster.n_nodes", "'two'"),
    ],
)
def test_a_value_of_the_wrong_type_is_shown_at_its_place(
    config: dict[str, Any], path: str, value: str
) -> None:
    (one,) = plan({"actor": {"backend": "fsdp:d8"}, **config}).errors
    assert (one.code, one.path, one.text) == ("AC309", path, value)
    assert one.hint.startswith("write ")


@pytest.mark.parametrize(
    ("value", "looks"),
    [
        ("fsdp:d8", True),
        (" \t\r\nvllm[a]:", True),
        ("fsdp", False),
        ("torch:d8", False),
        ("\u3000fsdp:d8", False),
        (8, False),
    ],
)
def test_what_looks_like_a_backend_string(value: Any, looks: bool) -> None:
    assert looks_like_spec(value) is looks


def test_numbers_as_text() -> None:
    made = plan(
        {"actor": {"backend": "fsdp:d8"}, "cluster": {"n_nodes": "1", "n_gpus_per_node": "8"}}
    )
    assert made.cluster is not None
    assert made.cluster.gpus == 8


# -- reading --------------------------------------------------------------------------------------


def test_a_missing_value_is_the_default_however_it_is_written() -> None:
    for config in ({"a": "???"}, OmegaConf.create({"a": "???"}), {}):
        assert View(config).get("a", 5) == 5


def test_numbers_that_no_cluster_has_are_not_read() -> None:
    with pytest.raises(AllocationError) as caught:
        View({"a": 10**6000}).get("a")
    assert caught.value.code == "AC309"
    assert (whole_number("12345678"), whole_number("123456789")) == (12345678, None)


def test_this_packages_section_is_no_engine_and_a_broken_one_hides_no_other() -> None:
    config = {
        "actor": {"backend": "fsdp:d8"},
        "areal_plan": {"backend": "sglang:d1"},
        "broken": {"backend": "${nowhere}"},
        "judge": {"backend": "sglang:d2"},
    }
    assert list(plan(OmegaConf.create(config)).engines) == ["actor", "judge"]


def test_what_is_no_config_is_named() -> None:
    with pytest.raises(AllocationError, match="got int: 5"):
        read_experiment(5)


# -- roles and colocation -------------------------------------------------------------------------


def test_the_wrong_backend_is_underlined_and_not_the_name_beside_it() -> None:
    (one,) = plan({"rollout": {"backend": "fsdp[fsdp]:d8"}}).errors
    assert (one.code, one.span) == ("AC302", (0, 4))


def test_a_guest_that_does_not_fit_has_no_devices() -> None:
    ref = {"backend": "fsdp:d4", "scheduling_strategy": {"type": "colocation", "target": "actor"}}
    cluster = {"n_nodes": 1, "n_gpus_per_node": 8}
    made = plan({"actor": {"backend": "fsdp:d8"}, "ref": ref, "cluster": cluster})
    assert [one.code for one in made.errors] == ["AC304"]
    assert made.engines["ref"].devices == [None] * 4 or not any(made.engines["ref"].devices)


def test_a_strategy_of_the_wrong_type_says_what_is_expected() -> None:
    config = {"actor": {"backend": "fsdp:d8", "scheduling_strategy": "foo"}}
    (one,) = plan(config).errors
    assert one.message.startswith("expected a mapping with type and target, got str")
    config = {"actor": {"backend": "fsdp:d8", "scheduling_strategy": {"type": "foo"}}}
    (one,) = plan(config).errors
    assert one.message.startswith("expected separation or colocation, got str")


def test_a_backend_of_the_wrong_role_is_told_where_it_stands_alone() -> None:
    made = plan({"actor": {"backend": "sglang:d8"}, "critic": {}, "ref": {}})
    assert found(made) == [("AC302", "actor.backend")]


def test_a_code_that_is_no_text_is_an_error() -> None:
    (one,) = plan({"actor": {"backend": "fsdp:d8"}, "areal_plan": {"allow": [5]}}).errors
    assert (one.code, one.path) == ("AC309", "areal_plan.allow")
    assert one.message == "expected a code, got int: 5"


@pytest.mark.parametrize("value", ["fsdp", "backend", "actor", "engine", "wandb", "group"])
def test_a_word_of_messages_and_configs_is_no_secret(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Hiding it would spoil hints and paths, and would hide nothing."""
    monkeypatch.setenv("AREAL_TEST_GROUP", value)
    cfg = OmegaConf.create(
        {"actor": {"backend": "fsdp"}, "wandb": {"group": "${oc.env:AREAL_TEST_GROUP}"}}
    )
    made = plan(cfg)
    assert made.errors
    assert made.errors == plan({"actor": {"backend": "fsdp"}}).errors


@pytest.mark.parametrize("value", ["hunter", "hunter2", "Passw0rd", "s3cr3t:d8"])
@pytest.mark.parametrize(
    "taken",
    ["${oc.env:AREAL_TEST_KEY}", "${oc.decode:${oc.env:AREAL_TEST_KEY}}", "${oc.select:key}"],
)
def test_a_secret_is_in_no_message(monkeypatch: pytest.MonkeyPatch, value: str, taken: str) -> None:
    monkeypatch.setenv("AREAL_TEST_KEY", value)
    cfg = OmegaConf.create(
        {
            "key": "${oc.env:AREAL_TEST_KEY}",
            "actor": {"backend": taken, "scheduling_strategy": {"type": taken}},
            "scheduler": {"type": taken},
            "cluster": {"n_nodes": taken},
            "areal_plan": {"allow": taken, "areal": taken},
        }
    )
    made = plan(cfg)
    assert made.errors
    assert value not in made.model_dump_json()
