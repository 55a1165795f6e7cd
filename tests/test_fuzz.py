"""The inputs that fuzzing keeps: seeds, and every one that once found a fault (fuzz/corpus)."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "fuzz"))
import targets

INPUTS = sorted(path for path in targets.CORPUS.glob("*/*"))
_SLOWEST = 1.0
"""Seconds of the processor for one input; they take milliseconds."""


@pytest.mark.parametrize("path", INPUTS, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_every_input_is_read_or_refused(path: Path) -> None:
    start = time.process_time()
    targets.run(path.parent.name, path.read_bytes())
    assert time.process_time() - start < _SLOWEST


def test_every_target_has_a_corpus() -> None:
    assert {path.parent.name for path in INPUTS} == set(targets.TARGETS)


def test_the_search_counts_the_branches_of_what_the_targets_call() -> None:
    modules = targets.modules()
    assert {"areal_conf.spec.grammar", "areal_conf.legacy.dialects"} <= set(modules)
    for name in modules:
        importlib.import_module(name)
