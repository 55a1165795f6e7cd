"""What of an experiment is open: whose layouts are looked for, on how many GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from areal_conf.config.view import is_unset
from areal_conf.errors import AllocationError
from areal_conf.estimate.cards import Card, read_card
from areal_conf.estimate.timing.areal import Workload
from areal_conf.planning.checks import examine
from areal_conf.planning.memory import engine_keys, needed_tokens
from areal_conf.planning.options import PlanOptions
from areal_conf.planning.rules.models import settings_of
from areal_conf.planning.state import Engine, ResolvedExperiment
from areal_conf.suggest.ranking import TOKENS, USUAL, Subject

TRAINERS = ("fsdp", "megatron", "archon")
SERVER = "sglang"
"""The server that is looked for where the config names none."""

_SHARES = 8
"""Splits of a large cluster: trainers have eighths of its nodes."""


@dataclass(frozen=True)
class Gpus:
    """What there is to run on.

    Attributes:
        nodes: how many nodes.
        per_node: GPUs of each.
        card: what they are, where that is known.
        notes: what was found out about them, in words.
    """

    nodes: int
    per_node: int
    card: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """GPUs in all."""
        return self.nodes * self.per_node

    @classmethod
    def of_count(cls, count: int) -> Gpus:
        """`count` GPUs on nodes of eight, or on one node.

        Raises:
            AllocationError: AC602 where they do not fill nodes of eight.
        """
        if count <= 8:
            return cls(1, count)
        if count % 8:
            raise AllocationError(
                "AC602",
                f"{count} GPUs do not fill nodes of 8",
                text=str(count),
                hint="give a multiple of 8, or cluster.n_nodes and cluster.n_gpus_per_node",
            )
        return cls(count // 8, 8)


@dataclass(frozen=True)
class Open:
    """The experiment with its open engines.

    Attributes:
        cfg: the config, with the cluster in it.
        options: what its plans are held to.
        facts: the experiment resolved, with layouts of one GPU in the open engines.
        gpus: what there is to run on.
        trainer: the training engine whose layout is looked for; None where there is none.
        server: the same of the inference engine.
        shared: whether both have the same GPUs.
        weight: how many engines take the trainer's layout on GPUs of their own.
        fixed: GPUs of engines that are not open.
        set_keys: keys that were set because the config leaves them open, with their values.
        keys: those of all keys that may be set which the config has.
    """

    cfg: DictConfig
    options: PlanOptions
    facts: ResolvedExperiment
    gpus: Gpus
    trainer: Engine | None
    server: Engine | None
    shared: bool
    weight: int
    fixed: int
    set_keys: tuple[tuple[str, Any], ...]
    keys: frozenset[str] = frozenset()

    def splits(self) -> Iterator[tuple[int, int]]:
        """GPUs of the server and of the trainer, servers rising."""
        left = self.gpus.count - self.fixed
        if left <= 0:
            return
        if self.shared or self.trainer is None or self.server is None:
            yield left if self.server else 0, left // self.weight if self.trainer else 0
            return
        unit = self.gpus.per_node if left > self.gpus.per_node else 1
        units = left // unit
        shares = sorted({max(1, round(units * k / _SHARES)) for k in range(1, _SHARES)})
        for servers in shares:
            trainer, odd = divmod(left - servers * unit, self.weight)
            if trainer > 0 and not odd:
                yield servers * unit, trainer

    def subject(self, engine: Engine) -> Subject:
        """What layouts of `engine` are ranked for.

        Raises:
            AllocationError: AC362 where its model is not known.
        """
        estimated = self.facts.memory.engines[engine.name]
        if estimated.facts is None:
            raise AllocationError(
                "AC362",
                f"the model of {engine.name} is not known",
                path=engine.path,
                hint="name it: --model Qwen3-8B, or a config.json",
            )
        return Subject(
            estimated.facts,
            engine_keys(self.facts, engine),
            self.facts.memory.card,
            self.gpus.per_node,
            workload(self.facts),
            settings_of(self.facts.experiment, engine),
        )

    @property
    def batch(self) -> int | None:
        """Sequences of a step that data ranks deal out; None where not said."""
        value = self.facts.experiment.value("train_dataset.batch_size")
        return value if type(value) is int and value > 0 else None

    def with_layouts(self, layouts: dict[str, str]) -> DictConfig:
        """The config with backends of some engines, by config path; the next call changes it."""
        for path, spec in layouts.items():
            OmegaConf.update(self.cfg, path, spec, force_add=True)
        return self.cfg


def workload(facts: ResolvedExperiment) -> Workload:
    """Tokens of one update of the weights, as far as the config says; else `Workload`'s."""
    experiment = facts.experiment
    usual = Workload()
    sequence = needed_tokens(facts) or usual.sequence
    numbers = [
        _number(experiment.value(key), default)
        for key, default in (
            ("train_dataset.batch_size", 0),
            ("gconfig.n_samples", 1),
            ("actor.ppo_n_minibatches", 1),
        )
    ]
    batch, samples, parts = numbers
    tokens = batch * samples * sequence // max(1, parts)
    return replace(usual, sequence=sequence, tokens=tokens or usual.tokens)


