"""Layouts that authors of AReaL's examples run are among the suggestions for their split."""

from __future__ import annotations

import pytest
from paths import CASES

from areal_conf.config.compose import compose_file
from areal_conf.planning.options import PlanOptions
from areal_conf.planning.result import planned
from areal_conf.suggest.experiment import Gpus
from areal_conf.suggest.suggestions import suggest

EXAMPLES = (
    "math__gsm8k_grpo.yaml",
    "math__gsm8k_ppo_megatron.yaml",
    "math__boba_grpo.yaml",
    "math__gsm8k_sft_archon_fp8.yaml",
    "alignment__hhrlhf_rw.yaml",
    "tau2__config_1.7b_airline.yaml",
    "search_agent__local_1.5b_example.yaml",
    "tir__tir_math_config.yaml",
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_authors_layout_is_suggested(name: str) -> None:
    cfg = compose_file(CASES / "areal-examples" / name)
    options = PlanOptions(model="auto", gpu="H100")
    made = planned(cfg, options)
    wanted = {key: engine.spec for key, engine in made.engines.items() if engine.gpus}
    found = suggest(cfg, options, Gpus(1, 8)).suggestions
    assert any(
        all(suggestion.engines[key]["spec"] == spec for key, spec in wanted.items())
        for suggestion in found
    )
