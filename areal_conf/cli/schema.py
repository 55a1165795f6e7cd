"""``areal-conf schema``"""

from __future__ import annotations

import argparse
import json

from areal_conf.cli.arguments import named_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "-o", "--output", type=named_path, metavar="FILE", help="write there instead of to stdout"
    )


def run(args: argparse.Namespace) -> int:
    """Print the JSON Schema."""
    from areal_conf.config.json_schema import schema

    text = json.dumps(schema(), indent=2) + "\n"
    if args.output is None:
        print(text, end="")
    else:
        from pathlib import Path

        from areal_conf.files import write_atomically

        write_atomically(Path(args.output), text)
    return 0
