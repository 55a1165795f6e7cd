"""A training script in AReaL's style whose ranks add up over gloo."""

from __future__ import annotations

import os
import sys
import time


def main(argv: list[str]) -> None:
    import torch
    import torch.distributed as dist
    from omegaconf import OmegaConf

    cfg = OmegaConf.load(argv[argv.index("--config") + 1])
    rank = os.environ["RANK"]
    dist.init_process_group("gloo")
    total = torch.tensor(1 << dist.get_rank())
    dist.all_reduce(total)
    servers = os.environ.get("AREAL_LLM_SERVER_ADDRS", "")
    print(f"RANK {rank} SUM {int(total)} OF {cfg.actor.backend} SERVERS {servers}", flush=True)
    if cfg.behave == "raise" and rank == "1":
        raise RuntimeError("boom")
    if cfg.behave == "sleep":
        print(f"SLEEPING {os.getpid()} end", flush=True)
        time.sleep(300)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
