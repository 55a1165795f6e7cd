"""App for torchrun that stays with ``hydra.main``: the plan comes from the callback alone."""

from __future__ import annotations

import hydra
from omegaconf import DictConfig
from recorded import recorded


@hydra.main(config_path=None, version_base="1.3")
def train(cfg: DictConfig) -> None:
    print("the task runs")


if __name__ == "__main__":
    recorded(train)
