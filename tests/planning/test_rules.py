"""What schedulers and launchers demand of a whole experiment: one test a rule."""

from __future__ import annotations

import re
from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf.errors import AllocationError
from areal_conf.planning.result import Plan, plan

GRANTED = [{"gpu": 1, "cmd": "python -m areal.infra.rpc.rpc_server"}]
"""What AReaL's examples write: a GPU for each rank."""


def experiment(
    cluster: str = "2x8", scheduler: str | None = None, **engines: Any
) -> dict[str, Any]:
    """Engines as ``name="fsdp:d8"``, or ``name=("fsdp:d8", "actor")`` for one that is colocated."""
    config: dict[str, Any] = {}
    for name, value in engines.items():
        spec, target = value if isinstance(value, tuple) else (value, None)
        config[name] = {"backend": spec}
        if target:
            config[name]["scheduling_strategy"] = {"type": "colocation", "target": target}
    if cluster:
        nodes, per_node = cluster.split("x")
        config["cluster"] = {"n_nodes": int(nodes), "n_gpus_per_node": int(per_node)}
    if scheduler:
        config["scheduler"] = {"type": scheduler}
    return config


def errors(made: Plan) -> list[tuple[str, str | None]]:
    return [(one.code, one.path) for one in made.errors]


def warnings(made: Plan) -> list[tuple[str, str | None]]:
    return [(one.code, one.path) for one in made.warnings]


# -- roles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "spec", "fix"),
    [
        ("rollout", "fsdp:d8", "rollout.backend=sglang:d8"),
        ("actor", "sglang:d4t2", "actor.backend=fsdp:d4t2"),
        ("critic", "vllm:p2", "critic.backend=megatron:p2"),
        ("ref", "vllm:d8", "ref.backend=fsdp:d8"),
    ],
)
def test_ac302_backend_of_the_wrong_role(engine: str, spec: str, fix: str) -> None:
    made = plan(experiment(**{engine: spec}))
    (one,) = made.errors
    assert (one.code, one.path) == ("AC302", f"{engine}.backend")
    assert one.text[slice(*one.span)] == spec.partition(":")[0]
    assert one.hint.startswith(f"write {fix}")


# -- colocation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (None, "AC303"),
        ("", "AC303"),
        ("nobody", "AC303"),
        ("ref", "AC303"),
        ("rollout", "AC303"),
        (8, "AC309"),
    ],
)
def test_ac303_and_ac305_targets_of_colocation(target: Any, code: str) -> None:
    config = experiment(actor="fsdp:d8", critic=("fsdp:d8", "actor"), ref="fsdp:d8")
    config["rollout"] = {"backend": "sglang:d8"}
    config["ref"]["scheduling_strategy"] = {"type": "colocation", "target": target}
    made = plan(config)
    assert errors(made) == [(code, "ref.scheduling_strategy.target")]
    assert made.errors[0].hint == "write ref.scheduling_strategy.target=actor"
    assert made.errors[0].text == str(target or "")
    assert made.engines["ref"].devices == [None] * 8


def test_ac303_the_first_engine_can_only_stand_alone() -> None:
    (one,) = plan(experiment(actor=("fsdp:d8", "nobody"))).errors
    assert one.hint == "write actor.scheduling_strategy.type=separation"


def test_ac303_a_target_that_does_not_run() -> None:
    config = experiment(rollout="sglang:d4", actor="fsdp:d4", ref="fsdp:d4", teacher="fsdp:d4")
    config["actor"]["kl_ctl"] = 0
    config["teacher"]["scheduling_strategy"] = {"type": "colocation", "target": "ref"}
    made = plan(config)
    assert errors(made) == [("AC303", "teacher.scheduling_strategy.target")]
    assert "does not run" in made.errors[0].message


def test_a_cycle() -> None:
    made = plan(experiment(actor=("fsdp:d8", "critic"), critic=("fsdp:d8", "actor")))
    assert errors(made) == [("AC303", "actor.scheduling_strategy.target")]


@pytest.mark.parametrize(("fork", "codes"), [(None, []), (True, []), (False, ["AC305"])])
def test_ac305_a_guest_of_a_guest_needs_its_workers(fork: bool | None, codes: list[str]) -> None:
    config = experiment(actor="fsdp:d8", critic=("fsdp:d8", "actor"), ref=("fsdp:d8", "critic"))
    if fork is not None:
        config["critic"]["scheduling_strategy"]["fork"] = fork
    made = plan(config)
    assert [code for code, _ in errors(made)] == codes
    assert made.total_gpus == 8
    assert made.engines["ref"].colocated_with == (None if codes else "critic")


