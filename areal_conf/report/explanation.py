"""What a backend string means, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table

from areal_conf.errors import counted
from areal_conf.planning.mesh import Mesh, RankOrder
from areal_conf.report.pen import Pen
from areal_conf.spec.allocation import ModelAllocation
from areal_conf.spec.backends import BACKENDS, DIMENSIONS

# -- what a backend string means ----------------------------------------------------------------


def explain(spec: str | ModelAllocation) -> RenderableType:
    """What a backend string means: sizes, ranks and their order, groups, canonical form.

    Raises:
        AllocationError: where `spec` is a string that is none.
    """
    if not isinstance(spec, ModelAllocation):
        spec = ModelAllocation.from_str(spec)
    return _Explanation(spec)


def explanation(allocation: ModelAllocation, console: Console) -> None:
    """Print what `allocation` means."""
    console.print(explain(allocation))


_MEANS_INFERENCE = {
    "d": "server instances, each with the whole model",
    "t": "GPUs that share each matrix of a layer",
    "p": "pipeline stages: the layers cut into as many parts",
}
_MEANS = {
    "d": "replicas of the model, each on its own part of the batch",
    "t": "GPUs that share each matrix of a layer",
    "p": "pipeline stages: the layers cut into as many parts",
    "c": "GPUs that share each sequence",
    "e": "GPUs over which the experts of a layer are spread",
    "etp": "GPUs that share each matrix of an expert",
    "edp": "copies of each expert",
}
_NAMES = {
    **{letter: dimension.name for letter, dimension in DIMENSIONS.items()},
    "etp": "expert tensor",
    "edp": "expert data",
}


class _Explanation:
    def __init__(self, allocation: ModelAllocation) -> None:
        self.allocation = allocation
        self.order = RankOrder(allocation.parallel.sizes, allocation.role)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        pen = Pen(options)
        yield pen.text((str(self.allocation), "bold"))
        yield pen.text(sentence(self.allocation))
        yield self._sizes(pen)
        yield self._facts(pen)
        if self.allocation.parallel.sizes.expert_mesh:
            yield pen.text("The same ranks are dealt twice, once for attention, once for experts:")
            yield self._meshes(pen)

    def _sizes(self, pen: Pen) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        table.add_column("size", no_wrap=True)
        table.add_column("dimension", overflow="fold")
        table.add_column("what it counts", overflow="fold")
        means = _MEANS if self.allocation.role == "training" else _MEANS_INFERENCE
        for letter, size in self._shown_sizes().items():
            cells = (f"{letter} {size}", _NAMES[letter], means[letter])
            table.add_row(*map(pen.text, cells))
        return table

    def _shown_sizes(self) -> dict[str, int]:
        parallel = self.allocation.parallel
        sizes = parallel.sizes
        letters = [x for x in DIMENSIONS if x in BACKENDS[self.allocation.backend].dims]
        out = {letter: getattr(sizes, letter) for letter in letters}
        if sizes.expert_mesh:
            out |= {"etp": sizes.etp, "edp": parallel.edp_size}
        return out

    def _facts(self, pen: Pen) -> Table:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True, style="bold")
        table.add_column(overflow="fold")
        for name, value in self._facts_of():
            table.add_row(pen.text(name), pen.text(value))
        return table

    def _facts_of(self) -> Iterator[tuple[str, str]]:
        allocation = self.allocation
        yield "role", f"{allocation.role} ({allocation.backend})"
        if allocation.name is not None:
            yield "name", allocation.name
        yield "world size", self._product(("d", "p", "t", "c"))
        if allocation.instances is not None:
            size = counted(allocation.instance_size or 0, "GPU")
            yield "instances", f"{allocation.instances:,} of {size} each (t × p)"
        yield "rank order", _formula(self.order.dense.sizes, self.order.dense.strides)
        for axis, what in (("t", "tensor"), ("c", "context"), ("d", "data"), ("p", "pipeline")):
            if allocation.role == "inference" and axis == "d":
                continue
            if self.order.dense.sizes[axis] > 1:
                yield f"{what} groups", self._groups(self.order.dense, axis)
        yield "canonical", str(allocation)

    def _product(self, letters: Sequence[str]) -> str:
        sizes = self.allocation.parallel.sizes
        factors = [f"{x}{getattr(sizes, x)}" for x in letters if getattr(sizes, x) > 1]
        total = counted(sizes.world, "rank")
        return f"{total} = {' × '.join(factors)}" if len(factors) > 1 else total

    def _groups(self, mesh: Mesh, axis: str) -> str:
        size, stride = mesh.sizes[axis], mesh.strides[axis]
        if size == 1:
            return "each rank alone"
        count = self.order.world // size
        bases = (0, 1 if stride > 1 else size)[:count]
        shown = " ".join(_members(base, size, stride) for base in bases)
        more = " …" if count > 2 else ""
        return f"{count:,} of {counted(size, 'rank')}: {shown}{more}"

    def _meshes(self, pen: Pen) -> Table:
        sizes = self.allocation.parallel.sizes
        edp = self.order.expert.sizes["edp"]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in ("", "attention (attn)", "experts (ffn)"):
            table.add_column(name, overflow="fold")
        rows = (
            ("data", f"d {sizes.d}", f"edp {edp}"),
            ("pipeline", f"p {sizes.p}", f"p {sizes.p}"),
            ("tensor", f"t {sizes.t}", f"etp {sizes.etp}"),
            ("context", f"c {sizes.c}", "–"),
            ("expert", "–", f"e {sizes.e}"),
            ("ranks", f"{sizes.world:,}", f"{sizes.world:,}"),
            (
                "tensor groups",
                self._groups(self.order.dense, "t"),
                self._groups(self.order.expert, "etp"),
            ),
            ("expert groups", "–", self._groups(self.order.expert, "e")),
            (
                "data groups",
                self._groups(self.order.dense, "d"),
                self._groups(self.order.expert, "edp"),
            ),
        )
        for row in rows:
            table.add_row(*map(pen.text, row))
        return table


def _members(base: int, size: int, stride: int) -> str:
    if size <= 8 or stride == 1:
        members = range(base, base + size * stride, stride)
        return f"[{members[0]}-{members[-1]}]" if size > 8 else f"[{' '.join(map(str, members))}]"
    first = " ".join(str(base + i * stride) for i in range(3))
    return f"[{first} … {base + (size - 1) * stride}]"


def _formula(sizes: dict[str, int], strides: dict[str, int]) -> str:
    """The rank as a sum over the axes that have more than one place, fastest first."""
    terms = [
        axis if strides[axis] == 1 else f"{strides[axis]:,}{axis}"
        for axis, size in sizes.items()
        if size > 1
    ]
    return f"rank = {' + '.join(terms) or '0'} (each letter counts from 0)"


def sentence(allocation: ModelAllocation) -> str:
    """What the layout does, in words that a newcomer understands."""
    s = allocation.parallel.sizes
    gpus = counted(s.world, "GPU")
    if allocation.role == "inference":
        each = counted(s.t * s.p, "GPU")
        servers = counted(s.d, f"{allocation.backend} server")
        return f"{servers} generating text on {gpus}: {each} each, all with the same model."
    cuts = _cuts(s.p, s.t, s.c)
    text = f"{allocation.backend} trains on {gpus}: {counted(s.d, 'replica')} of the model"
    text += " with" if s.d == 1 else ", each on its own part of the batch and with"
    text += f" {counted(s.world // s.d, 'GPU')}"
    text += f": {cuts}." if cuts else "."
    if s.expert_mesh:
        text += f" Experts use the same GPUs in another way: spread over {s.e:,}"
        text += f", each expert split over {s.etp:,}." if s.etp > 1 else ", each expert whole."
    return text


def _cuts(p: int, t: int, c: int) -> str:
    parts = []
    if p > 1:
        parts.append(f"layers cut into {p:,} stages")
    if t > 1:
        parts.append(f"each matrix split over {t:,}")
    if c > 1:
        parts.append(f"each sequence split over {c:,}")
    return ", ".join(parts)
