"""App that only looks at what it was given: each process writes it beside the others of its job."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

import areal_conf


@areal_conf.main(config_path=".", config_name="train", version_base="1.3")
def train(cfg: DictConfig) -> str:
    found = {"backend": cfg.actor.backend, **on_slurm(), **on_ray()}
    out = Path(HydraConfig.get().runtime.output_dir)
    process = os.environ.get("SLURM_PROCID", "0")
    (out / f"process{process}.json").write_text(json.dumps(found))
    time.sleep(cfg.sleeps)
    if cfg.actor.backend == cfg.fails:
        raise RuntimeError("this layout fails")
    return str(cfg.actor.backend)


def on_slurm() -> dict[str, Any]:
    if "SLURM_JOB_ID" not in os.environ:
        return {}
    variables = ("JOB_ID", "NNODES", "NTASKS", "NODELIST")
    found: dict[str, Any] = {v.lower(): os.environ.get(f"SLURM_{v}") for v in variables}
    found["node"] = os.environ.get("SLURMD_NODENAME")
    found["gpus"] = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return found


def on_ray() -> dict[str, Any]:
    if "ray" not in sys.modules:
        return {}
    import ray

    @ray.remote(num_gpus=1)
    def elsewhere() -> str:
        return str(ray.get_runtime_context().get_node_id())

    here = ray.get_runtime_context()
    group = ray.util.get_current_placement_group()
    found = {"gpus": ray.get_gpu_ids(), "node": here.get_node_id(), "bundles": group.bundle_specs}
    if group.bundle_count > 1:
        found["other_node"] = ray.get(elsewhere.remote())
    return found


if __name__ == "__main__":
    train()
