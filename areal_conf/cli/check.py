"""``areal-conf check FILE ...``"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from areal_conf.cli.arguments import named_path
from areal_conf.errors import counted
from areal_conf.lint.formats import FORMATS

if TYPE_CHECKING:
    from areal_conf.lint.nodes import FileFinding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "files",
        nargs="+",
        type=named_path,
        metavar="FILE",
        help="a YAML file, or a directory of them",
    )
    parser.add_argument(
        "--format",
        choices=tuple(FORMATS),
        default="human",
        help="github: workflow annotations; sarif: for code scanning",
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="CODE", help="count an error as a warning"
    )


def run(args: argparse.Namespace) -> int:
    """Print what is wrong in the files: 1 where there is an error, 2 where a file is missing."""
    from areal_conf.cli.arguments import check_codes

    check_codes(args.allow)
    files, findings, unread = _linted(args.files, args.allow)
    sys.stdout.write(FORMATS[args.format](findings))
    sys.stdout.flush()
    for message in unread:
        print(f"areal-conf check: {message}", file=sys.stderr)
    errors = sum(f.severity == "error" for f in findings)
    if files or not unread:
        print(_summary(files, findings, errors), file=sys.stderr)
    return 2 if unread else int(errors > 0)


def _linted(names: Sequence[str], allow: Sequence[str]) -> tuple[int, list[FileFinding], list[str]]:
    """Number of files read, what was found in them, and what could not be read."""
    from areal_conf.lint.linter import files_below, lint_file

    files: dict[Path, None] = {}
    unread: list[str] = []
    for name in names:
        try:
            files.update(dict.fromkeys(files_below(name)))
        except OSError as error:
            unread.append(f"{name}: {error.strerror or error}")
    findings: list[FileFinding] = []
    read = 0
    for file in files:
        try:
            findings += lint_file(file, allow)
            read += 1
        except OSError as error:
            unread.append(f"{file}: {error.strerror or error}")
    return read, findings, unread


def _summary(files: int, findings: Sequence[FileFinding], errors: int) -> str:
    told = [counted(errors, "error"), counted(len(findings) - errors, "warning")]
    told = [text for text in told if not text.startswith("0 ")]
    return f"{counted(files, 'file')} checked: {' and '.join(told) or 'nothing wrong'}"