@pytest.mark.parametrize(
    ("strategy", "path"),
    [
        ("foo", "actor.scheduling_strategy"),
        ({"type": "foo"}, "actor.scheduling_strategy.type"),
        ({"type": 8}, "actor.scheduling_strategy.type"),
        (["colocation"], "actor.scheduling_strategy"),
    ],
)
def test_ac309_a_strategy_of_the_wrong_type(strategy: Any, path: str) -> None:
    config = experiment(actor="fsdp:d8")
    config["actor"]["scheduling_strategy"] = strategy
    assert errors(plan(config)) == [("AC309", path)]


@pytest.mark.parametrize("strategy", [None, "", {}, {"type": None}, {"type": "separation"}])
def test_a_strategy_that_is_unset_is_separation(strategy: Any) -> None:
    config = experiment(actor="fsdp:d8")
    config["actor"]["scheduling_strategy"] = strategy
    assert plan(config).ok


def test_ac304_colocated_engines_differ_in_gpus() -> None:
    made = plan(experiment(actor="fsdp:d8", rollout=("sglang:d2t2", "actor")))
    (one,) = made.errors
    assert (one.code, one.path, one.text) == ("AC304", "rollout.backend", "sglang:d2t2")
    assert "rollout.backend=sglang:d4t2" in one.hint
    assert made.engines["rollout"].devices == [None] * 4


@pytest.mark.parametrize(
    ("guest", "host", "offered"),
    [
        ("fsdp:d4", "megatron:d2p2t2", "megatron:d2p2t2"),
        ("fsdp:d2t2", "megatron:d2p2t2", "megatron:d2p2t2"),
        ("sglang:d2t2", "fsdp:d8", "sglang:d4t2"),
        ("sglang:t3", "fsdp:d8", "sglang:d8"),
    ],
)
def test_ac304_offers_a_backend_of_as_many_gpus(guest: str, host: str, offered: str) -> None:
    name = "rollout" if guest.startswith("sglang") else "critic"
    (one,) = plan(experiment("1x8", actor=host, **{name: (guest, "actor")})).errors
    assert one.hint.endswith(f" {name}.backend={offered}")


def test_ac304_of_an_inherited_backend_shows_it() -> None:
    made = plan(experiment(actor="fsdp:d8", critic="fsdp:d4", ref=("", "critic")))
    assert [(one.code, one.text) for one in made.errors] == [("AC304", "fsdp:d8")]


def test_ac304_the_span_is_the_guests_string_and_expert_sizes_do_not_count() -> None:
    assert plan(experiment(actor="megatron:d8e4", critic=("fsdp:d4t2", "actor"))).ok


# -- the budget -----------------------------------------------------------------------------------


def test_ac306_more_gpus_than_there_are_with_the_sum_spelled_out() -> None:
    made = plan(experiment("1x8", rollout="sglang:d8", actor="fsdp:d8"))
    (one,) = made.errors
    assert (one.code, one.path) == ("AC306", "cluster")
    assert "rollout 8 + actor 8 = 16 > 1 x 8" in one.message
    assert one.text == ""  # the sum stands nowhere in the config: there is nothing to underline
    assert one.hint == "write cluster.n_nodes=2, or smaller backends (8 GPUs in all)"
    (one,) = plan(experiment("1x8", "local", rollout="sglang:d8", actor="fsdp:d8")).errors
    assert one.hint.startswith("write scheduler.type=slurm cluster.n_nodes=2, or ")
    made = plan(experiment("1x8", actor="fsdp:d8", critic="fsdp:d8"))
    shared = "critic.scheduling_strategy"
    assert made.errors[0].hint == (
        f"write ++{shared}.type=colocation ++{shared}.target=actor to share the actor's GPUs, "
        "or cluster.n_nodes=2, or smaller backends (8 GPUs in all)"
    )


@pytest.mark.parametrize("kind", ["ray", "slurm"])
def test_ac356_where_the_scheduler_never_reads_n_nodes(kind: str) -> None:
    made = plan(experiment("1x8", kind, rollout="sglang:d8", actor="fsdp:d8"))
    assert made.ok
    (one,) = made.warnings
    assert (one.code, one.path) == ("AC356", "cluster.n_nodes")
    assert "ask for 2 nodes" in one.message
    assert one.text == ""
    assert made.engines["rollout"].devices[0] == (1, 0)


