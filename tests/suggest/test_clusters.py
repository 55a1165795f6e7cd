"""What clusters answer, read: Slurm's JSON of two generations, Ray's nodes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from areal_conf import AllocationError
from areal_conf.suggest.clusters import Node, ask, of_nodes, ray_nodes, slurm_nodes


def old(name: str, gres: str, state: str = "idle", *flags: str) -> dict[str, Any]:
    """A node of ``sinfo --json`` up to Slurm 22.05."""
    return {
        "name": name,
        "gres": gres,
        "state": state,
        "state_flags": list(flags),
        "partitions": ["gpu", "all"],
    }


def new(names: list[str], gres: str, *states: str, partition: str = "gpu") -> dict[str, Any]:
    """An entry of ``sinfo --json`` from Slurm 23.02 on."""
    return {
        "nodes": {"total": len(names), "nodes": names},
        "node": {"state": list(states) or ["IDLE"]},
        "gres": {"total": gres, "used": "gpu:0"},
        "partition": {"name": partition},
    }


@pytest.mark.parametrize(
    ("gres", "wanted"),
    [
        ("gpu:8", Node(8)),
        ("gpu:h100:8(S:0-1)", Node(8, "h100")),
        ("gpu:nvidia_a100-sxm4-80gb:4(S:0-3),shard:16", Node(4, "nvidia_a100-sxm4-80gb")),
        ("craynetwork:4,gpu:mi300x:8", Node(8, "mi300x")),
        ("", Node(0)),
        (None, Node(0)),
    ],
)
def test_gres(gres: str, wanted: Node) -> None:
    assert slurm_nodes({"nodes": [old("n1", gres)]}) == [wanted]
    assert slurm_nodes({"sinfo": [new(["n1"], gres)]}) == [wanted]


def test_nodes_that_are_away_do_not_count() -> None:
    away = [old("n1", "gpu:8", "down"), old("n2", "gpu:8", "idle", "DRAIN")]
    assert slurm_nodes({"nodes": [*away, old("n3", "gpu:8", "allocated")]}) == [Node(8)]
    entries = [new(["n1"], "gpu:8", "DOWN"), new(["n2", "n3"], "gpu:8", "MIXED")]
    assert slurm_nodes({"sinfo": entries}) == [Node(8), Node(8)]


def test_a_node_of_two_partitions_counts_once() -> None:
    entries = [new(["n1"], "gpu:8"), new(["n1"], "gpu:8", partition="all")]
    assert slurm_nodes({"sinfo": entries}) == [Node(8)]


def test_only_the_partition_counts() -> None:
    entries = [new(["n1"], "gpu:8"), new(["n2"], "gpu:4", partition="small")]
    assert slurm_nodes({"sinfo": entries}, "small") == [Node(4)]
    with pytest.raises(AllocationError, match="no such partition") as raised:
        slurm_nodes({"sinfo": entries}, "gpuu")
    assert "gpu, small" in raised.value.hint


def test_the_largest_set_of_equal_nodes_is_taken() -> None:
    found = of_nodes([Node(8, "h100")] * 4 + [Node(4, "v100")] * 5 + [Node(0)], "slurm")
    assert (found.nodes, found.per_node, found.card) == (4, 8, "H100")
    assert any("5 nodes" in note for note in found.notes)


def test_a_card_that_is_not_known_is_told() -> None:
    found = of_nodes([Node(8, "tpu-v9")], "slurm")
    assert found.card is None
    assert any("tpu-v9" in note for note in found.notes)


def test_no_gpus_at_all() -> None:
    with pytest.raises(AllocationError) as raised:
        of_nodes([Node(0)], "slurm")
    assert raised.value.code == "AC607"


def test_ray() -> None:
    answer = [
        {"Alive": True, "Resources": {"GPU": 8.0, "accelerator_type:H100": 1.0, "CPU": 64.0}},
        {"Alive": False, "Resources": {"GPU": 8.0}},
        {"Alive": True, "Resources": {"CPU": 8.0}},
    ]
    assert ray_nodes(answer) == [Node(8, "H100"), Node(0)]


def sinfo(directory: Path, script: str) -> None:
    program = directory / "sinfo"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("echo 'slurm_load_partitions: Unable to contact' >&2; exit 1", "Unable to contact"),
        ("echo hello", "no JSON"),
        ("echo '[1]'", "no JSON"),
        ("echo '{}'", "no node"),
    ],
)
def test_a_slurm_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, word: str
) -> None:
    sinfo(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(AllocationError, match=word) as raised:
        ask("slurm")
    assert raised.value.code == "AC607"


def test_nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for cluster in ("auto", "slurm", "slurm:gpu", "kubernetes", ""):
        with pytest.raises(AllocationError) as raised:
            ask(cluster)
        assert raised.value.code == "AC607"
