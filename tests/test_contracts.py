"""What users build on: options of the commands, the shape of JSON, the plans of AReaL's examples.

`tests/data/contracts.json` holds it. Where a change is meant, write the file anew and read the
difference: ``python tests/test_contracts.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import areal_conf
from areal_conf.cli.commands import COMMANDS
from areal_conf.cli.entry import main

DATA = Path(__file__).parent / "data"
STORED = DATA / "contracts.json"
EXAMPLES = sorted((DATA / "areal-examples").glob("*.yaml"))
FAULTY = "actor: {backend: 'fsdp:d4p2'}\ncluster: {n_nodes: 1, n_gpus_per_node: 8}\n"
JSON_COMMANDS = {
    "plan": ["plan", "rollout.backend=sglang:d4", "actor.backend=fsdp:d4p2"],
    "explain": ["explain", "megatron:(attn:d4|ffn:t2e2)"],
    "explain, refused": ["explain", "fsdp:d4p2"],
    "layouts": ["layouts", "fsdp:d*t*@8"],
    "layouts, refused": ["layouts", "fsdp:d*q*@8"],
    "check": ["check", "FAULTY"],
}


def options(command: str) -> list[str]:
    """Every argument of a command, with its choices."""
    parser = argparse.ArgumentParser(prog=command)
    importlib.import_module(f"areal_conf.cli.{COMMANDS[command][0]}").add_arguments(parser)
    return sorted(
        " ".join([*(action.option_strings or [action.dest]), *map(str, action.choices or ())])
        for action in parser._actions
        if action.help != argparse.SUPPRESS
    )


def shape(value: Any, path: str = "") -> Iterator[str]:
    """Each key of a JSON value by its path, with the types of what it holds."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from shape(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from shape(inner, f"{path}[]")
    else:
        yield f"{path}: {type(value).__name__}"


def json_of(arguments: list[str], folder: Path) -> list[str]:
    """The shape of what a command prints as JSON."""
    (folder / "faulty.yaml").write_text(FAULTY, encoding="utf-8")
    words = [str(folder / "faulty.yaml") if word == "FAULTY" else word for word in arguments]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        main([*words, "--format", "json"])
    return list(dict.fromkeys(shape(json.loads(printed.getvalue()))))


def plan_of(example: Path) -> dict[str, Any]:
    """What the plan of one example says, in short."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = areal_conf.plan(OmegaConf.load(example))
    return {
        "engines": {
            name: f"{engine.spec} on {len(set(engine.devices))} GPUs, reserves {engine.gpus}"
            for name, engine in plan.engines.items()
        },
        "total_gpus": plan.total_gpus,
        "errors": [f"{one.code} {one.path}" for one in plan.errors],
    }


def today(folder: Path) -> dict[str, Any]:
    return {
        "options": {command: options(command) for command in COMMANDS},
        "json": {name: json_of(words, folder) for name, words in JSON_COMMANDS.items()},
        "plans": {example.name: plan_of(example) for example in EXAMPLES},
    }


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", COMMANDS)
def test_options(command: str) -> None:
    assert options(command) == stored()["options"][command]


@pytest.mark.parametrize("name", JSON_COMMANDS)
def test_json(name: str, tmp_path: Path) -> None:
    assert json_of(JSON_COMMANDS[name], tmp_path) == stored()["json"][name]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_plans(example: Path) -> None:
    assert plan_of(example) == stored()["plans"][example.name]


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        text = json.dumps(today(Path(name)), indent=1, ensure_ascii=False)
    STORED.write_text(text + "\n", encoding="utf-8")