def test_scheduler_slurm_begins_each_engine_on_a_node() -> None:
    made = plan(experiment("2x8", "slurm", rollout="sglang:d4", actor="fsdp:d4"))
    assert made.engines["actor"].devices[0] == (0, 0)
    assert made.engines["rollout"].devices[0] == (1, 0)


def test_nothing_is_said_of_nodes_where_their_size_is_not_known() -> None:
    made = plan(experiment("2x0", "local", actor="fsdp:d8"))
    assert warnings(made) == [("AC357", "cluster")]


def test_ac356_scheduler_local_has_one_node() -> None:
    made = plan(experiment("2x8", "local", rollout="sglang:d8", actor="fsdp:d8"))
    assert made.ok
    (one,) = made.warnings
    assert (one.code, one.path) == ("AC356", "cluster.n_nodes")
    assert "16 GPUs would share them" in one.message
    assert plan(experiment("1x8", "local", rollout="sglang:d4", actor="fsdp:d4")).warnings == []


@pytest.mark.parametrize(
    "cluster",
    [
        None,
        {},
        {"n_gpus_per_node": 8},
        {"n_nodes": 2},
        {"n_nodes": 2, "n_gpus_per_node": 0},
        {"n_nodes": None, "n_gpus_per_node": 8},
    ],
)
def test_ac357_no_budget_known(cluster: dict[str, Any] | None) -> None:
    config = experiment("", actor="fsdp:d512")
    if cluster is not None:
        config["cluster"] = cluster
    made = plan(config)
    assert made.ok
    assert made.cluster is None
    assert warnings(made) == [("AC357", "cluster")]
    assert made.engines["actor"].devices == [None] * 512


def test_ac350_idle_gpus() -> None:
    made = plan(experiment("2x8", rollout="sglang:d4", actor="fsdp:d4"))
    (one,) = made.warnings
    assert one.code == "AC350"
    assert "8 of 16 GPUs are idle" in one.message


def test_ac309_an_unknown_scheduler() -> None:
    made = plan(experiment("1x8", "kubernetes", actor="fsdp:d8"))
    assert errors(made) == [("AC309", "scheduler.type")]
    assert made.errors[0].text == "kubernetes"
    assert made.errors[0].hint == "write local, ray or slurm"


def test_sums_of_many_engines_are_short() -> None:
    engines = {f"judge{i}": "sglang:d1" for i in range(12)}
    (one,) = plan(experiment("1x8", **engines)).errors
    assert one.message.endswith("judge10 1 + judge11 1 = 12 > 1 x 8")
    (one,) = plan(experiment("1x8", **engines, judge12="sglang:d1")).errors
    assert one.message.endswith("judge10 1 + 2 more = 13 > 1 x 8")


# -- whole nodes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheduler", "engines", "path"),
    [
        (None, {"rollout": "sglang:t16"}, None),
        (None, {"rollout": "sglang:t12"}, "rollout.backend"),
        ("ray", {"rollout": "sglang:t16"}, "rollout.backend"),  # up to 2.0.0, see below
        ("local", {"rollout": "sglang:t16"}, "rollout.backend"),
        ("slurm", {"rollout": "sglang:t16"}, "rollout.backend"),
        ("slurm", {"rollout": "sglang:t8p2"}, "rollout.backend"),
        ("slurm", {"rollout": "sglang:d2t4"}, None),
        ("slurm", {"rollout": "sglang:d3t4"}, "rollout.backend"),
        ("slurm", {"rollout": "sglang:d8t3"}, "rollout.backend"),
        ("ray", {"rollout": "sglang:d5t3"}, None),
        ("slurm", {"actor": "fsdp:d4"}, "actor.backend"),
        ("ray", {"actor": "fsdp:d4"}, None),
    ],
)
def test_ac307_instances_and_engines_in_whole_nodes(
    scheduler: str | None, engines: dict[str, str], path: str | None
) -> None:
    made = plan(experiment("4x8", scheduler, **engines))
    assert errors(made) == ([("AC307", path)] if path else [])


