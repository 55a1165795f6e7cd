"""``areal-conf engine-args``: a backend string as arguments of other programs."""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from areal_conf.engine_args import FRAMEWORKS, as_mapping, engine_args
from areal_conf.errors import AllocationError
from areal_conf.spec.allocation import ModelAllocation

# -- command line ----------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``areal-conf engine-args``."""
    parser.add_argument("spec", metavar="SPEC", help="backend string, such as sglang:d2t4")
    parser.add_argument(
        "--for",
        dest="framework",
        choices=FRAMEWORKS,
        default="",
        help="whose arguments; default is the backend's own framework",
    )
    parser.add_argument(
        "--format",
        choices=("args", "json"),
        default="args",
        help="args: one line for a shell; json: key and value",
    )


def run(args: argparse.Namespace) -> int:
    """``areal-conf engine-args``: arguments on stdout, what is wrong on stderr; the exit status."""
    try:
        if args.format == "json":
            print(json.dumps(as_mapping(args.spec, args.framework), indent=2))
        else:
            print(shlex.join(engine_args(args.spec, args.framework)))
    except AllocationError as error:
        print(error, file=sys.stderr)
        return 1
    instances = ModelAllocation.from_str(args.spec).instances or 1
    if instances > 1:
        print(f"note: for each of {instances} servers", file=sys.stderr)
    return 0
