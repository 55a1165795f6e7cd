"""A Hydra app like any other. It imports nothing of areal-conf: that is installed, no more."""

import hydra
from omegaconf import DictConfig


@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def main(cfg: DictConfig) -> None:
    print(f"rollout: {cfg.launch.servers} servers of {cfg.launch.gpus_per_server} GPUs")
    print(f"actor:   {cfg.launch.ranks} ranks, {cfg.launch.replicas} replicas")
    print(f"in all:  {cfg.launch.gpus} GPUs on {cfg.launch.nodes} nodes")


if __name__ == "__main__":
    main()
