"""Sweeps over layouts: every combination that a sweep means, and which of them can run.

A combination is planned before anything is composed for it. The config is composed once for each
distinct choice of config groups; values are then set in place (`areal_conf.trees`), and a plan that
looked at none of the values that changed is not made again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hydra.errors import CompactHydraException

from areal_conf.allocation import ModelAllocation
from areal_conf.checks import first_error, resolved
from areal_conf.engines import (
    Experiment,
    View,
    looks_like_spec,
    read_experiment,
    with_new_backends,
)
from areal_conf.errors import AllocationError, clip, counted
from areal_conf.layouts import Space, joint_layouts
from areal_conf.model import ModelFacts, read_model
from areal_conf.model_checks import AUTO
from areal_conf.overrides import as_typed, for_hydra
from areal_conf.redaction import Redactor
from areal_conf.trees import Place, Source

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

    from areal_conf.resolve import State

OnInvalid = Literal["prune", "error"]

MAX_EXPANDED = 50_000
"""Combinations that the patterns of one sweep may mean, pruned ones included: three open patterns
on 512 nodes mean eight million."""


class SweepError(AllocationError, CompactHydraException):
    """A sweep that is not started. Hydra prints it without a traceback and exits 1."""

    @classmethod
    def because(cls, error: AllocationError, path: str | None = None) -> SweepError:
        """The refusal of a sweep for `error`, found at the key `path`."""
        return cls(
            error.code,
            error.message,
            hint=error.hint,
            text=error.text,
            span=error.span,
            path=error.path or path,
            others=error.errors[1:],
        )


class Value(NamedTuple):
    """One value of a swept key.

    Attributes:
        text: as it stands behind ``=`` in an override.
        value: what it means.
        pattern: whether it is a layout pattern, to be expanded.
    """

    text: str
    value: Any
    pattern: bool = False


@dataclass
class Axis:
    """One key of the sweep and its values.

    Attributes:
        key: the key as an override has it, with ``+`` and package.
        path: where the value stands in the config; None where it takes a composition to know
            what it does (a config group, a mapping, a deletion).
        values: at least one.
    """

    key: str
    path: tuple[str, ...] | None
    values: list[Value]

    @property
    def varies(self) -> bool:
        """Whether jobs differ in it."""
        return len(self.values) > 1 or self.values[0].pattern

    @property
    def dotted(self) -> str:
        """The key without ``+``."""
        return self.key.lstrip("+")


Choice = tuple[Value, ...]


@dataclass
class Report:
    """What became of the combinations of a sweep.

    Attributes:
        total: how many there are.
        pruned: code to how many cannot run for it, and the first of them.
    """

    total: int = 0
    pruned: dict[str, tuple[int, AllocationError]] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """How many can run."""
        return self.total - sum(count for count, _ in self.pruned.values())

    def prune(self, code: str, example: Callable[[], AllocationError]) -> None:
        """Count one combination out; `example` is asked for the first of a code only."""
        count, first = self.pruned[code] if code in self.pruned else (0, example())
        self.pruned[code] = (count + 1, first)

    def lines(self) -> Iterator[str]:
        """What is said before the start."""
        out = self.total - self.kept
        yield f"{counted(self.total, 'combination')}, {out} pruned, {self.total - out} to run"
        for code, (count, first) in sorted(self.pruned.items()):
            yield f"{code}, {count} pruned, such as {first.path}: {first.message}"


def read_axes(arguments: Sequence[str], loader: ConfigLoader) -> list[Axis]:
    """The keys of a sweep, in their order; a key given again replaces its values.

    Raises:
        HydraException: for what Hydra's grammar refuses.
        SweepError: AC309 for an interval, AC603 for a key without a value.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create(config_loader=loader)
    axes = {}
    overrides = parser.parse_overrides(as_typed(arguments))
    mappings = [o.key_or_group for o in overrides if isinstance(o.value(), dict)]
    for override in overrides:
        key = override.get_key_element()
        values = list(_values(override))
        if not values:
            message = (
                f"{clip(override.input_line or key, 200)} has no value, so that no job is left"
            )
            hint = "write a range or glob that has at least one"
            raise SweepError("AC603", message, path=key, hint=hint)
        inside = any(f"{override.key_or_group}.".startswith(f"{m}.") for m in mappings)
        path = None if inside or _is_composed(override, values, loader) else _path(override)
        axes[key] = Axis(key, path, values)
    return list(axes.values())


