"""Configs in which ten values come from ``areal.*`` resolvers: composed, and resolved.

What composing takes longer than with plain values is OmegaConf's own: it parses every interpolation
when it is assigned, whoever's it is. None of our functions is called.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from measure import Effort, Row, compare
from omegaconf import OmegaConf

from areal_conf import resolvers

TITLE = "A config with ten `areal.*` interpolations"
BACKEND = "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)"
NAMES = ("dp", "tp", "pp", "cp", "ep", "etp", "edp", "world_size", "backend", "canonical")
PLAIN = "the same with plain values"
OWN = "ten values from OmegaConf's own `oc.env`"
BUILT_IN = "${oc.env:AREAL_CONF_IS_NOT_SET,${actor.backend}}"


def config(values: dict[str, Any]) -> Any:
    """An actor, and ten values that may be read from it."""
    return OmegaConf.create({"actor": {"backend": BACKEND}, "values": values})


@contextmanager
def configs() -> Iterator[dict[str, Any]]:
    """The config with our resolvers, with plain values and with OmegaConf's own resolver, by name.

    Inside, `hydra.compose` finds them under these names, and as ``NAME_experiment`` the same on top
    of a whole experiment.
    """
    resolvers.register()
    areal = config({name: f"${{areal.{name}:${{actor.backend}}}}" for name in NAMES})
    plain = OmegaConf.create(OmegaConf.to_container(areal, resolve=True))
    made = {"areal": areal, "plain": plain, "own": config(dict.fromkeys(NAMES, BUILT_IN))}
    with tempfile.TemporaryDirectory() as directory:
        for name, cfg in made.items():
            OmegaConf.save(cfg, Path(directory, f"{name}.yaml"))
            defaults = f"defaults: [areal/experiment: grpo, {name}, _self_]\n"
            Path(directory, f"{name}_experiment.yaml").write_text(defaults, encoding="utf-8")
        with initialize_config_dir(directory, version_base="1.3"):
            yield made


def rows(effort: Effort) -> Iterator[Row]:
    """Composed against plain values; against a resolver of OmegaConf's own, and read."""
    pairs = replace(effort, pairs=4 * effort.pairs, seconds=0)  # a small difference of long calls
    with configs() as made:
        for what, ours, peer_name, theirs, bar in (
            ("an experiment", "areal_experiment", PLAIN, "plain_experiment", 1.05),
            ("these values alone", "areal", PLAIN, "plain", None),
            ("these values alone", "areal", OWN, "own", None),
        ):
            yield compare(
                f"`hydra.compose` of {what}",
                partial(compose, ours),
                peer_name,
                partial(partial, compose, theirs),
                pairs,
                most_times=bar,
            )
        yield compare(
            "reading the ten values",
            partial(OmegaConf.to_container, made["areal"], resolve=True),
            OWN,
            lambda: partial(OmegaConf.to_container, made["own"], resolve=True),
            effort,
        )


def here() -> None:
    """For the memory: composed and read."""
    with configs():
        OmegaConf.to_container(compose("areal"), resolve=True)


def peer() -> None:
    """The same with plain values, and nothing of the package."""
    OmegaConf.to_container(config(dict.fromkeys(NAMES, 1)), resolve=True)
    with tempfile.TemporaryDirectory() as directory:
        OmegaConf.save(config(dict.fromkeys(NAMES, 1)), Path(directory, "plain.yaml"))
        with initialize_config_dir(directory, version_base="1.3"):
            OmegaConf.to_container(compose("plain"), resolve=True)
