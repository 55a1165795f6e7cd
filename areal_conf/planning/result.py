"""The plan of a whole experiment: its engines, their GPUs, and everything that is wrong.

`plan` collects; it raises only where there is no config to read. `Plan.model_dump_json` is what
``areal-conf plan --format json`` prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    computed_field,
    model_serializer,
)

from areal_conf.errors import AllocationError, Diagnostic
from areal_conf.legacy.carry_over import Carried
from areal_conf.planning.checks import as_allowed, examine
from areal_conf.planning.memory_result import EngineMemory, PlanMemory, engine_memory, plan_memory
from areal_conf.planning.mesh import Coordinates, Device, RankOrder
from areal_conf.planning.options import PlanOptions
from areal_conf.planning.placement import Placement
from areal_conf.planning.state import Engine, Mode, ResolvedExperiment
from areal_conf.spec.allocation import ModelAllocation
from areal_conf.spec.backends import DIMENSIONS

_LONE = re.compile("[\ud800-\udfff]")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    def __eq__(self, other: object) -> bool:
        """Whether both say the same; what they were computed from does not count."""
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__


class _WithMemory(_Frozen):
    """What has estimates of memory where a card is named, and else no word of them in its JSON."""

    @model_serializer(mode="wrap")
    def _without_none(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        if fields.get("memory", ...) is None:
            del fields["memory"]
        return fields


def _as_json(one: Diagnostic) -> dict[str, Any]:
    """A diagnostic as a plan's JSON has it: its severity is the list that holds it."""
    return {
        "code": one.code,
        "path": one.path,
        "message": one.message,
        "hint": one.hint,
        "text": one.text,
        "span": one.span,
    }


Listed = Annotated[Diagnostic, PlainSerializer(_as_json)]


class Dims(_Frozen):
    """The sizes of a layout; edp is derived."""

    d: int
    t: int
    p: int
    c: int
    e: int
    etp: int
    edp: int


class Cluster(_Frozen):
    """What there is to run on."""

    n_nodes: int
    n_gpus_per_node: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.n_nodes * self.n_gpus_per_node


class _Resolved(NamedTuple):
    """What an engine of the plan was made from.

    Attributes:
        engine: the engine, resolved.
        placement: where engines lie; None where this one lies nowhere.
        host: the engine whose GPUs it sits on.
    """

    engine: Engine
    placement: Placement | None
    host: str


class EnginePlan(_WithMemory):
    """One engine of the plan.

    Attributes:
        backend: name of the backend; None where the string is missing or wrong.
        role: training or inference; None where neither is known.
        spec: canonical backend string.
        active: whether it runs.
        dims: the sizes.
        world_size: number of ranks.
        gpus: GPUs reserved: 0 where colocated, inactive or served from elsewhere.
        instances: server instances of an inference backend.
        instance_size: GPUs of one instance.
        inherited_from: engine whose backend it took.
        colocated_with: engine whose GPUs it shares.
        memory: of one of its GPUs, where a card is named.
    """

    backend: str | None
    role: Literal["inference", "training"] | None
    spec: str | None
    active: bool
    dims: Dims | None
    world_size: int
    gpus: int
    instances: int | None
    instance_size: int | None
    inherited_from: str | None
    colocated_with: str | None
    memory: EngineMemory | None = None

    _of: _Resolved = PrivateAttr()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def devices(self) -> list[tuple[int, int] | None]:
        """The GPU of each rank, as (node, GPU of the node); None where no cluster is known."""
        return self._devices

    @cached_property
    def _devices(self) -> list[Device | None]:
        if not self.active or not self.world_size:
            return []
        placement, host = self._of.placement, self._of.host
        if placement is None or host not in placement.units:
            return [None] * self.world_size
        return placement.devices(host)

    @property
    def name(self) -> str:
        """Name of the engine."""
        return self._of.engine.name

    @property
    def path(self) -> str:
        """Config path of its backend string."""
        return self._of.engine.path

    @property
    def allocation(self) -> ModelAllocation | None:
        """Backend and layout; None where the string is missing or wrong."""
        return self._of.engine.allocation

    @property
    def inactive_because(self) -> str | None:
        """Why the engine does not run; None where it does."""
        return self._of.engine.section.inactive

    @property
    def external(self) -> bool:
        """Whether a server outside the experiment does its work."""
        return self._of.engine.section.external

    @property
    def order(self) -> RankOrder:
        """The order of the engine's ranks.

        Raises:
            AllocationError: AC301 where the layout is not known.
        """
        return self._order

    @cached_property
    def _order(self) -> RankOrder:
        if self.allocation is None:
            raise AllocationError(
                "AC301",
                f"{self.name} has no layout to number its ranks by",
                hint=f"write {self.name}.backend=fsdp:d8",
            )
        return RankOrder(self.allocation.parallel.sizes, self.allocation.role)

    def coordinates(self, rank: int) -> Coordinates:
        """Where `rank` stands in the mesh (d, p, c, t; then e, etp, edp), each from 0."""
        return self.order.coordinates(rank)

    def rank(self, d: int = 0, p: int = 0, c: int = 0, t: int = 0) -> int:
        """The rank at these coordinates, each from 0."""
        return self.order.rank(d, p, c, t)

    def tensor_groups(self) -> list[list[int]]:
        """Ranks that share each matrix multiplication."""
        return self.order.dense.groups("t")

    def data_groups(self) -> list[list[int]]:
        """Ranks that hold the same part of the model and train on different data."""
        return self.order.dense.groups("d")

    def pipeline_groups(self) -> list[list[int]]:
        """Ranks that hold the stages of one replica, first stage first."""
        return self.order.dense.groups("p")

    def context_groups(self) -> list[list[int]]:
        """Ranks that share one sequence."""
        return self.order.dense.groups("c")

    def expert_groups(self) -> list[list[int]]:
        """Ranks over which the experts of a layer are spread."""
        return self.order.expert.groups("e")

    def expert_tensor_groups(self) -> list[list[int]]:
        """Ranks that share each expert's matrices."""
        return self.order.expert.groups("etp")

    def expert_data_groups(self) -> list[list[int]]:
        """Ranks that hold the same experts."""
        return self.order.expert.groups("edp")