@pytest.mark.parametrize(
    ("areal", "spec", "good"),
    [
        ("1.0.4", {}, False),
        ("2.0.0", {"ray_placement_strategy": "separate"}, False),
        ("2.0.0", {"ray_placement_strategy": "deferred"}, True),
        ("main", {}, True),
    ],
)
def test_ac307_servers_over_a_node_on_ray(areal: str, spec: dict[str, Any], good: bool) -> None:
    config = experiment("4x8", "ray", rollout="sglang:t16")
    config["rollout"]["scheduling_spec"] = [{**GRANTED[0], **spec}]
    assert errors(plan(config, areal=areal)) == ([] if good else [("AC307", "rollout.backend")])


@pytest.mark.parametrize("scheduler", ["local", "slurm", "ray"])
def test_the_controller_v2_has_a_worker_for_each_node_of_an_instance(scheduler: str) -> None:
    config = experiment("4x8", scheduler, actor="megatron:d16", rollout="sglang:t16")
    for name in ("actor", "rollout"):
        config[name] |= {"_version": "v2", "scheduling_spec": GRANTED}
    assert plan(config, areal="main", strict=True).ok
    config["rollout"]["backend"] = "sglang:t12"
    assert ("AC307", "rollout.backend") in errors(plan(config, areal="main"))


def test_ac307_offers_what_fits() -> None:
    (one,) = plan(experiment("4x8", rollout="sglang:t12")).errors
    assert one.hint == "write an instance that fits, such as rollout.backend=sglang:t8"
    (one,) = plan(experiment("4x8", "slurm", rollout="sglang:t3p4")).errors
    assert one.hint == "write an instance that fits, such as rollout.backend=sglang:d2t8"
    (one,) = plan(experiment("4x8", "slurm", rollout="sglang:d5t3")).errors
    assert one.hint == "write an instance that fits, such as rollout.backend=sglang:d8t2"
    (one,) = plan(experiment("4x8", "slurm", rollout="sglang:d3p2t2")).errors
    assert one.hint.endswith(": rollout.backend=sglang:d4p2t2")
    (one,) = plan(experiment("4x8", "slurm", actor="fsdp:d12")).errors
    assert one.hint == "give actor 16 GPUs, or another multiple of 8"
    (one,) = plan(experiment("4x8", "slurm", rollout="sglang:d3t4")).errors
    assert "rollout.backend=sglang:d4t4" in one.hint
    (one,) = plan(experiment("4x8", "local", rollout="sglang:d2t16")).errors
    assert "rollout.backend=sglang:d4t8" in one.hint


@pytest.mark.parametrize(
    "config",
    [
        experiment("1x1", "local", rollout="sglang:d1", actor="fsdp:d2"),
        experiment("2x1", "slurm", rollout="sglang:t2", actor="fsdp:d1"),
        experiment("2x1", "local", actor="fsdp:d1", critic="fsdp:d1"),
        experiment("1x2", "local", actor="fsdp:d1", ref=("fsdp:d2", "actor")),
        experiment("1x2", "local", rollout=("sglang:t2", "actor"), actor="fsdp:d2"),
    ],
)
def test_one_of_a_thing_is_told_in_the_singular(config: dict[str, Any]) -> None:
    made = plan(config)
    told = " ".join(f"{one.message}; {one.hint}" for one in [*made.errors, *made.warnings])
    assert not re.search(r"\b1 (GPUs|nodes|ranks|workers|instances|combinations)\b", told), told


# -- SPMD launchers -------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", ["ray", "slurm"])
def test_ac308_the_launcher_takes_exactly_the_cluster(launcher: str) -> None:
    exact = experiment("2x8", rollout="sglang:d8", actor="fsdp:d8")
    assert errors(plan(exact, launcher=launcher)) == []
    less = experiment("3x8", rollout="sglang:d8", actor="fsdp:d8")
    assert errors(plan(less, launcher=launcher)) == [("AC308", "cluster")]
    more = experiment("1x8", rollout="sglang:d8", actor="fsdp:d8")
    assert errors(plan(more, launcher=launcher)) == [("AC308", "cluster")]
    assert plan(more, launcher=launcher).errors[0].text == ""


def test_ac308_the_trainer_takes_all_nodes_left_whatever_its_world_size_says() -> None:
    made = plan(experiment("2x8", actor="fsdp:d8"), launcher="slurm")
    assert errors(made) == [("AC308", "cluster")]


def test_servers_alone_may_leave_nodes() -> None:
    made = plan(experiment("2x8", rollout="sglang:d8"), launcher="slurm")
    assert made.ok
    assert "AC350" in [code for code, _ in warnings(made)]
    made = plan(experiment("1x8", rollout="sglang:d16"), launcher="slurm")
    assert errors(made) == [("AC306", "cluster")]


@pytest.mark.parametrize("launcher", ["ray", "slurm"])
def test_ac307_under_launchers(launcher: str) -> None:
    half = experiment("1x8", rollout="sglang:d4", actor="fsdp:d4")
    made = plan(half, launcher=launcher)
    assert ("AC307", "rollout.backend") in errors(made)
    whole = f"the {launcher} launcher gives whole nodes of 8 GPUs; rollout asks for 4"
    assert whole in [one.message for one in made.errors]
    wide = experiment("3x8", rollout="vllm:t16", actor="fsdp:d8")
    assert errors(plan(wide, launcher=launcher)) == [("AC307", "rollout.backend")]
    wide["rollout"]["backend"] = "sglang:t16"
    assert errors(plan(wide, launcher=launcher)) == []
    odd = experiment("4x8", rollout="sglang:d8t3", actor="fsdp:d8")
    assert errors(plan(odd, launcher=launcher)) == [("AC307", "rollout.backend")]


def test_the_local_launcher_has_one_node_too() -> None:
    made = plan(experiment("2x8", rollout="sglang:d8", actor="fsdp:d8"), launcher="local")
    assert made.ok
    assert "launcher local uses one node" in made.warnings[0].message
    made = plan(experiment("1x8", rollout="sglang:d8", actor="fsdp:d8"), launcher="local")
    assert errors(made) == [("AC306", "cluster")]


@pytest.mark.parametrize(
    ("launcher", "strict", "severity"),
    [("slurm", False, "warning"), ("slurm", True, "error"), ("ray", True, "error")],
)
def test_ac355_servers_with_stages(launcher: str, strict: bool, severity: str) -> None:
    config = experiment("2x8", rollout="sglang:d2p2t2", actor="fsdp:d8")
    made = plan(config, launcher=launcher, strict=strict)
    told = made.errors if severity == "error" else made.warnings
    assert ("AC355", "rollout.backend") in [(one.code, one.path) for one in told]
    assert "AC355" not in [code for code, _ in warnings(plan(config))]


def test_ac355_the_local_launcher_passes_p_since_1_0_4() -> None:
    config = experiment("1x8", rollout="sglang:d1p2t2", actor="fsdp:d4")
    old = plan(config, launcher="local", areal="1.0.3", strict=True)
    assert "AC355" in [one.code for one in old.warnings]
    assert "AC355" not in [one.code for one in plan(config, launcher="local").warnings]


def test_spmd_runs_critic_ref_and_a_training_teacher_in_the_trainers_ranks() -> None:
    config = experiment(
        "2x8", rollout="sglang:d8", actor="fsdp:d8", critic="", ref="", teacher="fsdp:d8"
    )
    made = plan(config, launcher="slurm")
    assert made.mode == "spmd"
    assert made.ok
    assert made.total_gpus == 16
    for name in ("critic", "ref", "teacher"):
        assert made.engines[name].gpus == 0
        assert made.engines[name].colocated_with == "actor"
        assert made.engines[name].devices == made.engines["actor"].devices


def test_spmd_shares_gpus_where_the_allocation_mode_says_so() -> None:
    mode = {"allocation_mode": "sglang:d4|fsdp[actor]:d4"}
    made = plan({**experiment("1x4", rollout="", actor=""), **mode})
    assert made.engines["actor"].colocated_with == "rollout"
    assert made.engines["rollout"].colocated_with is None
    assert made.total_gpus == 4


def test_spmd_launchers_do_not_read_scheduling_strategies() -> None:
    config = experiment("2x8", rollout=("sglang:d8", "actor"), actor="fsdp:d8")
    config |= {"enable_offload": True}
    made = plan(config, launcher="slurm")
    assert made.ok
    assert made.total_gpus == 16
    assert ("AC317", "rollout.scheduling_strategy") in warnings(made)


# -- warnings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "cluster", "options", "engines"),
    [
        ("AC307", "4x8", {}, {"rollout": "sglang:t12"}),
        ("AC307", "4x8", {"launcher": "slurm"}, {"rollout": "sglang:d4", "actor": "fsdp:d28"}),
        ("AC351", "2x8", {}, {"actor": "fsdp:t16"}),
        ("AC353", "1x8", {}, {"actor": "fsdp:d6"}),
        ("AC354", "1x8", {}, {"actor": "fsdp:d8", "rollout": ("sglang:d2t4", "actor")}),
        ("AC355", "2x8", {"launcher": "slurm"}, {"rollout": "sglang:t4p2", "actor": "fsdp:d8"}),
        ("AC358", "1x8", {}, {"actor": "fsdp[critic]:d8"}),
    ],
)
def test_what_is_about_a_backend_shows_it(
    code: str, cluster: str, options: dict[str, Any], engines: dict[str, Any]
) -> None:
    config = {**experiment(cluster, **engines), "train_dataset": {"batch_size": 8}}
    made = plan(config, **options)
    (one,) = [one for one in (*made.errors, *made.warnings) if one.code == code]
    assert one.path in ("rollout.backend", "actor.backend")
    assert one.text == config[one.path.partition(".")[0]]["backend"]


def test_ac351_straddling() -> None:
    made = plan(experiment("2x8", rollout="sglang:d1t12", actor="fsdp:d4"))
    assert errors(made) == [("AC307", "rollout.backend")]
    made = plan(experiment("2x8", actor="fsdp:d1t16"))
    assert warnings(made) == [("AC351", "actor.backend")]
    assert "1 tensor group of actor (16 GPUs each) straddles nodes" in made.warnings[0].message
    made = plan(experiment("2x6", rollout="sglang:d3t4"))
    assert made.warnings[0].code == "AC351"


def test_ac352_helpers_on_gpus_of_their_own() -> None:
    made = plan(experiment("3x8", actor="fsdp:d8", critic="fsdp:d8", ref="fsdp:d8"))
    assert warnings(made) == [
        ("AC352", "critic.scheduling_strategy"),
        ("AC352", "ref.scheduling_strategy"),
    ]
    assert "adds 8 GPUs" in made.warnings[0].message
    shared = experiment("1x8", actor="fsdp:d8", critic=("", "actor"), ref=("", "actor"))
    assert plan(shared).warnings == []


def test_ac353_the_batch_is_dealt_to_the_data_parallel_ranks() -> None:
    config = experiment("2x8", actor="fsdp:d6", critic=("fsdp:d6", "actor"), rollout="sglang:d10")
    config["ref"] = {"scheduling_strategy": {"type": "colocation", "target": "actor"}}
    config["train_dataset"] = {"batch_size": 32}
    made = plan(config)
    assert warnings(made) == [("AC353", "actor.backend"), ("AC353", "critic.backend")]
    assert "train_dataset.batch_size=36" in made.warnings[0].hint
    config["train_dataset"]["batch_size"] = 36
    assert plan(config).warnings == []
    for unread in (None, "many", "${nowhere}", 0, True):
        config["train_dataset"]["batch_size"] = unread
        assert plan(config).warnings == []


@pytest.mark.parametrize(
    ("scheduler", "areal", "severity"),
    [
        ("local", "1.0.4", "error"),
        ("local", "main", "error"),
        ("ray", "1.0.4", "error"),
        ("ray", "2.0.0", "error"),
        ("ray", "main", "error"),  # no GPU is granted, so that none can be shared
        ("slurm", "2.0.0", "error"),
    ],
)
def test_ac354_colocated_engines_differ_in_workers(
    scheduler: str, areal: str, severity: str
) -> None:
    config = experiment("1x8", scheduler, actor="fsdp:d8", rollout=("sglang:d2t4", "actor"))
    config |= {"enable_offload": True}
    config["actor"]["weight_update_mode"] = "disk"
    made = plan(config, areal=areal)
    assert made.ok
    assert warnings(made) == [("AC354", "rollout.backend")]
    assert "8" in made.warnings[0].message
    strict = plan(config, areal=areal, strict=True)
    told = strict.errors if severity == "error" else strict.warnings
    assert [one.code for one in told] == ["AC354"]


@pytest.mark.parametrize("scheduler", ["ray", "slurm"])
def test_colocated_engines_may_differ_in_workers_on_main(scheduler: str) -> None:
    config = experiment("1x8", scheduler, actor="fsdp:d8", rollout=("sglang:d2t4", "actor"))
    config |= {"enable_offload": True}
    config["actor"] |= {"weight_update_mode": "disk", "scheduling_spec": GRANTED}
    config["rollout"]["scheduling_spec"] = GRANTED
    made = plan(config, areal="main", strict=True)
    assert made.ok
    assert made.warnings == []


