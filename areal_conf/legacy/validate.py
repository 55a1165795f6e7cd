"""What a whole `allocation_mode` must hold, once its components are read.

Each check is a function over the reader that yields what is wrong: names, one engine each, equal
sizes on shared GPUs, what may stand beside ``eval``.
"""

from __future__ import annotations

from collections.abc import Iterator

from areal_conf.errors import AllocationError, clip, counted
from areal_conf.legacy.dialects import engine_of
from areal_conf.legacy.reading import MAX_FAULTS, Read, Reader
from areal_conf.spec.allocation import ModelAllocation

_MAX_NAMED = 8
"""Components up to which a hint repeats the mode with names."""


def names_given(reader: Reader) -> Iterator[AllocationError]:
    """Three or more components, and colocated ones after the first, have names; all unique."""
    reads = reader.components
    many = sum(read.key is None for read in reads) > 2
    first_of: dict[int, int] = {}
    seen: set[str] = set()
    for i, read in enumerate(reads):
        shared = first_of.setdefault(read.group, i) != i
        name = read.allocation.name
        if name is None and (many or shared) and read.key is None:
            why = "colocated components" if shared else "three or more components"
            message = f"{why} must have names; this one has none"
            yield reader.error("AC503", read.start, read.end, message, _with_names(reads))
            return
        if name is not None and name in seen:
            message = f"the name {clip(name)!r} is given twice"
            yield reader.error("AC504", read.start, read.end, message, _with_names(reads))
            return
        if name is not None:
            seen.add(name)


def one_component_an_engine(reader: Reader) -> Iterator[AllocationError]:
    """No two components may stand for one engine."""
    seen: dict[str, Read] = {}
    for read in reader.components:
        engine = engine_of(read.allocation)
        if engine in seen:
            unnamed = read if read.allocation.name is None else seen[engine]
            message = (
                f"two {read.role} components, and nothing says which is {engine} "
                "and what the other is"
            )
            if read.role != seen[engine].role:
                message = f"two components stand for {engine}, one of them for {read.role}"
            hint = _with_names(reader.components)
            yield reader.error("AC502", unnamed.start, unnamed.end, message, hint)
            return
        seen[engine] = read


def equal_sizes_on_shared_gpus(reader: Reader) -> Iterator[AllocationError]:
    """Colocated components have the same number of GPUs."""
    anchors: dict[int, Read] = {}
    for read in reader.components:
        anchor = anchors.setdefault(read.group, read)
        mine, theirs = read.allocation.world_size, anchor.allocation.world_size
        if mine != theirs:
            one, other = (clip(engine_of(r.allocation)) for r in (read, anchor))
            message = f"{one} shares the GPUs of {other} and has {mine}, not {theirs}"
            hint = f"give {one} {counted(theirs, 'GPU')}, or join it with + for GPUs of its own"
            yield reader.error("AC505", read.start, read.end, message, hint)


def evaluation_beside_servers(reader: Reader) -> Iterator[AllocationError]:
    """``eval`` and ``cpu`` stand beside one inference component and nothing else."""
    roles = [read.role for read in reader.components]
    if reader.halves and (roles != ["inference"] or len(reader.halves) > 1):
        start, end = reader.halves[-1]
        message = f"{reader.text[start:end]!r} stands beside inference servers only, once"
        yield reader.error("AC507", start, end, message, "write sglang:d4+eval, or leave it out")


def faults_of_the_whole(reader: Reader) -> list[AllocationError]:
    """What is wrong with a mode whose components are fine."""
    faults = list(names_given(reader)) or list(one_component_an_engine(reader))
    faults += equal_sizes_on_shared_gpus(reader)
    faults += evaluation_beside_servers(reader)
    return faults[:MAX_FAULTS]


def old_expert_sizes(reader: Reader) -> Iterator[str]:
    """Where e and t are over 1 and etp is not given: an older default was t, today's is 1."""
    for read in reader.components:
        sizes = read.allocation.parallel.sizes
        if sizes.e > 1 and sizes.t > 1 and sizes.etp == 1 and "attn" not in read.spelled:
            yield (
                f"{engine_of(read.allocation)}: the expert tensor size is 1 today; up to "
                f"AReaL 0.3.3 it defaulted to t ({sizes.t}), which is written "
                f"{_with_etp(read.allocation)} now"
            )


def _with_etp(allocation: ModelAllocation) -> str:
    """The same layout with an expert tensor size of t, as AReaL read it up to 0.3.3."""
    s = allocation.parallel.sizes
    attn = "".join(f"{x}{n}" for x, n in zip("dptc", (s.d, s.p, s.t, s.c), strict=True) if n != 1)
    ffn = f"p{s.p}" * (s.p > 1) + f"t{s.t}e{s.e}"
    return f"{allocation.backend}:(attn:{attn}|ffn:{ffn})"


def _with_names(reads: list[Read]) -> str:
    """The hint that repeats the mode with a name on every component, where it is short."""
    if len(reads) > _MAX_NAMED:
        return "name the components: sglang[rollout]:d2+fsdp[actor]:d4|fsdp[critic]:d4"
    free = {
        "inference": ["rollout", "teacher"],
        "training": ["actor", "critic", "ref", "teacher"],
    }
    taken = {read.allocation.name for read in reads}
    used: set[str] = set()
    written: list[str] = []
    group = -1
    for i, read in enumerate(reads):
        name = read.allocation.name
        if name is None or name in used:
            left = [x for x in free[read.role] if x not in taken | used]
            name = left[0] if left else f"engine{i}"
        used.add(name)
        backend, _, dims = read.spelled.partition(":")
        sign = "|" if read.group == group else "+"
        written += [sign, f"{backend}[{name}]:{dims}"]
        group = read.group
    return f"name the components: {''.join(written[1:])}"