class Plan(_WithMemory):
    """The plan of an experiment.

    Attributes:
        engines: by name; servers first, as people write them.
        total_gpus: GPUs that all engines reserve together.
        cluster: what there is; None where it is not known.
        mode: who starts the workers: AReaL's single controller, or an SPMD launcher.
        errors: what stops the experiment.
        warnings: what does not.
        memory: of a GPU over all engines, where a card is named.
    """

    engines: dict[str, EnginePlan]
    total_gpus: int
    cluster: Cluster | None
    mode: Mode
    errors: list[Listed]
    warnings: list[Listed]
    memory: PlanMemory | None = None

    _facts: ResolvedExperiment | None = PrivateAttr(default=None)

    @property
    def ok(self) -> bool:
        """Whether nothing stops the experiment."""
        return not self.errors

    @property
    def nodes(self) -> int:
        """Nodes needed.

        Raises:
            AllocationError: AC357 where the GPUs of a node are not known.
        """
        assert self._facts is not None
        per_node = self._facts.per_node
        if per_node is None:
            raise AllocationError(
                "AC357",
                "the number of nodes needs cluster.n_gpus_per_node",
                path=f"{self._facts.cluster_path}.n_gpus_per_node",
                hint=f"write {self._facts.cluster_path}.n_gpus_per_node=8",
            )
        return self._facts.nodes(per_node)

    @property
    def gpus_per_node(self) -> int:
        """GPUs that each of the `nodes` is asked for: what is needed where one is enough, else all.

        Raises:
            AllocationError: AC357 where the GPUs of a node are not known.
        """
        if self.nodes <= 1:
            return self.total_gpus
        assert self._facts is not None
        return self._facts.per_node or 0

    @property
    def launcher(self) -> str | None:
        """The SPMD launcher that was named."""
        return self._facts.launcher if self._facts else None

    @property
    def scheduler(self) -> str | None:
        """The scheduler of AReaL's single controller, where ``scheduler.type`` names one."""
        return self._facts.experiment.scheduler if self._facts else None

    @property
    def facts(self) -> ResolvedExperiment:
        """The resolved experiment, for what launches or exports it."""
        assert self._facts is not None
        return self._facts

    @property
    def carried(self) -> Carried:
        """What a legacy ``allocation_mode`` does to the config."""
        return self._facts.carried if self._facts else Carried()

    def filled_in(self) -> dict[str, str]:
        """Backends that a legacy ``allocation_mode`` gave, by their config path."""
        if self._facts is None:
            return {}
        engines = self._facts.engines
        return {engines[name].path: spec for name, spec in self.carried.filled.items()}

    def with_error(self, *errors: AllocationError) -> Plan:
        """This plan with more errors, each a warning where its code is allowed."""
        if not errors:
            return self
        found = [Diagnostic.of("error", error) for error in errors]
        if self._facts is not None:
            found = [as_allowed(one, self._facts.allowed) for one in found]
        listed = {"errors": self.errors, "warnings": self.warnings}
        for one in map(_printable, found):
            kind = f"{one.severity}s"
            listed[kind] = [*listed[kind], one]
        changed = self.model_copy(update=listed)
        changed._facts = self._facts
        return changed

    def raise_for_errors(self) -> None:
        """Raise the first error, carrying the others; nothing where there is none.

        Raises:
            AllocationError: with every error of the plan in `errors`.
        """
        if self.errors:
            first, *others = [diagnostic.error() for diagnostic in self.errors]
            raise first.followed_by(others)


