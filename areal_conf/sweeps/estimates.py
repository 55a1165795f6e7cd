"""What the estimates say of one job of a sweep: memory of its engines, and time of its step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from areal_conf.errors import AllocationError
from areal_conf.estimate.ranges import Verdict
from areal_conf.estimate.serving import ServingMemory
from areal_conf.sweeps.step_time import training_time

if TYPE_CHECKING:
    from areal_conf.planning.memory import ExperimentMemory
    from areal_conf.planning.state import ResolvedExperiment


Order = Literal["given", "time", "memory"]

_WORST: tuple[Verdict, ...] = ("fits", "unknown", "may", "no")


@dataclass(frozen=True)
class JobEstimate:
    """One job before it runs.

    Attributes:
        layouts: the canonical spec of each engine that runs, by name.
        gpus: what the job reserves.
        memory: of each engine, as `layouts.json` has it; empty where no card is named.
        verdict: the worst of all engines, and of those that share GPUs; None without a card.
        most: GiB of the fullest GPU, the upper end; None where not known.
        cache: tokens that the caches of the servers hold at least; None without servers.
        time: of a step of the trainers, to compare with another job of the same `kind`.
        kind: what the time may be compared within: backends and GPUs of the trainers.
        shared: the engines on each set of GPUs, and the GiB of one of these, from and to.
    """

    layouts: dict[str, str]
    gpus: int
    memory: dict[str, dict[str, Any]]
    verdict: Verdict | None = None
    most: float | None = None
    cache: float | None = None
    time: float | None = None
    kind: tuple[tuple[str, str, int], ...] = ()
    shared: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, facts: ResolvedExperiment) -> JobEstimate:
        """The estimate of a resolved experiment."""
        engines = [(e, e.allocation) for e in facts.active() if e.allocation is not None]
        layouts = {e.name: str(allocation) for e, allocation in engines}
        kind = tuple((e.name, x.backend, e.world_size) for e, x in engines if _trains(e))
        memory: ExperimentMemory | None = facts.memory
        if memory is None:
            return cls(layouts, facts.total, {}, kind=kind)
        shared = memory.shared
        verdicts = [shared_gpus.verdict for shared_gpus in shared]
        verdicts += [x.memory.verdict if x.memory else "unknown" for x in memory.engines.values()]
        caches = [
            x.memory.cache.tokens[0] * (x.engine.workers or 1)
            for x in memory.engines.values()
            if isinstance(x.memory, ServingMemory) and x.memory.cache is not None
        ]
        return cls(
            layouts,
            facts.total,
            {name: _memory(x, memory.card.usable) for name, x in memory.engines.items()},
            max(verdicts, key=_WORST.index, default="unknown"),
            max((round(x.step[1], 2) for x in shared), default=None),
            sum(caches) if caches else None,
            training_time(facts, memory),
            kind,
            tuple({"engines": list(x.engines), "step": _rounded(x.step)} for x in shared),
        )

    def refusal(self) -> AllocationError | None:
        """AC701, where the job does not fit."""
        if self.verdict != "no":
            return None
        bad = [name for name, one in self.memory.items() if one["verdict"] == "no"]
        who = ", ".join(bad or self.memory)
        step = [one["step"] for name, one in self.memory.items() if name in bad and one["step"]]
        said = f": {step[0][0]:.0f}-{step[0][1]:.0f}" if step else ""
        gpu = next(iter(self.memory.values()))["gpu"]
        message = f"{who} does not fit{said} of {gpu:g} GiB"
        hint = (
            "sweep over larger t, p or d, or give actor.mb_spec.max_tokens_per_mb a smaller value"
        )
        return AllocationError("AC701", message, hint=hint)

    def as_row(self, time: float | None) -> dict[str, Any] | None:
        """The estimate as ``layouts.json`` has it, with a relative time; None without a card."""
        if self.verdict is None:
            return None
        most = None if self.most is None else round(self.most, 2)
        time = None if time is None else round(time, 3)
        kind = [list(one) for one in self.kind]
        return {
            "verdict": self.verdict,
            "most": most,
            "memory": self.memory,
            "shared": list(self.shared),
            "time": time,
            "compare_within": kind,
        }


def _trains(engine: Any) -> bool:
    return not engine.serves and engine.name not in ("ref", "teacher")


def _memory(estimated: Any, gpu: float) -> dict[str, Any]:
    memory = estimated.memory
    if memory is None or memory.step is None:
        return {"verdict": "unknown", "step": None, "gpu": gpu, "why": estimated.why}
    step = _rounded(memory.step)
    return {"verdict": memory.verdict, "step": step, "gpu": gpu}


def _rounded(ends: tuple[float, float]) -> list[float]:
    return [round(end, 2) for end in ends]


def ordered(estimates: Sequence[JobEstimate], order: Order) -> list[int]:
    """The numbers of the jobs, the most promising first.

    By memory: the emptiest GPU first. By time: the fastest first, and of equal ones those whose
    servers hold more; jobs whose times say nothing beside each other (another backend of a trainer,
    another number of its GPUs) take turns, each kind with its best. Unknown ones come last.
    """
    numbers = list(range(len(estimates)))
    if order == "given":
        return numbers
    key = _by_memory if order == "memory" else _by_time
    numbers.sort(key=lambda n: key(estimates[n]))
    return numbers if order == "memory" else _taking_turns(numbers, lambda n: estimates[n].kind)


def _by_memory(estimate: JobEstimate) -> tuple[bool, float]:
    return estimate.most is None, estimate.most or 0.0


def _by_time(estimate: JobEstimate) -> tuple[bool, bool, float, float]:
    time = 0.0 if estimate.time is None else float(f"{estimate.time:.3g}")
    return estimate.time is None, estimate.verdict == "may", time, -(estimate.cache or 0.0)


def _taking_turns(numbers: list[int], kind_of: Callable[[int], object]) -> list[int]:
    kinds: dict[object, list[int]] = {}
    for number in numbers:
        kinds.setdefault(kind_of(number), []).append(number)
    turns = {n: (turn, place) for place, members in enumerate(kinds.values())
             for turn, n in enumerate(members)}  # fmt: skip
    return sorted(numbers, key=turns.__getitem__)
