"""Pages: whole in themselves, readable without scripts, and values are data."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from areal_conf import plan
from areal_conf.cli.entry import main
from areal_conf.report.page import (
    Column,
    memory_range,
    plan_page,
    suggestions_page,
    table_page,
)

HOSTILE = "<script>alert(1)</script>\"' onload=x &amp; \ud800"
CLUSTER = {"n_nodes": 2, "n_gpus_per_node": 8}
PPO = {
    "rollout": {"backend": "sglang:d2t4"},
    "actor": {"backend": "megatron:d2t2p2e2"},
    "ref": {"scheduling_strategy": {"type": "colocation", "target": "actor"}},
    "cluster": CLUSTER,
}
MEMORY = {
    "unit": "GiB", "gpu": 79.1, "verdict": "may", "step": [61.2, 84.0], "load": None, "stage": 0,
    "parts": {"parameters": 20.0, "optimizer": 40.0}, "unknown": [], "assumptions": [],
}  # fmt: skip


class Page(HTMLParser):
    """The elements of a page, each with its attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [at for _, at in self.elements if name in (at.get("class") or "").split()]


def suggestion(**more: Any) -> dict[str, Any]:
    engines = {"actor": {"spec": "megatron:d8", "memory": MEMORY}}
    return {
        "overrides": ["actor.backend=megatron:d8"], "engines": engines, "time": 1.0,
        "reasons": ["fits"], **more,
    }  # fmt: skip


PAGES = {
    "plan": lambda: plan_page(plan(PPO)),
    "suggest": lambda: suggestions_page({"suggestions": [suggestion()], "left_out": {"AC701": 3}}),
    "table": lambda: table_page("results", [Column("a", "a")], [{"a": 1}]),
}


@pytest.mark.parametrize("name", PAGES)
def test_no_address_outside_the_page(name: str) -> None:
    text = PAGES[name]()
    assert "//" not in re.sub(r"<!DOCTYPE[^>]*>", "", text).replace("://", "//")
    for tag, at in Page(text).elements:
        assert not {"src", "href", "action", "data", "poster", "srcset"} & set(at), tag
        assert tag not in {"link", "iframe", "object", "embed", "base", "form", "img"}
    assert "url(" not in text
    assert "@import" not in text


def test_every_rank_is_there_with_its_coordinates() -> None:
    made = plan(PPO)
    ranks = Page(plan_page(made)).of_class("rank")
    assert len(ranks) == sum(len(engine.devices) for engine in made.engines.values())
    actor = [at for at in ranks if (at["title"] or "").startswith("actor, rank 5:")]
    place = made.engines["actor"].coordinates(5)
    assert [(at["data-d"], at["data-p"], at["data-t"], at["data-e"]) for at in actor] == [
        (str(place.d), str(place.p), str(place.t), str(place.e))
    ]


def test_equal_nodes_are_drawn_once() -> None:
    cfg = {"actor": {"backend": "fsdp:d512"}, "cluster": {"n_nodes": 64, "n_gpus_per_node": 8}}
    page = Page(plan_page(plan(cfg)))
    assert len(page.of_class("node")) == 1
    assert "nodes 0-63 x 64 like this" in page.text
    assert len(page.of_class("gpu")) == 8


@pytest.mark.slow
def test_a_million_gpus_make_a_small_page() -> None:
    cfg = {
        "actor": {"backend": "fsdp:d131072"},
        "cluster": {"n_nodes": 16384, "n_gpus_per_node": 8},
    }
    assert len(plan_page(plan(cfg))) < 100_000


def test_values_are_data() -> None:
    cfg = {HOSTILE: {"backend": "sglang:d4"}, "actor": {"backend": HOSTILE}, "cluster": CLUSTER}
    hostile = suggestion(
        overrides=[HOSTILE], reasons=[HOSTILE], engines={HOSTILE: {"spec": HOSTILE}}
    )
    for text in (
        plan_page(plan(cfg)),
        suggestions_page(
            {"suggestions": [hostile], "left_out": {HOSTILE: 1}, "unknown": [HOSTILE]}
        ),
        table_page(HOSTILE, [Column(HOSTILE, "x", code=True)], [{"x": HOSTILE}], [HOSTILE]),
    ):
        page = Page(text)
        assert [tag for tag, _ in page.elements].count("script") == 1
        assert not any("onload" in at for _, at in page.elements)
        text.encode("ascii")


def test_findings_come_first() -> None:
    page = Page(plan_page(plan({"actor": {"backend": "fsdp:d4p2"}, "cluster": CLUSTER})))
    assert page.of_class("error")
    assert page.text.index("AC104") < page.text.index("on the GPUs of")


def test_memory_in_words() -> None:
    assert memory_range(MEMORY) == "61-84 of 79 GiB: may fit"
    assert memory_range({**MEMORY, "step": None}) == "unknown"
    assert memory_range(None) == ""


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "plan.html"
    assert (
        main(["plan", "rollout.backend=sglang:d4", "actor.backend=fsdp:d4", "-o", str(target)]) == 0
    )
    assert target.read_text().startswith("<!DOCTYPE html>")
    words = ["plan", "rollout.backend=sglang:d4", "actor.backend=fsdp:d4", "--format", "page"]
    assert main(words) == 0
    assert capsys.readouterr().out == target.read_text()


def test_suggestions_as_a_page(tmp_path: Path) -> None:
    target = tmp_path / "suggest.html"
    words = ["suggest", "--model", "Qwen2.5-1.5B", "--gpu", "H100", "--gpus", "4", "--top", "1"]
    assert main([*words, "-o", str(target)]) == 0
    page = Page(target.read_text())
    assert "relative step time" in page.text
    assert "rollout.backend=sglang:" in page.text
    assert "of 79 GiB" in page.text
