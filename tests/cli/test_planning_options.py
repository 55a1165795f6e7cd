"""The options of every command that plans, on the command line and in ``areal_plan``."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import areal_conf
from areal_conf import AllocationError
from areal_conf.cli.entry import main
from areal_conf.planning.checks import examine
from areal_conf.planning.options import PlanOptions

SHARED = {"--root", "--model", "--gpu", "--areal", "--allow", "--app"}
EXPERIMENT = {
    "rollout": {"backend": "sglang:d4"},
    "actor": {"backend": "fsdp:d4"},
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    "scheduler": {"type": "local"},
}
APP = """
from dataclasses import dataclass, field
from typing import Any
import hydra
from hydra.core.config_store import ConfigStore

@dataclass
class Config:
    actor: dict[str, Any] = field(default_factory=lambda: {"backend": "fsdp:d4"})
    lr: float = 0.1

ConfigStore.instance().store(name="my_schema", node=Config)
print("imported")

@hydra.main(config_path=None, config_name="my_schema", version_base="1.3")
def app(cfg):
    print("started")
"""


@pytest.fixture
def _outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a directory of its own; what is imported and stored there is forgotten."""
    from hydra.core.config_store import ConfigStore

    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", "") and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]
    ConfigStore.instance().repo.pop("my_schema.yaml", None)


def write(file: Path, data: object) -> Path:
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    return file


@pytest.mark.parametrize("command", ["plan", "export", "run", "launch"])
def test_commands_that_plan_take_the_same_options(command: str) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"areal_conf.cli.{command}").add_arguments(parser)
    options = {name for action in parser._actions for name in action.option_strings}
    assert options >= SHARED


# -- the package that holds the experiment ------------------------------------------------------


