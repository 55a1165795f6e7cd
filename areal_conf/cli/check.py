"""``areal-conf check FILE ...``"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from areal_conf.cli.arguments import add_planning_arguments, named_path
from areal_conf.errors import counted
from areal_conf.lint.formats import FORMATS

if TYPE_CHECKING:
    from areal_conf.lint.nodes import FileFinding
    from areal_conf.planning.options import PlanOptions


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
        "--strict",
        action="store_true",
        help="exit 1 also where a config could not be composed, and so not be checked in full",
    )
    add_planning_arguments(parser)


class _Linted(NamedTuple):
    """What became of the files that were named.

    Attributes:
        files: how many were read.
        findings: what is wrong in them.
        unread: what could not be read, and why.
    """

    files: int
    findings: list[FileFinding]
    unread: list[str]

    @property
    def not_composed(self) -> int:
        """How many files hold a config that could not be composed."""
        from areal_conf.lint.linter import NOT_COMPOSED

        return len({f.file for f in self.findings if f.error.code == NOT_COMPOSED})

    def count(self, severity: str) -> int:
        """How many findings are of a severity; a config that is not composed is neither."""
        from areal_conf.lint.linter import NOT_COMPOSED

        found = (f for f in self.findings if f.error.code != NOT_COMPOSED)
        return sum(f.severity == severity for f in found)

    def summary(self) -> str:
        """The last line: what was checked, and what was not."""
        told = [counted(self.count("error"), "error"), counted(self.count("warning"), "warning")]
        told = [text for text in told if not text.startswith("0 ")]
        result = " and ".join(told)
        if self.not_composed:
            result += f"{', ' if result else ''}{self.not_composed} not composed"
        checked = f"{counted(self.files, 'file')} checked"
        return f"{checked}: {result or 'nothing wrong'}" if self.files else checked


def run(args: argparse.Namespace) -> int:
    """Print what is wrong in the files: 1 where there is an error, 2 where a file is missing."""
    from areal_conf.cli.arguments import import_app, plan_options

    options = plan_options(args)
    import_app(args.app)
    linted = _linted(args.files, options)
    sys.stdout.write(FORMATS[args.format](linted.findings))
    sys.stdout.flush()
    for message in linted.unread:
        print(f"areal-conf check: {message}", file=sys.stderr)
    if linted.files or not linted.unread:
        print(linted.summary(), file=sys.stderr)
    if linted.unread:
        return 2
    return int(linted.count("error") > 0 or (args.strict and linted.not_composed > 0))


def _linted(names: Sequence[str], options: PlanOptions) -> _Linted:
    from areal_conf.documents import roots
    from areal_conf.lint.linter import files_below, lint_file

    roots.forget()
    files: dict[Path, None] = {}
    unread: list[str] = []

    def failed(error: OSError) -> None:
        unread.append(f"{error.filename}: {error.strerror or error}")

    for name in names:
        try:
            files.update(dict.fromkeys(files_below(name, failed)))
        except OSError as error:
            unread.append(f"{name}: {error.strerror or error}")
    findings: list[FileFinding] = []
    read = 0
    for file in files:
        try:
            findings += lint_file(file, options=options)
            read += 1
        except OSError as error:
            unread.append(f"{file}: {error.strerror or error}")
    return _Linted(read, findings, unread)
