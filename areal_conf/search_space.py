"""Layout patterns (`fsdp:d*t*@8`) and the lazy enumeration of what they mean.

A pattern is a backend string in which a size may be ``*``; ``@N`` says how many GPUs it fills. Its
grammar is part of the language (`areal_conf.spec.patterns`); here the open sizes get their values,
by divisors of the number of GPUs, so that nothing is made only to be thrown away.

Order: by d falling, then p, t, c, expert tensor size and e rising. It depends neither on the order
of letters in the pattern nor on the machine: ``fsdp:t*d*@8`` gives d8, d4t2, d2t4, t8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from areal_conf.errors import AllocationError, counted, wrong_type
from areal_conf.spec.allocation import ModelAllocation, trusted_allocation
from areal_conf.spec.backends import (
    MAX_SIZE,
    Sizes,
    divisors,
    expert_sizes,
    legal_expert_tensor_sizes,
)
from areal_conf.spec.parser import STAR, Pattern, parse_pattern

if TYPE_CHECKING:
    from areal_conf.model import ModelFacts, ModelSource


_SixSizes = tuple[int, int, int, int, int, int]


def layouts(
    pattern: str, gpus: int | None = None, model: ModelSource | None = None
) -> Iterator[ModelAllocation]:
    """Every valid layout that `pattern` stands for, each once, in the order of this module.

    Args:
        pattern: such as ``fsdp:d*t*@8``, ``megatron:d*p2t*e*@16`` or
            ``megatron:attn:d*t*|ffn:e*@16``. A letter not written is 1, but for d and p of ffn,
            which follow from attn as everywhere in the language. A string without ``*`` is a
            pattern of one layout.
        gpus: number of GPUs where the pattern has no ``@N``. Not needed where d, t, p and c are all
            fixed.
        model: a model config (path, directory, mapping or facts); layouts that it does not fit
            (AC4xx errors) are left out.

    Returns:
        A lazy iterator. It is empty where the fixed sizes cannot fill that many GPUs.

    Raises:
        AllocationError: at the call, not later. The codes of the language for what is wrong in the
            pattern (AC104: ``*`` on a dimension that the backend lacks), AC601 for no number of
            GPUs, AC602 for one that is no whole number from 1.
        OSError: the model config is missing or cannot be read.
    """
    from areal_conf.model import read_model

    space = Space.of(pattern, None if model is None else read_model(model))
    return space.layouts(space.gpus_or(gpus))


def joint_layouts(
    patterns: Mapping[str, str],
    total: int | None = None,
    *,
    models: Mapping[str, ModelFacts] | None = None,
    guests: Mapping[str, str] | None = None,
    weights: Mapping[str, int] | None = None,
) -> Iterator[dict[str, ModelAllocation]]:
    """Every way to lay out several engines together, lazily.

    Patterns with ``@N`` (or without ``*``) have a number of GPUs of their own. All others share
    what is left of `total`, in every split that leaves no GPU over: by the share of the first
    engine rising, then of the second, and so on; within a split, the first engine's layouts vary
    slowest.

    Args:
        patterns: engine name to pattern.
        total: GPUs for all these engines together.
        models: facts of the model of some engines.
        guests: engines colocated with another one of `patterns`: they add no GPUs, and have as many
            as their host where their pattern does not say.
        weights: how often an engine's GPUs count, where that is not once: 2 where another engine
            that is not of `patterns` takes the same layout on GPUs of its own.

    Raises:
        AllocationError: as `layouts`.
    """
    models, guests, weights = models or {}, guests or {}, weights or {}
    spaces = {engine: Space.of(text, models.get(engine)) for engine, text in patterns.items()}
    hosts = {engine: _host(engine, spaces, guests) for engine in spaces}
    groups = {
        host: _Group(
            [spaces[x] for x in spaces if hosts[x] == host and spaces[x].gpus is None],
            weights.get(host, 1),
        )
        for host in dict.fromkeys(hosts.values())
        if spaces[host].gpus is None
    }
    left = 0
    if groups:
        taken = sum(weights.get(x, 1) * (spaces[x].gpus or 0) for x in set(hosts.values()))
        left = spaces[next(iter(groups))].gpus_or(total) - taken
    return _enumerate_jointly(spaces, hosts, groups, left)


def _host(engine: str, spaces: Mapping[str, Space], guests: Mapping[str, str]) -> str:
    """The engine whose GPUs `engine` has: itself, or its host where that is no guest itself."""
    host = guests.get(engine, engine)
    return host if host in spaces and guests.get(host) not in spaces else engine


def _enumerate_jointly(
    spaces: Mapping[str, Space],
    hosts: Mapping[str, str],
    groups: Mapping[str, _Group],
    left: int,
) -> Iterator[dict[str, ModelAllocation]]:
    names, order = tuple(spaces), [*groups]
    pools = [_Pool(space) for space in spaces.values()]
    # A pattern or a host that says its GPUs has them in every split: they follow the shares.
    fixed = [spaces[x].gpus or spaces[hosts[x]].gpus for x in names]
    places = [
        order.index(hosts[x]) if gpus is None else len(order) + i
        for i, (x, gpus) in enumerate(zip(names, fixed, strict=True))
    ]
    sources = [*zip(pools, places, strict=True)]
    same = tuple(gpus or 0 for gpus in fixed)
    for split in _splits([*groups.values()], left):
        shares = split + same
        for found in product(*[pool[shares[place]] for pool, place in sources]):
            yield dict(zip(names, found))  # noqa: B905 - of the same length, and this is hot


def _splits(groups: list[_Group], left: int) -> Iterator[tuple[int, ...]]:
    """Every way to deal `left` GPUs to the groups so that each has a layout and none is over."""
    if len(groups) < 2:
        if not groups:
            yield ()
        elif left % groups[0].weight == 0 and groups[0].can_have(left // groups[0].weight):
            yield (left // groups[0].weight,)
        return
    first, *others = groups
    most = (left - sum(group.least for group in others)) // first.weight
    shares = first.shares(most)
    if len(others) > 1:
        for share in shares:
            for rest in _splits(others, left - share * first.weight):
                yield (share, *rest)
        return
    last, weight = others[0], others[0].weight
    can_have = last.known
    for share in shares:
        rest_of, odd = divmod(left - share * first.weight, weight)
        if not odd and (can_have[rest_of] if rest_of in can_have else last.can_have(rest_of)):
            yield share, rest_of


class _Pool(dict[int, tuple[ModelAllocation, ...]]):
    """The layouts of one pattern by number of GPUs, made once: splits meet the same again."""

    def __init__(self, space: Space) -> None:
        super().__init__()
        self._space = space
        self._held = 0

    def __missing__(self, gpus: int) -> tuple[ModelAllocation, ...]:
        found = tuple(self._space.layouts(gpus))
        self._held += len(found)
        if self._held > _MOST_HELD:  # of a huge cluster only the latest are kept
            self.clear()
            self._held = len(found)
        self[gpus] = found
        return found


_MOST_HELD = 200_000


def nothing_valid(
    pattern: str, gpus: int | None = None, model: ModelFacts | None = None
) -> AllocationError:
    """AC603, for a pattern whose enumeration is empty: why, and what would be valid.

    Arguments are those of `layouts`.
    """
    space = Space.of(pattern, model)
    count = space.gpus_or(gpus)
    if model is not None and any(Space.of(pattern).layouts(count)):
        why = f"no layout of {counted(count, 'GPU')} fits the model {model.source}".rstrip()
        hint = "leave more sizes open, or give another number of GPUs"
    elif count % space.unit:
        near = sorted({max(space.unit, count - count % space.unit), count + -count % space.unit})
        why = f"the fixed sizes' product {space.unit} does not divide {counted(count, 'GPU')}"
        hint = f"give {' or '.join(map(str, near))} GPUs, or leave more sizes open"
    else:
        why = f"{pattern.strip()} has no valid layout of {counted(count, 'GPU')}"
        row = space.pattern.backend
        hint = f"leave more sizes open: {row.name}:{''.join(f'{x}*' for x in row.dims)}@{count}"
    return AllocationError("AC603", why, text=pattern, hint=hint)


@dataclass(frozen=True)
class Space:
    """A pattern, read: the layouts it has for any number of GPUs.

    Attributes:
        text: the pattern as written.
        pattern: what it says.
        model: the model that layouts must fit, or None.
        gpus: number of GPUs that the pattern itself says, or None.
        unit: product of the fixed d, t, p and c: every layout has a multiple of it.
    """

    text: str
    pattern: Pattern
    model: ModelFacts | None
    gpus: int | None
    unit: int

    @classmethod
    def of(cls, text: str, model: ModelFacts | None = None) -> Space:
        """Read a pattern.

        Raises:
            AllocationError: for text that is no pattern.
        """
        if not isinstance(text, str):
            raise wrong_type(text, "a layout pattern", hint="write a pattern such as fsdp:d*t*@8")
        pattern = _parsed(text)
        world = _world(pattern)
        unit = math.prod(size or 1 for size in world)
        gpus = unit if pattern.gpus is None and STAR not in world else pattern.gpus
        return cls(text, pattern, model, gpus, unit)

    def gpus_or(self, given: int | None) -> int:
        """The number of GPUs: of the pattern, or else the one `given`.

        Raises:
            AllocationError: AC601 where there is none, AC602 for one out of range.
        """
        if self.gpus is not None and (self.pattern.gpus is not None or given is None):
            return self.gpus
        if given is None:
            raise AllocationError(
                "AC601",
                "how many GPUs the layout is to fill is not known",
                text=self.text,
                span=(len(self.text), len(self.text)),
                hint=f"write {self.text.rstrip()}@8, or give the number of GPUs beside the pattern",
            )
        if isinstance(given, bool) or not isinstance(given, int):
            raise wrong_type(given, "a number of GPUs", hint="give a whole number, such as 8")
        if not 1 <= given <= MAX_SIZE:
            raise AllocationError(
                "AC602",
                f"the number of GPUs is {given}; it goes from 1 to {MAX_SIZE} (2**20)",
                text=self.text,
                hint="give a number of GPUs such as 8",
            )
        return given

    def layouts(self, gpus: int) -> Iterator[ModelAllocation]:
        """Every layout of exactly `gpus` GPUs."""
        word, name, model = self.pattern.backend.name, self.pattern.name, self.model
        if model is None:
            for sizes in self.sizes(gpus):
                yield trusted_allocation(word, name, sizes)
            return
        from areal_conf.model import fits

        for sizes in self.sizes(gpus):
            if fits(Sizes(*sizes), word, model):
                yield trusted_allocation(word, name, sizes)

    def sizes(self, gpus: int) -> Iterator[_SixSizes]:
        """Sizes (d, t, p, c, e, etp) of every layout; a model rules out sizes of p and t alone."""
        d, p, t, c = _world(self.pattern)
        rest, odd = divmod(gpus, self.unit)
        if odd or (rest > 1 and STAR not in (d, p, t, c)):
            return
        # The innermost open size is what the others leave; so there is no dead end.
        last = next((x for x, size in zip("ctp", (c, t, p), strict=True) if size == STAR), "d")
        pairs = _Experts(self.pattern, gpus).pairs
        fitting_p, fitting_t = self._fitting("p"), self._fitting("t")
        for size_d in reversed(_choices(d, rest, last == "d")):
            rest_d = rest if d else rest // size_d
            for size_p in fitting_p(_choices(p, rest_d, last == "p")):
                rest_p = rest_d if p else rest_d // size_p
                for size_t in fitting_t(_choices(t, rest_p, last == "t")):
                    size_c = c or (rest_p if t else rest_p // size_t)
                    for etp, e in pairs(size_d, size_t, size_p, size_c):
                        yield size_d, size_t, size_p, size_c, e, etp

    def _fitting(self, letter: str) -> Callable[[Sequence[int]], Sequence[int]]:
        """Leaves out the sizes of p or t that the model takes in no layout at all.

        The rules on p and t look at nothing else of a layout; those on c and e do.
        """
        if self.model is None:
            return _all
        from areal_conf.model import fits

        word, model = self.pattern.backend.name, self.model
        known: dict[int, bool] = {}

        def fitting(sizes: Sequence[int]) -> Sequence[int]:
            for size in sizes:
                if size not in known:
                    known[size] = fits(Sizes()._replace(**{letter: size}), word, model)
            return [size for size in sizes if known[size]]

        return fitting


class _Group:
    """Patterns that get the same number of GPUs: an engine and the guests on its GPUs.

    Each GPU of their number counts `weight` times.
    """

    def __init__(self, spaces: list[Space], weight: int) -> None:
        self.spaces = spaces
        self.weight = weight
        self.unit = math.lcm(*(space.unit for space in spaces))
        self.least = self.unit * weight
        self.known: dict[int, bool] = {}

    def can_have(self, gpus: int) -> bool:
        """Whether each pattern has a layout of `gpus` GPUs; kept in `known`."""
        if gpus not in self.known:
            self.known[gpus] = gpus > 0 and all(any(x.layouts(gpus)) for x in self.spaces)
        return self.known[gpus]

    def shares(self, most: int) -> Iterator[int]:
        """Numbers of GPUs up to `most` that it can have, rising."""
        return (share for share in range(self.unit, most + 1, self.unit) if self.can_have(share))


class _Experts:
    """The expert sizes (etp, e) that a pattern allows beside given sizes of d, t, p and c."""

    def __init__(self, pattern: Pattern, gpus: int) -> None:
        self.backend = pattern.backend
        self.gpus = gpus
        ffn = {"e": pattern.attn.get("e", 1)} if pattern.ffn is None else pattern.ffn
        self.etp, self.e, self.edp = ffn.get("t", 1), ffn.get("e", 1), ffn.get("d", STAR)
        self._known: dict[int, list[tuple[int, int]]] = {}

    def pairs(self, d: int, t: int, p: int, c: int) -> list[tuple[int, int]]:
        """Pairs of etp and e, both rising."""
        if self.backend.experts is not None:
            return self._pairs(d, t, p, c)
        if p not in self._known:  # nothing but p counts where the mesh has no rules of its own
            self._known[p] = self._pairs(d, t, p, c)
        return self._known[p]

    def _pairs(self, d: int, t: int, p: int, c: int) -> list[tuple[int, int]]:
        backend, ranks, wanted, edp = self.backend, self.gpus // p, self.e, self.edp
        if "e" not in backend.dims:
            return [(1, 1)]
        etps = (self.etp,) if self.etp else legal_expert_tensor_sizes(backend, t, ranks)
        return [
            (etp, e)
            for etp in etps
            if ranks % etp == 0
            for e in expert_sizes(backend, d, t, c, etp)
            if wanted in (STAR, e) and edp in (STAR, ranks // (etp * e))
        ]


@lru_cache(maxsize=256)
def _parsed(text: str) -> Pattern:
    """A sweep meets the same few patterns again and again."""
    return parse_pattern(text)


def _world(pattern: Pattern) -> tuple[int, int, int, int]:
    """Sizes of d, p, t and c as written, `STAR` where open; p of ffn counts where attn's is."""
    d, p, t, c = (pattern.attn.get(letter, 1) for letter in "dptc")
    if p == STAR and pattern.ffn:
        p = pattern.ffn.get("p", STAR)
    return d, p, t, c


def _choices(size: int, rest: int, last: bool) -> Sequence[int]:
    """The values of one size: itself, or where open all that is left, or its divisors."""
    if size != STAR:
        return (size,)
    return (rest,) if last else divisors(rest)


def _all(sizes: Sequence[int]) -> Sequence[int]:
    return sizes
