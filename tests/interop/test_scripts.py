"""Scripts of AReaL's style as they are: `areal-conf run`, and the launcher `areal_controller`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .jobs import PACKAGE, write

SCRIPT = """
import sys
from areal.api.alloc_mode import ModelAllocation
from areal.api.cli_args import SFTConfig, load_expr_config

config, _ = load_expr_config(sys.argv[1:], SFTConfig)
world_size = ModelAllocation.from_str(config.actor.backend).parallel.world_size
print("LOADED", config.trial_name, config.actor.backend, world_size, flush=True)
sys.exit(7 if config.seed == 7 else 0)
"""
FOLDED = "megatron:(attn:d2|ffn:e2)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    file = write(tmp_path, scheduler={"type": "local"})
    config = yaml.safe_load(file.read_text())
    del config["behave"]  # no key of AReaL
    config["seed"] = 1
    (entry,) = config["actor"]["scheduling_spec"]
    entry["cmd"] = "python -m areal.infra.rpc.rpc_server"  # as the local scheduler demands
    file.write_text(yaml.safe_dump(config))
    return tmp_path


def command(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit status, what the script said, and what stands on standard error."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    return done.returncode, "\n".join(said), done.stderr


def run(folder: Path, *overrides: str) -> tuple[int, str, str]:
    script = [sys.executable, "train.py", "--config", "f.yaml"]
    return command(folder, "-m", "areal_conf", "run", "--", *script, *overrides)


def test_run_quotes_what_areals_loader_refuses(folder: Path) -> None:
    override = f"actor.backend={FOLDED}"
    status, said, _ = command(folder, "train.py", "--config", "f.yaml", override)
    assert (status, said) == (1, "")
    assert run(folder, override)[:2] == (0, f"LOADED t {FOLDED} 2")


def test_run_keeps_the_status_of_the_script(folder: Path) -> None:
    assert run(folder, "seed=7")[:2] == (7, "LOADED t fsdp:d2 2")


def test_run_starts_nothing_that_does_not_fit(folder: Path) -> None:
    status, said, errors = run(folder, "actor.backend=fsdp:d8")
    assert (status, said) == (1, "")
    assert "AC306" in errors


def test_the_controller_sweeps_a_script_of_areals(folder: Path) -> None:
    """In a plain Hydra app, whose grammar wants parentheses in quotes."""
    (folder / "app.py").write_text(
        "import hydra\n"
        "hydra.main(version_base=None, config_path='.', config_name='f')(lambda cfg: None)()\n"
    )
    layouts = ["fsdp:d2", "fsdp:t2", FOLDED]
    words = [
        "hydra/launcher=areal_controller",
        "hydra/sweeper=areal_layouts",
        "hydra.launcher.script=train.py",
        "hydra.sweep.dir=sweep",
        "actor.backend=" + ",".join(f"'{layout}'" for layout in layouts),
    ]
    status, _, errors = command(folder, "app.py", "-m", *words)
    assert status == 0, errors
    for number, backend in enumerate(layouts):
        log = (folder / "sweep" / str(number) / "areal.log").read_text()
        assert f"LOADED t_{number} {backend} 2" in log