def _values(override: Override) -> Iterator[Value]:
    from hydra.core.override_parser.types import Override as Read
    from hydra.core.override_parser.types import Transformer

    if not override.is_sweep_override():
        yield _value(override.get_value_element_as_str(), override.value())
        return
    if not override.is_discrete_sweep():
        raise SweepError(
            "AC309",
            "an interval is no list of values, which areal_layouts sweeps over",
            text=clip(override.input_line or "", 200),
            path=override.get_key_element(),
            hint="write range(1,4) or choice(1,2,3)",
        )
    for element in override.sweep_iterator():
        yield _value(Transformer.str(element), Read._convert_value(element))


def _value(text: str, value: Any) -> Value:
    is_spec = isinstance(value, str) and looks_like_spec(value)
    return Value(text, value, is_spec and ("*" in value or "@" in value))


def _is_composed(override: Override, values: list[Value], loader: ConfigLoader) -> bool:
    key = override.key_or_group
    if override.is_delete() or override.package is not None or "/" in key:
        return True
    if any(isinstance(value.value, dict) for value in values):
        return True
    return "." not in key and bool(loader.get_group_options(key))


def _path(override: Override) -> tuple[str, ...]:
    return tuple(override.key_or_group.split("."))


class Job(NamedTuple):
    """One combination that can run.

    Attributes:
        overrides: what the launcher gets.
        fresh: whether it has a value that no job before it has: its config is composed once before
            the start, to find what cannot be composed.
        planned: whether it has a plan: the config of an app without engines has none.
    """

    overrides: list[str]
    fresh: bool
    planned: bool


class LayoutSweep:
    """The combinations of one sweep.

    Args:
        axes: keys and values.
        compose: composes a config from overrides.
        root: dotted path of the package that holds the experiment.
        model: a model config to hold layouts to, as `areal_conf.plan` takes it.
    """

    def __init__(
        self,
        axes: list[Axis],
        compose: Callable[[list[str]], DictConfig],
        root: str = "",
        model: Any = None,
    ) -> None:
        self.axes = axes
        self.report = Report()
        self.model = model if model is None or model == AUTO else _facts(model)
        self._compose = compose
        self._root = root
        self._bases: dict[tuple[str, ...], _Base] = {}
        self._expanded = 0

    def jobs(self, on_invalid: OnInvalid = "prune") -> list[Job]:
        """Every combination that can run, in the order of the sweep.

        Raises:
            SweepError: where a pattern is wrong, nothing is left (AC603), a combination cannot
                run and `on_invalid` is error (AC604), two jobs would have one name (AC605), or
                patterns mean more than `MAX_EXPANDED` (AC606).
        """
        jobs: list[Job] = []
        seen: set[Any] = set()
        names = _Names(self.axes, self._root)
        fresh: set[tuple[int, str]] = set()
        for base, choice in self._combinations():
            self.report.total += 1
            code = base.code(choice) or ("AC605" if self._repeats(base, choice, seen) else "")
            if code:
                self.report.prune(code, partial(self._example, base, choice, code))
                continue
            overrides = self._overrides(choice)
            names.give(overrides, base, choice, len(jobs))
            new = {(i, self._kind(i, value)) for i, value in enumerate(choice)} - fresh
            fresh |= new
            jobs.append(Job(overrides, bool(new) or not jobs, base.has_engines))
        if self.report.pruned and (on_invalid == "error" or not jobs):
            raise self._refusal(jobs)
        return jobs

    # -- combinations ----------------------------------------------------------------------

    def _combinations(self) -> Iterator[tuple[_Base, Choice]]:
        """The product of all keys; patterns are expanded anew, together, for each of the others."""
        for choice in itertools.product(*(axis.values for axis in self.axes)):
            base = self._base(choice)
            patterns = [i for i, value in enumerate(choice) if value.pattern]
            if not patterns:
                yield base, choice
                continue
            found = False
            for specs in base.expand(choice, patterns):
                found = True
                self._expanded += 1
                if self._expanded > MAX_EXPANDED:
                    raise _too_many()
                yield base, _with(choice, specs)
            if not found:
                self.report.total += 1
                self.report.prune("AC603", partial(self._nothing, choice))

    def _base(self, choice: Choice) -> _Base:
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
                self._bases[key] = base = _Base(source, places, self._root, self.model, self.axes)
                return base
            self._bases.clear()

    def _overrides(self, choice: Choice) -> list[str]:
        return [f"{axis.key}={v.text}" for axis, v in zip(self.axes, choice, strict=True)]

    def _kind(self, index: int, value: Value) -> Any:
        """What composing cannot tell apart: numbers of one type, layouts, equal texts."""
        if isinstance(value.value, (int, float)):
            return type(value.value)
        return looks_like_spec(value.value) or value.text

    def _repeats(self, base: _Base, choice: Choice, seen: set[Any]) -> bool:
        """Whether an experiment of the same meaning is among the jobs already."""
        if not base.has_engines:
            return False
        key = tuple(_meaning(value) for value in choice)
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

    def _example(self, base: _Base, choice: Choice, code: str) -> AllocationError:
        if code == "AC605":
            message, hint = "the same job stands earlier in the sweep", "write each layout once"
            return AllocationError(code, message, path=self._shown(choice), hint=hint)
        return base.first_error(choice).at(self._shown(choice))

    def _nothing(self, choice: Choice) -> AllocationError:
        return AllocationError(
            "AC603",
            "no layout fills the GPUs that are left",
            path=self._shown(choice),
            hint="leave more sizes open, or give the pattern a number of GPUs (@8)",
        )

    def _refusal(self, jobs: list[Job]) -> SweepError:
        report = self.report
        others = tuple(first for _, (_, first) in sorted(report.pruned.items()))
        counts = ", ".join(f"{code} {n}" for code, (n, _) in sorted(report.pruned.items()))
        out = report.total - report.kept
        if jobs:
            message = f"{out} of {counted(report.total, 'combination')} cannot run ({counts})"
            hint = "mend them, or write hydra.sweeper.on_invalid=prune to run the others"
            return SweepError("AC604", message, hint=hint, others=others)
        message = f"no combination of the sweep can run: {out} pruned ({counts})"
        return SweepError("AC603", message, hint=others[0].hint, others=others)


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


