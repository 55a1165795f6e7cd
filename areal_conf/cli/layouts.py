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
    from areal_conf.errors import AllocationError
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
        "--rank",
        action="store_true",
        help="with --model: best first, as a table with memory and relative time of a step",
    )
    parser.add_argument(
        "--format",
        choices=("lines", "hydra", "json", "table"),
        help="one spec a line; or what goes behind '-m actor.backend='; or JSON; or a table; "
        "default: lines, with --rank a table",
    )


def _whole_number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print every layout, as it is found; an AllocationError says why there is none."""
    from areal_conf.errors import AllocationError

    ranks = args.rank or args.format == "table"
    if args.model is None and (ranks or args.gpu is not None):
        option = "--rank" if ranks else "--gpu"
        usage_error(f"{option} needs --model: name the model whose memory is estimated")
    form = args.format or ("table" if ranks else "lines")
    try:
        first, others = _found(args)
    except AllocationError as error:
        if form != "json":
            raise
        from areal_conf.planning.result import errors_as_json

        print(errors_as_json(error))
        return 1
    found = _chain(first, others)
    if ranks:
        return _print_ranked(args, form, found)
    warnings = Warnings(args.model)
    for piece in _FORMATS[form](warnings.counted(found) if form != "json" else found, warnings):
        sys.stdout.write(piece)
    warnings.tell()
    return 0


class Warnings:
    """What the model's rules say of layouts that run (AC451 and on), told once a code."""

    def __init__(self, model: str | None) -> None:
        from areal_conf.model import read_model

        self.model = None if model is None else read_model(model)
        self.layouts = 0
        self.told: dict[str, tuple[int, AllocationError]] = {}

    def of(self, allocation: ModelAllocation) -> list[AllocationError]:
        """The warnings of one layout."""
        if self.model is None:
            return []
        from areal_conf.model import check_model

        return [finding.error() for finding in check_model(allocation, self.model)]

    def counted(self, found: Iterable[ModelAllocation]) -> Iterator[ModelAllocation]:
        """The layouts as they are, while their warnings are counted."""
        for allocation in found:
            self.layouts += 1
            for error in self.of(allocation):
                count, first = self.told.get(error.code, (0, error))
                self.told[error.code] = count + 1, first
            yield allocation

    def tell(self) -> None:
        """Print them on stderr: a line for each code, with the first layout that has it."""
        for code, (count, error) in sorted(self.told.items()):
            of_all = f"{count} of {self.layouts}"
            print(f"{code} {of_all}, such as {error.text}: {error.message}", file=sys.stderr)


def _print_ranked(args: argparse.Namespace, form: str, found: Iterable[ModelAllocation]) -> int:
    """Print the layouts best first."""
    from areal_conf.config.versions import areal_version
    from areal_conf.estimate.cards import read_card
    from areal_conf.model import read_model
    from areal_conf.suggest.ranking import LeftOut, Subject, rank, usual_keys

    card = None if args.gpu is None else read_card(args.gpu)
    keys = usual_keys(areal_version(args.areal))
    left_out = LeftOut()
    ranked = rank(found, Subject(read_model(args.model), keys, card), left_out)
    if not ranked:
        raise _none_fits(args, read_model(args.model).source, card.usable if card else 0)
    if form == "table":
        from rich.console import Console

        from areal_conf.report.ranking import print_ranking

        print_ranking(ranked, left_out.codes, Console())
    elif form == "json":
        from areal_conf.suggest.result import as_json

        print(json.dumps([_fields(x.allocation) | as_json(x) for x in ranked], indent=1))
    else:
        warnings = Warnings(None)
        sys.stdout.writelines(_FORMATS[form]((x.allocation for x in ranked), warnings))
    return 0


def _found(args: argparse.Namespace) -> tuple[ModelAllocation, Iterator[ModelAllocation]]:
    """The first layout, and the others.

    Raises:
        AllocationError: the pattern cannot be read, or there is none.
    """
    from areal_conf.model import read_model
    from areal_conf.search_space import layouts, nothing_valid

    model = read_model(args.model) if args.model is not None else None
    found = layouts(args.pattern, args.gpus, model)
    first = next(found, None)
    if first is None:
        raise nothing_valid(args.pattern, args.gpus, model)
    if model is None or args.gpu is None or args.rank:
        return first, found
    return _fitting(args, model, _chain(first, found))


def _fitting(
    args: argparse.Namespace, model: ModelFacts, found: Iterable[ModelAllocation]
) -> tuple[ModelAllocation, Iterator[ModelAllocation]]:
    """Those of `found` that may fit the card, by AReaL's defaults."""
    from areal_conf.config.versions import areal_version
    from areal_conf.estimate.areal_keys import EngineKeys, fitting, nothing_set
    from areal_conf.estimate.cards import read_card

    card = read_card(args.gpu)
    keys = EngineKeys(nothing_set, areal_version(args.areal))
    left = (allocation for allocation, _ in fitting(found, model, keys, card.usable))
    first = next(left, None)
    if first is None:
        raise _none_fits(args, model.source, card.usable)
    return first, left


def _none_fits(args: argparse.Namespace, model: str, gpu: float) -> AllocationError:
    from areal_conf.errors import AllocationError

    return AllocationError(
        "AC603",
        f"no layout of {args.pattern} lets {model} fit {gpu:g} GiB",
        text=args.pattern,
        hint="take more GPUs, a larger card, or a pattern with more open sizes",
    )


def _chain(first: ModelAllocation, others: Iterable[ModelAllocation]) -> Iterator[ModelAllocation]:
    yield first
    yield from others


def _lines(found: Iterable[ModelAllocation], warnings: Warnings) -> Iterator[str]:
    for allocation in found:
        yield f"{allocation}\n"


def _hydra(found: Iterable[ModelAllocation], warnings: Warnings) -> Iterator[str]:
    from areal_conf.config.overrides import without_parentheses

    comma = ""
    for allocation in found:
        yield comma + without_parentheses(str(allocation))
        comma = ","
    yield "\n"


def _json(found: Iterable[ModelAllocation], warnings: Warnings) -> Iterator[str]:
    opening = "[\n"
    for allocation in found:
        fields = _fields(allocation)
        if warnings.model is not None:
            fields["warnings"] = [_warning(error) for error in warnings.of(allocation)]
        yield opening + json.dumps(fields)
        opening = ",\n"
    yield "\n]\n"


def _warning(error: AllocationError) -> dict[str, str]:
    return {"code": error.code, "message": error.message, "hint": error.hint}


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
