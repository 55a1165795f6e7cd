"""Apps under the real torchrun: four ranks on this machine, talking over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]

RANKS = 4
HERE = Path(__file__).parent


class Run(NamedTuple):
    """What four ranks did."""

    status: list[str]
    stdout: list[str]
    stderr: list[str]
    directory: Path


def torchrun(tmp_path: Path, app: str, *overrides: str) -> Run:
    statuses, logs, run_dir = tmp_path / "status", tmp_path / "logs", tmp_path / "run"
    statuses.mkdir()
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={RANKS}", f"--log-dir={logs}", "--redirects=3",
            str(HERE / app), f"hydra.run.dir={run_dir}", *overrides,
        ],
        cwd=tmp_path,
        env={**os.environ, "STATUS_DIR": str(statuses), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    found = [(statuses / str(rank)) for rank in range(RANKS)]
    assert all(f.exists() for f in found), done.stderr
    return Run(
        [f.read_text() for f in found],
        [_log(logs, rank, "stdout") for rank in range(RANKS)],
        [_log(logs, rank, "stderr") for rank in range(RANKS)],
        run_dir,
    )


def _log(logs: Path, rank: int, stream: str) -> str:
    (file,) = logs.glob(f"*/attempt_0/{rank}/{stream}.log")
    return file.read_text()


def bits(*ranks: int) -> int:
    return sum(1 << rank for rank in ranks)


def test_groups_of_a_dense_layout_add_up(tmp_path: Path) -> None:
    run = torchrun(tmp_path, "groups.py", "+actor.backend=fsdp:d2t2")
    assert run.status == ["0"] * RANKS, run.stderr
    found = [json.loads((run.directory / f"groups{r}.json").read_text()) for r in range(RANKS)]
    first, second = bits(0, 1), bits(2, 3)
    assert [f["tensor"] for f in found] == [first, first, second, second]
    even, odd = bits(0, 2), bits(1, 3)
    assert [f["data"] for f in found] == [even, odd, even, odd]
    assert [f["pipeline"] for f in found] == [bits(r) for r in range(RANKS)]


def test_groups_of_a_mixture_of_experts_add_up(tmp_path: Path) -> None:
    # Parentheses as typed. Attention: t fastest, then c. Experts: etp fastest, then e.
    run = torchrun(tmp_path, "groups.py", "+actor.backend=megatron:(attn:t2c2|ffn:t2e2)")
    assert run.status == ["0"] * RANKS, run.stderr
    found = [json.loads((run.directory / f"groups{r}.json").read_text()) for r in range(RANKS)]
    pairs = [bits(0, 1), bits(0, 1), bits(2, 3), bits(2, 3)]
    across = [bits(0, 2), bits(1, 3), bits(0, 2), bits(1, 3)]
    alone = [bits(r) for r in range(RANKS)]
    assert [f["tensor"] for f in found] == pairs
    assert [f["context"] for f in found] == across
    assert [f["data"] for f in found] == alone
    assert [f["expert_tensor"] for f in found] == pairs
    assert [f["expert"] for f in found] == across
    assert [f["expert_data"] for f in found] == alone


def refused_once(run: Run) -> None:
    """Every rank fails, the first one says why, the others say nothing."""
    assert run.status == ["1"] * RANKS
    assert run.stderr[0].count("AC308") == 1
    assert "torchrun started 4 ranks (WORLD_SIZE), the actor has 8" in run.stderr[0]
    assert "Traceback" not in run.stderr[0]
    assert run.stderr[1:] == run.stdout[1:] == [""] * (RANKS - 1)


def test_other_number_of_ranks_is_refused_once(tmp_path: Path) -> None:
    refused_once(torchrun(tmp_path, "groups.py", "+actor.backend=fsdp:d8"))


def test_callback_speaks_and_writes_in_the_first_rank_alone(tmp_path: Path) -> None:
    run = torchrun(
        tmp_path,
        "plain.py",
        "+actor.backend=fsdp:d8",
        "hydra/callbacks=areal_plan",
        "hydra.run.dir=run/${oc.env:RANK}",
    )
    refused_once(run)
    assert "the task runs" not in run.stdout[0]
    written = sorted(f.relative_to(tmp_path).as_posix() for f in run.directory.rglob("allocation*"))
    assert written == ["run/0/allocation.json", "run/0/allocation.svg"]
    plan = json.loads((run.directory / "0" / "allocation.json").read_text())
    assert [error["code"] for error in plan["errors"]] == ["AC308"]
