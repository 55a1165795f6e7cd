"""``areal-conf explain SPEC``"""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("spec", metavar="SPEC", help="a backend string such as fsdp:d4t2")
    parser.add_argument("--format", choices=("table", "json"), default="table")


def run(args: argparse.Namespace) -> int:
    """Print what the string means; an AllocationError says what is wrong with it."""
    from areal_conf.errors import AllocationError
    from areal_conf.spec.allocation import ModelAllocation

    try:
        allocation = ModelAllocation.from_str(args.spec)
    except AllocationError as error:
        if args.format != "json":
            raise
        from areal_conf.planning.result import errors_as_json

        print(errors_as_json(error))
        return 1
    if args.format == "json":
        from areal_conf.resolvers import fields_of

        print(json.dumps(fields_of(allocation), indent=2))
    else:
        from rich.console import Console

        from areal_conf.report.explanation import explanation

        explanation(allocation, Console())
    return 0
