"""A drop-in for AReaL's own ``load_expr_config``."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from areal_conf.app.preflight import is_first_rank, prepared_here
from areal_conf.areal.export import ConfigT, exported
from areal_conf.config.compose import compose_file
from areal_conf.config.view import is_mapping
from areal_conf.errors import AllocationError, clip
from areal_conf.legacy.carry_over import AllocationModeDeprecationWarning
from areal_conf.planning.options import PlanOptions

if TYPE_CHECKING:
    from omegaconf import DictConfig


# -- AReaL's loader ---------------------------------------------------------------------------


def load_expr_config(argv: Sequence[str], config_cls: type[ConfigT]) -> tuple[ConfigT, str]:
    """AReaL's function of this name (api/cli_args.py), with the plan checked first.

    Backend overrides are taken as typed, a legacy ``allocation_mode`` is carried over, inheritance
    is written out; then AReaL's own function loads the result.

    Args:
        argv: ``["--config", FILE, OVERRIDE, ...]``; a script's name before them is left out.
        config_cls: AReaL's dataclass of the experiment.

    Returns:
        The config, and the absolute path of FILE.

    Raises:
        AllocationError: where the plan has errors. Under torchrun the first rank alone says so; the
            others exit with status 1.
        OSError: FILE cannot be read.
    """
    from omegaconf import OmegaConf

    file, overrides = config_and_overrides(argv)
    if file is None:
        raise AllocationError(
            "AC320", "no --config FILE in the arguments", hint="write --config F.yaml"
        )
    cfg = compose_file(file, overrides)
    with warnings.catch_warnings():
        if os.environ.get("AREAL_SPMD_MODE", "").lower() in ("1", "true"):
            _forget_scheduler(cfg)
            # The launcher that started this process needs the mode: nobody has to mend it.
            warnings.simplefilter("ignore", AllocationModeDeprecationWarning)
        # The trainer asks for a scheduler, and a script may load a config without training.
        made = prepared_here(cfg, PlanOptions(allow=("AC316",), strict=True))
    if made.errors and not is_first_rank(made):
        raise SystemExit(1)
    made.raise_for_errors()
    from areal.api import cli_args

    with tempfile.TemporaryDirectory(prefix="areal-conf-") as directory:
        written = Path(directory) / "config.yaml"
        written.write_text(OmegaConf.to_yaml(exported(cfg, made)))
        loaded, _ = cli_args.load_expr_config(["--config", str(written)], config_cls)
    return loaded, str(Path(file).absolute())


def _forget_scheduler(cfg: DictConfig) -> None:
    """An SPMD launcher started this process: the single controller's scheduler is not asked."""
    if is_mapping(cfg.get("scheduler")) and "type" in cfg.scheduler:
        cfg.scheduler.type = None


def config_and_overrides(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The file after ``--config``, and everything else, as AReaL's ``parse_cli_args`` reads it."""
    rest = list(argv)
    if rest and rest[0].endswith(".py"):
        del rest[0]
    file: str | None = None
    others: list[str] = []
    words = iter(rest)
    for word in words:
        option, equal, value = word.partition("=")
        if not is_config_option(option):
            others.append(word)
            continue
        file = value if equal else next(words, None)
        if file is None:
            hint = "write --config F.yaml"
            raise AllocationError("AC320", f"{clip(word)} names no file", text=word, hint=hint)
    return file, others


def is_config_option(word: str) -> bool:
    """Whether `word` is ``--config``, or short for it (argparse takes every beginning)."""
    return len(word) > 2 and "--config".startswith(word)
