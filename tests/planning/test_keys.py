"""AC365: keys that AReaL does not read, near those that it does."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf import plan

GOOD: dict[str, Any] = {
    "actor": {"backend": "fsdp:d8"},
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    "scheduler": {"type": "local"},
}


def slips(config: dict[str, Any], areal: str | None = "1.0.4") -> list[tuple[str | None, str]]:
    found = plan(OmegaConf.create(config), areal=areal)
    assert not [error for error in found.errors if error.code == "AC365"]
    return [(w.path, w.hint) for w in found.warnings if w.code == "AC365"]


@pytest.mark.parametrize(
    ("change", "path", "near"),
    [
        ({"actor": {"backedn": "fsdp:d4"}}, "actor.backedn", "actor.backend"),
        ({"cluster": {"n_node": 4}}, "cluster.n_node", "cluster.n_nodes"),
        ({"scheduler": {"typ": "slurm"}}, "scheduler.typ", "scheduler.type"),
        ({"schedular": {}}, "schedular", "scheduler"),
        (
            {"ref": {"backend": "fsdp:d8", "schedulling_strategy": {"type": "colocation"}}},
            "ref.schedulling_strategy",
            "ref.scheduling_strategy",
        ),
        (
            {"ref": {"backend": "fsdp:d8", "scheduling_strategy": {"taget": "actor"}}},
            "ref.scheduling_strategy.taget",
            "ref.scheduling_strategy.target",
        ),
        (
            {"actor": {"scheduling_spec": [{"gpus": 1}]}},
            "actor.scheduling_spec[0].gpus",
            "actor.scheduling_spec[0].gpu",
        ),
    ],
)
def test_a_slip_is_told(change: dict[str, Any], path: str, near: str) -> None:
    merged = OmegaConf.to_container(OmegaConf.merge(GOOD, change))
    assert isinstance(merged, dict)
    assert slips(merged) == [(path, f"did you mean {near}?")]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"my_app": {"backedn": 1}, "actors_of_mine": 3, "eval_dataset": {}},
        {"actor": {"backend": "fsdp:d8", "own": {"typ": 1}, "backend_2": "x"}},
        {"launcher": {}, "n_gpus_per_node": 8},  # of older versions
        {"areal_plan": {"engines": {"policy": {"path": "app"}}}, "app": {"backend": "fsdp:d8"}},
    ],
)
def test_keys_of_the_app_are_not_told(change: dict[str, Any]) -> None:
    assert slips({**GOOD, **change}) == []


def test_what_an_interpolation_leads_to_is_left_alone() -> None:
    assert slips({**GOOD, "own": {"backedn": 1, "backend": "fsdp:d8"}, "ref": "${own}"}) == []


def test_an_apps_own_engines_share_the_cluster() -> None:
    own = {"engines": {"policy": {"path": "app", "role": "training"}}}
    config = {
        "areal_plan": own,
        "app": {"backend": "fsdp:d8", "scheduling_strateg": 1},
        "cluster": {"n_nodes": 1, "n_gpus_per_node": 8, "n_gpu_per_node": 4},
    }
    assert slips(config) == [("cluster.n_gpu_per_node", "did you mean cluster.n_gpus_per_node?")]
