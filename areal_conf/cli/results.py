"""``areal-conf results DIR``"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from areal_conf.cli.arguments import OK, add_output_argument, named_path, usage_error, write_result

_FORMATS = {".json": "json", ".csv": "csv", ".html": "page"}
"""Formats by the suffix of the file that is written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "directory", metavar="DIR", type=named_path, help="directory of a sweep: multirun/DATE/TIME"
    )
    parser.add_argument(
        "--maximize",
        action="store_true",
        help="larger return values are better, where jobs are ordered by what they returned",
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "csv", "page"),
        help="table, json, csv, or one HTML file; default: as the name after -o ends, else table",
    )
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the jobs of a sweep, best first."""
    from areal_conf.sweeps.results.summary import NoSweepError, results

    form = args.format or _FORMATS.get(Path(args.output or "").suffix, "table")
    try:
        found = results(Path(args.directory), args.maximize)
    except (NoSweepError, ValueError) as error:
        usage_error(str(error))
    write_result(_text(found, form), args.output)
    return OK


def _text(found: dict[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(found, indent=2) + "\n"
    from areal_conf.report import results as report

    if form == "csv":
        return report.as_csv(found)
    return report.results_page(found) if form == "page" else report.table(found)
