"""Sweeps over layouts: every combination that a sweep means, and which of them can run.

A combination is planned before anything is composed for it. The config is composed once for each
distinct choice of config groups; values are then set in place (`areal_conf.config.tree`), and a
plan that looked at none of the values that changed is not made again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from areal_conf.config.overrides import for_hydra
from areal_conf.config.tree import Place, Source
from areal_conf.errors import AllocationError, clip, counted
from areal_conf.estimate.cards import read_card
from areal_conf.model import read_model
from areal_conf.planning.options import PlanOptions
from areal_conf.planning.rules.models import AUTO
from areal_conf.spec.allocation import ModelAllocation, looks_like_spec
from areal_conf.sweeps.axes import Axis, Choice, SweepError, Value
from areal_conf.sweeps.base import Base, Found, IdleEngineError
from areal_conf.sweeps.estimates import JobEstimate, Order, ordered
from areal_conf.sweeps.trial_names import TrialNames

if TYPE_CHECKING:
    from omegaconf import DictConfig


OnInvalid = Literal["prune", "error"]
OnWarning = Literal["keep", "prune"]

MAX_EXPANDED = 50_000
"""Combinations that the patterns of one sweep may mean, pruned ones included: three open patterns
on 512 nodes mean eight million."""


@dataclass
class Report:
    """What became of the combinations of a sweep.

    Attributes:
        total: how many there are.
        left: how many can run and are left out by `best`.
        pruned: code to how many cannot run for it, and the first of them.
        warned: code of a layout's warning to how many run in spite of it, and the first of them.
    """

    total: int = 0
    left: int = 0
    warned: dict[str, tuple[int, AllocationError]] = field(default_factory=dict)
    pruned: dict[str, tuple[int, AllocationError]] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """How many can run."""
        return self.total - sum(count for count, _ in self.pruned.values())

    def prune(self, code: str, example: Callable[[], AllocationError]) -> None:
        """Count one combination out; `example` is asked for the first of a code only."""
        _count(self.pruned, code, example)

    def warn(self, code: str, example: Callable[[], AllocationError]) -> None:
        """Count a combination that runs with a warning."""
        _count(self.warned, code, example)

    def lines(self) -> Iterator[str]:
        """What is said before the start."""
        out = self.total - self.kept
        run = self.total - out - self.left
        best = f", the best {run} of {run + self.left} to run" if self.left else f", {run} to run"
        yield f"{counted(self.total, 'combination')}, {out} pruned{best}"
        for code, (count, first) in sorted(self.pruned.items()):
            yield f"{code}, {count} pruned, such as {first.path}: {first.message}"
        for code, (count, first) in sorted(self.warned.items()):
            yield f"{code}, {count} warned of, such as {first.path}: {first.message}"


def _count(
    table: dict[str, tuple[int, AllocationError]], code: str, example: Callable[[], AllocationError]
) -> None:
    count, first = table[code] if code in table else (0, example())
    table[code] = (count + 1, first)


class Job(NamedTuple):
    """One combination that can run.

    Attributes:
        overrides: what the launcher gets.
        fresh: whether it has a value that no job before it has: its config is composed once before
            the start, to find what cannot be composed.
        planned: whether it has a plan: the config of an app without engines has none.
        estimate: its layouts, and what the estimates say; None without a plan.
        warnings: codes of what is odd about its layouts.
    """

    overrides: list[str]
    fresh: bool
    planned: bool
    estimate: JobEstimate | None = None
    warnings: tuple[str, ...] = ()


class LayoutSweep:
    """The combinations of one sweep.

    Args:
        axes: keys and values.
        compose: composes a config from overrides.
        root: dotted path of the package that holds the experiment.
        model: a model config to hold layouts to, as `areal_conf.plan` takes it.
        gpu: the card that memory and time are estimated for; None: the one of ``areal_plan``.

    Raises:
        AllocationError: AC710 or AC309 where there is no such card.
        OSError: a model config that was named is missing or cannot be read.
    """

    def __init__(
        self,
        axes: list[Axis],
        compose: Callable[[list[str]], DictConfig],
        root: str = "",
        model: Any = None,
        gpu: Any = None,
    ) -> None:
        self.axes = axes
        self.report = Report()
        self.model = model if model is None or model == AUTO else _facts(model)
        self._compose = compose
        card = None if gpu is None else read_card(gpu)
        self._options = PlanOptions(root, model=self.model, gpu=card)
        self._bases: dict[tuple[str, ...], Base] = {}
        self._expanded = 0

    def jobs(
        self,
        on_invalid: OnInvalid = "prune",
        on_warning: OnWarning = "keep",
        order: Order = "given",
        best: int | None = None,
    ) -> list[Job]:
        """Every combination that can run, in the order of the sweep or of the estimates.

        Args:
            on_invalid: whether one that cannot run is left out, or refuses the sweep.
            on_warning: whether one whose layouts are warned of runs, or is left out.
            order: see `areal_conf.sweeps.estimates.ordered`.
            best: how many run, the first ones of that order; None: all.

        Raises:
            SweepError: where a pattern is wrong, nothing is left (AC603), a combination cannot
                run and `on_invalid` is error (AC604), two jobs would have one name (AC605),
                patterns mean more than `MAX_EXPANDED` (AC606), or nothing is known to order by
                (AC708).
        """
        kept: list[tuple[Base, Choice, Found]] = []
        seen: set[Any] = set()
        for base, choice in self._combinations():
            self.report.total += 1
            found = base.found(choice)
            code = found.code or ("AC605" if self._repeats(base, choice, seen) else "")
            if code:
                self.report.prune(code, partial(self._example, base, choice, code))
                continue
            warnings = {one.code: partial(self._warning, base, choice, one) for one in found[2]}
            if warnings and on_warning == "prune":
                self.report.prune(*next(iter(warnings.items())))
                continue
            for code, example in warnings.items():
                self.report.warn(code, example)
            kept.append((base, choice, found))
        if self.report.pruned and (on_invalid == "error" or not kept):
            raise self._refusal(bool(kept))
        if order != "given":
            kept = self._in_order(kept, order)
        self.report.left = len(kept) - len(kept[:best])
        return list(self._made(kept[:best]))

    @staticmethod
    def _in_order(
        kept: list[tuple[Base, Choice, Found]], order: Order
    ) -> list[tuple[Base, Choice, Found]]:
        estimates = [found.estimate or JobEstimate({}, 0, {}) for _, _, found in kept]
        known = [x.time if order == "time" else x.most for x in estimates]
        if not any(one is not None for one in known):
            raise SweepError(
                "AC708",
                f"no job has an estimate of its {order} to order by",
                path="hydra.sweeper.order",
                hint="name the card and the model: hydra.sweeper.gpu=H100 "
                "hydra.sweeper.model=config.json",
            )
        return [kept[n] for n in ordered(estimates, order)]

    def _made(self, kept: list[tuple[Base, Choice, Found]]) -> Iterator[Job]:
        names = TrialNames(self.axes, self._options.root)
        fresh: set[tuple[int, str]] = set()
        for number, (base, choice, found) in enumerate(kept):
            overrides = self._overrides(choice)
            base.has_engines = found.has_engines
            names.give(overrides, base, choice, number)
            new = {(i, self._kind(i, value)) for i, value in enumerate(choice)} - fresh
            fresh |= new
            codes = tuple(dict.fromkeys(warning.code for warning in found.warnings))
            composed_first = bool(new) or number == 0
            yield Job(overrides, composed_first, found.has_engines, found.estimate, codes)

    # -- combinations ----------------------------------------------------------------------

    def _combinations(self) -> Iterator[tuple[Base, Choice]]:
        """The product of all keys; patterns are expanded anew, together, for each of the others."""
        for choice in itertools.product(*(axis.values for axis in self.axes)):
            base = self._base(choice)
            patterns = base.patterns(choice)
            if not patterns:
                yield base, choice
                continue
            why = partial(self._nothing, choice)
            found = False
            try:
                for specs in base.expand(choice, patterns):
                    found = True
                    self._expanded += 1
                    if self._expanded > MAX_EXPANDED:
                        raise _too_many()
                    yield base, _with(choice, specs)
            except IdleEngineError as idle:
                why = partial(idle.error.at, self._shown(choice))
            if not found:
                self.report.total += 1
                example = why()
                _count(self.report.pruned, example.code, partial(_same, example))

    def _base(self, choice: Choice) -> Base:
        """The config composed for this choice of groups, composed once."""
        while True:
            composed = [v.text for axis, v in zip(self.axes, choice, strict=True) if not axis.path]
            key = tuple(composed)
            base = self._bases.get(key)
            if base is not None:
                return base
            overrides = [
                f"{axis.key}={(value if axis.path is None else axis.values[0]).text}"
                for axis, value in zip(self.axes, choice, strict=True)
            ]
            source = Source(self._compose(overrides))
            places: dict[int, Place] = {}
            for i, axis in enumerate(self.axes):
                if axis.path is None or not axis.varies:
                    continue
                place = source.place(axis.path)
                if place is None:
                    axis.path = None
                    break
                places[i] = place
            else:
                self._bases[key] = base = Base(source, places, self._options, self.axes)
                return base
            self._bases.clear()

    def _overrides(self, choice: Choice) -> list[str]:
        return [f"{axis.key}={v.text}" for axis, v in zip(self.axes, choice, strict=True)]

    def _kind(self, index: int, value: Value) -> Any:
        """What composing cannot tell apart: numbers of one type, layouts, equal texts."""
        if isinstance(value.value, (int, float)):
            return type(value.value)
        return looks_like_spec(value.value) or value.text

    def _repeats(self, base: Base, choice: Choice, seen: set[Any]) -> bool:
        """Whether an experiment of the same meaning is among the jobs already."""
        if not base.has_engines:
            return False
        key = tuple(
            _meaning(value) if base.is_backend(i) else value.text for i, value in enumerate(choice)
        )
        if key in seen:
            return True
        seen.add(key)
        return False

    # -- what is said ----------------------------------------------------------------------

    def _shown(self, choice: Choice) -> str:
        """The values in which jobs differ."""
        varying = [
            f"{axis.dotted}={value.value}"
            for axis, value in zip(self.axes, choice, strict=True)
            if axis.varies
        ]
        return clip(" ".join(varying), 300) or "the config as it is"

    def _example(self, base: Base, choice: Choice, code: str) -> AllocationError:
        if code == "AC605":
            message, hint = "the same job stands earlier in the sweep", "write each layout once"
            return AllocationError(code, message, path=self._shown(choice), hint=hint)
        return base.first_error(choice).at(self._shown(choice))

    def _warning(self, base: Base, choice: Choice, error: AllocationError) -> AllocationError:
        return base.shown(error).at(self._shown(choice))

    def _nothing(self, choice: Choice) -> AllocationError:
        return AllocationError(
            "AC603",
            "no layout fills the GPUs that are left",
            path=self._shown(choice),
            hint="leave more sizes open, or give the pattern a number of GPUs (@8)",
        )

    def _refusal(self, some_run: bool) -> SweepError:
        report = self.report
        others = tuple(first for _, (_, first) in sorted(report.pruned.items()))
        counts = ", ".join(f"{code} {n}" for code, (n, _) in sorted(report.pruned.items()))
        out = report.total - report.kept
        if some_run:
            message = f"{out} of {counted(report.total, 'combination')} cannot run ({counts})"
            hint = "mend them, or write hydra.sweeper.on_invalid=prune to run the others"
            return SweepError("AC604", message, hint=hint, others=others)
        message = f"no combination of the sweep can run: {out} pruned ({counts})"
        return SweepError("AC603", message, hint=others[0].hint, others=others)


def _same(error: AllocationError) -> AllocationError:
    return error


def _too_many() -> SweepError:
    return SweepError(
        "AC606",
        f"the patterns of the sweep mean more than {MAX_EXPANDED:,} combinations",
        hint="give patterns a number of GPUs (fsdp:d*@8), or leave fewer sizes open",
    )


def _facts(model: Any) -> Any:
    """The model config read once, or those of several engines."""
    from collections.abc import Mapping

    if hasattr(model, "_get_node"):
        from omegaconf import OmegaConf

        model = OmegaConf.to_container(model, resolve=True)
    if isinstance(model, Mapping) and all(isinstance(v, (str, Mapping)) for v in model.values()):
        return {name: v if v == AUTO else read_model(v) for name, v in model.items()}
    return read_model(model)


def _with(choice: Choice, specs: dict[int, ModelAllocation]) -> Choice:
    out = list(choice)
    for i, allocation in specs.items():
        text = str(allocation)
        out[i] = Value(for_hydra(text), text)
    return tuple(out)


def _meaning(value: Value) -> Any:
    if isinstance(value.value, str) and looks_like_spec(value.value):
        try:
            return str(ModelAllocation.from_str(value.value))
        except AllocationError:
            return value.text
    return value.text
