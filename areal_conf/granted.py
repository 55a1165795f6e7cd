"""Whether a Slurm job of a multirun has the nodes and GPUs that its own config asks for.

hydra-submitit-launcher reads its settings once for all jobs of a launch. Where they follow the
layout (``hydra/launcher=areal_submitit``) and the sweeper does not launch each size by itself, a
job would start on the nodes of another layout.
"""

from __future__ import annotations

import os

from areal_conf.engines import whole_number
from areal_conf.errors import AllocationError, counted


def slurm_mismatch() -> AllocationError | None:
    """AC308: this Slurm job was given other nodes or GPUs than its launcher's config now says."""
    asked = _asked()
    if asked is None:
        return None
    nodes, gpus = asked
    has_nodes, has_gpus = _given("SLURM_JOB_NUM_NODES"), _given("SLURM_GPUS_PER_NODE")
    if has_nodes in (None, nodes) and has_gpus in (None, gpus):
        return None
    given, needed = _shown(has_nodes, has_gpus), _shown(nodes, gpus)
    return AllocationError(
        "AC308",
        f"Slurm gave this job {given}, its layout needs {needed}",
        path="hydra.launcher",
        hint="write hydra/sweeper=areal_layouts, which asks for what each job of a sweep needs",
    )


def _asked() -> tuple[int, int | None] | None:
    """Nodes and GPUs of each by the job's own config; None where submitit did not submit it."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf.errors import OmegaConfBaseException

    if "SLURM_JOB_ID" not in os.environ or not HydraConfig.initialized():
        return None
    launcher = HydraConfig.get().launcher
    if not str(launcher.get("_target_")).endswith(".SlurmLauncher"):
        return None
    try:
        return launcher.nodes, launcher.gpus_per_node
    except OmegaConfBaseException:  # the plan has errors, and they are told
        return None


def _given(variable: str) -> int | None:
    return whole_number(os.environ.get(variable, ""))


def _shown(nodes: int | None, gpus: int | None) -> str:
    count = "? nodes" if nodes is None else counted(nodes, "node")
    return count if gpus is None else f"{count} of {counted(gpus, 'GPU')}"
