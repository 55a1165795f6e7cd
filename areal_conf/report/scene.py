"""What sits where in the picture of a plan: engines, the ranks on each GPU, nodes of one shape.

Up to `MOST_SINGLE` nodes are shown one by one; of larger clusters equal nodes (which engine on
which GPU) are folded: the first, the last, and one box for those between. `areal_conf.report.svg`
draws it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from areal_conf.errors import clip

if TYPE_CHECKING:
    from areal_conf.planning.result import EnginePlan, Plan


MOST_SINGLE = 16
"""Nodes that are drawn one by one; of more, equal ones are folded."""

MOST_NODES = 256
"""Boxes of a picture; the others are counted."""

MOST_CELLS = 2048
"""GPUs of a picture; the others are counted."""

MOST_GPUS = 128
"""GPUs of one node that are drawn; the rest is counted."""

ROW = 8
"""GPUs side by side in a box."""


class Share(NamedTuple):
    """One rank on one GPU."""

    engine: int
    rank: int
    unit: int
    straddles: bool


Cell = tuple[Share, ...]


class Drawn(NamedTuple):
    """An engine as the picture needs it."""

    number: int
    plan: EnginePlan
    name: str
    letters: str
    unit: int

    @property
    def serves(self) -> bool:
        return self.plan.role == "inference"

    @property
    def experts(self) -> bool:
        """Whether it has an expert mesh."""
        allocation = self.plan.allocation
        return allocation is not None and allocation.parallel.sizes.expert_mesh

    def label(self, ranks: Sequence[int]) -> str:
        """Coordinates that the ranks have in common, or their range: ``d0-3 t1``."""
        mesh = self.plan.order.dense
        parts = []
        for letter in self.letters:
            size, stride = mesh.sizes[letter], mesh.strides[letter]
            values = {rank // stride % size for rank in ranks}
            word = "inst " if self.serves and letter == "d" else letter
            parts.append(word + ranges_of(min(values), max(values)))
        if self.experts:
            expert = self.plan.order.expert
            for letter in ("e", "etp"):
                if expert.sizes[letter] > 1:
                    values = {expert.coordinate(rank, letter) for rank in ranks}
                    parts.append(letter + ranges_of(min(values), max(values)))
        return " ".join(parts) or "rank 0"


@dataclass
class Group:
    """Nodes of one shape; drawn as one box.

    Attributes:
        label: which nodes.
        cells: for each GPU, the ranks on it, on the first node of the group.
        nodes: the cells of every node.
        over: whether it lies beyond the cluster's nodes.
    """

    label: str
    cells: list[Cell]
    nodes: list[list[Cell]] = field(default_factory=list)
    count: int = 1
    over: bool = False

    @property
    def depth(self) -> int:
        """Engines on the GPU that has most."""
        return max((len(cell) for cell in self.cells[:MOST_GPUS]), default=1) or 1

    def ranks(self, gpu: int, place: int) -> list[int]:
        """The ranks that share a place of a GPU, over all nodes of the group."""
        return [cells[gpu][place].rank for cells in self.nodes]


def drawn_engines(plan: Plan) -> list[Drawn]:
    out = []
    for index, engine in enumerate(plan.engines.values()):
        if engine.active and engine.allocation is not None and not engine.external:
            sizes = engine.allocation.parallel.sizes
            serves = engine.role == "inference"
            letters = "".join(x for x in "dpct" if getattr(sizes, x) > 1)
            if serves and "d" not in letters:
                letters = "d" + letters
            unit = engine.instance_size or sizes.t
            out.append(Drawn(index, engine, clip(engine.name), letters, unit))
    return out


def _shares(engine: Drawn) -> Iterator[tuple[tuple[int, int], Share]]:
    devices, unit = engine.plan.devices, engine.unit
    for start in range(0, len(devices), unit):
        part = devices[start : start + unit]
        straddles = len({device[0] for device in part if device is not None}) > 1
        for offset, device in enumerate(part):
            if device is not None:
                rank = start + offset
                yield device, Share(engine.number, rank, start // unit, straddles)


def groups_of_nodes(plan: Plan, engines: Sequence[Drawn]) -> list[Group]:
    if plan.cluster is None:
        return _groups_of_ranks(engines)
    per_node = plan.cluster.n_gpus_per_node
    used: dict[int, dict[int, list[Share]]] = {}
    for engine in engines:
        for (node, gpu), share in _shares(engine):
            used.setdefault(node, {}).setdefault(gpu, []).append(share)
    cells = {
        node: [tuple(gpus.get(gpu, ())) for gpu in range(min(per_node, MOST_GPUS))]
        for node, gpus in sorted(used.items())
    }
    total = max([plan.cluster.n_nodes, *(node + 1 for node in used)])
    idle: list[Cell] = [()] * min(per_node, MOST_GPUS)
    if total <= MOST_SINGLE and total * len(idle) <= MOST_CELLS:
        return [
            Group(
                f"node {node}" if node < plan.cluster.n_nodes else f"node {node}: beyond n_nodes",
                cells.get(node, idle),
                [cells.get(node, idle)],
                over=node >= plan.cluster.n_nodes,
            )
            for node in range(total)
        ]
    return _by_shape(cells, idle, total, plan.cluster.n_nodes)


def _by_shape(nodes: dict[int, list[Cell]], idle: list[Cell], total: int, have: int) -> list[Group]:
    """One group for each shape of node, in the order of first nodes; those without work last."""
    alike: dict[tuple[tuple[object, ...], bool], list[int]] = {}
    for node, cells in nodes.items():
        alike.setdefault((_shape(cells), node >= have), []).append(node)
    groups = []
    for (_, over), numbers in alike.items():
        beyond = ": beyond n_nodes" if over else ""
        for part in _folded(numbers):
            members = [nodes[n] for n in part]
            label = _nodes_label(_spans(part), len(part)) + beyond
            groups.append(Group(label, members[0], members, len(part), over))
    gaps = _gaps(list(nodes), total)
    if gaps:
        count = sum(last - first + 1 for first, last in gaps)
        groups.append(Group(_nodes_label(gaps, count), idle, [idle], count))
    return groups


_Item = TypeVar("_Item")


def _folded(alike: Sequence[_Item]) -> list[Sequence[_Item]]:
    """The first and the last of equal things, each for itself, and those between together."""
    if len(alike) < 4:
        return [[one] for one in alike]
    return [alike[:1], alike[1:-1], alike[-1:]]


def _shape(cells: Sequence[Cell]) -> tuple[object, ...]:
    """What two nodes must have in common to be drawn as one."""
    out: list[object] = []
    before: Cell = ()
    for cell in cells:
        joined = [share.unit for share in cell] == [share.unit for share in before]
        out.append((joined, tuple((share.engine, share.straddles) for share in cell)))
        before = cell
    return tuple(out)


def _spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for number in numbers:
        if out and out[-1][1] == number - 1:
            out[-1] = (out[-1][0], number)
        else:
            out.append((number, number))
    return out


def _gaps(used: Sequence[int], total: int) -> list[tuple[int, int]]:
    """The nodes of ``range(total)`` that are not in `used` (ascending)."""
    out = []
    start = 0
    for node in [*used, total]:
        if node > start:
            out.append((start, node - 1))
        start = node + 1
    return out


def _nodes_label(spans: Sequence[tuple[int, int]], count: int) -> str:
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in spans]
    named = ", ".join(texts[:3]) + (", …" if len(texts) > 3 else "")
    return f"node {named}" if count == 1 else f"nodes {named}: x {count} like this"


def _groups_of_ranks(engines: Sequence[Drawn]) -> list[Group]:
    """No cluster is known: the ranks of each engine in rows, its guests on the same ranks."""
    groups: list[Group] = []
    for host in engines:
        if host.plan.colocated_with and _host_of(host, engines) is not None:
            continue
        guests = [e for e in engines if _host_of(e, engines) is host]
        sharing = [host, *(g for g in guests if g.plan.world_size == host.plan.world_size)]
        groups += _rows(host, sharing)
    return groups


def _host_of(engine: Drawn, engines: Sequence[Drawn]) -> Drawn | None:
    return next((e for e in engines if e.plan.name == engine.plan.colocated_with), None)


def _rows(host: Drawn, sharing: Sequence[Drawn]) -> list[Group]:
    width = ROW // host.unit * host.unit if host.unit <= ROW else ROW
    world = host.plan.world_size
    rows = [
        [
            tuple(Share(e.number, rank, rank // e.unit, False) for e in sharing)
            for rank in range(start, min(world, start + width))
        ]
        for start in range(0, world, width)
    ]
    if len(rows) <= MOST_SINGLE:
        return [Group(_ranks_label(host.name, row, row), row, [row]) for row in rows]
    alike: dict[object, list[list[Cell]]] = {}
    for row in rows:
        alike.setdefault(_shape(row), []).append(row)
    groups = []
    for same in alike.values():
        for part in _folded(same):
            more = f": x {len(part)} like this" if len(part) > 1 else ""
            label = f"{_ranks_label(host.name, part[0], part[-1])}{more}"
            groups.append(Group(label, part[0], list(part), len(part)))
    return groups


def _ranks_label(name: str, first: Sequence[Cell], last: Sequence[Cell]) -> str:
    return f"{name}, ranks {ranges_of(first[0][0].rank, last[-1][0].rank)}"


def ranges_of(first: int, last: int) -> str:
    """``3`` or ``3-9``."""
    return str(first) if first == last else f"{first}-{last}"
