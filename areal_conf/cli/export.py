"""``areal-conf export [CONFIG.yaml] [OVERRIDE ...] [--launcher K] [-o FILE]``"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from areal_conf.cli.arguments import (
    add_config_arguments,
    add_judging_arguments,
    composed,
    named_path,
    report,
    strict_plan,
)


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

    from areal_conf.areal.export import exported
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
