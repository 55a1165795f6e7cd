"""What the jobs of a sweep ask a cluster for, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf import AllocationError
from areal_conf.sweeps.need import Need, need_of
from areal_conf.sweeps.run import _refuse_several_nodes

STOCK = {"nodes": 1, "gpus_per_node": None, "tasks_per_node": 1}


def config(backend: str, **more: Any) -> Any:
    cluster = {"n_nodes": 4, "n_gpus_per_node": 8}
    return OmegaConf.create({"actor": {"backend": backend}, "cluster": cluster, **more})


@pytest.mark.parametrize(
    ("backend", "need"),
    [
        ("fsdp:d3", Need(1, 3, 1, controller=False)),
        ("fsdp:d8", Need(1, 8, 1, controller=False)),
        ("fsdp:d12", Need(2, 8, 1, controller=False)),  # whole nodes, once one is not enough
        ("megatron:d4t4p2", Need(4, 8, 1, controller=False)),
    ],
)
def test_need_is_that_of_the_plan(backend: str, need: Need) -> None:
    assert need_of(config(backend)) == need


def test_scheduler_of_a_single_controller_starts_its_workers_itself() -> None:
    assert need_of(config("fsdp:d8", scheduler={"type": "local"})).controller


def test_stock_settings_of_the_launcher_say_nothing() -> None:
    need = Need(2, 8, 1, controller=False)
    assert need.as_written(OmegaConf.create(STOCK)) == need
    assert need.as_written(OmegaConf.create({**STOCK, "nodes": 0, "gpus_per_node": 0})) == need


def test_settings_that_somebody_wrote_hold() -> None:
    written = OmegaConf.create({**STOCK, "nodes": 3, "tasks_per_node": 4})
    assert Need(2, 8, 1, controller=False).as_written(written) == Need(3, 8, 4, controller=False)


def test_one_ray_task_is_refused_for_two_nodes() -> None:
    _refuse_several_nodes(Need(1, 8, 1, controller=False), ["actor.backend=fsdp:d8"])
    with pytest.raises(AllocationError, match="areal_ray_cluster") as refused:
        _refuse_several_nodes(Need(2, 8, 1, controller=False), ["actor.backend=fsdp:d16"])
    assert refused.value.code == "AC307"
