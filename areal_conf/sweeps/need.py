"""The nodes and GPUs a job asks its cluster for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from omegaconf import DictConfig


class Need(NamedTuple):
    """What one job asks a cluster for.

    Attributes:
        nodes: nodes.
        gpus_per_node: GPUs of each.
        tasks_per_node: processes started on each: one a GPU under SPMD, else one.
        controller: whether AReaL's single controller runs it, which starts its workers itself.
    """

    nodes: int
    gpus_per_node: int
    tasks_per_node: int
    controller: bool

    def as_written(self, launcher: DictConfig) -> Need:
        """This need, save for what the launcher's config says otherwise.

        Its stock settings (one node, one task, GPUs not given) say nothing, nor does a 0: that is
        what ``${areal.nodes:}`` gives where the experiment is in a package.
        """
        stock: dict[str, int | None] = {"nodes": 1, "gpus_per_node": None, "tasks_per_node": 1}
        said = {key: launcher[key] for key, nothing in stock.items() if launcher[key] != nothing}
        return self._replace(**{key: value for key, value in said.items() if value})


def need_of(cfg: Any, root: str = "") -> Need:
    """What the experiment of `cfg` asks a cluster for.

    Raises:
        AllocationError: AC357 where the GPUs of a node are not known.
    """
    from areal_conf.planning.result import plan

    made = plan(cfg, root=root)
    gpus = made.gpus_per_node
    tasks = max(1, gpus) if made.mode == "spmd" else 1
    return Need(max(1, made.nodes), gpus, tasks, controller=made.scheduler is not None)
