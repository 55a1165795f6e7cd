"""``areal-conf plan [CONFIG.yaml] [OVERRIDE ...]``"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from areal_conf.cli.arguments import (
    INVALID,
    OK,
    add_config_arguments,
    add_launcher_argument,
    add_output_argument,
    add_planning_arguments,
    composed,
    plan_options,
    write_result,
)
from areal_conf.errors import AllocationError

if TYPE_CHECKING:
    from areal_conf.planning.result import Plan


_FORMATS = {".json": "json", ".svg": "svg", ".html": "page"}
"""Formats by the suffix of the file that is written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_config_arguments(parser)
    add_launcher_argument(parser, "plan for AReaL's SPMD launcher of that kind")
    add_planning_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("table", "lines", "json", "svg", "page"),
        help="table, an override a line, json, a picture, or an HTML page; default: as the name "
        "after -o ends, else table",
    )
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the plan; 1 where it has errors."""
    form = args.format or _FORMATS.get(Path(args.output or "").suffix, "table")
    try:
        made = _planned(args)
    except AllocationError as error:
        if form != "json":
            raise
        from areal_conf.planning.result import refused

        made = refused(error)
    _print(made, form, args)
    return OK if made.ok else INVALID


def _planned(args: argparse.Namespace) -> Plan:
    from areal_conf.planning.result import planned

    options = plan_options(args, args.launcher)
    return planned(composed(args), options)


def _print(made: Plan, form: str, args: argparse.Namespace) -> None:
    if args.output is None and form == "table":
        from rich.console import Console

        from areal_conf.report import terminal

        terminal.plan_text(made, Console())
        if _model_suits(made, args):
            print("the sizes of the model suit every layout")
    else:
        write_result(_text(made, form), args.output)
    if form != "json":
        from rich.console import Console

        from areal_conf.report import terminal

        terminal.diagnostics(made, Console(stderr=True))


def _model_suits(made: Plan, args: argparse.Namespace) -> bool:
    """Whether a model was named, was read for every engine, and can be split like that."""
    if not args.model and made.facts.experiment.model is None:
        return False
    codes = {one.code for one in (*made.errors, *made.warnings)}
    return "AC362" not in codes and not any(code.startswith("AC4") for code in codes)


def _lines(made: Plan) -> Iterator[str]:
    """Each engine that runs as the override that gives its backend."""
    for engine in made.engines.values():
        if engine.active and engine.spec:
            yield f"{engine.path}={engine.spec}\n"


def _text(made: Plan, form: str) -> str:
    if form == "lines":
        return "".join(_lines(made))
    if form == "json":
        return made.model_dump_json(indent=2) + "\n"
    if form == "page":
        from areal_conf.report.page import plan_page

        return plan_page(made)
    if form == "svg":
        from areal_conf.report import svg

        return str(svg.render(made))
    from io import StringIO

    from rich.console import Console

    from areal_conf.report import terminal

    page = StringIO()
    terminal.plan_text(made, Console(file=page, width=120))
    return page.getvalue()
