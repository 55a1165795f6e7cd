"""`plan(model=...)`: which engine is held to which model, with which settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from areal_conf.errors import AllocationError
from areal_conf.model import read_model
from areal_conf.planning.result import Plan, plan

SEVEN_B = {"num_attention_heads": 28, "num_key_value_heads": 4, "num_hidden_layers": 28}
SMALL = {"num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 24}


def experiment(**backends: str) -> dict[str, Any]:
    return {name: {"backend": spec} for name, spec in backends.items()}


def found(made: Plan) -> list[tuple[str, str | None]]:
    return [(one.code, one.path) for one in made.errors]


def saved(directory: Path, config: dict[str, Any]) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)


def test_a_model_for_all_engines(tmp_path: Path) -> None:
    config = experiment(rollout="sglang:d1t8", actor="fsdp:d1t8")
    expected = [
        ("AC401", "actor.backend"),
        ("AC402", "actor.backend"),
        ("AC401", "rollout.backend"),
    ]
    path = saved(tmp_path, SEVEN_B)
    for source in (SEVEN_B, path, Path(path), Path(path) / "config.json", read_model(SEVEN_B)):
        assert found(plan(config, model=source)) == expected
    assert found(plan(config, model=OmegaConf.create(SEVEN_B))) == expected
    heads = OmegaConf.create({**SEVEN_B, "num_attention_heads": "${n_head}", "n_head": 28})
    assert found(plan(config, model=heads)) == expected
    assert found(plan(config)) == []


def test_a_layout_that_fits_the_model() -> None:
    made = plan(experiment(rollout="sglang:d2t4", actor="megatron:d1p2t4"), model=SEVEN_B)
    assert made.ok


def test_the_error_underlines_what_was_typed() -> None:
    (error, _) = plan(experiment(actor="fsdp[actor]: t8 d2"), model=SEVEN_B).errors
    assert error.text == "fsdp[actor]: t8 d2"
    assert error.text[slice(*error.span)] == "t8"


def test_a_model_for_one_engine() -> None:
    config = experiment(rollout="sglang:t8", actor="fsdp:t8", teacher="vllm:t8")
    assert found(plan(config, model={"teacher": SEVEN_B})) == [("AC401", "teacher.backend")]
    others = plan(config, model={"teacher": SEVEN_B, "*": SMALL})
    assert found(others) == [("AC401", "teacher.backend")]
    assert found(plan(config, model={"*": SEVEN_B, "actor": SMALL})) == [
        ("AC401", "teacher.backend"),
        ("AC401", "rollout.backend"),
    ]
    assert plan(config, model={"critic": SEVEN_B}).ok
    judge = experiment(judge="vllm:t8", actor="fsdp:d8")
    assert found(plan(judge, model={"judge": SEVEN_B})) == [("AC401", "judge.backend")]


def test_a_model_for_what_is_no_engine() -> None:
    with pytest.raises(AllocationError, match=r"AC309: .*'judge'"):
        plan(experiment(actor="fsdp:d8"), model={"actor": SMALL, "judge": SMALL})


def test_what_an_engine_inherits_is_said_once() -> None:
    config = {**experiment(actor="fsdp:d1t8"), "ref": {"backend": ""}, "critic": {}}
    assert found(plan(config, model=SEVEN_B)) == [
        ("AC401", "actor.backend"),
        ("AC402", "actor.backend"),
    ]
    echo = OmegaConf.create(
        {**experiment(actor="fsdp:d1t8"), "ref": {"backend": "${actor.backend}"}}
    )
    assert len(plan(echo, model=SEVEN_B).errors) == 2


def test_auto_takes_what_each_engine_says(tmp_path: Path) -> None:
    seven, small = saved(tmp_path / "seven", SEVEN_B), saved(tmp_path / "small", SMALL)
    config = {
        "rollout": {"backend": "sglang:t8"},
        "actor": {"backend": "fsdp:t8", "path": small},
        "critic": {"backend": "fsdp:t8", "path": seven},
        "teacher": {"path": seven, "rollout": {"backend": "vllm:t8"}},
        "sglang": {"model_path": seven},
        "vllm": {"model": small},
    }
    assert found(plan(config, model="auto")) == [
        ("AC401", "critic.backend"),
        ("AC402", "critic.backend"),
        ("AC401", "teacher.rollout.backend"),
        ("AC401", "rollout.backend"),
    ]


def test_auto_says_what_it_could_not_check_and_asks_no_network(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    config = {
        "actor": {"backend": "fsdp:t8", "path": "me/mine-7b"},
        "ref": {"backend": "fsdp:t8", "path": "me/mine-7b"},
        "rollout": {"backend": "sglang:t8"},
        "sglang": {"model_path": str(tmp_path / "empty")},
    }
    made = plan(config, model="auto")
    assert made.ok
    assert [(w.code, w.path) for w in made.warnings if w.code == "AC362"] == [
        ("AC362", "actor.path"),
        ("AC362", "sglang.model_path"),
    ]
    assert "config.json" in made.warnings[-1].message
    config["ref"]["path"] = "me/mine-14b"
    again = plan(config, model="auto").warnings
    assert [w.text for w in again if w.code == "AC362"][:2] == [
        "me/mine-7b",
        "me/mine-14b",
    ]


def test_auto_says_where_a_model_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[]")
    config = {"actor": {"backend": "fsdp:t8", "path": str(tmp_path)}}
    assert found(plan(config, model="auto")) == [("AC421", "actor.path")]


def test_a_file_that_is_missing_or_no_model(tmp_path: Path) -> None:
    config = experiment(actor="fsdp:d8", rollout="sglang:d8")
    with pytest.raises(FileNotFoundError):
        plan(config, model=tmp_path / "none.json")
    (tmp_path / "config.json").write_text("[]")
    assert found(plan(config, model=tmp_path)) == [("AC421", None)]
    with pytest.raises(AllocationError, match="AC309"):
        plan(config, model=8)


def test_engines_that_do_not_run_here_are_not_checked() -> None:
    config = experiment(rollout="sglang:t8", actor="fsdp:d8", ref="fsdp:t8")
    config["actor"]["kl_ctl"] = 0
    config["rollout"] |= {"api_url": "http://elsewhere", "_version": "v2"}
    config["actor"]["_version"] = "v2"
    assert found(plan(config, model=SEVEN_B)) == []


@pytest.mark.parametrize(
    ("engine", "settings", "code"),
    [
        ("rollout", {"sglang": {"context_length": 9000}}, "AC454"),
        ("rollout", {"sglang": {"context_length": 8000}}, None),
        ("actor", {"gconfig": {"max_tokens": 9000}}, "AC454"),
    ],
)
def test_the_length_of_a_sequence(engine: str, settings: dict[str, Any], code: str | None) -> None:
    config = {**experiment(rollout="sglang:d4", actor="fsdp:d4"), **settings}
    made = plan(config, model={**SMALL, "max_position_embeddings": 8192})
    codes = [one.code for one in made.warnings if one.path == f"{engine}.backend"]
    assert codes == ([code] if code else [])


def test_the_length_of_a_sequence_without_a_rollout() -> None:
    config = {**experiment(actor="fsdp:d2c4"), "train_dataset": {"max_length": 1022}}
    assert [w.code for w in plan(config, model=SMALL).warnings if w.code != "AC357"] == ["AC453"]


def test_attention_data_parallelism_of_sglang() -> None:
    config: dict[str, Any] = experiment(rollout="sglang:t8")
    assert found(plan(config, model=SEVEN_B)) == [("AC401", "rollout.backend")]
    config["sglang"] = {"enable_dp_attention": True, "dp_size": 2}
    assert found(plan(config, model=SEVEN_B)) == []


def test_stages_of_a_rank() -> None:
    layers = {**SMALL, "num_hidden_layers": 6, "model_type": "qwen3"}
    archon: dict[str, Any] = experiment(actor="archon:p6")
    assert found(plan(archon, model=layers)) == [("AC403", "actor.backend")]
    archon["actor"]["archon"] = {"pp_schedule": "1F1B"}
    assert found(plan(archon, model=layers)) == []
    for unset in ("", None, 8, "${nowhere}"):
        archon["actor"]["archon"] = {"pp_schedule": unset}
        made = plan(OmegaConf.create(archon), model=layers)
        assert found(made) == [("AC403", "actor.backend")]
    megatron: dict[str, Any] = experiment(actor="megatron:p4")
    assert found(plan(megatron, model=layers)) == []
    megatron["actor"]["megatron"] = {"virtual_pipeline_parallel_size": 2}
    assert found(plan(megatron, model=layers)) == [("AC403", "actor.backend")]


def test_an_error_of_the_model_can_be_allowed() -> None:
    made = plan(experiment(rollout="sglang:t8"), model=SEVEN_B, allow=["AC401"])
    assert made.ok
    assert "AC401" in [one.code for one in made.warnings]


def test_models_of_a_config_may_be_interpolations() -> None:
    config = OmegaConf.create({"size": SMALL, "models": {"actor": "${size}"}})
    made = plan(experiment(actor="fsdp:t32"), model=config.models)
    assert found(made) == [("AC401", "actor.backend"), ("AC402", "actor.backend")]


def test_each_missing_directory_is_told_of_its_own(tmp_path: Path) -> None:
    config = experiment(actor="fsdp:d8", teacher="fsdp:d8")
    for name in config:
        config[name]["path"] = str(tmp_path / name)
        (tmp_path / name).mkdir()
    told = [one for one in plan(config, model="auto").warnings if one.code == "AC362"]
    assert [one.path for one in told] == ["actor.path", "teacher.path"]
