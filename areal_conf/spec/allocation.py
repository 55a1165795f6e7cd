"""The values of the language: immutable, and valid once they exist.

Names and meaning follow AReaL's ``areal/api/alloc_mode.py``, so that code can switch its import.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, ClassVar

from areal_conf.errors import AllocationError, clip, wrong_type
from areal_conf.spec.backends import BACKENDS, DIMENSIONS, MAX_SIZE, Role, Sizes
from areal_conf.spec.grammar import NAME
from areal_conf.spec.parser import parse_spec

_EXAMPLE = "write a backend string such as fsdp:d8 or sglang:d2t4"


@dataclass(frozen=True, slots=True)
class ParallelStrategy:
    """The sizes of one layout: how many ways each dimension is split.

    Every size counts ranks and is at least 1. Arguments have the order and names of AReaL's class.

    Attributes:
        tensor_parallel_size: ranks that share each matrix multiplication.
        pipeline_parallel_size: pipeline stages.
        data_parallel_size: model replicas (for inference: server instances).
        context_parallel_size: ranks that share one sequence.
        expert_parallel_size: ranks over which the experts are spread.
        expert_tensor_parallel_size: ranks that share each expert's matrices.

    Raises:
        AllocationError: AC309 for a size that is no int, AC106 for one out of range, AC204 where
            the expert sizes do not divide the world size.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    context_parallel_size: int = 1
    expert_parallel_size: int = 1
    expert_tensor_parallel_size: int = 1

    def __post_init__(self) -> None:
        for name in _STRATEGY_FIELDS:
            value = getattr(self, name)
            if type(value) is not int:
                raise wrong_type(value, f"an int for {name}", hint=f"give {name}=1 or more")
            if not 1 <= value <= MAX_SIZE:
                raise _out_of_range(name, value)
        if self.world_size > MAX_SIZE:
            raise _out_of_range("world_size", self.world_size)
        sizes = self.sizes
        if sizes.world % (sizes.p * sizes.etp * sizes.e):
            raise AllocationError(
                "AC204",
                f"p * etp * e = {sizes.p * sizes.etp * sizes.e} does not divide the world size "
                f"{sizes.world}",
                text=str(self),
                hint="choose expert sizes whose product with p divides the world size",
            )

    @property
    def sizes(self) -> Sizes:
        """The six sizes under their letters."""
        return Sizes(
            self.data_parallel_size,
            self.tensor_parallel_size,
            self.pipeline_parallel_size,
            self.context_parallel_size,
            self.expert_parallel_size,
            self.expert_tensor_parallel_size,
        )

    @property
    def world_size(self) -> int:
        """Number of ranks: d * t * p * c. Expert sizes re-use ranks, they add none."""
        return (
            self.data_parallel_size
            * self.tensor_parallel_size
            * self.pipeline_parallel_size
            * self.context_parallel_size
        )

    @property
    def expert_data_parallel_size(self) -> int:
        """Replicas of each expert; d where there is no expert mesh (e and etp are 1)."""
        s = self.sizes
        return s.world // (s.p * s.etp * s.e) if s.expert_mesh else s.d

    @property
    def tp_size(self) -> int:
        """Short for `tensor_parallel_size`."""
        return self.tensor_parallel_size

    @property
    def pp_size(self) -> int:
        """Short for `pipeline_parallel_size`."""
        return self.pipeline_parallel_size

    @property
    def dp_size(self) -> int:
        """Short for `data_parallel_size`."""
        return self.data_parallel_size

    @property
    def cp_size(self) -> int:
        """Short for `context_parallel_size`."""
        return self.context_parallel_size

    @property
    def ep_size(self) -> int:
        """Short for `expert_parallel_size`."""
        return self.expert_parallel_size

    @property
    def etp_size(self) -> int:
        """Short for `expert_tensor_parallel_size`."""
        return self.expert_tensor_parallel_size

    @property
    def edp_size(self) -> int:
        """Short for `expert_data_parallel_size`."""
        return self.expert_data_parallel_size

    @staticmethod
    def parallelism_eq(this: ParallelStrategy, other: ParallelStrategy) -> bool:
        """Whether two strategies have the same sizes (as AReaL's method of this name)."""
        return this.sizes == other.sizes

    def __str__(self) -> str:
        """The sizes in the letters of the language, as they stand after the colon."""
        return _dims_text(self.sizes)


