"""AReaL's own loader takes what ``areal-conf init`` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from areal_conf.areal.starter import start
from areal_conf.areal.starter_text import ENGINES, starter_config

from .conftest import ArealSide

CLASSES = {"ppo": "PPOConfig", "sft": "SFTConfig", "rw": "RWConfig", "dpo": "DPOConfig"}


@pytest.mark.parametrize("model", ["Qwen2.5-1.5B", "Qwen3-8B", "Qwen3-30B-A3B"])
@pytest.mark.parametrize("kind", ENGINES)
def test_the_first_config_loads(areal: ArealSide, tmp_path: Path, kind: str, model: str) -> None:
    begun = start(kind, model, "H100", 4, 8, "slurm")
    file = tmp_path / "first.yaml"
    file.write_text(starter_config(begun))
    words = ["--config", str(file), f"cluster.fileroot={tmp_path}"]
    loaded = areal("load", words, CLASSES.get(kind, "GRPOConfig"))
    assert "error" not in loaded, loaded
    assert loaded["backends"]["actor"] == begun.backends["actor"]
