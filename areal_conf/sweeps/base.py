"""The base config of a sweep, composed once for each choice of config groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from areal_conf.config.experiment import Experiment, read_experiment, with_new_backends
from areal_conf.config.redaction import Redactor
from areal_conf.config.tree import Place, Source
from areal_conf.config.view import View
from areal_conf.errors import AllocationError
from areal_conf.model import ModelFacts
from areal_conf.planning.checks import first_error, layout_report, resolved
from areal_conf.planning.options import PlanOptions
from areal_conf.search_space import Space, joint_layouts
from areal_conf.spec.allocation import ModelAllocation, looks_like_spec
from areal_conf.sweeps.axes import Axis, Choice, SweepError, Value
from areal_conf.sweeps.estimates import JobEstimate

if TYPE_CHECKING:
    from areal_conf.planning.state import ResolvedExperiment


class Found(NamedTuple):
    """What was found out about a combination.

    Attributes:
        code: of the first error of its plan; empty where there is none.
        has_engines: whether it has a plan at all.
        warnings: those of its layouts.
        estimate: what it needs and how long it takes; None where there is no plan, or a wrong one.
    """

    code: str
    has_engines: bool
    warnings: tuple[AllocationError, ...] = ()
    estimate: JobEstimate | None = None


class IdleEngineError(Exception):
    """The pattern of an engine that does not run."""

    def __init__(self, error: AllocationError) -> None:
        super().__init__(error)
        self.error = error


class Base:
    """A composed config in which the values of one combination after another are set.

    What was found out about one combination holds for every other one that differs only in keys
    that nobody looked at.
    """

    def __init__(
        self,
        source: Source,
        places: dict[int, Place],
        options: PlanOptions,
        axes: list[Axis],
    ) -> None:
        self.source = source
        self.has_engines = False
        self._places = places
        self._root = options.root
        self._model = options.model
        self._options = options
        self._axes = axes
        self._backends: list[int] = []
        self._of_engines: set[str] = set()
        self._experiments: dict[Any, Experiment] = {}
        self._found: dict[Any, Found] = {}
        self._shares: dict[Any, dict[str, Any] | None] = {}

    def found(self, choice: Choice) -> Found:
        """What is wrong or odd about `choice`."""
        key = self._key(choice)
        if key not in self._found:
            found = self._find(choice)
            self._found[self._key(choice)] = found
        else:
            found = self._found[key]
        self.has_engines = found.has_engines
        return found

    def _find(self, choice: Choice) -> Found:
        error = self._first_error(choice)
        if error is not None or not self.has_engines:
            return Found(error.code if error else "", self.has_engines)
        facts, warnings = layout_report(self._experiment(choice), self._options)
        estimate = JobEstimate.of(facts)
        refused = estimate.refusal()
        code = refused.code if refused else ""
        return Found(code, self.has_engines, tuple(warnings), estimate)

    def shown(self, error: AllocationError) -> AllocationError:
        """`error` without what the config takes from the environment."""
        return Redactor(self.source.config).error(error)

    def is_backend(self, index: int) -> bool:
        """Whether an axis is the backend of an engine, as far as configs were read."""
        return self._axes[index].dotted in self._of_engines

    def patterns(self, choice: Choice) -> list[int]:
        """The axes whose values are layout patterns: backends, or what leads to them."""
        found = [i for i, value in enumerate(choice) if value.pattern]
        if found:
            self.apply(choice)
            self._experiment(choice)
        return [
            i
            for i in found
            if self.is_backend(i) or i not in self._places or self._places[i].was_read()
        ]

    def first_error(self, choice: Choice) -> AllocationError:
        """The first error of the plan of a combination that has one."""
        error = self._first_error(choice)
        if error is None:
            estimate = self.found(choice).estimate
            error = estimate.refusal() if estimate else None
        assert error is not None
        return self.shown(error)

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
        """Every way to fill the patterns of `choice`, by the number of their axis.

        Raises:
            IdleEngineError: where one of them is the pattern of an engine that does not run.
        """
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
        for section in experiment.engines.values():
            self._of_engines |= {section.backend_path, (section.raw or "").strip("${}")}
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
        for i in patterns:
            if spaces[i].gpus is None:
                self._refuse_idle(least, i, choice)
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
        self, choice: Choice, spaces: dict[int, Space], least: ResolvedExperiment
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

    def _try(self, choice: Choice, values: dict[int, Value]) -> ResolvedExperiment:
        choice = tuple(values.get(i, value) for i, value in enumerate(choice))
        self.apply(choice)
        return resolved(self._experiment(choice))

    def _host(
        self, state: ResolvedExperiment, index: int, moved: dict[int, set[str]]
    ) -> tuple[int | None, int]:
        """Whose GPUs a pattern that adds none is to have: another pattern's, or so many."""
        for name in moved[index]:
            host = state.engines[name].colocated_with
            if host is None or host in moved[index]:
                continue
            for other, engines in moved.items():
                if other != index and host in engines:
                    return other, 0
            return None, state.engines[host].world_size
        raise self._no_count(index, None, _budget(state) is not None)

    def _no_count(self, index: int, choice: Choice | None, known: bool = False) -> SweepError:
        """AC601; `known`: the cluster is, yet the engine takes none of its GPUs."""
        axis = self._axes[index]
        text = str((choice[index] if choice else axis.values[0]).value)
        message, hint = "how many GPUs the pattern is to fill is not known", f"write {text}@8"
        if known:
            message += ": the engine takes none of the cluster's"
        else:
            hint += ", or give cluster.n_nodes and cluster.n_gpus_per_node"
        end = (len(text), len(text))
        return SweepError("AC601", message, text=text, span=end, path=axis.dotted, hint=hint)

    def _refuse_idle(self, state: ResolvedExperiment, index: int, choice: Choice) -> None:
        dotted = self._axes[index].dotted
        engines = [e for e in state.engines.values() if dotted in (e.path, e.section.view.path)]
        if not engines or any(engine.active for engine in engines):
            return
        raise IdleEngineError(
            AllocationError(
                "AC601",
                f"{engines[0].name} does not run ({engines[0].section.inactive}), so that its "
                "pattern has no GPUs to fill",
                text=str(choice[index].value),
                hint=f"leave {dotted} out of the sweep, or let {engines[0].name} run",
            )
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


def _gpus(state: ResolvedExperiment) -> int:
    return sum(engine.gpus for engine in state.engines.values())


def _budget(state: ResolvedExperiment) -> int | None:
    """GPUs there are: of the cluster, or of one node where the scheduler uses no more."""
    experiment = state.experiment
    if state.mode == "single_controller" and experiment.scheduler == "local":
        return experiment.n_gpus_per_node or None
    return experiment.cluster_gpus
