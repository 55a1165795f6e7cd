"""``areal-conf run -- python SCRIPT --config F.yaml OVERRIDE ...``"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from areal_conf.cli.arguments import (
    INVALID,
    OK,
    add_planning_arguments,
    composed_file,
    report,
    strict_plan,
    usage_error,
)
from areal_conf.errors import AllocationError

if TYPE_CHECKING:
    from areal_conf.planning.result import Plan


_LAUNCHER = re.compile(r"areal\.infra\.launcher\.(local|ray|slurm)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.usage = "areal-conf run [option ...] -- python SCRIPT --config F.yaml [OVERRIDE ...]"
    add_planning_arguments(parser)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="a command line of AReaL; it takes the place of this process once the plan is fine",
    )


def run(args: argparse.Namespace) -> int:
    """Check the plan of the command's config, then become the command; 1 where it has errors."""
    from areal_conf.areal.loader import config_and_overrides
    from areal_conf.config.overrides import as_typed

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command or not command[0]:
        usage_error("run: no command; write: areal-conf run -- python SCRIPT --config F.yaml")
    first = _first_argument(command)
    try:
        file, overrides = config_and_overrides(command[first:])
    except AllocationError as error:
        usage_error(f"run: {error.message}; {error.hint}")
    if file is None:
        usage_error("run: no --config FILE in the command, so that there is nothing to check")
    overrides = [word for word in overrides if _is_override(word)]
    cfg = composed_file(file, overrides, args.app)
    made = strict_plan(cfg, args, _launcher(command))
    report(made)
    _say_what_is_not_inherited(made)
    if made.errors:
        return INVALID
    _refuse_what_is_missing(made, args.allow)
    typed = [as_typed([word])[0] if _is_override(word) else word for word in command[first:]]
    _become([*command[:first], *typed])
    return OK


def _refuse_what_is_missing(made: Plan, allow: Sequence[str]) -> None:
    """AC324 is an error here: AReaL reads the file as it is, and its classes lack a key of it."""
    for one in made.warnings:
        if one.code == "AC324" and one.code not in allow:
            raise one.error()


def _first_argument(command: list[str]) -> int:
    """Where the script's own arguments begin: after the word that ends in ``.py``, else after the
    module of ``-m``, else after the program."""
    for place, word in enumerate(command):
        if word.endswith(".py"):
            return place + 1
    return command.index("-m") + 2 if "-m" in command else 1


def _is_override(word: str) -> bool:
    return not word.startswith("-") and ("=" in word or word.startswith("~"))


def _launcher(command: list[str]) -> str | None:
    found = (_LAUNCHER.fullmatch(word) for word in command)
    return next((match[1] for match in found if match), None)


def _say_what_is_not_inherited(made: Plan) -> None:
    """A plain script of AReaL inherits no backend; one with this package's loader does."""
    for engine in made.engines.values():
        if engine.active and engine.inherited_from and engine.spec:
            path = engine.path
            print(
                f"{path}: unset, taken from {engine.inherited_from}. AReaL's own loader does not: "
                f"write {path}={engine.spec}, or load with areal_conf.areal.load_expr_config",
                file=sys.stderr,
            )


def _become(command: list[str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, which a new program would inherit
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        usage_error(f"run: {command[0]}: {error.strerror}")