_STRATEGY_FIELDS = tuple(ParallelStrategy.__dataclass_fields__)
_SET_STRATEGY = tuple(
    ParallelStrategy.__dict__[name].__set__
    for name in (*(DIMENSIONS[x].field for x in "dtpce"), "expert_tensor_parallel_size")
)
_set_d, _set_t, _set_p, _set_c, _set_e, _set_etp = _SET_STRATEGY
_new_object = object.__new__


def trusted_strategy(sizes: tuple[int, int, int, int, int, int]) -> ParallelStrategy:
    """A strategy of sizes that were checked already (by the parser, by the enumeration).

    `sizes` are in the order of `Sizes`. Written out one by one: every layout passes here.
    """
    strategy = _new_object(ParallelStrategy)
    d, t, p, c, e, etp = sizes
    _set_d(strategy, d)
    _set_t(strategy, t)
    _set_p(strategy, p)
    _set_c(strategy, c)
    _set_e(strategy, e)
    _set_etp(strategy, etp)
    return strategy


def _out_of_range(name: str, value: int) -> AllocationError:
    return AllocationError(
        "AC106",
        f"{name} is {value}; sizes and world sizes go from 1 to {MAX_SIZE} (2**20)",
        text=str(value) if abs(value) < 10**20 else "",
        hint=f"give {name} a size from 1 to {MAX_SIZE}",
    )


class SchedulingStrategyType(str, enum.Enum):
    """How an engine gets its GPUs: its own (separation), or another engine's (colocation)."""

    separation = "separation"
    colocation = "colocation"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class SchedulingStrategy:
    """Where an engine runs, beside or on top of another (AReaL's fields).

    Attributes:
        type: separation (own GPUs) or colocation (the GPUs of `target`).
        target: the engine whose GPUs are shared; None for separation.
        fork: whether colocated workers are forked from the target's.
    """

    type: SchedulingStrategyType = SchedulingStrategyType.separation
    target: str | None = None
    fork: bool = True

    def __post_init__(self) -> None:
        hint = "write separation or colocation"
        if not isinstance(self.type, str):
            raise wrong_type(self.type, "a scheduling type", hint=hint)
        try:
            kind = SchedulingStrategyType(self.type)
        except ValueError:
            raise AllocationError(
                "AC309",
                f"unknown scheduling type {clip(self.type)!r}",
                text=clip(self.type),
                hint=hint,
            ) from None
        object.__setattr__(self, "type", kind)
        if self.target is not None and not isinstance(self.target, str):
            raise wrong_type(self.target, "an engine name as target", hint="name an engine: actor")
        if not isinstance(self.fork, bool):
            raise wrong_type(self.fork, "true or false for fork", hint="write true or false")


_SEPARATION = SchedulingStrategy()


