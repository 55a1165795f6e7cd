"""The base config of a sweep, composed once for each choice of config groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from areal_conf.config.experiment import Experiment, read_experiment
from areal_conf.config.redaction import Redactor
from areal_conf.config.tree import Place, Source
from areal_conf.config.view import View
from areal_conf.errors import AllocationError
from areal_conf.model import ModelFacts
from areal_conf.planning.checks import first_error, layout_report, resolved
from areal_conf.planning.options import PlanOptions
from areal_conf.search_space import Space, joint_layouts
from areal_conf.spec.allocation import ModelAllocation
from areal_conf.sweeps.axes import Axis, Choice, SweepError, Value
from areal_conf.sweeps.estimates import JobEstimate
from areal_conf.sweeps.sharing import Sharing, stand_ins

if TYPE_CHECKING:
    from areal_conf.planning.state import Engine


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
        self._options = options
        self._axes = axes
        self._of_engines: set[str] = set()
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
        facts, warnings = layout_report(self._experiment(), self._options)
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
            self._experiment()
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
        state, error = first_error(self._experiment(), self._options.model)
        self.has_engines = bool(state.engines)
        return error if self.has_engines else None

    def _experiment(self) -> Experiment:
        """What the config says now."""
        experiment = read_experiment(self.source.tree, self._options.root)
        for section in experiment.engines.values():
            self._of_engines |= {section.backend_path, (section.raw or "").strip("${}")}
        return experiment

    # -- what patterns share ---------------------------------------------------------------

    def _share(self, choice: Choice, patterns: list[int]) -> dict[str, Any] | None:
        """The arguments of `joint_layouts`; None where no GPU is left for open patterns."""
        spaces = {i: self._space(choice, i) for i in patterns}
        sharing = self._sharing(choice, spaces)
        open_ = [i for i in patterns if spaces[i].gpus is None]
        for i in open_:
            self._refuse_idle(sharing.takers[i], i, choice)
        texts = {str(i): space.text for i, space in spaces.items()}
        guests: dict[str, str] = {}
        for i in open_:
            if sharing.weights[i]:
                continue
            host = sharing.host_of(i)
            if host is None:
                raise self._no_count(i, choice, sharing.budget() is not None)
            pattern = sharing.pattern_of(host)
            if pattern is None:
                texts[str(i)] += f"@{host.world_size}"
            else:
                guests[str(i)] = str(pattern)
        left = sharing.left()
        for i in open_:
            if sharing.weights[i] and left is None:
                raise self._no_count(i, choice)
            if sharing.weights[i] and left is not None and left < 1:
                return None
        models = {str(i): self._model_of(engines) for i, engines in sharing.takers.items()}
        return {
            "patterns": texts,
            "total": left,
            "models": {i: model for i, model in models.items() if model is not None},
            "guests": guests,
            "weights": {str(i): weight for i, weight in sharing.weights.items()},
        }

    def _sharing(self, choice: Choice, spaces: dict[int, Space]) -> Sharing:
        """Which engines take each pattern of `choice`."""
        given = stand_ins(spaces)
        values = {i: Value(spec, spec) for i, (_, spec) in given.items()}
        self.apply(tuple(values.get(i, value) for i, value in enumerate(choice)))
        return Sharing(resolved(self._experiment()), {i: size for i, (size, _) in given.items()})

    def _space(self, choice: Choice, index: int) -> Space:
        try:
            return Space.of(choice[index].value)
        except AllocationError as error:
            raise SweepError.because(error.at(self._axes[index].dotted)) from None

    def _no_count(self, index: int, choice: Choice, known: bool = False) -> SweepError:
        """AC601; `known`: the cluster is, yet the engine takes none of its GPUs."""
        axis, text = self._axes[index], str(choice[index].value)
        message, hint = "how many GPUs the pattern is to fill is not known", f"write {text}@8"
        if known:
            message += ": the engine takes none of the cluster's"
        else:
            hint += ", or give cluster.n_nodes and cluster.n_gpus_per_node"
        end = (len(text), len(text))
        return SweepError("AC601", message, text=text, span=end, path=axis.dotted, hint=hint)

    def _refuse_idle(self, engines: list[Engine], index: int, choice: Choice) -> None:
        dotted = self._axes[index].dotted
        engines = [e for e in engines if dotted in (e.path, e.section.view.path)]
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

    def _model_of(self, engines: list[Engine]) -> ModelFacts | None:
        """The model that every layout of these engines must fit."""
        model = self._options.model
        if isinstance(model, dict) and len(engines) == 1:
            model = model.get(engines[0].name)
        return model if isinstance(model, ModelFacts) else None
