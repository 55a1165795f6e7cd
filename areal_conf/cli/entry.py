"""The command line: ``areal-conf``, also ``python -m areal_conf``.

Results go to stdout, diagnostics to stderr. Exit status: 0 fine, 1 the config is invalid, 2 usage.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from areal_conf._version import __version__
from areal_conf.cli.commands import COMMANDS
from areal_conf.errors import AllocationError

_SIGPIPE = 13
_MARK = "\0"
"""Before words behind ``--``, which argparse would take for options; no argument holds it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    try:
        try:
            status = _main(argv)
            sys.stdout.flush()
            return status
        except SystemExit:  # --help of a command
            sys.stdout.flush()
            raise
    except BrokenPipeError:  # as a shell shows what SIGPIPE ended
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 128 + _SIGPIPE


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"areal-conf {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        print(f"areal-conf: unknown command {name!r}\n\n{_usage()}", file=sys.stderr)
        return 2
    return _run(name, arguments[1:])


def _open_closed_streams() -> None:
    """A stream that was closed before Python started (``>&-``) is None: writes to it are lost.

    Its descriptor is still reserved. Otherwise the next opened file would become the standard
    stream of every child process.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _run(name: str, arguments: list[str]) -> int:
    module_name, doc = COMMANDS[name]
    module = importlib.import_module(f"areal_conf.cli.{module_name}")
    parser = argparse.ArgumentParser(
        prog=f"areal-conf {name}", description=f"{doc[0].upper()}{doc[1:]}.", allow_abbrev=False
    )
    module.add_arguments(parser)
    try:
        status = int(module.run(_parse(parser, arguments)))
        sys.stdout.flush()
    except AllocationError as error:
        _print_refusal(error)
        return 1
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"areal-conf {name}: {_os_message(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _print_refusal(error: AllocationError) -> None:
    from rich.console import Console

    from areal_conf.report import terminal

    terminal.refusal(error, Console(stderr=True))


def _parse(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    place = arguments.index("--") if "--" in arguments else len(arguments)
    options, words = arguments[:place], arguments[place + 1 :]
    marked = [_MARK + word if word.startswith("-") else word for word in words]
    try:
        args = parser.parse_intermixed_args([*options, *marked])
    except TypeError:  # a command that takes the rest of the line as it is
        return parser.parse_args(arguments)
    for name, value in vars(args).items():
        if isinstance(value, list):
            setattr(args, name, [_unmarked(one) for one in value])
        elif isinstance(value, str):
            setattr(args, name, _unmarked(value))
    return args


def _unmarked(word: str) -> str:
    return word.removeprefix(_MARK)


def _os_message(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _usage() -> str:
    lines = ["usage: areal-conf COMMAND ...", ""]
    lines += [f"  {name:12} {doc}" for name, (_, doc) in COMMANDS.items()]
    lines += ["", "areal-conf COMMAND --help shows the options of one command."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
