"""The structured experiments: typed fields in mappings that are open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from areal_conf import AllocationError, plan
from areal_conf.config.structured import EXPERIMENTS, build


@dataclass
class Actor:
    backend: str = "fsdp:d8"
    scheduling_strategy: Any = None


@dataclass
class App:
    actor: Actor = field(default_factory=Actor)
    lr: float = 0.1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_fields_keep_their_types_under_an_apps_struct_flag(name: str) -> None:
    cfg = build(name)
    OmegaConf.set_struct(cfg, True)  # what Hydra does to a composed config
    cfg.actor.path = "some/model"
    cfg.actor.scheduling_strategy.group = 1
    for key, value in {
        "actor.backend": ["fsdp:d8"],
        "actor.scheduling_strategy.fork": "perhaps",
        "cluster.n_nodes": "many",
        "scheduler.type": {},
    }.items():
        with pytest.raises(OmegaConfBaseException):
            OmegaConf.update(cfg, key, value)


def test_a_section_can_be_null() -> None:
    cfg = build("ppo")
    cfg.critic = None
    cfg.rollout.backend, cfg.actor.backend = "sglang:d8", "fsdp:d8"
    made = plan(cfg)
    assert made.ok
    assert "critic" not in made.engines


def test_a_strategy_that_is_no_mapping_is_told_by_the_plan() -> None:
    cfg = build("sft")
    cfg.actor.backend, cfg.actor.scheduling_strategy = "fsdp:d8", "colocation"
    with pytest.raises(AllocationError) as told:
        plan(cfg).raise_for_errors()
    assert (told.value.code, told.value.path) == ("AC309", "actor.scheduling_strategy")


def test_merges_with_dataclasses_of_an_app() -> None:
    merged = OmegaConf.merge(build("sft"), OmegaConf.structured(App))
    assert merged.actor.backend == "fsdp:d8"
    assert merged.lr == 0.1
    section = OmegaConf.merge(build("sft"), {"actor": OmegaConf.structured(Actor)})
    assert section.actor.backend == "fsdp:d8"
