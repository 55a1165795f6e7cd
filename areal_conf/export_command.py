"""``areal-conf export [CONFIG.yaml] [OVERRIDE ...] [--launcher K] [-o FILE]``"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areal_conf.arguments import named_path
from areal_conf.plan_command import (
    add_config_arguments,
    add_judging_arguments,
    check_codes,
    composed,
    model_argument,
)

if TYPE_CHECKING:
    from areal_conf.plan import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_config_arguments(parser)
    parser.add_argument(
        "--launcher",
        choices=("local", "ray", "slurm"),
        help="write allocation_mode for AReaL's SPMD launcher of that kind",
    )
    add_judging_arguments(parser)
    parser.add_argument(
        "-o", "--output", type=named_path, metavar="FILE", help="write there instead of to stdout"
    )


def run(args: argparse.Namespace) -> int:
    """Print the config as AReaL takes it; 1, and nothing, where its plan has errors."""
    from omegaconf import OmegaConf

    from areal_conf.areal import exported
    from areal_conf.files import write_atomically

    cfg = composed(args)
    made = strict_plan(cfg, args, args.launcher)
    report(made)
    if made.errors:
        return 1
    text = OmegaConf.to_yaml(exported(cfg, made))
    if args.output is not None:
        write_atomically(Path(args.output), text)
    else:
        sys.stdout.write(text)
    return 0


def strict_plan(cfg: Any, args: argparse.Namespace, launcher: str | None) -> Plan:
    """The plan of what is about to run: what AReaL refuses at start is an error.

    A legacy ``allocation_mode`` is carried over into `cfg`.
    """
    from areal_conf.app import prepared
    from areal_conf.options import PlanOptions

    check_codes(args.allow)
    options = PlanOptions(
        launcher=launcher,
        model=model_argument(args.model),
        allow=args.allow,
        areal=args.areal,
        strict=True,
    )
    return prepared(cfg, options)


def report(made: Plan) -> None:
    """Print the plan's errors and warnings on stderr."""
    from rich.console import Console

    from areal_conf import render

    render.diagnostics(made, Console(stderr=True))