def test_ac358_the_name_in_brackets() -> None:
    made = plan(experiment("2x8", rollout="sglang[rollout]:d8", actor="fsdp[critic]:d8"))
    (one,) = made.warnings
    assert (one.code, one.path) == ("AC358", "actor.backend")
    assert one.text[slice(*one.span)] == "critic"


# -- awex -----------------------------------------------------------------------------------------


def awex(scheduler: str = "local", **changes: Any) -> dict[str, Any]:
    config = experiment("1x8", scheduler, actor="megatron:d4t2", rollout="sglang:d1t8")
    config["actor"] |= {"weight_update_mode": "awex", "scheduling_spec": GRANTED, **changes}
    config["rollout"]["scheduling_spec"] = GRANTED
    return config


def test_awex_shares_the_actors_gpus_though_both_say_separation() -> None:
    made = plan(awex(), areal="main")
    assert made.ok
    assert made.warnings == []
    assert made.total_gpus == 8
    rollout = made.engines["rollout"]
    assert rollout.colocated_with == "actor"
    assert rollout.gpus == 0
    assert sorted(map(tuple, rollout.devices)) == [(0, gpu) for gpu in range(8)]  # type: ignore[arg-type]


@pytest.mark.parametrize("scheduler", ["ray", "slurm"])
def test_awex_on_a_cluster_reserves_both(scheduler: str) -> None:
    made = plan(awex(scheduler), areal="main")
    assert made.engines["rollout"].colocated_with is None
    assert made.total_gpus == 16


@pytest.mark.parametrize(
    ("actor", "critic", "rollout", "total"),
    [
        ("megatron:d4", None, "sglang:d4", 8),  # the other half of the node
        ("megatron:d4", "fsdp:d4", "sglang:d4", 8),  # round to the actor's
        ("megatron:d4", "fsdp:d2", "sglang:d2", 8),
        ("megatron:d8", None, "sglang:d8", 8),
    ],
)
def test_awex_shares_where_the_round_robin_comes_round(
    actor: str, critic: str | None, rollout: str, total: int
) -> None:
    config = awex()
    config["actor"]["backend"], config["rollout"]["backend"] = actor, rollout
    if critic:
        config["critic"] = {"backend": critic, "scheduling_spec": GRANTED}
    made = plan(config, areal="main")
    assert made.ok
    assert made.total_gpus == total


@pytest.mark.parametrize("version", ["v1", None, ""])
def test_awex_of_the_controller_v1(version: str | None) -> None:
    made = plan(awex(_version=version), areal="main")
    assert made.engines["rollout"].colocated_with == "actor"


def test_what_is_no_awex_sharing() -> None:
    v2 = awex(_version="v2")
    assert plan(v2, areal="main").engines["rollout"].colocated_with is None
    assert plan(awex(weight_update_mode="xccl")).engines["rollout"].colocated_with is None
    lost = plan(OmegaConf.create(awex(weight_update_mode="${nowhere}")), areal="main")
    assert lost.engines["rollout"].colocated_with is None
    spmd = plan(awex(), launcher="local")
    assert spmd.engines["rollout"].colocated_with is None


def test_awex_shares_nothing_where_the_ranks_differ() -> None:
    config = awex()
    config["rollout"]["backend"] = "sglang:d1t4"
    assert errors(plan(config, areal="main")) == [("AC306", "cluster")]


def test_an_unknown_launcher_is_named() -> None:
    with pytest.raises(AllocationError) as caught:
        plan(experiment(actor="fsdp:d8"), launcher="pbs")
    assert (caught.value.code, caught.value.text) == ("AC309", "pbs")


def test_one_node_of_the_local_scheduler_asks_for_no_other() -> None:
    made = plan(experiment("1x8", "local", actor="fsdp:d16"))
    assert errors(made) == [("AC306", "cluster")]
    assert "AC356" not in [code for code, _ in warnings(made)]


def test_several_instances_straddle() -> None:
    made = plan(experiment("4x6", rollout="sglang:d6t4"))
    (one,) = [warning for warning in made.warnings if warning.code == "AC351"]
    assert one.message == "2 server instances of rollout (4 GPUs each) straddle nodes"
