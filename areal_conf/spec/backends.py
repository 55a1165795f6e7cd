"""The table of backends: which dimensions each one has, and what its device mesh demands.

Adding a backend is adding a row to `BACKENDS`. Everything else (parser, configs, plans, layouts,
documentation) reads this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

Role = Literal["inference", "training"]

MAX_SIZE = 2**20
"""Largest size of one dimension and of a world: beyond it lies a typing error, not a cluster."""


class Sizes(NamedTuple):
    """The sizes of one layout: data, tensor, pipeline, context, expert, expert tensor."""

    d: int = 1
    t: int = 1
    p: int = 1
    c: int = 1
    e: int = 1
    etp: int = 1

    @property
    def world(self) -> int:
        """Number of ranks; expert sizes re-use the ranks that are there."""
        return self.d * self.t * self.p * self.c

    @property
    def expert_mesh(self) -> bool:
        """Whether experts are dealt over the ranks in a way of their own."""
        return self.e * self.etp > 1


@dataclass(frozen=True)
class Dimension:
    """One letter of the language."""

    letter: str
    name: str
    field: str


DIMENSIONS: dict[str, Dimension] = {
    "d": Dimension("d", "data", "data_parallel_size"),
    "p": Dimension("p", "pipeline", "pipeline_parallel_size"),
    "t": Dimension("t", "tensor", "tensor_parallel_size"),
    "c": Dimension("c", "context", "context_parallel_size"),
    "e": Dimension("e", "expert", "expert_parallel_size"),
}
"""The dimensions in canonical order."""

SECTIONS: dict[str, str] = {"attn": "dptc", "ffn": "dpte"}
"""The dimensions of each section of the attn/ffn form, in canonical order."""

OLD_LETTERS: dict[str, str] = {"m": "t"}
"""Letters of older generations of the language and what they are called today."""


def _archon_experts(d: int, t: int, c: int, etp: int) -> tuple[int, int] | None:
    """What an e over 1 must be a multiple of, and what it must divide; None: no such etp."""
    if etp == 1:
        return c * t, d * c * t
    return (c, d * c) if etp == t else None


def _archon_mesh(s: Sizes) -> list[str]:
    """Rules of Archon's device mesh that `s` breaks (AReaL, models/archon/parallel_dims.py)."""
    bounds = _archon_experts(s.d, s.t, s.c, s.etp)
    if bounds is None:
        return [f"etp must be 1 or t: etp {s.etp}, t {s.t}"]
    if s.e == 1:
        return []
    inner, outer = bounds
    names = ("c*t", "d*c*t") if s.etp == 1 else ("c", "d*c")
    broken = []
    if s.e % inner:
        broken.append(f"e must be a multiple of {names[0]}: e {s.e}, {names[0]} {inner}")
    if outer % s.e:
        broken.append(f"e must divide {names[1]}: e {s.e}, {names[1]} {outer}")
    return broken


@dataclass(frozen=True)
class Backend:
    """One row of the table.

    Attributes:
        name: the word before the colon.
        role: what the backend is for.
        dims: the letters that may be over 1.
        folding: whether the attn/ffn form (MoE parallel folding) exists.
        mesh: names the rules of the backend's device mesh that given sizes break; None: no rules.
        experts: what that mesh leaves open for e beside given d, t, c and etp: (what it is a
            multiple of, what it divides) where it is over 1; None where etp is no legal one.
    """

    name: str
    role: Role
    dims: str
    folding: bool = False
    mesh: Callable[[Sizes], list[str]] | None = None
    experts: Callable[[int, int, int, int], tuple[int, int] | None] | None = None

    def takes(self, sizes: Sizes) -> bool:
        """Whether `sizes`, each from 1, are a layout of this backend."""
        if any(getattr(sizes, letter) > 1 for letter in DIMENSIONS if letter not in self.dims):
            return False
        if sizes.etp > 1 and not self.folding:
            return False
        return not (sizes.expert_mesh and broken_rules(self, sizes))


BACKENDS: dict[str, Backend] = {
    row.name: row
    for row in (
        Backend("sglang", "inference", "dtp"),
        Backend("vllm", "inference", "dtp"),
        Backend("fsdp", "training", "dtc"),
        Backend("megatron", "training", "dtpce", folding=True),
        Backend(
            "archon", "training", "dtpce", folding=True, mesh=_archon_mesh, experts=_archon_experts
        ),
    )
}


def with_dimension(letter: str, role: Role | None = None) -> list[str]:
    """Names of the backends that have the dimension `letter`, of one role where given."""
    return [b.name for b in BACKENDS.values() if letter in b.dims and role in (None, b.role)]


def broken_rules(backend: Backend, sizes: Sizes) -> list[str]:
    """The expert and mesh rules (AC204) that `sizes` break on `backend`, as sentences.

    Expert parallelism deals the ranks anew as etp x ep x edp within each pipeline stage, so
    ``p * etp * e`` must divide the world size (Megatron-LM, core/parallel_state.py).
    """
    broken = []
    product = sizes.p * sizes.etp * sizes.e
    if sizes.world % product:
        factors = "p*e" if sizes.etp == 1 else "p*etp*e"
        broken.append(f"{factors} = {product} does not divide the world size {sizes.world}")
    return broken + (backend.mesh(sizes) if backend.mesh else [])


def legal_expert_sizes(backend: Backend, sizes: Sizes) -> list[int]:
    """Every e that `backend` takes with the other sizes as they are, ascending."""
    d, t, _, c, _, etp = sizes
    if d * t * c % etp:
        return []
    if "e" not in backend.dims:
        return [1]
    return list(expert_sizes(backend, d, t, c, etp))


def expert_sizes(backend: Backend, d: int, t: int, c: int, etp: int) -> tuple[int, ...]:
    """Every e of a `backend` that has this dimension, ascending; etp divides the ranks d*t*c."""
    if backend.experts is None:
        return divisors(d * t * c // etp)
    bounds = backend.experts(d, t, c, etp)
    return _sizes_between(*bounds) if bounds else ()


@lru_cache(maxsize=4096)
def _sizes_between(inner: int, outer: int) -> tuple[int, ...]:
    """1, and every multiple of `inner` that divides `outer`, ascending; `inner` divides `outer`."""
    return (1, *(inner * k for k in divisors(outer // inner) if inner * k > 1))


def legal_expert_tensor_sizes(backend: Backend, t: int, ranks: int) -> tuple[int, ...]:
    """Every etp that `backend` takes with some e, ascending.

    Args:
        backend: the row.
        t: tensor size of attn.
        ranks: ranks of one pipeline stage.
    """
    if backend.experts is None:
        return divisors(ranks) if backend.folding else (1,)
    return (1, t) if t > 1 else (1,)


@lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """The divisors of `n`, ascending."""
    small = [i for i in range(1, math.isqrt(n) + 1) if n % i == 0]
    return (*small, *(n // i for i in reversed(small) if i * i != n))
