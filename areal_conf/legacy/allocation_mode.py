"""The deprecated `allocation_mode`: one string for all engines, in four generations of spelling.

`DIALECTS` holds the generations as data: what each one writes that later ones do not. Their union
is read, since people's files mix them (``sglang.d4+megatron:d4``): `reading` splits a mode into
components, `modernise` rewrites each one into today's language, `validate` judges the whole.

Source: AReaL's ``AllocationMode``: realhf/experiments/common/utils.py (0.1 to 0.3),
areal/api/io_struct.py (0.3.0-lite, 0.3.1), areal/api/alloc_mode.py (0.3.2 to 1.0.4).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from areal_conf.errors import AllocationError, clip, wrong_type
from areal_conf.legacy.dialects import EXAMPLE, NEWEST, engine_of
from areal_conf.legacy.reading import MAX_FAULTS, Read, Reader
from areal_conf.legacy.validate import faults_of_the_whole, old_expert_sizes
from areal_conf.spec.allocation import (
    ModelAllocation,
    ParallelStrategy,
    SchedulingStrategy,
    SchedulingStrategyType,
)
from areal_conf.spec.backends import Role


class AllocationType(enum.Enum):
    """What kind of allocation a mode is (AReaL's enumeration)."""

    COLOCATE = 0
    """Training and inference share GPUs; also training alone."""
    DECOUPLED_TRAIN = 1
    """Inference and training have GPUs of their own."""
    LLM_SERVER_ONLY = 2
    """Inference servers alone."""
    DECOUPLED_EVAL = 3
    """Inference servers, and processes that evaluate with them and need no GPU."""


@dataclass(frozen=True, slots=True)
class AllocationMode:
    """All engines' backends and layouts, as one `allocation_mode` says (AReaL's removed class).

    Equal where the allocations are, however they were spelled.

    Attributes:
        allocations: one for each component, in the order of the text; their names are those
            in brackets, and a colocated one has the engine whose GPUs it shares as target.
        evaluation: whether the second half is ``eval`` or ``cpu``.
        dialect: number of the oldest generation whose marks the text bears.
        notes: what today's reading changes, as sentences.
    """

    allocations: tuple[ModelAllocation, ...]
    evaluation: bool = False
    dialect: int = field(default=NEWEST, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    _spelled: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allocations", tuple(self.allocations))
        for allocation in self.allocations:
            if not isinstance(allocation, ModelAllocation):
                raise wrong_type(allocation, "a ModelAllocation", hint=f"read {EXAMPLE}")
        if not self._spelled:
            bare = (str(replace(a, name=None)) for a in self.allocations)
            object.__setattr__(self, "_spelled", tuple(bare))

    @classmethod
    def from_str(cls, allocation_mode: str) -> AllocationMode:
        """Read an `allocation_mode` of any generation.

        Raises:
            AllocationError: for any other string (AC1xx and AC2xx for faults of one component, at
                their place in the whole text; AC501 to AC508 for the whole), and AC309 for
                anything that is no str.
        """
        if not isinstance(allocation_mode, str):
            raise wrong_type(allocation_mode, "an allocation mode", hint=f"write {EXAMPLE}")
        return _read(allocation_mode)

    def __getitem__(self, name: str) -> ModelAllocation:
        """The allocation of this name, or the unnamed one that stands for this engine.

        Raises:
            KeyError: there is none.
        """
        for allocation in self.allocations:
            if allocation.name == name:
                return allocation
        for allocation in self.allocations:
            if engine_of(allocation) == name:
                return allocation
        raise KeyError(f"no allocation is named {clip(str(name))!r}")

    @property
    def world_size(self) -> int:
        """GPUs that the whole mode reserves; colocated components reserve none."""
        return sum(allocation.gpus for allocation in self.allocations)

    @property
    def type_(self) -> AllocationType:
        """The kind of allocation.

        Raises:
            AttributeError: where it is neither one component nor one of each role.
        """
        if self.evaluation:
            return AllocationType.DECOUPLED_EVAL
        roles = [allocation.role for allocation in self.allocations]
        if roles == ["inference"]:
            return AllocationType.LLM_SERVER_ONLY
        if roles == ["training"]:
            return AllocationType.COLOCATE
        if sorted(roles) != ["inference", "training"]:
            raise AttributeError(
                f"type_ needs one component, or one of each role; here are {len(roles)}"
            )
        shared = any(allocation.gpus == 0 for allocation in self.allocations)
        return AllocationType.COLOCATE if shared else AllocationType.DECOUPLED_TRAIN

    @property
    def gen(self) -> ParallelStrategy | None:
        """Sizes of the one inference component; None where there is none.

        Raises:
            AttributeError: there are several.
        """
        only = self._only("inference", "gen")
        return only.parallel if only else None

    @property
    def train(self) -> ParallelStrategy | None:
        """Sizes of the one training component; None where there is none.

        Raises:
            AttributeError: there are several.
        """
        only = self._only("training", "train")
        return only.parallel if only else None

    @property
    def gen_backend(self) -> str | None:
        """Backend of the one inference component; None where there is none.

        Raises:
            AttributeError: there are several.
        """
        only = self._only("inference", "gen_backend")
        return only.backend if only else None

    @property
    def train_backend(self) -> str | None:
        """Backend of the one training component; None where there is none.

        Raises:
            AttributeError: there are several.
        """
        only = self._only("training", "train_backend")
        return only.backend if only else None

    @property
    def gen_instance_size(self) -> int:
        """GPUs of one inference server (t * p).

        Raises:
            AttributeError: there is no inference component, or several.
        """
        only = self._only("inference", "gen_instance_size")
        if only is None or only.instance_size is None:
            raise AttributeError("gen_instance_size: the mode has no inference component")
        return only.instance_size

    def _only(self, role: Role, what: str) -> ModelAllocation | None:
        found = [allocation for allocation in self.allocations if allocation.role == role]
        if len(found) > 1:
            raise AttributeError(
                f"{what} is ambiguous: the mode has {len(found)} {role} components; "
                "ask for one by its name"
            )
        return found[0] if found else None

    def engines(self) -> dict[str, ModelAllocation]:
        """What the mode says for each engine, without component names, in the text's order."""
        bare = (a if a.name is None else replace(a, name=None) for a in self.allocations)
        return dict(zip(map(engine_of, self.allocations), bare, strict=True))

    def spelled(self) -> dict[str, str]:
        """Each engine's backend string as the user spelled it: backend added, old letters renamed.

        ``sglang.d4p1m1+d4p1m1`` gives ``sglang:d4p1t1`` and ``fsdp:d4p1t1``.
        """
        names = (engine_of(allocation) for allocation in self.allocations)
        return dict(zip(names, self._spelled, strict=True))

    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The engines that share GPUs, together; an engine with GPUs of its own stands alone."""
        groups: dict[str, list[str]] = {}
        for allocation in self.allocations:
            strategy = allocation.scheduling_strategy
            engine = engine_of(allocation)
            groups.setdefault(strategy.target or engine, []).append(engine)
        return tuple(map(tuple, groups.values()))

    def modern(self) -> str:
        """The mode in the newest dialect, sizes as the user spelled them, ``eval`` left out."""
        several = len(self.allocations) > 2
        parts: list[str] = []
        for allocation, spec in zip(self.allocations, self._spelled, strict=True):
            shared = allocation.gpus == 0
            name = allocation.name or (engine_of(allocation) if several or shared else None)
            backend, _, dims = spec.partition(":")
            named = f"{backend}[{name}]:{dims}" if name else spec
            parts += ["|" if shared else "+", named]
        return "".join(parts[1:])


def _read(text: str) -> AllocationMode:
    """The meaning of one mode. Faults of components hide those of the whole, as syntax hides
    meaning."""
    reader = Reader(text)
    reader.read_all()
    faults = reader.faults or faults_of_the_whole(reader)
    if faults:
        faults = sorted(faults[:MAX_FAULTS], key=_syntax_first)
        raise faults[0].followed_by(faults[1:])
    notes = reader.notes
    if reader.dialect < NEWEST:
        notes = [*notes, *old_expert_sizes(reader)]
    return AllocationMode(
        tuple(_placed(reader.components)),
        bool(reader.halves),
        reader.dialect,
        tuple(notes),
        tuple(read.spelled for read in reader.components),
    )


def _syntax_first(error: AllocationError) -> tuple[str, tuple[int, int], str]:
    return error.code if error.code >= "AC2" else "", error.span, error.code


def _placed(components: list[Read]) -> Iterator[ModelAllocation]:
    """The allocations, each after the first of its group colocated with the first."""
    anchor, group = "", -1
    for read in components:
        if read.group != group:
            anchor, group = engine_of(read.allocation), read.group
            yield read.allocation
        else:
            shared = SchedulingStrategy(SchedulingStrategyType.colocation, anchor)
            yield replace(read.allocation, scheduling_strategy=shared)