class _Base:
    """A composed config in which the values of one combination after another are set.

    What was found out about one combination holds for every other one that differs only in keys
    that nobody looked at.
    """

    def __init__(
        self, source: Source, places: dict[int, Place], root: str, model: Any, axes: list[Axis]
    ) -> None:
        self.source = source
        self.has_engines = False
        self._places = places
        self._root = root
        self._model = model
        self._axes = axes
        self._backends: list[int] = []
        self._experiments: dict[Any, Experiment] = {}
        self._codes: dict[Any, tuple[str, bool]] = {}
        self._shares: dict[Any, dict[str, Any] | None] = {}

    def code(self, choice: Choice) -> str:
        """The code of the first error of the plan of `choice`; empty where there is none."""
        key = self._key(choice)
        if key not in self._codes:
            error = self._first_error(choice)
            found = (error.code if error else "", self.has_engines)
            self._codes[self._key(choice)] = found
        else:
            found = self._codes[key]
        code, self.has_engines = found
        return code

    def first_error(self, choice: Choice) -> AllocationError:
        """The first error of the plan of a combination that has one."""
        error = self._first_error(choice)
        assert error is not None
        return Redactor(self.source.config).error(error)

    def value(self, choice: Choice, key: str) -> Any:
        """The value at the dotted `key` for one combination."""
        self.apply(choice)
        section, last = self._section(key)
        return section.get(last) if section else None

    def raw(self, key: str) -> str | None:
        """The text of an interpolation at the dotted `key`."""
        section, last = self._section(key)
        return section.raw(last) if section else None

    def _section(self, key: str) -> tuple[View | None, str]:
        view: View | None = View(self.source.tree)
        *sections, last = key.split(".")
        for section in sections:
            view = view.section(section) if view else None
        return view, last

    def apply(self, choice: Choice) -> None:
        """Put the values of `choice` into the config."""
        for i, place in self._places.items():
            place.set(choice[i].value)

    def expand(self, choice: Choice, patterns: list[int]) -> Iterator[dict[int, ModelAllocation]]:
        """Every way to fill the patterns of `choice`, by the number of their axis."""
        key = (self._key(choice), tuple(patterns))
        if key not in self._shares:
            shares = self._share(choice, patterns)
            self._shares[(self._key(choice), tuple(patterns))] = shares
        else:
            shares = self._shares[key]
        if shares is None:
            return
        for found in joint_layouts(**shares):
            yield {int(i): allocation for i, allocation in found.items()}

    def _key(self, choice: Choice) -> Any:
        """The values that have a bearing on what is found out."""
        read = tuple(i for i, place in self._places.items() if place.was_read())
        return read, tuple(choice[i].text for i in read)

    def _first_error(self, choice: Choice) -> AllocationError | None:
        self.apply(choice)
        state, error = first_error(self._experiment(choice), self._model)
        self.has_engines = bool(state.engines)
        return error if self.has_engines else None

    def _experiment(self, choice: Choice) -> Experiment:
        """What the config says now; of backends that change alone, nothing else is read anew."""
        plain = [i for i in self._backends if _is_plain_spec(choice[i].value)]
        read = [i for i, place in self._places.items() if place.was_read() and i not in plain]
        key = (tuple(plain), tuple((i, choice[i].text) for i in read))
        if key in self._experiments and not self.source.all_read:
            experiment = with_new_backends(self._experiments[key])
            self._experiments[key] = experiment
            return experiment
        experiment = read_experiment(self.source.tree, self._root)
        self._backends = self._own_backends(experiment)
        if len(plain) == len(self._backends):
            self._experiments[key] = experiment
        return experiment

    def _own_backends(self, experiment: Experiment) -> list[int]:
        """The axes that are backends of standard engines."""
        paths = {s.backend_path for name, s in experiment.engines.items() if name in _STANDARD}
        return [i for i in self._places if self._axes[i].dotted in paths]

    # -- what patterns share ---------------------------------------------------------------

    def _share(self, choice: Choice, patterns: list[int]) -> dict[str, Any] | None:
        """The arguments of `joint_layouts`; None where no GPU is left for open patterns.

        Found by trying: the GPUs of the experiment are linear in those of each pattern, whatever
        inherits from, follows or is colocated with it.
        """
        spaces = {i: self._space(choice, i) for i in patterns}
        least = self._try(choice, {i: self._least(spaces[i], 1) for i in patterns})
        weights, moved = self._weigh(choice, spaces, least)
        texts = {str(i): space.text for i, space in spaces.items()}
        guests: dict[str, str] = {}
        for i in patterns:
            if weights[str(i)] == 0 and spaces[i].gpus is None:
                host, gpus = self._host(least, i, moved)
                if host is not None:
                    guests[str(i)] = str(host)
                else:
                    texts[str(i)] = f"{spaces[i].text}@{gpus}"
        sharing = [i for i in patterns if weights[str(i)] and spaces[i].gpus is None]
        left = _budget(least)
        if left is None and sharing:
            raise self._no_count(sharing[0], choice)
        if left is not None:
            left -= _gpus(least) - sum(weights.values())
            if left < 1 and sharing:
                return None
        models = {str(i): facts for i in patterns if (facts := self._model_of(moved[i]))}
        return {
            "patterns": texts,
            "total": left,
            "models": models,
            "guests": guests,
            "weights": weights,
        }

    def _weigh(
        self, choice: Choice, spaces: dict[int, Space], least: State
    ) -> tuple[dict[str, int], dict[int, set[str]]]:
        """For each pattern the GPUs that twice its size adds, and the engines that grow with it."""
        weights: dict[str, int] = {}
        moved: dict[int, set[str]] = {}
        for i in spaces:
            sizes = {j: self._least(space, 2 if i == j else 1) for j, space in spaces.items()}
            more = self._try(choice, sizes)
            weights[str(i)] = _gpus(more) - _gpus(least)
            moved[i] = {
                name
                for name, engine in more.engines.items()
                if engine.world_size != least.engines[name].world_size
            }
        return weights, moved

    def _space(self, choice: Choice, index: int) -> Space:
        try:
            return Space.of(choice[index].value)
        except AllocationError as error:
            raise SweepError.because(error.at(self._axes[index].dotted)) from None

    @staticmethod
    def _least(space: Space, d: int) -> Value:
        spec = f"{space.pattern.backend.name}:d{d}"
        return Value(spec, spec)

    def _try(self, choice: Choice, values: dict[int, Value]) -> State:
        choice = tuple(values.get(i, value) for i, value in enumerate(choice))
        self.apply(choice)
        return resolved(self._experiment(choice))

    def _host(self, state: State, index: int, moved: dict[int, set[str]]) -> tuple[int | None, int]:
        """Whose GPUs a pattern that adds none is to have: another pattern's, or so many."""
        for name in moved[index]:
            host = state.engines[name].colocated_with
            if host is None or host in moved[index]:
                continue
            for other, engines in moved.items():
                if other != index and host in engines:
                    return other, 0
            return None, state.engines[host].world_size
        raise self._no_count(index, None)

    def _no_count(self, index: int, choice: Choice | None) -> SweepError:
        axis = self._axes[index]
        text = str((choice[index] if choice else axis.values[0]).value)
        return SweepError(
            "AC601",
            "how many GPUs the pattern is to fill is not known",
            text=text,
            span=(len(text), len(text)),
            path=axis.dotted,
            hint=f"write {text}@8, or give cluster.n_nodes and cluster.n_gpus_per_node",
        )

    def _model_of(self, engines: set[str]) -> ModelFacts | None:
        """The model that every layout of these engines must fit."""
        if isinstance(self._model, ModelFacts):
            return self._model
        if isinstance(self._model, dict) and len(engines) == 1:
            facts = self._model.get(*engines)
            return facts if isinstance(facts, ModelFacts) else None
        return None


