"""An app that lets areal-conf check the plan, and that reads it."""

from __future__ import annotations

from omegaconf import DictConfig

import areal_conf
from areal_conf import ModelAllocation


@areal_conf.main(config_path="conf", config_name="config", version_base="1.3")
def main(cfg: DictConfig) -> None:
    """Runs only where the plan has no errors; backend strings were taken as typed."""
    plan = areal_conf.plan(cfg)
    for name, engine in plan.engines.items():
        if engine.active:
            first, last = engine.devices[0], engine.devices[-1]
            print(f"{name:8} {engine.spec:16} {engine.gpus:3} GPUs, from {first} to {last}")
    actor = ModelAllocation.from_str(cfg.actor.backend)
    print(f"the actor has {actor.parallel.dp_size} replicas of {cfg.actor.path}")
    print(f"{plan.total_gpus} GPUs on {plan.nodes} nodes")


if __name__ == "__main__":
    main()
