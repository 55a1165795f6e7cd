"""``areal-conf init``: a first config for every kind of experiment, without a warning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from areal_conf import AllocationError, plan
from areal_conf.areal.starter import plan_of, start
from areal_conf.areal.starter_text import ENGINES, starter_config
from areal_conf.cli.entry import main
from areal_conf.model.known import known_models

MODEL = ["--model", "Qwen2.5-1.5B", "--gpu", "A100-80GB"]


@pytest.mark.parametrize("kind", ENGINES)
def test_the_config_plans_without_a_warning(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", kind, *MODEL, "--gpus", "8"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"areal-conf plan {kind}.yaml {' '.join(MODEL)}" in shown.err
    assert main(["plan", f"{kind}.yaml", *MODEL, "--format", "json"]) == 0
    made = plan(OmegaConf.load(f"{kind}.yaml"), model="Qwen2.5-1.5B", gpu="A100-80GB")
    assert (made.errors, made.warnings) == ([], [])
    assert set(made.engines) == set(ENGINES[kind])
    assert made.total_gpus == 8


@pytest.mark.slow
@pytest.mark.parametrize("model", ["Qwen3-8B", "Qwen3-30B-A3B", "Llama-3.1-8B"])
@pytest.mark.parametrize("kind", ENGINES)
def test_other_models(kind: str, model: str) -> None:
    begun = start(kind, model, "H100", 4, 8, "slurm")
    made = plan_of(begun)
    assert (made.errors, made.warnings) == ([], [])
    assert {engine.memory.verdict for engine in made.engines.values() if engine.memory} == {"fits"}


def test_a_file_of_the_user_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sft.yaml").write_text("mine: 1\n")
    with pytest.raises(SystemExit) as ended:
        main(["init", "sft", *MODEL, "--gpus", "8"])
    assert ended.value.code == 2
    assert "sft.yaml exists already" in capsys.readouterr().err
    assert Path("sft.yaml").read_text() == "mine: 1\n"


def test_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "sft", *MODEL, "--gpus", "2", "-o", "-"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["actor"]["backend"] == "fsdp:d2"
    assert config["cluster"]["n_gpus_per_node"] == 2


def test_lines_for_an_app(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "app", *MODEL, "--gpus", "8", "-o", "-"]) == 0
    text = capsys.readouterr().out
    config = yaml.safe_load(text)
    assert config["areal_plan"] == {"model": "Qwen2.5-1.5B", "gpu": "A100-80GB"}
    assert "override hydra/callbacks: areal_plan" in text
    assert plan(config).ok


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--gpus", "0"], 2),
        (["--gpus", "12"], 2),
        (["--gpus", "8", "--gpus-per-node", "0"], 2),
    ],
)
def test_wrong_numbers(words: list[str], status: int) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["init", "sft", *MODEL, *words, "-o", "-"])
    assert ended.value.code == status


def test_what_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["init", "sft", "--model", "Qwen2.5-72B", "--gpu", "24", "--gpus", "1", "-o", "-"]
    assert main(words) == 1
    shown = capsys.readouterr()
    assert "AC602: no layout of Qwen2.5-72B for sft fits 1 x 24" in shown.err
    assert shown.out == ""


def test_three_engines_on_two_nodes_of_slurm() -> None:
    with pytest.raises(AllocationError, match="--cluster ray") as refused:
        start("distill", "Qwen3-8B", "H100", 2, 8, "slurm")
    assert refused.value.code == "AC602"


def test_every_line_of_the_text_is_yaml() -> None:
    text = starter_config(start("grpo", "Qwen2.5-1.5B", "H100", 1, 8, "local"))
    assert "$" not in text.replace("${", "")
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("named", "loaded"),
    [
        ("Qwen2.5-1.5B", "Qwen/Qwen2.5-1.5B"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("someone/Qwen3-8B", "someone/Qwen3-8B"),
    ],
)
def test_areal_gets_a_name_that_the_hub_knows(named: str, loaded: str) -> None:
    text = starter_config(start("sft", named, "H100", 1, 8, "local"))
    assert yaml.safe_load(text)["actor"]["path"] == loaded


def test_areal_gets_the_directory_of_a_config(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(known_models()["Qwen/Qwen3-8B"]))
    for named in (file, tmp_path):
        text = starter_config(start("sft", str(named), "H100", 1, 8, "local"))
        assert yaml.safe_load(text)["actor"]["path"] == str(tmp_path)


def test_the_servers_of_a_teacher_are_spelled_as_others() -> None:
    text = starter_config(start("distill", "Qwen3-8B", "H100", 2, 8, "ray"))
    assert yaml.safe_load(text)["teacher"]["rollout"]["backend"] == "sglang:d8"