_STANDARD = ("actor", "critic", "ref", "rollout")
"""Engines of which a section is read in one way, whatever their backend is."""


def _is_plain_spec(value: Any) -> bool:
    return isinstance(value, str) and looks_like_spec(value) and "${" not in value


def _gpus(state: State) -> int:
    return sum(engine.gpus for engine in state.engines.values())


def _budget(state: State) -> int | None:
    """GPUs there are: of the cluster, or of one node where the scheduler uses no more."""
    experiment = state.experiment
    if state.mode == "single_controller" and experiment.scheduler == "local":
        return experiment.n_gpus_per_node or None
    return experiment.cluster_gpus


class _Names:
    """Gives each job of an AReaL experiment a ``trial_name`` of its own.

    Every scheduler and launcher of AReaL clears the records of (experiment_name, trial_name) when
    it starts: two jobs of one pair destroy each other's.
    """

    def __init__(self, axes: list[Axis], root: str) -> None:
        self._trial = f"{root}.trial_name" if root else "trial_name"
        self._experiment = f"{root}.experiment_name" if root else "experiment_name"
        self._axis = next((axis for axis in axes if axis.dotted == self._trial), None)
        self._pairs: set[tuple[Any, Any]] = set()

    def give(self, overrides: list[str], base: _Base, choice: Choice, number: int) -> None:
        """Name the job with this number; its override replaces or follows those there are."""
        if not base.has_engines or not base.source.has(self._trial):
            return
        if self._axis is not None and len(self._axis.values) > 1:
            self._refuse_twice(base, choice)
            return
        name = base.raw(self._trial) or base.value(choice, self._trial) or "trial"
        text = for_hydra(f"{name}_{number}")
        if self._axis is None:
            overrides.append(f"{self._trial}={text}")
        else:
            at = next(i for i, o in enumerate(overrides) if o.startswith(f"{self._axis.key}="))
            overrides[at] = f"{self._axis.key}={text}"

    def _refuse_twice(self, base: _Base, choice: Choice) -> None:
        pair = base.value(choice, self._experiment), base.value(choice, self._trial)
        if pair in self._pairs:
            raise SweepError(
                "AC605",
                f"two jobs have experiment_name {pair[0]} and trial_name {pair[1]}, and would "
                "destroy each other's records",
                path=self._trial,
                hint=f"leave {self._trial} out of the sweep: each job gets a name of its own",
            )
        self._pairs.add(pair)
