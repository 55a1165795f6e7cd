"""AReaL's parser and this package's, on the same strings."""

from __future__ import annotations

from typing import Any

import pytest
from paths import ROOT

from areal_conf import AllocationError, ModelAllocation, SchedulingStrategy, to_areal
from areal_conf.areal.export import spelled_for_areal

from .conftest import ArealSide
from .differences import DIFFERENCES, Difference
from .strings import strings

DOCS = ROOT / "docs" / "reference" / "differences.md"


def ours(spec: str) -> dict[str, Any]:
    try:
        allocation = ModelAllocation.from_str(spec)
    except AllocationError as error:
        return {"codes": [e.code for e in error.errors]}
    sizes = allocation.parallel.sizes
    return {
        "backend": allocation.backend,
        "name": allocation.name,
        **{letter: getattr(sizes, letter) for letter in "dtpce"},
        "etp": sizes.etp,
        "edp": allocation.parallel.edp_size,
        "world_size": allocation.parallel.world_size,
    }


def explained(spec: str, own: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether a row of the table says so."""
    if "codes" in own:
        return any(d.ours in own["codes"] and d.covers(spec) for d in DIFFERENCES)
    rows = [d for d in DIFFERENCES if not d.ours and d.covers(spec)]
    if "error" in theirs:
        return any(d.areals == "refused" for d in rows)
    only_edp = all(own[key] == theirs[key] for key in own if key != "edp")
    return only_edp and own["e"] == 1 < own["etp"] and any("edp" in d.areals for d in rows)


@pytest.fixture(scope="module")
def answers(areal: ArealSide) -> dict[str, dict[str, Any]]:
    """What AReaL says of some thousand strings: a grammar is built anew for each of them."""
    specs = strings(2000)
    return dict(zip(specs, areal("parse", specs), strict=True))


def test_same_sizes_or_a_documented_difference(answers: dict[str, dict[str, Any]]) -> None:
    same = refused = 0
    for spec, theirs in answers.items():
        own = ours(spec)
        if own == theirs:
            same += 1
        elif "codes" in own and "error" in theirs:
            refused += 1
        else:
            assert explained(spec, own, theirs), (spec, own, theirs)
    assert same > 500
    assert refused > 300


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.title)
def test_every_row_of_the_table_is_true(areal: ArealSide, row: Difference) -> None:
    own, theirs = ours(row.example), areal("parse", [row.example])[0]
    assert row.covers(row.example)
    assert explained(row.example, own, theirs)
    assert own.get("codes", [""]) == [row.ours]
    assert ("error" in theirs) == (row.areals == "refused")
    line = f"| {row.title} | `{row.example.replace('|', chr(92) + '|')}` | "
    line += f"{row.ours or 'accepted'} | {row.areals} | {row.why} |"
    assert line in DOCS.read_text()


def test_what_is_exported_has_the_same_sizes_in_areal(
    areal: ArealSide, answers: dict[str, dict[str, Any]]
) -> None:
    specs = [spec for spec in answers if "codes" not in ours(spec)]
    written = {spelled_for_areal(ModelAllocation.from_str(spec), spec): spec for spec in specs}
    new = [text for text in written if text not in answers]
    known = answers | dict(zip(new, areal("parse", new), strict=True))
    for text, spec in written.items():
        own = {**ours(text), "edp": 0}
        assert {**known[text], "edp": 0} == own, (spec, text)
        assert {**ours(spec), "name": None, "edp": 0} == {**own, "name": None}


@pytest.mark.parametrize(
    ("rollout", "actor", "kind"),
    [
        ("sglang:d8", "fsdp:d8", "DECOUPLED_TRAIN"),
        ("vllm[rollout]:d4t2", "megatron[actor]:(attn:d4t2|ffn:t2e2)", "DECOUPLED_TRAIN"),
        (None, "megatron:attn:d4t2|ffn:t2e2", "COLOCATE"),
    ],
)
def test_the_launchers_read_the_mode_that_is_exported(
    areal: ArealSide, rollout: str | None, actor: str, kind: str
) -> None:
    cfg: dict[str, Any] = {
        "experiment_name": "e",
        "trial_name": "t",
        "cluster": {"n_nodes": 2 if rollout else 1, "n_gpus_per_node": 8},
        "recover": {},
        "sglang": {"random_seed": 1},
        "vllm": {"seed": 1},
        "actor": {"backend": actor},
    }
    if rollout:
        cfg["rollout"] = {"backend": rollout}
    read = areal("mode", to_areal(cfg, launcher="slurm").allocation_mode)
    assert read == {"type": kind, "gen": 8 if rollout else None, "train": 8}


SCRIPT = """
from MODULE import ModelAllocation, ParallelStrategy

class Engine:
    def __init__(self, parallel: ParallelStrategy):
        self.groups = [parallel.dp_size, parallel.tp_size, parallel.pp_size, parallel.cp_size,
                       parallel.ep_size, parallel.etp_size, parallel.world_size]

result = []
for backend, name in [("megatron:d2p2t2", "actor"), ("sglang:d4t2", None), ("fsdp[ref]:d8", None),
                      ("megatron:(attn:d4t2|ffn:d2t2e2)", None)]:
    alloc = ModelAllocation.from_str(backend, name=name)
    if alloc.backend == "sglang":
        result.append(alloc.parallel.tensor_parallel_size * alloc.parallel.pipeline_parallel_size)
    result.append([alloc.backend, alloc.name, str(alloc.scheduling_strategy.type).split(".")[-1]])
    result.append(Engine(alloc.parallel).groups)
    result.append(alloc.parallel.world_size)
"""


def test_code_may_switch_its_import(areal: ArealSide) -> None:
    answers = areal("switched", SCRIPT)
    assert answers["areal_conf"] == answers["areal.api.alloc_mode"]


def test_the_world_size_of_a_colocated_engine(areal: ArealSide) -> None:
    """AReaL gives 0, for the GPUs it reserves; here that is `gpus`."""
    script = """
import MODULE as m
try:
    from areal.api.cli_args import SchedulingStrategy
    strategy = (m if hasattr(m, "SchedulingStrategy") else None)
    strategy = strategy.SchedulingStrategy if strategy else SchedulingStrategy
finally:
    pass
a = m.ModelAllocation.from_str("fsdp:d8", scheduling_strategy=strategy(type="colocation",
                               target="actor"))
result = [a.world_size, a.parallel.world_size]
"""
    answers = areal("switched", script)
    assert answers == {"areal.api.alloc_mode": [0, 8], "areal_conf": [8, 8]}
    shared = SchedulingStrategy("colocation", "actor")
    assert ModelAllocation.from_str("fsdp:d8", scheduling_strategy=shared).gpus == 0
    assert "colocated" in DOCS.read_text()
