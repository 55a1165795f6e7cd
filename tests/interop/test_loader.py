"""AReaL's own loader: on what `to_areal` writes, and beside this package's stand-in for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from paths import CASES

from areal_conf import to_areal
from areal_conf.config.compose import compose_file

from .conftest import ArealSide
from .jobs import NAMES, write

EXAMPLES = CASES / "areal-examples"
ON_ACTOR = {"type": "colocation", "target": "actor"}
ENGINE = {"path": "x", **NAMES}
MEGATRON = "megatron[actor]:attn:d4t2|ffn:t2e2"
CRITIC = {**ENGINE, "backend": "", "is_critic": True, "scheduling_strategy": ON_ACTOR}
REF = {**ENGINE, "backend": "", "scheduling_strategy": ON_ACTOR}
CLUSTER = {"n_nodes": 2, "n_gpus_per_node": 8}

CONFIGS: dict[str, dict[str, Any]] = {
    "PPOConfig": {
        "rollout": {**NAMES, "backend": "sglang:d8c1"},
        "actor": {**ENGINE, "backend": MEGATRON},
        "critic": CRITIC,
        "ref": REF,
        "gconfig": {"max_new_tokens": 8},
    },
    "SFTConfig": {"actor": {**ENGINE, "backend": "fsdp:d8p1t1"}},
    "RWConfig": {"actor": {**ENGINE, "backend": "archon:attn:d4t2|ffn:t2e2", "is_critic": True}},
    "DPOConfig": {"actor": {**ENGINE, "backend": "fsdp:d4c2"}, "ref": REF},
}


def config(folder: Path, cls: str) -> Path:
    file = write(folder, **CONFIGS[cls], scheduler={"type": "local"})
    content = yaml.safe_load(file.read_text())
    content["cluster"] |= CLUSTER
    del content["behave"]  # no key of AReaL
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.parametrize("cls", CONFIGS)
def test_what_is_exported_loads(areal: ArealSide, tmp_path: Path, cls: str) -> None:
    exported = to_areal(compose_file(config(tmp_path, cls)))
    written = tmp_path / "exported.yaml"
    written.write_text(OmegaConf.to_yaml(exported))
    loaded = areal("load", ["--config", str(written)], cls)
    assert "error" not in loaded, loaded
    backends = loaded["backends"]
    assert backends["actor"] == exported.actor.backend
    for name in ("critic", "ref"):
        if backends.get(name) is not None:
            assert backends[name] == backends["actor"]
    assert all("error" not in answer for answer in areal("parse", list(backends.values())))


@pytest.mark.parametrize("cls", CONFIGS)
def test_the_stand_in_loads_what_areals_loader_cannot(
    areal: ArealSide, tmp_path: Path, cls: str
) -> None:
    """Overrides as typed, inheritance, strings that AReaL's parser lacks."""
    file = config(tmp_path, cls)
    argv = ["train.py", "--config", str(file), "actor.backend=megatron:(attn:d4t2|ffn:t2e2)"]
    assert "error" in areal("load", argv, cls)
    loaded = areal("load_ours", argv, cls)
    assert loaded.get("file") == str(file), loaded
    assert loaded["backends"]["actor"] == "megatron:(attn:d4t2|ffn:t2e2)"
    wrong = areal("load_ours", [*argv[:-1], "actor.backend=fsdp:d4e2"], cls)
    assert "AC104" in wrong["error"]


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="needs the example files of AReaL")
def test_every_example_that_areal_takes(areal: ArealSide, tmp_path: Path) -> None:
    taken = []
    for file in sorted(EXAMPLES.glob("*.yaml")):
        cls = "SFTConfig" if "sft" in file.name else "RWConfig" if "_rw" in file.name else None
        keys = yaml.safe_load(file.read_text())
        words = [f"cluster.fileroot={tmp_path}"] if "cluster" in keys else []
        argv = ["--config", str(file), *words]
        theirs = areal("load", argv, cls or "PPOConfig")
        if "error" not in theirs:
            taken.append(file.name)
            assert areal("load_ours", argv, cls or "PPOConfig") == theirs, file.name
    assert len(taken) > 10, taken
