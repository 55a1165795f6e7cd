"""App for torchrun: builds the groups of its plan and adds up in each of them.

Every rank contributes the bit of its number, so that the sum over a group says who is in it. What
rank R finds goes to the file ``groupsR.json`` of the run's directory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from recorded import recorded

import areal_conf


@areal_conf.main(config_path=None, version_base="1.3")
def train(cfg: DictConfig) -> None:
    import torch
    import torch.distributed as dist
    from hydra.core.hydra_config import HydraConfig

    actor = areal_conf.plan(cfg).engines["actor"]
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def members(groups: list[list[int]]) -> int:
        own: Any = None
        for ranks in groups:  # every rank takes part in making every group
            made = dist.new_group(ranks)
            own = made if rank in ranks else own
        total = torch.tensor(1 << rank)
        dist.all_reduce(total, group=own)
        return int(total)

    found = {
        "tensor": members(actor.tensor_groups()),
        "data": members(actor.data_groups()),
        "pipeline": members(actor.pipeline_groups()),
        "context": members(actor.context_groups()),
        "expert": members(actor.expert_groups()),
        "expert_tensor": members(actor.expert_tensor_groups()),
        "expert_data": members(actor.expert_data_groups()),
    }
    out = Path(HydraConfig.get().runtime.output_dir)
    (out / f"groups{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    recorded(train)