def plan(
    cfg: Any,
    root: str = "",
    launcher: str | None = None,
    model: Any = None,
    allow: Iterable[str] = (),
    *,
    areal: str | None = None,
    strict: bool = False,
    gpu: Any = None,
) -> Plan:
    """Plan a composed config.

    Args:
        cfg: DictConfig, mapping or dataclass. Only the keys that a plan needs are resolved.
        root: dotted path of the package that holds the experiment; found where it is left out and
            only one package holds one.
        launcher: an SPMD launcher of AReaL: local, ray or slurm.
        model: a Hugging Face ``config.json`` (path, directory or mapping), to hold layouts to;
            ``"auto"`` for each engine's own; or a mapping from names of engines (``"*"`` for the
            others) to such.
        allow: codes (AC3xx, AC4xx) of errors to count as warnings.
        areal: version of AReaL to judge by; default is the installed one, else 1.0.4.
        strict: whether what AReaL refuses at start (AC31x, AC354) is an error, since something is
            launched or exported.
        gpu: the card that memory is estimated for.

    ``areal_plan`` of the config gives those of `root`, `model`, `gpu`, `areal` and `allow` that are
    left out here.

    Raises:
        AllocationError: AC309 where `cfg`, `root` or another argument cannot be used. What is
            wrong with the experiment is in the plan's `errors`.
        OSError: a model config that was named is missing or cannot be read.
    """
    return planned(cfg, PlanOptions(root, launcher, model, allow, areal, strict, gpu))


def refused(error: AllocationError) -> Plan:
    """The empty plan of what cannot be planned at all, with everything that is wrong."""
    return Plan(
        engines={},
        total_gpus=0,
        cluster=None,
        mode="single_controller",
        errors=[_printable(one) for one in Diagnostic.all_of("error", error)],
        warnings=[],
    )


def errors_as_json(error: AllocationError) -> str:
    """What is printed as JSON where there is no result: the errors, as a plan's JSON has them."""
    return refused(error).model_dump_json(include={"errors"}, indent=2)


def planned(cfg: Any, options: PlanOptions) -> Plan:
    """`plan`, for callers that hand its options on."""
    facts, findings = examine(cfg, options)
    return _build(facts, findings)


def _build(facts: ResolvedExperiment, findings: list[Diagnostic]) -> Plan:
    experiment = facts.experiment
    cluster = None
    if experiment.n_nodes is not None and experiment.n_gpus_per_node:
        cluster = Cluster(n_nodes=experiment.n_nodes, n_gpus_per_node=experiment.n_gpus_per_node)
    built = Plan(
        engines={_encodable(e.name): _engine_plan(e, facts) for e in _shown_order(facts)},
        total_gpus=facts.total,
        cluster=cluster,
        mode=facts.mode,
        errors=[_printable(f) for f in findings if f.severity == "error"],
        warnings=[_printable(f) for f in findings if f.severity == "warning"],
        memory=plan_memory(facts.memory) if facts.memory else None,
    )
    built._facts = facts
    return built


def _shown_order(state: ResolvedExperiment) -> list[Engine]:
    return sorted(state.engines.values(), key=lambda engine: engine.name != "rollout")


def _printable(one: Diagnostic) -> Diagnostic:
    """`one` without what JSON has no form for."""
    texts = one.message, one.hint, one.text, one.path or ""
    if not any(map(_LONE.search, texts)):
        return one
    message, hint, text, path = map(_encodable, texts)
    return replace(one, message=message, hint=hint, text=text, path=path or None)


def _encodable(text: str) -> str:
    """`text` without lone surrogates (bytes of a command line that are no text), which JSON has no
    form for; each becomes one other character, so that spans hold."""
    return _LONE.sub("\ufffd", text)


def _engine_plan(engine: Engine, facts: ResolvedExperiment) -> EnginePlan:
    allocation = engine.allocation
    built = EnginePlan(
        backend=allocation.backend if allocation else None,
        role=engine.role,
        spec=str(allocation) if allocation else None,
        active=engine.active,
        dims=_dims(allocation) if allocation else None,
        world_size=engine.world_size,
        gpus=engine.gpus,
        instances=allocation.instances if allocation else None,
        instance_size=allocation.instance_size if allocation else None,
        inherited_from=engine.inherited_from,
        colocated_with=_encodable(engine.colocated_with) if engine.colocated_with else None,
        memory=_engine_memory(engine, facts),
    )
    placed = engine.fits and not engine.section.external
    host = facts.host(engine).name
    built._of = _Resolved(engine, facts.placement if placed else None, host)
    return built


def _engine_memory(engine: Engine, facts: ResolvedExperiment) -> EngineMemory | None:
    if facts.memory is None or engine.name not in facts.memory.engines:
        return None
    return engine_memory(facts.memory.engines[engine.name], facts.memory.card.usable)


def _dims(allocation: ModelAllocation) -> Dims:
    sizes = allocation.parallel.sizes
    return Dims(
        **{letter: getattr(sizes, letter) for letter in DIMENSIONS},
        etp=sizes.etp,
        edp=allocation.parallel.edp_size,
    )
