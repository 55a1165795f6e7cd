"""``areal-conf layouts PATTERN``"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from areal_conf.cli.arguments import named_path, usage_error, version

if TYPE_CHECKING:
    from areal_conf.model import ModelFacts
    from areal_conf.spec.allocation import ModelAllocation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "pattern", metavar="PATTERN", help="a backend string with open sizes: fsdp:d*t*@8"
    )
    parser.add_argument(
        "--gpus",
        type=_whole_number,
        metavar="N",
        help="number of GPUs, where the pattern has no @N",
    )
    parser.add_argument(
        "--model",
        type=named_path,
        metavar="MODEL",
        help="leave out what does not fit this model: a config.json, or a name: Qwen3-8B",
    )
    parser.add_argument(
        "--gpu",
        type=named_path,
        metavar="GPU",
        help="with --model: leave out what surely does not fit this card (H100, 79.1GiB, auto)",
    )
    parser.add_argument(
        "--areal",
        type=version,
        metavar="VERSION",
        help="the AReaL whose defaults memory is estimated with; default: as plan has it",
    )
    parser.add_argument(
        "--format",
        choices=("lines", "hydra", "json"),
        default="lines",
        help="one spec a line; or what goes behind '-m actor.backend='; or JSON",
    )


def _whole_number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print every layout, as it is found; an AllocationError says why there is none."""
    from areal_conf.errors import AllocationError

    try:
        first, others = _found(args)
    except AllocationError as error:
        if args.format != "json":
            raise
        from areal_conf.planning.result import errors_as_json

        print(errors_as_json(error))
        return 1
    for piece in _FORMATS[args.format](_chain(first, others)):
        sys.stdout.write(piece)
    return 0


def _found(args: argparse.Namespace) -> tuple[ModelAllocation, Iterator[ModelAllocation]]:
    """The first layout, and the others.

    Raises:
        AllocationError: the pattern cannot be read, or there is none.
    """
    from areal_conf.model import read_model
    from areal_conf.search_space import layouts, nothing_valid

    if args.gpu is not None and args.model is None:
        usage_error("--gpu needs --model: name the model whose memory is estimated")
    model = read_model(args.model) if args.model is not None else None
    found = layouts(args.pattern, args.gpus, model)
    first = next(found, None)
    if first is None:
        raise nothing_valid(args.pattern, args.gpus, model)
    if model is None or args.gpu is None:
        return first, found
    return _fitting(args, model, _chain(first, found))


def _fitting(
    args: argparse.Namespace, model: ModelFacts, found: Iterable[ModelAllocation]
) -> tuple[ModelAllocation, Iterator[ModelAllocation]]:
    """Those of `found` that may fit the card, by AReaL's defaults."""
    from areal_conf.config.versions import areal_version
    from areal_conf.errors import AllocationError
    from areal_conf.estimate.areal_keys import EngineKeys, fitting, nothing_set
    from areal_conf.estimate.cards import read_card

    card = read_card(args.gpu)
    keys = EngineKeys(nothing_set, areal_version(args.areal))
    left = (allocation for allocation, _ in fitting(found, model, keys, card.usable))
    first = next(left, None)
    if first is None:
        raise AllocationError(
            "AC603",
            f"no layout of {args.pattern} lets {model.source} fit {card.usable:g} GiB",
            text=args.pattern,
            hint="take more GPUs, a larger card, or a pattern with more open sizes",
        )
    return first, left


def _chain(first: ModelAllocation, others: Iterable[ModelAllocation]) -> Iterator[ModelAllocation]:
    yield first
    yield from others


def _lines(found: Iterable[ModelAllocation]) -> Iterator[str]:
    for allocation in found:
        yield f"{allocation}\n"


def _hydra(found: Iterable[ModelAllocation]) -> Iterator[str]:
    from areal_conf.config.overrides import without_parentheses

    comma = ""
    for allocation in found:
        yield comma + without_parentheses(str(allocation))
        comma = ","
    yield "\n"


def _json(found: Iterable[ModelAllocation]) -> Iterator[str]:
    opening = "[\n"
    for allocation in found:
        yield opening + json.dumps(_fields(allocation))
        opening = ",\n"
    yield "\n]\n"


def _fields(allocation: ModelAllocation) -> dict[str, object]:
    sizes = allocation.parallel.sizes
    return {
        "spec": str(allocation),
        "backend": allocation.backend,
        "name": allocation.name,
        "dims": {**sizes._asdict(), "edp": allocation.parallel.edp_size},
        "world_size": allocation.world_size,
    }


_FORMATS = {"lines": _lines, "hydra": _hydra, "json": _json}
