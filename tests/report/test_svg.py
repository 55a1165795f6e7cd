"""The picture of a plan, read back: cells, shares, boxes, text."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from typing import Any, NamedTuple

import pytest
from paths import ROOT

from areal_conf import plan
from areal_conf.planning.result import Plan
from areal_conf.report import scene, svg

NS = "{http://www.w3.org/2000/svg}"
GUEST = {"type": "colocation", "target": "actor"}


def planned(n_nodes: int | None = None, per_node: int = 8, **engines: Any) -> Plan:
    cfg: dict[str, Any] = {
        name: {"backend": spec} if isinstance(spec, str) else spec for name, spec in engines.items()
    }
    if n_nodes is not None:
        cfg["cluster"] = {"n_nodes": n_nodes, "n_gpus_per_node": per_node}
    return plan(cfg)


def colocated() -> Plan:
    return planned(
        2,
        rollout="sglang:d2t4",
        actor="megatron:d2p2t2",
        critic={"backend": "fsdp:d8", "scheduling_strategy": GUEST},
        ref={"backend": "", "scheduling_strategy": GUEST},
    )


class Rect(NamedTuple):
    x: float
    y: float
    width: float
    height: float

    def meets(self, other: Rect) -> bool:
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def holds(self, other: Rect) -> bool:
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )


class Share(NamedTuple):
    """One engine on one GPU, as drawn."""

    rect: Rect
    style: str
    name: str
    place: str


class Drawing:
    """A picture, parsed."""

    def __init__(self, made: Plan) -> None:
        self.text = svg.render(made)
        self.root = ET.fromstring(self.text)
        style = self.root.findtext(f"{NS}style") or ""
        small = re.search(r"\.c tspan\{font-size:([\d.]+)px", style)
        name = re.search(r"\.c text\{text-anchor:middle;font-size:([\d.]+)px", style)
        assert small
        assert name
        self.sizes = (float(name.group(1)), float(small.group(1)))
        self.defs = {
            rect.attrib["id"]: (float(rect.attrib["width"]), float(rect.attrib["height"]))
            for rect in self.root.iterfind(f"{NS}defs/{NS}rect")
        }

    @property
    def boxes(self) -> list[Rect]:
        return [
            Rect(*(float(r.attrib[k]) for k in ("x", "y", "width", "height")))
            for r in self.root.iterfind(f"{NS}rect")
            if "box" in r.attrib.get("class", "")
        ]

    @property
    def cells(self) -> list[tuple[str, list[Share]]]:
        """Every GPU: its tooltip, and who is on it."""
        out = []
        for group in self.root.iterfind(f"{NS}g"):
            found = re.fullmatch(r"translate\(([\d.]+),([\d.]+)\)", group.attrib["transform"])
            assert found
            dx, dy = map(float, found.groups())
            for cell in group.iterfind(f"{NS}g"):
                uses, texts = cell.findall(f"{NS}use"), cell.findall(f"{NS}text")
                shares = [self._share(u, t, dx, dy) for u, t in zip(uses, texts, strict=True)]
                out.append((cell.findtext(f"{NS}title") or "", shares))
        return out

    def _share(self, use: ET.Element, text: ET.Element, dx: float, dy: float) -> Share:
        x, y = float(use.get("x", 0)) + dx, float(use.get("y", 0)) + dy
        rect = Rect(x, y, *self.defs[use.attrib["href"][1:]])
        span = text.find(f"{NS}tspan")
        place = (span.text or "") if span is not None else ""
        for size, words in zip(self.sizes, (text.text or "", place), strict=True):
            width = svg.text_width(words, size)
            left = float(text.attrib["x"]) + dx - width / 2
            line = Rect(left, float(text.attrib["y"]) + dy - size, width, size)
            assert rect.x <= line.x
            assert line.x + line.width <= rect.x + rect.width
        bottom = float(text.attrib["y"]) + dy + (float(span.attrib["dy"]) if place else 0.0)  # type: ignore[union-attr]
        assert rect.y + self.sizes[0] * 0.7 <= float(text.attrib["y"]) + dy
        assert bottom + 1 <= rect.y + rect.height
        return Share(rect, use.attrib["class"], text.text or "", place)

    @property
    def words(self) -> str:
        return "\n".join(t.text or "" for t in self.root.iter(f"{NS}text"))


PLANS = {
    "one node": lambda: planned(1, rollout="sglang:d2t2", actor="fsdp:d4"),
    "colocated": colocated,
    "ten nodes": lambda: planned(
        10, rollout="sglang:d4t8", actor="megatron:(attn:d1p12t4|ffn:d1p12e4)"
    ),
    "64 nodes": lambda: planned(64, rollout="sglang:d48t4", actor="megatron:d4p8t4c2"),
    "16 GPUs a node": lambda: planned(2, 16, rollout="vllm:d4t4", actor="archon:d2t2"),
    "two on each of 3": lambda: planned(3, 3, rollout="vllm:d2t2", actor="fsdp:d2t2"),
    "256 nodes": lambda: planned(256, rollout="sglang:d128t8", actor="megatron:d32p8t4"),
}


@pytest.mark.parametrize("name", PLANS)
def test_one_cell_a_gpu_and_nothing_overlaps(name: str) -> None:
    made = PLANS[name]()
    drawing = Drawing(made)
    assert made.cluster
    if made.cluster.n_nodes <= scene.MOST_SINGLE:
        assert len(drawing.cells) == made.cluster.n_nodes * made.cluster.n_gpus_per_node
        assert len(drawing.boxes) == made.cluster.n_nodes
    assert len({title for title, _ in drawing.cells}) == len(drawing.cells)
    corners = {(box.x, box.y) for box in drawing.boxes}  # a box of several nodes is a stack
    boxes = [box for box in drawing.boxes if (box.x - 4, box.y - 4) not in corners]
    page = Rect(0, 0, *map(float, drawing.root.attrib["viewBox"].split()[2:]))
    assert all(page.holds(box) for box in boxes)
    assert not any(a.meets(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    shares = [share.rect for _, cell in drawing.cells for share in cell]
    per_box = len(shares) // len(boxes) + 40
    for i, rect in enumerate(shares):
        assert not any(rect.meets(other) for other in shares[i + 1 : i + per_box])
        assert sum(box.holds(rect) for box in boxes) == 1


def test_each_cell_names_engine_and_coordinates_of_its_rank() -> None:
    made = colocated()
    by_place = {title.rpartition(": ")[2]: shares for title, shares in Drawing(made).cells}
    for name in ("actor", "ref"):
        engine = made.engines[name]
        for rank, device in enumerate(engine.devices):
            assert device
            at = engine.coordinates(rank)
            shares = by_place[f"node {device[0]} GPU {device[1]}"]
            assert (name, f"d{at.d} p{at.p} t{at.t}") in [(s.name, s.place) for s in shares]
    rollout = made.engines["rollout"]
    assert rollout.devices[5] == (1, 5)
    (server,) = by_place["node 1 GPU 5"]
    assert (server.name, server.place) == ("rollout", "inst 1 t1")


def test_colocated_engines_split_their_cell() -> None:
    cells = Drawing(colocated()).cells
    (title, shares) = cells[0]
    assert title == "actor rank 0; critic rank 0; ref rank 0: node 0 GPU 0"
    assert [share.name for share in shares] == ["actor", "critic", "ref"]
    assert len({share.rect.height for share in shares}) == 1
    assert len({share.style for share in shares}) == 3


def test_idle_cells() -> None:
    cells = Drawing(planned(2, actor="fsdp:d9")).cells
    idle = [title for title, shares in cells if [s.name for s in shares] == ["idle"]]
    assert idle == [f"idle: node 1 GPU {gpu}" for gpu in range(1, 8)]


def test_straddling_instances_are_framed() -> None:
    drawing = Drawing(planned(3, 3, rollout="vllm:d3t3"))
    assert not [s for _, cell in drawing.cells for s in cell if " x" in s.style]
    drawing = Drawing(planned(2, 8, rollout="sglang:t16"))
    assert all(" x" in s.style for _, cell in drawing.cells for s in cell)
    assert "more than one node" in drawing.words


def test_legend_and_totals() -> None:
    drawing = Drawing(colocated())
    assert "GPU plan: 16 of 16 GPUs" in drawing.words
    for words in ("sglang:d2t4", "2 instances of 4 GPUs", "8 shared", "on the GPUs of actor"):
        assert words in drawing.words
    assert drawing.root.attrib["role"] == "img"
    labels = drawing.root.attrib["aria-labelledby"].split()
    assert labels == [drawing.root[0].attrib["id"], drawing.root[1].attrib["id"]]
    assert "critic: fsdp:d8" in (drawing.root[1].text or "")


def test_the_legend_has_the_expert_sizes() -> None:
    drawing = Drawing(planned(1, actor="megatron:(attn:d2t4|ffn:t2e2)"))
    assert "experts: e2 etp2 edp2" in drawing.words


def test_errors_are_said_in_the_picture() -> None:
    drawing = Drawing(planned(1, rollout="sglang:d8", actor="fsdp:d8"))
    assert "1 error, it will not run like this: AC306" in drawing.words
    assert "no room for 8 ranks of rollout" in drawing.words


def test_inactive_external_and_faulty_engines_have_a_legend_and_no_cells() -> None:
    drawing = Drawing(
        planned(
            1,
            rollout={"backend": "sglang:d4", "api_url": "http://x", "_version": "v2"},
            actor={"backend": "fsdp:d4", "kl_ctl": 0},
            ref={"backend": "fsdp:d4"},
            critic="fsdp:p2",
        )
    )
    assert "not running" in drawing.words
    assert {s.name for _, cell in drawing.cells for s in cell} == {"actor", "idle"}


def test_nodes_beyond_the_cluster_are_marked() -> None:
    cfg = {
        "actor": {"backend": "fsdp:d16"},
        "scheduler": {"type": "ray"},
        "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    }
    drawing = Drawing(plan(cfg))
    assert "node 1: beyond n_nodes" in drawing.words
    assert "none idle · 8 on nodes beyond n_nodes" in drawing.words
    assert len(drawing.cells) == 16


# -- large and unknown clusters -----------------------------------------------------------------


def test_2048_nodes_are_summed_up_by_shape() -> None:
    made = planned(2048, rollout="sglang:d1000t8", actor="megatron:d128p8t4c2")
    started = time.process_time()
    drawing = Drawing(made)
    assert time.process_time() - started < 2
    assert "nodes 1-1022: x 1022 like this" in drawing.words
    assert "nodes 1025-2022: x 998 like this" in drawing.words
    assert "nodes 2024-2047: x 24 like this" in drawing.words
    assert len(drawing.cells) == (3 + 3 + 1) * 8
    assert drawing.cells[0][1][0].place == "d0 p0 c0 t0"
    assert drawing.cells[8][1][0].place == "d0-127 p0-7 c0 t0"
    assert drawing.cells[32][0] == "rollout ranks 8-7984: nodes 1025-2022 GPU 0"
    assert len(drawing.text.encode()) < 300_000


def test_alternating_shapes_are_taken_together() -> None:
    drawing = Drawing(planned(600, 8, rollout="sglang:d300t16", actor="fsdp:d1"))
    assert len(drawing.boxes) < 30


@pytest.mark.parametrize(
    ("n_nodes", "per_node", "spec"),
    [
        (16, 1024, "fsdp:d16384"),
        (1, 16384, "fsdp:d16384"),
        (10**9, 8, "fsdp:d8"),
        (256, 64, "fsdp:d16384"),
    ],
)
def test_odd_clusters_stay_small(n_nodes: int, per_node: int, spec: str) -> None:
    drawing = Drawing(planned(n_nodes, per_node, actor=spec))
    assert len(drawing.text.encode()) < 450_000
    if per_node > scene.MOST_GPUS:
        assert f"and {per_node - scene.MOST_GPUS:,} more GPUs" in drawing.words


def test_many_different_shapes_are_cut() -> None:
    engines: dict[str, Any] = {f"judge{i}": "sglang:d8" for i in range(300)}
    drawing = Drawing(planned(300, **engines))
    assert len(drawing.boxes) == scene.MOST_NODES
    assert "and 44 more nodes of other shapes" in drawing.words
    assert "and 260 more engines" in drawing.words


def test_without_a_cluster_ranks_stand_in_rows() -> None:
    drawing = Drawing(
        planned(rollout="sglang:d3t3", actor="fsdp:d4t2", ref={"scheduling_strategy": GUEST})
    )
    for words in ("rollout, ranks 0-5", "rollout, ranks 6-8", "actor, ranks 0-7"):
        assert words in drawing.words
    assert len(drawing.cells) == 9 + 8
    assert "cluster unknown" in drawing.words
    big = Drawing(planned(actor="fsdp:d16384"))
    assert "actor, ranks 8-16375: x 2046 like this" in big.words


def test_64_equal_nodes_are_one_row() -> None:
    drawing = Drawing(planned(64, actor="megatron:d64t8"))
    assert "nodes 1-62: x 62 like this" in drawing.words
    assert len(drawing.boxes) == 3 + 2  # the box of 62 is a stack of three
    assert len({box.y for box in drawing.boxes}) == 3  # of the stack
    assert max(box.y for box in drawing.boxes) - min(box.y for box in drawing.boxes) < 20


def test_the_expert_mesh_is_seen_without_pointing() -> None:
    drawing = Drawing(planned(2, actor="megatron:(attn:d4t4|ffn:t2e4)"))
    places = [cell[0].place for _, cell in drawing.cells]
    assert places[0] == "d0 t0 e0 etp0"
    assert places[-1] == "d3 t3 e3 etp1"
    assert " e" not in Drawing(planned(1, actor="megatron:d2t4")).cells[0][1][0].place


def test_nothing_to_draw() -> None:
    assert "no engine has a GPU" in Drawing(plan({})).words


# -- safe to open -------------------------------------------------------------------------------

HOSTILE = "x\"'><script>alert(1)</script>&\x00\x1b]]>\ud800" + "模" * 40


def test_hostile_names_are_escaped() -> None:
    made = plan(
        {
            HOSTILE: {"backend": "sglang:d4"},
            "actor": {"backend": "fsdp:d4"},
            "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
        }
    )
    drawing = Drawing(made)
    assert "<script" not in drawing.text
    tags = {element.tag.removeprefix(NS) for element in drawing.root.iter()}
    assert tags <= {
        "svg",
        "title",
        "desc",
        "style",
        "defs",
        "rect",
        "use",
        "text",
        "tspan",
        "g",
        "path",
    }
    assert drawing.text.isascii()
    assert len(drawing.cells) == 8


def test_self_contained_and_deterministic() -> None:
    text = Drawing(colocated()).text
    assert text == svg.render(colocated())
    links = re.findall(r"(?:href|src|url)[=(]\"?([^\"\s)]+)", text)
    assert links
    assert all(link.startswith("#") for link in links)
    assert re.findall(r"https?://[^\"<\s]+", text) == ["http://www.w3.org/2000/svg"]


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", [*svg.COLOURS.values(), *svg.MORE_COLOURS, svg.PAPER])
def test_text_has_contrast_on_every_colour(colour: str) -> None:
    assert (_luminance(colour) + 0.05) / (_luminance(svg.INK) + 0.05) > 7


def test_pictures_of_the_documentation_are_current() -> None:
    import runpy

    script = ROOT / "docs" / "make_images.py"
    made = runpy.run_path(str(script))["images"]()
    for name, text in made.items():
        assert (script.parent / "images" / name).read_text(encoding="utf-8") == text


def bars(picture: str) -> list[ET.Element]:
    return [rect for rect in ET.fromstring(picture).iter(f"{NS}rect") if rect.get("class") == "mt"]


def test_a_bar_of_memory_in_every_gpu() -> None:
    cfg = {
        "rollout": {"backend": "sglang:d2t4"},
        "actor": {"backend": "megatron:d8"},
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
    }
    made = plan(cfg, model="Qwen3-32B", gpu="H100", areal="1.0.4")
    picture = svg.render(made)
    assert len(bars(picture)) == 16
    filled = [rect.get("class") for rect in ET.fromstring(picture).iter(f"{NS}rect")]
    assert filled.count("mf") == 8  # the servers fit
    assert filled.count("mn") == 8  # the trainer does not
    assert "of 79 GiB" in picture
    assert not bars(svg.render(plan(cfg)))
