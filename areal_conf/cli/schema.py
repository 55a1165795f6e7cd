"""``areal-conf schema``"""

from __future__ import annotations

import argparse
import json

from areal_conf.cli.arguments import OK, add_output_argument, write_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Print the JSON Schema."""
    from areal_conf.lint.json_schema import schema

    write_result(json.dumps(schema(), indent=2) + "\n", args.output)
    return OK