def _number(value: Any, default: int) -> int:
    return value if type(value) is int and value > 0 else default


def open_experiment(cfg: DictConfig, options: PlanOptions, gpus: Gpus, *, bare: bool) -> Open:
    """Find what is open in an experiment.

    Args:
        cfg: the composed config.
        options: what its plans are held to.
        gpus: what there is to run on.
        bare: whether no config was named: then what most examples of AReaL set is set too.

    Raises:
        AllocationError: the config cannot be read, or has neither rollout nor actor.
    """
    given, cfg = cfg, cfg.copy()
    facts, _ = examine(cfg, replace(options, gpu=None))
    at = facts.experiment.root.at
    if facts.experiment.allocation_mode:
        raise AllocationError(
            "AC510",
            "the experiment has an allocation_mode, beside which no backend can be suggested",
            path=at("allocation_mode"),
            hint="run areal-conf migrate on the config first",
        )
    values: list[tuple[str, Any]] = [
        (at("cluster.n_nodes"), gpus.nodes),
        (at("cluster.n_gpus_per_node"), gpus.per_node),
    ]
    for name, kind in (("rollout", SERVER), ("actor", TRAINERS[0])):
        engine = facts.engines.get(name)
        if engine is not None and engine.active and engine.allocation is None:
            OmegaConf.update(cfg, engine.path, f"{kind}:d1", force_add=True)
    for path, value in _usual(facts, bare):
        if is_unset(_selected(cfg, path)):
            values.append((path, value))
    for path, value in values:
        OmegaConf.update(cfg, path, value, force_add=True)
    options = replace(options, gpu=card_of(options, gpus, facts))
    facts, _ = examine(cfg, options)
    paths = [path for path, _ in values]
    paths += [e.path for e in facts.engines.values()]
    keys = frozenset(path for path in paths if _has(given, path))
    return replace(_opened(cfg, options, facts, gpus, tuple(values)), keys=keys)


def _usual(facts: ResolvedExperiment, bare: bool) -> Iterator[tuple[str, Any]]:
    """Keys, and the values that most examples of AReaL give them, for a step to be estimated."""
    for name in ("actor", "critic", "ref") if bare else ("actor",):
        engine = facts.engines.get(name)
        if engine is not None and engine.active:
            for key in USUAL if bare and name != "ref" else (TOKENS,):
                yield facts.experiment.root.at(f"{name}.{key}"), USUAL[key]


def _has(cfg: DictConfig, path: str) -> bool:
    """Whether a config has a key, whatever its value."""
    section: Any = cfg
    for part in path.split("."):
        if not isinstance(section, DictConfig) or part not in section.keys():  # noqa: SIM118
            return False
        section = section._get_node(part)
    return True


def _selected(cfg: DictConfig, path: str) -> Any:
    try:
        return OmegaConf.select(cfg, path)
    except Exception:  # whatever an interpolation raises: then it is set, and not ours to change
        return True


def _opened(
    cfg: DictConfig,
    options: PlanOptions,
    facts: ResolvedExperiment,
    gpus: Gpus,
    values: tuple[tuple[str, Any], ...],
) -> Open:
    engines = facts.engines
    trainer = _open_engine(engines.get("actor"), "training")
    server = _open_engine(engines.get("rollout"), "inference")
    if trainer is None and server is None:
        raise AllocationError(
            "AC301",
            "there is neither a rollout nor an actor whose layout could be suggested",
            hint="name a config with these engines, or none: a grpo experiment is then taken",
        )
    heirs = [
        e
        for e in engines.values()
        if trainer is not None and e.active and e.inherited_from == trainer.name and e.gpus
    ]
    others = [
        e for e in engines.values() if e.active and e not in (trainer, server, *heirs) and e.gpus
    ]
    shared = False
    if trainer is not None and server is not None:
        shared = facts.host(trainer).name == facts.host(server).name
    fixed = sum(e.gpus for e in others)
    return Open(cfg, options, facts, gpus, trainer, server, shared, 1 + len(heirs), fixed, values)


def _open_engine(engine: Engine | None, role: str) -> Engine | None:
    if engine is None or not engine.active or engine.section.external or engine.role != role:
        return None
    return engine


def of_config(cfg: Any, root: str = "") -> Gpus | None:
    """The cluster that a config describes; None where it does not say both sizes."""
    from areal_conf.config.experiment import read_experiment
    from areal_conf.config.packages import find_root

    experiment = read_experiment(cfg, find_root(cfg, root))
    if experiment.n_nodes is None or not experiment.n_gpus_per_node:
        return None
    return Gpus(experiment.n_nodes, experiment.n_gpus_per_node)


def card_of(options: PlanOptions, gpus: Gpus, facts: ResolvedExperiment) -> Card:
    """The card that is named, or else the cluster's.

    Raises:
        AllocationError: AC710 where neither is known.
    """
    named = options.gpu if options.gpu is not None else facts.experiment.gpu
    named = gpus.card if named is None else named
    if named is None:
        raise AllocationError(
            "AC710",
            "the card is not known",
            hint="name it: --gpu H100, or its GiB: --gpu 79.1",
        )
    return read_card(named)
