"""Draws the pictures of the documentation: ``python docs/make_images.py``.

A test compares the files in ``docs/images`` with what this gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from areal_conf import ModelAllocation, plan
from areal_conf.planning.mesh import Mesh, RankOrder
from areal_conf.report import svg

ON_ACTOR = {"backend": "", "scheduling_strategy": {"type": "colocation", "target": "actor"}}

CONFIGS: dict[str, dict[str, Any]] = {
    "plan-2x8.svg": {
        "rollout": {"backend": "sglang:d2t4"},
        "actor": {"backend": "fsdp:d4t2"},
        "critic": ON_ACTOR,
        "ref": ON_ACTOR,
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
    },
    "plan-10x8-moe.svg": {
        "rollout": {"backend": "sglang:d4t8"},
        "actor": {"backend": "megatron:d1p12t4e4"},
        "cluster": {"n_nodes": 10, "n_gpus_per_node": 8},
    },
}


FOLDED = "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)"
FILLS = ("#77aadd", "#ee8866", "#44bb99", "#eedd88")
CELL, GAP = 30, 3
ATTENTION_ROW = "A row is one replica of the model."
EXPERT_ROW = "A row is one copy of all experts. d is edp here, t is etp."


def images() -> dict[str, str]:
    """Every picture under its file name."""
    plans = {name: svg.render(plan(config)) for name, config in CONFIGS.items()}
    return plans | {"moe-folding.svg": folding(), "walk.svg": walk()}


def folding() -> str:
    """The two meshes of `FOLDED` side by side; the colour of a rank is its replica of attention."""
    allocation = ModelAllocation.from_str(FOLDED)
    order = RankOrder(allocation.parallel.sizes, allocation.role)
    out = [
        _text(24, 36, FOLDED, "h"),
        _text(
            24,
            58,
            "The same 32 ranks, dealt twice. Colour: the replica (d) of a rank in attention.",
        ),
        *_panel(24, "attn: d4 p2 t2 c2", order, order.dense, ("d", "c", "t"), ATTENTION_ROW),
        *_panel(290, "ffn: d2 p2 t4 e2", order, order.expert, ("edp", "e", "etp"), EXPERT_ROW),
    ]
    return "\n".join([_HEAD, *out, "</svg>"]) + "\n"


WALK = (
    ("text", "what the user types", "cli/ config/overrides"),
    ("allocation", "sizes, or faults with a span", "spec/"),
    ("engines", "what the config says of each", "config/experiment"),
    ("resolved", "backends inherited, GPUs shared", "planning/resolve"),
    ("placed", "a node and a GPU for each rank", "planning/placement"),
    ("judged", "what is wrong, with its path", "planning/rules"),
    ("plan", "one value, printed as JSON", "planning/result"),
    ("view", "table, picture, page", "report/"),
)
"""The way of a backend string through the package: step, what it is there, and where."""


def walk() -> str:
    """The steps of `WALK` from top to bottom, each with an arrow to the next."""
    row, top = 54, 16
    out = []
    for place, (step, what, where) in enumerate(WALK):
        y = top + place * row
        out.append(
            f'<rect x="16" y="{y}" width="130" height="34" rx="4" fill="{FILLS[place % 4]}"/>'
            f"{_text(81, y + 22, step, 's')}{_text(166, y + 22, what)}"
            f"{_text(430, y + 22, where, 'w')}"
        )
        if place:
            out.append(f'<path d="M81 {y - 20}v16m-5 -6l5 6l5 -6"/>')
    height = top + len(WALK) * row
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="acw" width="640" height="{height}" '
        f'viewBox="0 0 640 {height}" role="img" aria-labelledby="acw-title">\n'
        '<title id="acw-title">A backend string from the command line to the picture</title>\n'
        "<style>\n"
        '.acw text{font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;'
        f"fill:{svg.INK}}}\n.acw .s{{text-anchor:middle;font-weight:700}}\n"
        ".acw .w{font-family:ui-monospace,monospace;font-size:12px}\n"
        f".acw path{{fill:none;stroke:{svg.INK};stroke-width:1.5}}\n</style>\n"
        f'<rect width="640" height="{height}" fill="{svg.PAPER}"/>'
    )
    return "\n".join([head, *out, "</svg>"]) + "\n"


_HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" class="acm" width="700" height="466" \
viewBox="0 0 700 466" role="img" aria-labelledby="acm-title acm-desc">
<title id="acm-title">MoE parallel folding of {FOLDED}</title>
<desc id="acm-desc">Left: 32 ranks as data, context and tensor, in two pipeline stages. \
Right: the same ranks as expert data, expert and expert tensor.</desc>
<style>
.acm text{{font:12px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:{svg.INK}}}
.acm .h{{font-size:17px;font-weight:700}}
.acm .p{{font-size:14px;font-weight:700}}
.acm .r{{text-anchor:middle;font-weight:600}}
.acm .k{{text-anchor:middle;font-size:10.5px;fill:#444}}
</style>
<rect width="700" height="466" fill="{svg.PAPER}"/>"""


def _text(x: float, y: float, text: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:g}" y="{y:g}">{text}</text>'


def _panel(
    left: int, title: str, order: RankOrder, mesh: Mesh, axes: tuple[str, str, str], row_is: str
) -> list[str]:
    """One mesh: a block a pipeline stage, a row for `axes[0]`, columns for the other two."""
    rows, outer, inner = axes
    out = [_text(left, 92, title, "p"), _text(left, 110, row_is)]
    top = 144
    for stage in range(mesh.sizes["p"]):
        out.append(_text(left, top - 12, f"stage p{stage}"))
        for column in range(mesh.sizes[outer] * mesh.sizes[inner]):
            first, second = divmod(column, mesh.sizes[inner])
            x = _column(left, first, second, mesh.sizes[inner])
            out.append(_text(x + CELL / 2, top + 4, f"{outer}{first}", "k"))
            out.append(_text(x + CELL / 2, top + 15, f"{inner}{second}", "k"))
        for row in range(mesh.sizes[rows]):
            y = top + 20 + row * (CELL - 4 + GAP)
            out.append(_text(left, y + 17, f"{rows}{row}"))
            for column in range(mesh.sizes[outer] * mesh.sizes[inner]):
                first, second = divmod(column, mesh.sizes[inner])
                at = {rows: row, outer: first, inner: second, "p": stage}
                rank = sum(place * mesh.strides[axis] for axis, place in at.items())
                out += _cell(_column(left, first, second, mesh.sizes[inner]), y, rank, order)
        top += 170
    return out


def _column(left: int, outer: int, inner: int, inner_size: int) -> int:
    return left + 36 + (outer * inner_size + inner) * (CELL + GAP) + outer * 8


def _cell(x: int, y: int, rank: int, order: RankOrder) -> list[str]:
    at = order.coordinates(rank)
    name = f"rank {rank}: d{at.d} p{at.p} c{at.c} t{at.t}; edp{at.edp} e{at.e} etp{at.etp}"
    return [
        f'<g><title>{name}</title><rect x="{x}" y="{y}" width="{CELL}" height="{CELL - 4}" '
        f'rx="2" fill="{FILLS[at.d]}"/>{_text(x + CELL / 2, y + 17, str(rank), "r")}</g>'
    ]


if __name__ == "__main__":
    folder = Path(__file__).parent / "images"
    folder.mkdir(exist_ok=True)
    for name, text in images().items():
        (folder / name).write_text(text, encoding="utf-8")
