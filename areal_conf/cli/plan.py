"""``areal-conf plan [CONFIG.yaml] [OVERRIDE ...]``"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from areal_conf.cli.arguments import (
    add_config_arguments,
    add_judging_arguments,
    check_codes,
    composed,
    model_argument,
    named_path,
)
from areal_conf.errors import AllocationError

if TYPE_CHECKING:
    from areal_conf.planning.result import Plan


_FORMATS = {".json": "json", ".svg": "svg"}
"""Formats by the suffix of the file that is written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_config_arguments(parser)
    parser.add_argument(
        "--launcher",
        choices=("local", "ray", "slurm"),
        help="plan for AReaL's SPMD launcher of that kind",
    )
    add_judging_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("table", "json", "svg"),
        help="table, json, or a picture; default: as the name after -o ends, else table",
    )
    parser.add_argument(
        "-o", "--output", type=named_path, metavar="FILE", help="write there instead of to stdout"
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan; 1 where it has errors."""
    check_codes(args.allow)
    form = args.format or _FORMATS.get(Path(args.output or "").suffix, "table")
    try:
        made = _planned(args)
    except AllocationError as error:
        if form != "json":
            raise
        from areal_conf.planning.result import refused

        made = refused(error)
    _print(made, form, args.output)
    return 0 if made.ok else 1


def _planned(args: argparse.Namespace) -> Plan:
    from areal_conf.planning.result import plan

    return plan(
        composed(args),
        launcher=args.launcher,
        model=model_argument(args.model),
        allow=args.allow,
        areal=args.areal,
    )


def _print(made: Plan, form: str, output: str | None) -> None:
    if output is not None:
        from areal_conf.files import write_atomically

        write_atomically(Path(output), _text(made, form))
    elif form == "table":
        from rich.console import Console

        from areal_conf.report import terminal

        terminal.plan_text(made, Console())
    else:
        sys.stdout.write(_text(made, form))
    if form != "json":
        from rich.console import Console

        from areal_conf.report import terminal

        terminal.diagnostics(made, Console(stderr=True))


def _text(made: Plan, form: str) -> str:
    if form == "json":
        return made.model_dump_json(indent=2) + "\n"
    if form == "svg":
        from areal_conf.report import svg

        return str(svg.render(made))
    from io import StringIO

    from rich.console import Console

    from areal_conf.report import terminal

    page = StringIO()
    terminal.plan_text(made, Console(file=page, width=120))
    return page.getvalue()
