"""AReaL's own example files, planned with the models they name: a verdict or a reason each."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

import pytest
from paths import CASES

from areal_conf import plan
from areal_conf.config.compose import compose_file

EXAMPLES = sorted((CASES / "areal-examples").glob("*.yaml"))
EXAMPLES = [path for path in EXAMPLES if "sky" not in path.name]


composed = functools.cache(compose_file)


@pytest.mark.parametrize("areal", ["1.0.4", "2.0.0", "main"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_engine_has_a_verdict_or_a_reason(path: Path, areal: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = plan(composed(path), gpu="H100", areal=areal)
    told = {warning.path for warning in made.warnings if warning.code == "AC708"}
    running = [engine for engine in made.engines.values() if engine.active and engine.allocation]
    for engine in running:
        if engine.external:
            continue
        assert engine.memory is not None, engine.name
        if engine.memory.step is None:
            assert engine.memory.verdict == "unknown"
            assert engine.memory.unknown
            assert told
        else:
            low, high = engine.memory.step
            assert 0 < low < high
            assert engine.memory.verdict != "unknown" or engine.memory.unknown


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("math__gsm8k_grpo", "actor"),
        ("math__boba_grpo", "actor"),
        ("alignment__hhrlhf_rw", "actor"),
        ("tau2__config_8b_airline", "actor"),
        ("math__gsm8k_grpo", "rollout"),
        ("math__gsm8k_ppo_megatron", "rollout"),
    ],
)
def test_what_its_authors_run_is_not_refused(name: str, engine: str) -> None:
    cfg = composed(CASES / "areal-examples" / f"{name}.yaml")
    memory = plan(cfg, gpu="H100", areal="1.0.4").engines[engine].memory
    assert memory is not None
    assert memory.verdict != "no", memory
