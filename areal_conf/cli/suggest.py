"""``areal-conf suggest [CONFIG.yaml] [OVERRIDE ...]``"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from areal_conf.cli.arguments import (
    INVALID,
    OK,
    add_config_arguments,
    add_output_argument,
    add_planning_arguments,
    composed,
    import_app,
    named_path,
    plan_options,
    split_words,
    usage_error,
    write_result,
)
from areal_conf.errors import AllocationError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.suggest.experiment import Gpus
    from areal_conf.suggest.result import Suggestions

_FORMATS = {".json": "json", ".html": "page"}
"""Formats by the end of a file's name."""

_DEFAULT = "areal/experiment=grpo"
"""What is suggested for where no config is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_config_arguments(parser, "a grpo experiment is taken")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--gpus", type=_whole_number, metavar="N", help="how many GPUs, on nodes of eight"
    )
    size.add_argument(
        "--cluster",
        type=named_path,
        metavar="slurm[:PARTITION] | ray[:ADDRESS] | auto",
        help="ask the real cluster for nodes, GPUs and cards",
    )
    parser.add_argument(
        "--top", type=_whole_number, default=5, metavar="K", help="suggestions for each split"
    )
    add_planning_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("table", "json", "hydra", "page"),
        help="a table, JSON, one HTML page, or what goes behind -m, a line for each split; "
        "default: as the name after -o ends, else table",
    )
    add_output_argument(parser)


def _whole_number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,7}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print the suggestions; 1 where there is none."""
    form = args.format or _FORMATS.get(Path(args.output or "").suffix, "table")
    try:
        found = _suggested(args)
    except AllocationError as error:
        if form != "json":
            raise
        from areal_conf.planning.result import errors_as_json

        write_result(errors_as_json(error) + "\n", args.output)
        return INVALID
    _print(found, form, args.output)
    return OK if found.suggestions else INVALID


def _suggested(args: argparse.Namespace) -> Suggestions:
    from areal_conf.suggest.suggestions import suggest

    _, configs = split_words(args.config_and_overrides)
    bare = not configs and args.config_name is None
    cfg = _default(args) if bare else composed(args)
    options = plan_options(args, None)
    return suggest(cfg, options, _gpus(args, cfg), args.top, bare=bare)


def _default(args: argparse.Namespace) -> DictConfig:
    from areal_conf.config.compose import compose_default

    import_app(args.app)
    overrides, _ = split_words(args.config_and_overrides)
    if not any(word.startswith("areal/experiment=") for word in overrides):
        overrides = [_DEFAULT, *overrides]
    return compose_default(overrides)


def _gpus(args: argparse.Namespace, cfg: DictConfig) -> Gpus:
    """The cluster that is named, or else the config's."""
    from areal_conf.suggest.experiment import Gpus, of_config

    if args.cluster is not None:
        from areal_conf.suggest.clusters import ask

        return ask(args.cluster)
    if args.gpus is not None:
        return Gpus.of_count(args.gpus)
    found = of_config(cfg, args.root or "")
    if found is None:
        usage_error("how many GPUs? Give --gpus N or --cluster, or cluster.n_nodes in the config")
    return found


def _print(found: Suggestions, form: str, output: str | None) -> None:
    if form == "json":
        write_result(found.model_dump_json(indent=2) + "\n", output)
        return
    if form == "page":
        from areal_conf.report.page import suggestions_page

        write_result(suggestions_page(found.model_dump(mode="json")), output)
        return
    from rich.console import Console

    from areal_conf.report.suggestions import hydra_lines, print_suggestions

    if form == "hydra":
        write_result("".join(f"{line}\n" for line in hydra_lines(found)), output)
        return
    if output is None:
        print_suggestions(found, Console())
        return
    from io import StringIO

    page = StringIO()
    print_suggestions(found, Console(file=page, width=120))
    write_result(page.getvalue(), output)
