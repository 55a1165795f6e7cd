"""``areal-conf export [CONFIG.yaml] [OVERRIDE ...] [--launcher K] [-o FILE]``"""

from __future__ import annotations

import argparse

from areal_conf.cli.arguments import (
    INVALID,
    OK,
    add_config_arguments,
    add_launcher_argument,
    add_output_argument,
    add_planning_arguments,
    composed,
    report,
    strict_plan,
    write_result,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_config_arguments(parser)
    add_launcher_argument(parser, "write allocation_mode for AReaL's SPMD launcher of that kind")
    add_planning_arguments(parser)
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the config as AReaL takes it; 1, and nothing, where its plan has errors."""
    from omegaconf import OmegaConf

    from areal_conf.areal.export import exported

    cfg = composed(args)
    made = strict_plan(cfg, args, args.launcher)
    report(made)
    if made.errors:
        return INVALID
    write_result(OmegaConf.to_yaml(exported(cfg, made)), args.output)
    return OK
