"""A real Hydra app in a directory of its own, run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import errors
from hydra.core.override_parser.overrides_parser import OverridesParser

NEXT = hasattr(errors, "Hydra15MigrationWarning")
"""Whether this is the Hydra to come (from 1.4.0rc on)."""

# Hydra instantiates every callback of a config so; only a list of the app's own ends the warning.
_OF_CALLBACKS = ("-W", "ignore:hydra.utils.instantiate() resolved _target_='areal_conf.app")

# Hydra 1.4 has one behaviour, and deprecates the parameter that chose it.
BASE: dict[str, Any] = {} if NEXT else {"version_base": "1.3"}

CONFIG = """
defaults:
  - areal/experiment: ppo
  - _self_
name: mine
actor:
  path: some/model
"""

HYDRA_MAIN = """
import hydra, sys
from omegaconf import OmegaConf

@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def main(cfg):
    print(OmegaConf.to_yaml(cfg, resolve=True))
    print("imported:", [m for m in ("pydantic", "rich", "ruamel") if m in sys.modules])

main()
"""

AREAL_MAIN = """
import areal_conf

@areal_conf.main(config_path="conf", config_name="config", version_base="1.3")
def main(cfg):
    print("task:", cfg.rollout.backend, cfg.actor.backend)

main()
"""


def unescaped(value: str) -> str:
    """What Hydra reads from one element of an override, quoted or escaped as sweeps have it."""
    return str(OverridesParser.create().parse_override(f"x={value}").value())


@dataclass
class App:
    """An app ``app.py`` with its configs in ``conf/``."""

    directory: Path
    warnings: str = "error"

    @classmethod
    def create(cls, directory: Path, code: str = HYDRA_MAIN, **configs: str) -> App:
        """Write the app; `configs` are YAML texts by file name (``config`` has a default)."""
        (directory / "conf").mkdir(parents=True)
        if not BASE:
            code = code.replace(', version_base="1.3"', "")
        (directory / "app.py").write_text(code, encoding="utf-8")
        for name, text in {"config": CONFIG, **configs}.items():
            path = directory / "conf" / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return cls(directory)

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``python app.py ARGUMENTS``; output directories stay below the app's."""
        env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
        return subprocess.run(
            [
                sys.executable,
                *("-W", self.warnings),
                *(_OF_CALLBACKS if NEXT else ()),
                "app.py",
                *arguments,
            ],
            cwd=self.directory,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**env, "PYTHONIOENCODING": "utf-8", **environment},
        )

    def output(self, *arguments: str, **environment: str) -> str:
        """What a run that must succeed prints; nothing may be on stderr."""
        done = self.run(*arguments, **environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout
