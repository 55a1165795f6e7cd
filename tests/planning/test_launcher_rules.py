"""What the SPMD launchers trip over: one test a rule, with what they take."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf.errors import Diagnostic
from areal_conf.planning.result import plan

WHOLE = {"n_nodes": 2, "n_gpus_per_node": 8}


def told(
    launcher: str | None, strict: bool = False, cluster: Any = WHOLE, mode: str = "", **engines: Any
) -> list[Diagnostic]:
    """What is told under AC318 and AC319, of engines as ``name="fsdp:d8"`` or as sections."""
    config: dict[str, Any] = {"cluster": cluster, "allocation_mode": mode}
    config["sglang"] = {"random_seed": 1}
    config |= dict.fromkeys(("experiment_name", "trial_name"), "a") | {"recover": {"mode": "off"}}
    for name, value in engines.items():
        config[name] = {"backend": value} if isinstance(value, str) else value
    made = plan(OmegaConf.create(config), launcher=launcher, strict=strict)
    found = made.errors if strict else made.warnings
    return [one for one in found if one.code in ("AC318", "AC319")]


def spec(**env_vars: str) -> dict[str, Any]:
    return {"backend": "fsdp:d8", "scheduling_spec": [{"gpu": 1, "env_vars": env_vars}]}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("launcher", ["local", "ray", "slurm"])
def test_servers_and_a_trainer_are_what_launchers_start(launcher: str, strict: bool) -> None:
    assert told(launcher, strict, rollout="sglang:d8", actor="fsdp:d8", critic={}, ref={}) == []
    (one,) = told(launcher, strict, rollout="sglang:d8", actor="fsdp:d8", judge="vllm:d1")
    assert (one.code, one.path, one.text) == ("AC318", "judge.backend", "vllm:d1")
    assert one.message == f"the {launcher} launcher starts rollout and actor alone, not judge"
    assert one.hint == "use the single controller: scheduler.type=slurm"


def test_launchers_need_an_actor() -> None:
    (one,) = told("slurm", rollout="sglang:d16")
    assert (one.code, one.path) == ("AC318", "actor")
    assert one.message == "the slurm launcher needs an actor"
    assert one.hint == "write actor.backend"
    assert told("slurm") == []


@pytest.mark.parametrize("host", ["rollout", "actor"])
def test_ray_and_slurm_do_not_share_gpus_between_servers_and_trainer(host: str) -> None:
    specs = ["sglang[rollout]:d16", "fsdp[actor]:d16"]
    mode = "|".join(specs if host == "rollout" else reversed(specs))
    engines: dict[str, Any] = {"rollout": {}, "actor": {}, "mode": mode}
    assert told("local", **engines) == []
    for launcher in ("ray", "slurm"):
        (one,) = told(launcher, **engines)
        assert (one.code, one.path) == ("AC318", "allocation_mode")
        assert f"the {launcher} launcher cannot put rollout and actor on the same" in one.message
        assert one.hint == "write + for |, or use the single controller"


@pytest.mark.parametrize("changed", [{"api_url": "http://x", "_version": "v2"}, {}])
def test_launchers_start_servers_whatever_api_url_says(changed: dict[str, Any]) -> None:
    mode = "fsdp[actor]:d16|sglang[rollout]:d16"
    engines: dict[str, Any] = {"rollout": changed, "actor": {}, "mode": mode}
    assert [one.code for one in told("slurm", **engines)] == ["AC318"]


def test_servers_that_cannot_be_read_share_nothing() -> None:
    mode = "fsdp[actor]:d16|sglang[rollout]:d16"
    engines: dict[str, Any] = {"rollout": {"backend": "sglang:d"}, "actor": {}, "mode": mode}
    assert told("slurm", **engines) == []


@pytest.mark.parametrize("cluster", [None, {"n_nodes": 2}, {"n_gpus_per_node": 8}])
def test_ray_and_slurm_deal_out_a_cluster_of_a_known_size(cluster: dict[str, int] | None) -> None:
    engines = {"rollout": "sglang:d8", "actor": "fsdp:d8"}
    cluster = cluster and {**cluster, "fileroot": "/x"}
    assert [one.path for one in told("local", cluster=cluster or {}, **engines)] == []
    for launcher in ("ray", "slurm"):
        (one,) = told(launcher, cluster=cluster or {}, **engines)
        assert (one.code, one.path) == ("AC319", "cluster")
        assert one.message.startswith(f"the {launcher} launcher deals out the cluster")
        assert one.hint == "write cluster.n_nodes and cluster.n_gpus_per_node"


def test_slurm_sets_the_visible_devices() -> None:
    taken = {"backend": "sglang:d8", **{"scheduling_spec": [{"env_vars": {"A": "1"}}]}}
    devices = spec(CUDA_VISIBLE_DEVICES="0")
    assert told("ray", rollout=taken, actor=devices) == []
    (one,) = told("slurm", rollout=taken, actor=devices)
    assert (one.code, one.path) == ("AC318", "actor.scheduling_spec")
    assert one.message == "the slurm launcher sets CUDA_VISIBLE_DEVICES itself"
    assert one.hint == "take CUDA_VISIBLE_DEVICES out of env_vars"
    (one,) = told("slurm", rollout="sglang:d16")
    assert one.path == "actor"


def test_values_that_arrive_in_part() -> None:
    (one,) = told("slurm", actor=spec(OPTS="-a -b", GOOD="1"), rollout="sglang:d8")
    assert (one.code, one.path) == ("AC318", "actor.scheduling_spec")
    assert "shell would split the value of OPTS" in one.message
    assert one.hint == "write the value of OPTS within single quotes that are part of it"
    lone = spec(IB="mlx5_0,mlx5_1", OPTS="a;b")
    assert [one.hint.split()[4] for one in told("slurm", actor=lone)] == ["OPTS"]
    lone["scheduling_spec"][0]["container_type"] = "none"
    comma, split = told("slurm", actor=lone)
    assert comma.message == "srun --export ends the value of IB at its comma"
    assert comma.hint == "export IB by additional_bash_cmds of the actor's scheduling_spec"
    assert "the value of OPTS" in split.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("experiment_name", "${nope}"),
        ("experiment_name", ["a"]),
        ("trial_name", "${oc.env:NO_SUCH_TRIAL}"),
        ("cluster.fileroot", "${nope}"),
        ("cluster.fileroot", 7),
        ("cluster.name_resolve", 5),
        ("recover", 5),
        ("launcher", 5),
        ("sglang", 5),
    ],
)
def test_values_that_the_launchers_cannot_use(key: str, value: Any) -> None:
    config = {
        **dict.fromkeys(("experiment_name", "trial_name"), "a"),
        "cluster": {**WHOLE, "fileroot": "/x"},
        "recover": {"mode": "off"},
        "sglang": {"random_seed": 1},
        "rollout": {"backend": "sglang:d8"},
        "actor": {"backend": "fsdp:d8"},
    }
    assert plan(config, launcher="ray", strict=True).ok
    broken = OmegaConf.create(config)
    OmegaConf.update(broken, key, value, force_add=True)
    made = plan(broken, launcher="ray", strict=True)
    assert ("AC309", key) in [(one.code, one.path) for one in made.errors]
    assert ("AC309", key) in [(one.code, one.path) for one in plan(broken, launcher="ray").warnings]
    assert plan(broken, strict=True).errors == plan(config, strict=True).errors


def test_names_may_be_numbers_and_other_servers_sections_are_not_read() -> None:
    names = {"experiment_name": 7, "trial_name": 0.5}
    found = plan({**names, "vllm": 5, "actor": {"backend": "fsdp:d8"}}, launcher="local").warnings
    assert "AC309" not in [one.code for one in found]


def test_variables_that_cannot_be_read_are_left_alone() -> None:
    lost = spec(OPTS="${nowhere}")
    (one,) = told("slurm", rollout=lost, actor=spec(OPTS="a b"))
    assert one.path == "actor.scheduling_spec"
    for unread in ([], [{}], [{"env_vars": None}], None, "${nowhere}"):
        assert told("slurm", actor={"backend": "fsdp:d16", "scheduling_spec": unread}) == []


def test_nothing_is_said_where_no_launcher_is_named_or_the_engines_are_an_apps() -> None:
    engines: dict[str, Any] = {"actor": "fsdp:d8", "judge": "vllm:d1"}
    assert told(None, **engines) == []
    own = {"engines": {name: {"path": name} for name in engines}}
    assert told("slurm", areal_plan=own, **engines) == []
