"""Draws the pictures of the documentation: ``python docs/make_images.py``.

A test compares the files in ``docs/images`` with what this gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from areal_conf import plan, svg

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


def images() -> dict[str, str]:
    """Every picture under its file name."""
    return {name: svg.render(plan(config)) for name, config in CONFIGS.items()}


if __name__ == "__main__":
    folder = Path(__file__).parent / "images"
    folder.mkdir(exist_ok=True)
    for name, text in images().items():
        (folder / name).write_text(text, encoding="utf-8")
