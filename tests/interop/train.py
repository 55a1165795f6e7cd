"""A training script in AReaL's style whose ranks add up over gloo; rank 0 asks every server."""

from __future__ import annotations

import os
import sys
import time
from typing import Any
from urllib.request import urlopen


def main(argv: list[str]) -> None:
    import torch
    import torch.distributed as dist
    from omegaconf import OmegaConf

    cfg = OmegaConf.load(argv[argv.index("--config") + 1])
    rank = os.environ["RANK"]
    dist.init_process_group("gloo")
    total = torch.tensor(1 << dist.get_rank())
    dist.all_reduce(total)
    found = servers(cfg) if rank == "0" else 0
    told = f"RANK {rank} SUM {int(total)} OF {cfg.actor.backend} SERVERS {found}"
    print(told, flush=True)
    if cfg.behave == "raise" and rank == "1":
        raise RuntimeError("boom")
    if cfg.behave == "sleep":
        print(f"SLEEPING {os.getpid()} end", flush=True)
        time.sleep(300)
    dist.destroy_process_group()


def servers(cfg: Any) -> int:
    """How many servers answer at the addresses that AReaL's engines look up.

    They ask its name service, where each server is recorded (``RemoteInfEngine.initialize``).
    """
    if "rollout" not in cfg:
        return 0
    from areal.api.cli_args import NameResolveConfig
    from areal.utils import name_resolve, names

    name_resolve.reconfigure(NameResolveConfig(**cfg.cluster.name_resolve))
    root = names.gen_servers(cfg.experiment_name, cfg.trial_name)
    addresses = set(name_resolve.get_subtree(root))
    for address in addresses:
        with urlopen(f"http://{address}/v1/models", timeout=30) as answer:
            assert answer.status == 200
    return len(addresses)


if __name__ == "__main__":
    main(sys.argv[1:])
