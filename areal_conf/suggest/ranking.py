"""Layouts of one engine, best first: whether each fits, and how long its step takes beside others.

Trainers of one kind are ordered by the relative time of a step, servers by the cache they have
room for. Nothing here orders engines of different kinds, or trainers against servers: no public
figures say how.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from areal_conf.estimate.areal_keys import EngineKeys, training_settings
from areal_conf.estimate.serving import ServingMemory
from areal_conf.estimate.timing.areal import Workload, training_work
from areal_conf.estimate.timing.speed import Speed, speed_of
from areal_conf.estimate.timing.step import StepTime, step_time
from areal_conf.model import Settings, check_model
from areal_conf.model.rules import rules_of

if TYPE_CHECKING:
    from areal_conf.errors import Diagnostic
    from areal_conf.estimate.cards import Card
    from areal_conf.estimate.settings import TrainingSettings
    from areal_conf.estimate.training import TrainingMemory
    from areal_conf.model import ModelFacts
    from areal_conf.spec.allocation import ModelAllocation
    from areal_conf.spec.backends import Sizes

EQUAL = 1.05
"""Times, or rooms, whose ratio is under this are about equal: the estimate knows no better."""

TOKENS = "mb_spec.max_tokens_per_mb"

USUAL: dict[str, Any] = {TOKENS: 10240, "gradient_checkpointing": True}
"""What most of AReaL's example configs set (examples/, 65 and 49 of them), where no config says."""

USUAL_WORDS = (
    "no config says otherwise: mb_spec.max_tokens_per_mb 10240 and gradient_checkpointing true",
)


@dataclass(frozen=True)
class Ranked:
    """One layout of one engine.

    Attributes:
        allocation: the layout.
        memory: of one GPU; None without a card.
        time: parts of a step; None for servers and where it cannot be estimated.
        relative: `time.total` beside that of `fastest`; None as `time`.
        fastest: of the same kind, among those that fit or may fit; None as `time`.
        warnings: what the model's rules say about it.
    """

    allocation: ModelAllocation
    memory: TrainingMemory | ServingMemory | None = None
    time: StepTime | None = None
    relative: float | None = None
    fastest: Ranked | None = field(default=None, repr=False)
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def verdict(self) -> str:
        """``fits``, ``may``, ``no`` or ``unknown``."""
        return "unknown" if self.memory is None else self.memory.verdict


@dataclass
class LeftOut:
    """How many layouts were left out, by the code of what is wrong with them."""

    codes: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Subject:
    """What layouts are ranked for.

    Attributes:
        facts: of the model.
        keys: what the engine's config says.
        card: the accelerator; None: no verdicts.
        gpus_per_node: GPUs of a node.
        workload: what a step has to do.
        settings: what the model's rules ask of the config.
    """

    facts: ModelFacts
    keys: EngineKeys
    card: Card | None = None
    gpus_per_node: int = 8
    workload: Workload = field(default_factory=Workload)
    settings: Settings = field(default_factory=Settings)
    _settings: dict[tuple[str, bool, int, bool], TrainingSettings] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def speed(self) -> Speed:
        """Of the card; of an A100 where there is none: ratios differ little."""
        from areal_conf.estimate.cards import CARDS

        return speed_of(self.card or CARDS["A100-80GB"], self.gpus_per_node)

    def memory(self, allocation: ModelAllocation) -> TrainingMemory | ServingMemory | None:
        """The estimate of one layout."""
        if self.card is None:
            return None
        return self.keys.memory(allocation, self.facts, self.card.usable)

    def time(self, allocation: ModelAllocation, speed: Speed) -> StepTime | None:
        """The time of one layout of a trainer."""
        backend, sizes = allocation.backend, allocation.parallel.sizes
        # All that settings depend on of a layout; thousands of layouts share a few.
        key = (backend, sizes.t > 1, sizes.p, sizes.world > 1)
        settings = self._settings.get(key)
        if settings is None:
            settings = training_settings(backend, sizes, self.keys.keys, self.keys.version)
            self._settings[key] = settings
        work = training_work(backend, sizes, settings, self.workload)
        return step_time(sizes, self.facts, work, speed)

    def warnings(self, allocation: ModelAllocation) -> tuple[Diagnostic, ...]:
        """What the model's rules find, as far as it stops nothing."""
        found = check_model(allocation, self.facts, settings=self.settings)
        return tuple(finding for finding in found if finding.severity == "warning")


def usual_keys(version: tuple[int, ...]) -> EngineKeys:
    """Keys of an engine that no config describes: `USUAL`."""
    return EngineKeys(USUAL.get, version)


def that_run(
    allocations: Iterable[ModelAllocation], subject: Subject, left_out: LeftOut
) -> Iterator[ModelAllocation]:
    """The layouts that the model takes; the others are counted."""
    facts, settings = subject.facts, subject.settings
    for allocation in allocations:
        sizes = allocation.parallel.sizes
        code = _broken(allocation.backend, sizes, facts, settings)
        if code is None:
            yield allocation
        else:
            left_out.codes[code] += 1


