"""Behaves as AReaL's local launcher does towards whoever starts it.

It runs every rank below a shell of its own, ends with status 1 whatever happened, cleans up at
SIGINT, and dies of SIGTERM with its children left behind.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import yaml


def main(argv: list[str]) -> None:
    with open(argv[argv.index("--config") + 1]) as file:
        mode = yaml.safe_load(file)["allocation_mode"]
    sizes = map(int, re.findall(r"[0-9]+", mode))
    world = int(os.environ.get("FAKE_WORLD", math.prod(sizes)))
    jobs = []
    for rank in range(world):
        assigned = f"RANK={rank} WORLD_SIZE={world} AREAL_SPMD_MODE=1"
        line = f"{assigned} {sys.executable} {' '.join(argv)} 2>&1 | cat"
        print("fake launcher:", shlex.quote(line), flush=True)
        jobs.append(subprocess.Popen(line, shell=True, start_new_session=True))
    try:
        for job in jobs:
            job.wait()
        time.sleep(float(os.environ.get("FAKE_PAUSE", "0")))
    except KeyboardInterrupt:
        for job in jobs:
            os.killpg(job.pid, signal.SIGTERM)
        raise
    raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
