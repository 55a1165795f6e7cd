"""A config read as plain mappings says what it says as a DictConfig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from paths import CASES

from areal_conf.config.experiment import read_experiment
from areal_conf.config.tree import Source
from areal_conf.planning.checks import check_only, first_error

EXAMPLES = CASES / "areal-examples"
CONFIG: dict[str, Any] = {
    "trial_name": "t",
    "nodes": 2,
    "cluster": {"n_nodes": "${nodes}", "n_gpus_per_node": "${oc.decode:'8'}"},
    "rollout": {"backend": "sglang:d4t2", "scheduling_spec": [{"gpu": 1, "cpu": "${cpus}"}]},
    "actor": {"backend": "fsdp:d8", "kl_ctl": 0.1, "scheduling_spec": "${rollout.scheduling_spec}"},
    "ref": {"backend": "${actor.backend}", "scheduling_strategy": "${colocated}"},
    "colocated": {"type": "colocation", "target": "actor"},
    "cpus": 4,
    "secret": "${oc.env:NO_SUCH_VARIABLE_HERE}",
}


def config() -> DictConfig:
    return OmegaConf.create(CONFIG)


def described(cfg: Any) -> list[str]:
    return [f"{one.severity} {one.describe()}" for one in check_only(cfg)]


def source(cfg: DictConfig) -> Source:
    return Source(cfg.copy())


def test_same_findings() -> None:
    assert described(source(config()).tree) == described(config())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_same_findings_in_examples(path: Path) -> None:
    cfg = OmegaConf.load(path)
    assert isinstance(cfg, DictConfig)
    assert described(source(cfg).tree) == described(cfg)
    _, error = first_error(read_experiment(cfg))
    errors = [one.describe() for one in check_only(cfg) if one.severity == "error"]
    assert [str(error)] * bool(error) == errors[:1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor.backend", "fsdp:d16"),
        ("actor.backend", "nonsense"),
        ("ref.backend", "${rollout.backend}"),
        ("ref.backend", "${nowhere}"),
        ("ref.backend", "${oc.select:nowhere,'fsdp:d2'}"),
        ("nodes", 1),
        ("cluster.n_gpus_per_node", "${oc.decode:'4'}"),
        ("critic.backend", "fsdp:d8"),
        ("judge.backend", "sglang:d1"),
        ("colocated.target", "critic"),
        ("actor.scheduling_spec", None),
    ],
)
def test_set_values_count(key: str, value: Any) -> None:
    base = source(config())
    place = base.place(tuple(key.split(".")))
    assert place is not None
    described(base.tree)
    place.set(value)
    cfg = config()
    OmegaConf.update(cfg, key, value, force_add=True)
    assert described(base.tree) == described(cfg)


def test_what_was_read() -> None:
    base = source(OmegaConf.create({**CONFIG, "cluster": {"n_nodes": "${nodes}"}}))
    places = {
        key: base.place(tuple(key.split(".")))
        for key in ("seed", "nodes", "actor.backend", "actor.optimizer.lr", "judge.backend")
    }
    described(base.tree)
    read = {key for key, place in places.items() if place is not None and place.was_read()}
    assert read == {"nodes", "actor.backend", "judge.backend"}


def test_no_place_below_a_list_or_a_value() -> None:
    base = source(config())
    assert base.place(("rollout", "scheduling_spec", "0", "gpu")) is None
    assert base.place(("trial_name", "x")) is None
    assert base.place(("actor", "scheduling_spec", "gpu")) is None