@pytest.mark.usefixtures("_outside")
def test_a_package_is_found_without_being_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "c.yaml", {"name": "x", "deep": {"rl": EXPERIMENT}})
    assert main(["plan", str(file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["total_gpus"] == 8
    assert main(["export", str(file)]) == 0
    assert set(yaml.safe_load(capsys.readouterr().out)) == set(EXPERIMENT)
    script = tmp_path / "train.py"
    script.touch()
    assert main(["run", "--", "true", "--config", str(file), "deep.rl.actor.backend=fsdp:d8"]) == 1
    assert "AC306" in capsys.readouterr().err


def test_one_of_several_packages_must_be_named() -> None:
    cfg = {"a": EXPERIMENT, "b": EXPERIMENT | {"actor": {"backend": "fsdp:d2"}}}
    with pytest.raises(AllocationError, match="2 packages of this config hold") as caught:
        areal_conf.plan(cfg)
    assert caught.value.code == "AC301"
    assert "--root b" in caught.value.hint or "--root a" in caught.value.hint
    assert areal_conf.plan(cfg, root="b").total_gpus == 6
    assert areal_conf.plan(cfg | {"areal_plan": {"root": "b"}}).total_gpus == 6


def test_the_root_comes_before_packages() -> None:
    assert areal_conf.plan(EXPERIMENT | {"old": EXPERIMENT}).engines.keys() == {"rollout", "actor"}
    assert areal_conf.plan(EXPERIMENT | {"old": EXPERIMENT}).total_gpus == 8


def test_nothing_is_resolved_to_find_a_package() -> None:
    cfg = {"n": "${areal.gpus:}", "rl": EXPERIMENT, "secret": "${oc.env:NOT_THERE}"}
    from omegaconf import OmegaConf

    assert OmegaConf.create(cfg).n == 8


# -- areal_plan ---------------------------------------------------------------------------------


def model(tmp_path: Path) -> Path:
    facts = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "hidden_size": 60,
        "vocab_size": 1000,
        "intermediate_size": 100,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(facts))
    return file


@pytest.mark.parametrize("place", ["root", "package"])
def test_options_of_the_config(tmp_path: Path, place: str) -> None:
    own = {"model": str(model(tmp_path)), "gpu": "H100", "areal": "main", "allow": ["AC306"]}
    experiment = EXPERIMENT | {"rollout": {"backend": "sglang:d1t4"}}
    if place == "root":
        cfg: dict[str, object] = {"areal_plan": own, "rl": experiment}
    else:
        cfg = {"rl": {**experiment, "areal_plan": own}}
    made = areal_conf.plan(cfg)
    assert "AC401" in [one.code for one in made.errors]
    facts, _ = examine(cfg, PlanOptions())
    assert facts.areal > (2, 0)
    assert facts.allowed == {"AC306"}
    options = PlanOptions().or_of(facts.experiment)
    assert (options.gpu, options.areal) == ("H100", "main")


def test_an_argument_comes_before_the_config() -> None:
    facts, _ = examine({**EXPERIMENT, "areal_plan": {"areal": "main"}}, PlanOptions(areal="1.0.2"))
    assert facts.areal == (1, 0, 2)


@pytest.mark.parametrize(("value", "codes"), [("latest", ["AC309"]), (1.0, [])])
def test_a_version_of_the_config(value: object, codes: list[str]) -> None:
    made = areal_conf.plan({**EXPERIMENT, "areal_plan": {"areal": value}})
    assert [one.code for one in made.errors] == codes
    assert [one.path for one in made.errors] == ["areal_plan.areal" for _ in codes]


# -- the app's module ---------------------------------------------------------------------------


@pytest.mark.usefixtures("_outside")
@pytest.mark.parametrize("name", ["my_app", "my_app.py", "sub/my_app.py"])
def test_a_module_fills_the_config_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code = APP
    from hydra import errors

    if hasattr(errors, "Hydra15MigrationWarning"):
        code = APP.replace(', version_base="1.3"', "")
    place = tmp_path / (name if name.endswith(".py") else f"{name}.py")
    place.parent.mkdir(exist_ok=True)
    place.write_text(code)
    file = tmp_path / "c.yaml"
    file.write_text("defaults: [my_schema, _self_]\nlr: 0.2\n")
    assert main(["plan", str(file), "--app", name, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["engines"]["actor"]["spec"] == "fsdp:d4"
    assert err == "imported\n"
    assert main(["plan", "--config-name", "my_schema", "--app", name]) == 0
    file.write_text(f"defaults: [my_schema, _self_]\nareal_plan: {{app: {name}}}\n")
    assert main(["plan", str(file), "+areal_plan.gpu=H100"]) == 1  # the schema has no such key
    assert "areal_plan" in capsys.readouterr().err


@pytest.mark.usefixtures("_outside")
@pytest.mark.parametrize(
    ("code", "told"),
    [
        (None, "ModuleNotFoundError"),
        ("raise ValueError('x')", "ValueError: x"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("app()", "it starts its app when it is imported"),
    ],
)
def test_a_module_that_cannot_be_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str | None, told: str
) -> None:
    if code is not None:
        text = APP + code
        from hydra import errors

        if hasattr(errors, "Hydra15MigrationWarning"):
            text = text.replace(', version_base="1.3"', "")
        (tmp_path / "bad_app.py").write_text(text)
    file = write(tmp_path / "c.yaml", EXPERIMENT)
    with pytest.raises(SystemExit) as caught:
        main(["plan", str(file), "--app", "bad_app"])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert told in err
    assert "started" not in err


def test_a_passing_model_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "c.yaml", EXPERIMENT)
    assert main(["plan", str(file), "--model", str(model(tmp_path))]) == 0
    assert capsys.readouterr().out.endswith("the sizes of the model suit every layout\n")
    assert main(["plan", str(file)]) == 0
    assert "the model fits" not in capsys.readouterr().out
    words = ["rollout.backend=sglang:d1t4", "--model", str(tmp_path)]
    assert main(["plan", str(file), *words]) == 1
    assert "the model fits" not in capsys.readouterr().out


def test_lines_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rollout.backend=sglang:d4", "actor.backend=megatron:(attn:d4|ffn:e4)"]
    assert main(["plan", *words, "~critic", "--format", "lines"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:2] == ["rollout.backend=sglang:d4", "actor.backend=megatron:d4e4"]
    assert main(["plan", *out.splitlines(), "~critic", "--format", "lines"]) == 0
    assert capsys.readouterr().out == out


@pytest.mark.parametrize("columns", ["20", "40", "72", "80", "100", "200"])
def test_tables_break_no_backend_string(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    specs = ["vllm[rollout]:d16t2", "megatron:(attn:d4p2t2c2|ffn:d2p2t2e4)"]
    words = [f"rollout.backend={specs[0]}", f"actor.backend={specs[1]}", "~critic", "~ref"]
    main(["plan", *words])
    out = capsys.readouterr().out
    assert "(attn:d4p2t2c2|ffn:d2p2t2e4)" in out
    assert "d16t2" in out
    main(["plan", words[0], "actor.backend=megatron:(attn:d4t2p2c2|ffn:d3t2p2e4)", "~critic"])
    err = capsys.readouterr().err
    assert "megatron:(attn:d4t2p2c2|ffn:d3t2p2e4)" in err