def _broken(backend: str, sizes: Sizes, facts: ModelFacts, settings: Settings) -> str | None:
    for rule in rules_of(backend, facts):
        if rule.severity == "error" and rule.broken(sizes, facts, settings):
            return rule.code
    return None


def rank(
    allocations: Iterable[ModelAllocation], subject: Subject, left_out: LeftOut
) -> list[Ranked]:
    """`rank_servers` or `rank_trainers`, by the role of the first layout, with warnings."""
    found = list(allocations)
    serves = bool(found) and found[0].role == "inference"
    ranking = rank_servers if serves else rank_trainers
    return with_warnings(ranking(found, subject, left_out), subject)


def rank_trainers(
    allocations: Iterable[ModelAllocation],
    subject: Subject,
    left_out: LeftOut | None = None,
    most: int | None = None,
) -> list[Ranked]:
    """Layouts of one training engine, the fastest that fits first.

    Args:
        allocations: layouts of one backend and one number of GPUs.
        subject: what they are ranked for.
        left_out: counts layouts that do not fit (AC701), which are then left out; None: keep them,
            last.
        most: look at the memory of no more than that many layouts that fit; slower ones are not
            counted then.
    """
    speed = subject.speed
    timed = [Ranked(x, time=subject.time(x, speed)) for x in allocations]
    timed.sort(key=_by_time)
    kept: list[Ranked] = []
    refused: list[Ranked] = []
    for ranked in timed:
        found = replace(ranked, memory=subject.memory(ranked.allocation))
        if found.verdict != "no":
            kept.append(found)
        elif left_out is None:
            refused.append(found)
        else:
            left_out.codes["AC701"] += 1
        if most is not None and sum(x.verdict == "fits" for x in kept) >= most:
            break
    kept.sort(key=lambda x: (x.verdict == "may", *_by_time(x)))
    return _relative([*kept, *refused])


def _by_time(ranked: Ranked) -> tuple[float, int, int, int]:
    """By time; of equal ones the one with the fewest splits."""
    sizes = ranked.allocation.parallel.sizes
    seconds = float("inf") if ranked.time is None else float(f"{ranked.time.total:.5g}")
    return seconds, sizes.c, sizes.p, sizes.t


def _relative(ranked: list[Ranked]) -> list[Ranked]:
    timed = [x for x in ranked if x.time is not None]
    fitting = [x for x in timed if x.verdict != "no"]
    best = min(fitting or timed, key=_by_time, default=None)
    return [replace(x, relative=_ratio(x, best), fastest=best if x.time else None) for x in ranked]


def _ratio(one: Ranked, best: Ranked | None) -> float | None:
    if best is None or best.time is None or one.time is None or not best.time.total:
        return None
    return one.time.total / best.time.total


def with_warnings(ranked: Iterable[Ranked], subject: Subject) -> list[Ranked]:
    """The same, with what the model's rules say of each."""
    return [replace(x, warnings=subject.warnings(x.allocation)) for x in ranked]


def rank_servers(
    allocations: Iterable[ModelAllocation], subject: Subject, left_out: LeftOut | None = None
) -> list[Ranked]:
    """Layouts of one kind of server, by cache room a GPU and requests at once.

    Rooms within 5 per cent of each other are about equal: of those the smallest instance is first,
    since its GPUs talk least.

    Args:
        allocations: layouts of one backend and one number of GPUs.
        subject: what they are ranked for.
        left_out: as in `rank_trainers`.
    """
    ranked = [Ranked(x, subject.memory(x)) for x in allocations]
    if left_out is not None:
        left_out.codes["AC704"] += sum(x.verdict == "no" for x in ranked)
        ranked = [x for x in ranked if x.verdict != "no"]
    most = max((cached_tokens(x) for x in ranked), default=0.0)
    return sorted(ranked, key=lambda x: _by_room(x, most))


def _by_room(ranked: Ranked, most: float) -> tuple[bool, bool, float, int, int]:
    sizes = ranked.allocation.parallel.sizes
    tokens = cached_tokens(ranked)
    equal = tokens * EQUAL >= most
    instance = float(sizes.t * sizes.p)
    return ranked.verdict == "no", not equal, instance if equal else -tokens, sizes.p, sizes.t


def cached_tokens(ranked: Ranked) -> float:
    """Tokens that the caches of all instances hold, at least; 0 where that is not known.

    What key/value heads on several GPUs take twice counts once.
    """
    if not isinstance(ranked.memory, ServingMemory) or ranked.memory.cache is None:
        return 0.0
    return max(0.0, ranked.memory.cache.tokens[0]) * ranked.allocation.parallel.sizes.d


def requests_at_once(ranked: Ranked) -> int | None:
    """Full-length requests that all instances hold at once, at least; None where not known."""
    if not isinstance(ranked.memory, ServingMemory) or ranked.memory.cache is None:
        return None
    requests = ranked.memory.cache.requests
    return None if requests is None else int(requests[0]) * ranked.allocation.parallel.sizes.d
