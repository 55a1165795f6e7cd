"""Whole experiments to try: for each split of the GPUs the best layouts that fit, with reasons."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from areal_conf.config.overrides import without_parentheses
from areal_conf.planning.result import Plan, planned
from areal_conf.search_space import layouts
from areal_conf.spec.backends import BACKENDS
from areal_conf.suggest.experiment import SERVER, TRAINERS, Gpus, Open, open_experiment
from areal_conf.suggest.ranking import (
    EQUAL,
    LeftOut,
    Ranked,
    Subject,
    rank_servers,
    rank_trainers,
    requests_at_once,
    that_run,
    with_warnings,
)
from areal_conf.suggest.result import Suggestion, Suggestions, time_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.planning.options import PlanOptions
    from areal_conf.planning.state import Engine

_OTHER_SERVERS = 2
"""Layouts of the servers beside the best one that a split shows."""

NOT_ORDERED = (
    "servers against trainers: which side needs more GPUs depends on how long answers are; "
    "sweep over the splits",
    "one training engine against another: times are relative within one engine and one split; "
    "sweep over the engines",
    "sglang against vllm: both have the same room for a cache; sweep over both",
)


def suggest(
    cfg: DictConfig, options: PlanOptions, gpus: Gpus, top: int = 5, *, bare: bool = False
) -> Suggestions:
    """The layouts to try first.

    Args:
        cfg: the composed config.
        options: what plans are held to; the card in it, or else that of `gpus`, is estimated for.
        gpus: what there is to run on.
        top: how many suggestions each split has at most.
        bare: whether `cfg` is the package's own experiment, that says nothing about the user's.

    Raises:
        AllocationError: the config cannot be read; no card or model is known; nothing is open.
    """
    opened = open_experiment(cfg, options, gpus, bare=bare)
    search = _Search(opened, top)
    found = [suggestion for split in search.splits() for suggestion in search.split(*split)]
    return Suggestions(
        suggestions=found,
        left_out={code: n for code, n in sorted(search.left_out.codes.items()) if n},
        unknown=[*search.unknown(), *gpus.notes],
    )


class _Search:
    """What all splits of one experiment share."""

    def __init__(self, opened: Open, top: int) -> None:
        self.opened = opened
        self.top = top
        self.left_out = LeftOut()
        self.trains = opened.subject(opened.trainer) if opened.trainer else None
        self.serves = opened.subject(opened.server) if opened.server else None
        self._notes: dict[str, None] = {}
        self._trainers: dict[int, list[Ranked]] = {}

    def unknown(self) -> list[str]:
        """What the estimates could not take into account, and what they do not order."""
        opened = self.opened
        notes = [*self._notes]
        notes += [f"assumed: {path} {value}" for path, value in opened.set_keys[2:]]
        for subject, engine in ((self.trains, opened.trainer), (self.serves, opened.server)):
            if subject is not None and engine is not None and subject.facts.experts:
                notes.append(f"{engine.name}: experts are taken to be used alike; times are rough")
        ordered = [*NOT_ORDERED]
        if opened.trainer is None or opened.server is None:
            del ordered[0]
        if opened.server is None:
            del ordered[-1]
        return [*notes, *(f"not ordered: {text}" for text in ordered)]

    def splits(self) -> list[tuple[int, int]]:
        """The splits, without those whose trainers no engine makes faster than fewer GPUs do.

        Seven GPUs that a batch of 256 cannot be dealt to are worse than four, which also leave more
        GPUs to the servers. That compares one engine with itself.
        """
        splits = [*self.opened.splits()]
        if not splits:
            there = self.opened.gpus.count
            self._notes[f"{there} GPUs leave no split between servers and trainers"] = None
        kept: list[tuple[int, int]] = []
        fastest: dict[str, float] = {}
        for servers, trainers in sorted(splits, key=lambda split: split[1]):
            best = self.fastest(trainers) if trainers else {}
            if best and not any(
                seconds < fastest.get(kind, math.inf) for kind, seconds in best.items()
            ):
                self._notes[
                    f"not shown: {servers} + {trainers} GPUs: no trainer is faster than on fewer"
                ] = None
                continue
            fastest.update({k: min(x, fastest.get(k, math.inf)) for k, x in best.items()})
            kept.append((servers, trainers))
        return sorted(kept)

    def fastest(self, gpus: int) -> dict[str, float]:
        """Estimated seconds of the fastest trainer of each kind that fits."""
        best: dict[str, float] = {}
        for ranked in self.trainers(gpus):
            if ranked.time is not None:
                kind, seconds = ranked.allocation.backend, ranked.time.total
                best[kind] = min(seconds, best.get(kind, math.inf))
        return best

    def split(self, servers: int, trainers: int) -> Iterator[Suggestion]:
        """The suggestions of one split: trainers with the best server, then other servers."""
        of_servers = self.servers(servers) if servers else []
        of_trainers = self.trainers(trainers) if trainers else []
        if (servers and not of_servers) or (trainers and not of_trainers):
            return
        pairs: list[tuple[Ranked | None, Ranked | None]] = []
        if not of_trainers:
            pairs += [(server, None) for server in of_servers]
        elif not of_servers:
            pairs += [(None, trainer) for trainer in of_trainers]
        else:
            others = of_servers[1 : 1 + min(_OTHER_SERVERS, max(0, self.top - 2))]
            first = of_trainers[: max(1, self.top - len(others))]
            pairs += [(of_servers[0], trainer) for trainer in first]
            pairs += [(server, of_trainers[0]) for server in others]
            pairs += [(of_servers[0], trainer) for trainer in of_trainers[len(first) :]]
        given = 0
        for server, trainer in pairs:
            made = self.suggestion(server, trainer)
            if made is not None:
                yield made
                given += 1
            if given >= self.top:
                return

    def servers(self, gpus: int) -> list[Ranked]:
        """Servers of one number of GPUs, best first; with pipelines only where none fits else."""
        engine, subject = self.opened.server, self.serves
        assert engine is not None
        assert subject is not None
        kind = engine.allocation.backend if engine.allocation else SERVER
        for pattern in (f"{kind}:d*t*", f"{kind}:d*t*p*"):
            found = that_run(layouts(pattern, gpus), subject, self.left_out)
            ranked = rank_servers(found, subject, self.left_out)
            if ranked:
                return with_warnings(ranked[: self.top], subject)
        return []

    def trainers(self, gpus: int) -> list[Ranked]:
        """Trainers of one number of GPUs: the best of each kind in turn, the config's kind first.

        The kinds themselves are not ordered.
        """
        if gpus in self._trainers:
            return self._trainers[gpus]
        engine, subject = self.opened.trainer, self.trains
        assert engine is not None
        assert subject is not None
        own = engine.allocation.backend if engine.allocation else TRAINERS[0]
        kinds = [own, *(kind for kind in TRAINERS if kind != own)]
        ranked = [self.of_kind(kind, gpus, subject) for kind in kinds]
        found = [one for row in zip_longest(*ranked) for one in row if one is not None]
        self._trainers[gpus] = found
        return found

    def of_kind(self, kind: str, gpus: int, subject: Subject) -> list[Ranked]:
        """The best trainers of one kind."""
        dims = BACKENDS[kind].dims if subject.facts.experts else BACKENDS[kind].dims.rstrip("e")
        pattern = f"{kind}:{''.join(f'{letter}*' for letter in dims)}"
        found = list(that_run(layouts(pattern, gpus), subject, self.left_out))
        batch = self.opened.batch
        if batch is not None:
            whole = [x for x in found if batch % x.parallel.sizes.d == 0]
            self.left_out.codes["AC353"] += len(found) - len(whole)
            found = whole
        ranked = rank_trainers(found, subject, self.left_out, most=self.top + 1)
        return with_warnings(ranked[: self.top], subject)

    def suggestion(self, server: Ranked | None, trainer: Ranked | None) -> Suggestion | None:
        """The whole experiment with these layouts; None where its plan fails or does not fit."""
        chosen: dict[str, Ranked] = {}
        for engine, ranked in ((self.opened.server, server), (self.opened.trainer, trainer)):
            if engine is not None and ranked is not None:
                chosen[engine.path] = ranked
        specs = {path: without_parentheses(str(x.allocation)) for path, x in chosen.items()}
        plan = planned(self.opened.with_layouts(specs), self.opened.options)
        if not plan.ok:
            self.left_out.codes[plan.errors[0].code] += 1
            return None
        if plan.memory and any(shared.verdict == "no" for shared in plan.memory.gpus):
            self.left_out.codes["AC701"] += 1
            return None
        return Suggestion(
            overrides=self.overrides(specs),
            engines=self.engines(plan, trainer),
            time=None if trainer is None else _rounded(trainer.relative),
            reasons=_reasons(server, trainer, plan, self.opened.gpus.per_node),
        )

    def overrides(self, specs: dict[str, str]) -> list[str]:
        """What makes the config this suggestion, ``++`` where it has no such key."""
        values = {**specs, **dict(self.opened.set_keys)}
        return [f"{self._prefix(path)}{path}={_value(value)}" for path, value in values.items()]

    def _prefix(self, path: str) -> str:
        return "" if path in self.opened.keys else "++"

    def engines(self, plan: Plan, trainer: Ranked | None) -> dict[str, dict[str, Any]]:
        """The engines as in a plan, with the time of the trainer."""
        engines: dict[str, dict[str, Any]] = plan.model_dump(mode="json")["engines"]
        opened: Engine | None = self.opened.trainer
        for name, engine in plan.engines.items():
            if engine.memory is not None:
                self._notes.update(dict.fromkeys(f"{name}: {x}" for x in engine.memory.unknown))
        if opened is not None and trainer is not None:
            engines[opened.name]["time"] = time_of(trainer)
        return engines


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _reasons(server: Ranked | None, trainer: Ranked | None, plan: Plan, per_node: int) -> list[str]:
    reasons = [*_server_reasons(server), *_trainer_reasons(trainer, per_node)]
    ranked = [x for x in (server, trainer) if x is not None]
    reasons += [f"{x.code}: {x.message}" for one in ranked for x in one.warnings]
    for shared in plan.memory.gpus if plan.memory else ():
        low, high = math.floor(shared.step[0]), math.ceil(shared.step[1])
        names = " and ".join(shared.engines)
        verdict = {"fits": "", "may": ", may not fit"}.get(shared.verdict, "")
        reasons.append(f"{names}: {low}-{high} of {plan.memory.gpu:.0f} GiB{verdict}")  # type: ignore[union-attr]
    return reasons


def _server_reasons(server: Ranked | None) -> Iterator[str]:
    if server is None:
        return
    requests = requests_at_once(server)
    if requests is not None:
        yield f"servers hold {requests:,} full-length requests at once"


def _trainer_reasons(trainer: Ranked | None, per_node: int) -> Iterator[str]:
    if trainer is None or trainer.time is None or trainer.relative is None:
        return
    time, sizes = trainer.time, trainer.allocation.parallel.sizes
    kind = trainer.allocation.backend
    rough = " (rough: experts over ranks)" if time.rough else ""
    if trainer.relative <= 1:
        yield f"the fastest {kind} of this split{rough}"
    elif trainer.relative < EQUAL:
        yield f"about as fast as the fastest {kind} of this split{rough}"
    else:
        slower = 100 * (trainer.relative - 1)
        yield f"{slower:.0f} % slower than {_named(trainer.fastest)}{rough}"
    if sizes.p > 1:
        yield f"pipeline: {_share(time.pipeline, time.total)} of a step is bubble and sends"
    if sizes.t > 1:
        where = "inside a node" if sizes.t <= per_node else "over nodes"
        yield f"tensor groups of {sizes.t} {where}: {_share(time.tensor, time.total)}"
    if sizes.c > 1:
        yield f"context groups of {sizes.c}: {_share(time.context, time.total)}"
    if sizes.e > 1:
        yield f"experts over {sizes.e} ranks: {_share(time.experts, time.total)}"
    if time.data > 0.05 * time.total:
        yield f"traffic between data ranks: {_share(time.data, time.total)} of a step"


def _named(fastest: Ranked | None) -> str:
    """The layout that others of its kind and split are slower than."""
    assert fastest is not None
    doubt = ", which may not fit" if fastest.verdict == "may" else ""
    return f"{fastest.allocation}, the fastest {fastest.allocation.backend} of this split{doubt}"


def _share(part: float, total: float) -> str:
    return f"{100 * part / total:.0f} %"
