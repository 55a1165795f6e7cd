"""Estimates of memory, one layout after the other."""

from __future__ import annotations

from collections.abc import Iterator

from measure import Effort, Row, compare

from areal_conf import layouts
from areal_conf.config.versions import V1_0_4
from areal_conf.estimate import EngineKeys
from areal_conf.model import read_model

TITLE = "Estimating memory"
CASES = (
    ("Qwen3-30B-A3B", "megatron:d*t*p*c*e*@64"),
    ("DeepSeek-V3", "megatron:d*t*p*c*e*@512"),
    ("Qwen3-32B", "fsdp:d*t*c*@64"),
    ("Qwen3-32B", "sglang:d*t*p*@64"),
)
KEYS = {"mb_spec.max_tokens_per_mb": 16384, "gradient_checkpointing": True, "optimizer": {}}
_BAR = 1 / 1000


def rows(effort: Effort) -> Iterator[Row]:
    """Seconds for one estimate, beside listing the layouts alone."""
    keys = EngineKeys(KEYS.get, V1_0_4)
    for model, pattern in CASES:
        facts = read_model(model)
        found = list(layouts(pattern, model=facts))
        share = 1 / len(found)

        def estimates(found=found, facts=facts) -> None:  # type: ignore[no-untyped-def]
            for layout in found:
                keys.memory(layout, facts, 79.1)

        yield compare(
            f"one of {len(found):,}, {model}, `{pattern}`",
            estimates,
            "listing the layout",
            lambda pattern=pattern, facts=facts: lambda: list(layouts(pattern, model=facts)),
            effort,
            whole=(share, share),
            most=_BAR,
        )