@dataclass(frozen=True, slots=True)
class ModelAllocation:
    """One engine's backend and layout, as its backend string says.

    Attributes:
        backend: name of the backend, one of the table.
        name: component name (in brackets), or None.
        parallel: the sizes.
        scheduling_strategy: own GPUs, or another engine's.

    Raises:
        AllocationError: for anything the backend does not have or cannot do.
    """

    backend: str
    name: str | None = None
    parallel: ParallelStrategy = field(default_factory=ParallelStrategy)
    scheduling_strategy: SchedulingStrategy = _SEPARATION

    CACHE_SIZE: ClassVar[int] = 4096

    def __post_init__(self) -> None:
        for value, kind in (
            (self.parallel, ParallelStrategy),
            (self.scheduling_strategy, SchedulingStrategy),
            (self.backend, str),
            ("" if self.name is None else self.name, str),
        ):
            if not isinstance(value, kind):
                raise wrong_type(value, f"a {kind.__name__}", hint=_EXAMPLE)
        row, sizes = BACKENDS.get(self.backend), self.parallel.sizes
        named = self.name is None or NAME.fullmatch(self.name)
        if row is None or not named or not row.takes(sizes):
            # Refused in the words, and with the characters, of the string that says the same.
            parse_spec(_spec_text(self.backend, self.name, sizes))
            raise wrong_type(self.backend, "the bare name of a backend", hint=_EXAMPLE)

    @classmethod
    def from_str(
        cls,
        spec: str,
        name: str | None = None,
        scheduling_strategy: SchedulingStrategy | None = None,
    ) -> ModelAllocation:
        """Read a backend string such as ``"fsdp:d4t2"``.

        Args:
            spec: the string.
            name: component name; replaces one in brackets.
            scheduling_strategy: default is separation.

        Raises:
            AllocationError: for any string that is no backend string (code, span, hint), and
                AC309 for anything that is no str.
        """
        try:
            found = _CACHE.get(spec)
        except TypeError:
            found = None
        if found is None:
            found = _parse(spec)
        if name is None and scheduling_strategy is None:
            return found
        return cls(
            found.backend,
            found.name if name is None else name,
            found.parallel,
            scheduling_strategy or _SEPARATION,
        )

    @property
    def role(self) -> Role:
        """What the backend is for: inference or training."""
        return BACKENDS[self.backend].role

    @property
    def world_size(self) -> int:
        """Number of ranks, colocated or not (AReaL gives 0 when colocated: see `gpus`)."""
        return self.parallel.world_size

    @property
    def gpus(self) -> int:
        """GPUs to reserve: the world size, or 0 where another engine's GPUs are shared."""
        if self.scheduling_strategy.type is SchedulingStrategyType.colocation:
            return 0
        return self.parallel.world_size

    @property
    def instances(self) -> int | None:
        """Server instances (d) of an inference backend; None for training."""
        return self.parallel.data_parallel_size if self.role == "inference" else None

    @property
    def instance_size(self) -> int | None:
        """GPUs of one server instance (t * p) of an inference backend; None for training."""
        if self.role != "inference":
            return None
        return self.parallel.tensor_parallel_size * self.parallel.pipeline_parallel_size

    def __str__(self) -> str:
        """The canonical form: equal for allocations that mean the same, and parses to this one."""
        return _spec_text(self.backend, self.name, self.parallel.sizes)


_SET_ALLOCATION = tuple(
    ModelAllocation.__dict__[name].__set__
    for name in ("backend", "name", "parallel", "scheduling_strategy")
)
_set_backend, _set_name, _set_parallel, _set_strategy = _SET_ALLOCATION
_CACHE: dict[Any, ModelAllocation] = {}
_LONGEST_CACHED = 1000  # characters: a file of blanks must not stay in memory


def trusted_allocation(
    backend: str, name: str | None, sizes: tuple[int, int, int, int, int, int]
) -> ModelAllocation:
    """An allocation of parts that were checked already (by the parser, by the enumeration)."""
    allocation = _new_object(ModelAllocation)
    _set_backend(allocation, backend)
    _set_name(allocation, name)
    _set_parallel(allocation, trusted_strategy(sizes))
    _set_strategy(allocation, _SEPARATION)
    return allocation


def _parse(spec: object) -> ModelAllocation:
    if not isinstance(spec, str):
        raise wrong_type(spec, "a backend string", hint=_EXAMPLE)
    backend, name, sizes = parse_spec(spec)
    allocation = trusted_allocation(backend.name, name, sizes)
    if len(spec) <= _LONGEST_CACHED:
        if len(_CACHE) >= ModelAllocation.CACHE_SIZE:
            _CACHE.clear()
        _CACHE[spec] = allocation
    return allocation


def _dims_text(sizes: Sizes) -> str:
    d, t, p, c, e, etp = sizes
    if etp == 1:
        return _letters(d=d, p=p, t=t, c=c, e=e) or "d1"
    ffn_d = sizes.world // (p * etp * e) if sizes.world % (p * etp * e) == 0 else 1
    attn = _letters(d=d, p=p, t=t, c=c) or "d1"
    return f"(attn:{attn}|ffn:{_letters(d=ffn_d, p=p, t=etp, e=e)})"


def _letters(**sizes: int) -> str:
    return "".join(f"{letter}{size}" for letter, size in sizes.items() if size != 1)


def _spec_text(backend: str, name: str | None, sizes: Sizes) -> str:
    label = f"[{name}]" if name is not None else ""
    return f"{backend}{label}:{_dims_text(sizes)}"


def looks_like_spec(value: object) -> bool:
    """Whether `value` is a string that begins with a known backend and ``:`` or ``[``."""
    if not isinstance(value, str):
        return False
    text = value.lstrip(" \t\r\n")
    return any(text.startswith((f"{name}:", f"{name}[")) for name in BACKENDS)
