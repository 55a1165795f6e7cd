"""What `scheduling_spec` grants: GPUs, CPUs, memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf.planning.result import Plan, plan

CLUSTER = {"n_nodes": 2, "n_gpus_per_node": 8}


def experiment(**specs: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "rollout": {"backend": "sglang:d2t4"},
        "actor": {"backend": "fsdp:d8"},
        "cluster": dict(CLUSTER),
    }
    for engine, spec in specs.items():
        config[engine]["scheduling_spec"] = spec
    return config


def found(made: Plan, code: str) -> list[str | None]:
    return [one.path for one in (*made.errors, *made.warnings) if one.code == code]


@pytest.mark.parametrize(
    ("engine", "spec", "path"),
    [
        ("actor", [{"gpu": 1}], None),
        ("actor", [{"gpu": 0}], "actor.scheduling_spec[0].gpu"),
        ("actor", [{"cpu": 4}], "actor.scheduling_spec[0].gpu"),
        ("actor", [{"gpu": 2}], "actor.scheduling_spec[0].gpu"),
        ("actor", {"gpu": 0}, "actor.scheduling_spec.gpu"),
        ("actor", None, None),
        ("actor", [], None),
        ("actor", "none", None),
        ("actor", ["none"], None),
        ("rollout", [{"gpu": 1}], None),
        ("rollout", [{"gpu": 4}], None),
        ("rollout", [{"gpu": 0}], "rollout.scheduling_spec[0].gpu"),
    ],
)
def test_gpus_granted(engine: str, spec: Any, path: str | None) -> None:
    made = plan(experiment(**{engine: spec}))
    assert found(made, "AC359") == ([path] if path else [])
    assert made.ok


@pytest.mark.parametrize(
    ("engine", "gpus", "said"),
    [
        ("rollout", 0, "the servers of rollout no GPU"),
        ("actor", 0, "the ranks of actor no GPU"),
        ("actor", 2, "16, not 8"),
    ],
)
def test_what_is_granted_is_said(engine: str, gpus: int, said: str) -> None:
    (one,) = plan(experiment(**{engine: [{"gpu": gpus}]})).warnings
    assert said in one.message
    assert one.hint == f"write {engine}.scheduling_spec[0].gpu=1"


def test_sections_without_a_spec_say_nothing() -> None:
    assert plan(experiment()).warnings == []


def test_the_spec_of_another_engine_and_environment_left_alone() -> None:
    config = experiment(actor=[{"gpu": 0, "env_vars": {"KEY": "${oc.env:SURELY_NOT_SET}"}}])
    config["rollout"]["scheduling_spec"] = "${actor.scheduling_spec}"
    made = plan(OmegaConf.create(config))
    assert found(made, "AC359") == [
        "actor.scheduling_spec[0].gpu",
        "rollout.scheduling_spec[0].gpu",
    ]


def test_a_spec_of_dataclasses() -> None:
    @dataclass
    class Spec:
        gpu: int = 0

    @dataclass
    class Actor:
        backend: str = "fsdp:d8"
        scheduling_spec: tuple[Spec, ...] = (Spec(),)

    @dataclass
    class Config:
        actor: Actor = field(default_factory=Actor)

    assert found(plan(Config()), "AC359") == ["actor.scheduling_spec[0].gpu"]


def test_colocated_engines_and_spmd_launchers_are_granted_nothing_by_it() -> None:
    config = experiment(actor=[{"gpu": 1}])
    config["ref"] = {
        "scheduling_spec": [{"gpu": 0}],
        "scheduling_strategy": {"type": "colocation", "target": "actor"},
    }
    assert found(plan(config), "AC359") == []
    assert found(plan(experiment(actor=[{"gpu": 0}]), launcher="slurm"), "AC359") == []


def test_one_entry() -> None:
    two = [{"gpu": 1, "cmd": "python x"}, {"gpu": 1, "cmd": "python x"}]
    assert found(plan(experiment(actor=two)), "AC363") == ["actor.scheduling_spec"]
    assert found(plan(experiment(rollout=two)), "AC363") == []
    assert plan(experiment(actor=two)).ok
    config = {**experiment(actor=two), "scheduler": {"type": "local"}}
    assert [one.code for one in plan(config, strict=True).errors] == ["AC363"]


def test_no_scheduling_spec_grants_no_gpu() -> None:
    """AReaL's default entry asks for none (api/cli_args.py): told before something starts."""
    config = {**experiment(actor=[{"gpu": 1}]), "scheduler": {"type": "slurm"}}
    assert found(plan(config, strict=True), "AC359") == ["rollout.scheduling_spec"]
    (one,) = plan(config, strict=True).warnings
    assert "grants the workers of rollout no GPU" in one.message
    assert one.hint.startswith("write '++rollout.scheduling_spec=[{gpu: 1, cmd: ")
    assert found(plan(config), "AC359") == []
    assert found(plan(config, launcher="slurm", strict=True), "AC359") == []


def test_cpus_and_memory_of_a_node() -> None:
    config = experiment(actor=[{"gpu": 1, "cpu": 10, "mem": 100}])
    config["cluster"] |= {"cpus_per_node": 64, "mem_per_node": 1000}
    made = plan(config)
    (one,) = made.warnings
    assert (one.code, one.path) == ("AC361", "cluster.cpus_per_node")
    assert "80 CPUs on one node, which has 64" in one.message
    assert one.hint.startswith("lower cpu in scheduling_spec")
    config["cluster"] = {**CLUSTER, "cpus_per_node": 79}
    assert found(plan(config), "AC361") == ["cluster.cpus_per_node"]
    config["cluster"] |= {"cpus_per_node": 80, "mem_per_node": 799}
    (one,) = plan(config).warnings
    assert (one.code, one.path) == ("AC361", "cluster.mem_per_node")
    assert one.hint.startswith("lower mem in scheduling_spec")


def test_engines_on_one_node_add_up() -> None:
    config = experiment(actor=[{"gpu": 1, "cpu": 10, "mem": 100}], rollout=[{"gpu": 1, "mem": 0}])
    config["rollout"]["backend"], config["actor"]["backend"] = "sglang:d2t2", "fsdp:d4"
    config["cluster"] = {"n_nodes": 1, "n_gpus_per_node": 8, "cpus_per_node": 71, "mem_per_node": 1}
    cpus, memory = plan(config).warnings
    assert "72 CPUs on one node" in cpus.message
    assert "400 GB of memory on one node" in memory.message


def test_nobody_asks_for_anything_where_no_layout_is_known() -> None:
    config = {"actor": {"backend": "fsdp:d"}, "cluster": {**CLUSTER, "cpus_per_node": 1}}
    assert found(plan(config), "AC361") == []


def test_areals_defaults_count_where_a_section_has_no_spec() -> None:
    config = experiment()
    config["areal_plan"] = {"cluster": {"cpus_per_node": 63, "mem_per_node": 256}}
    (one,) = plan(config).warnings
    assert "64 CPUs on one node, which has 63" in one.message
