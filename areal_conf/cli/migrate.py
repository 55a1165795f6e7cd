"""``areal-conf migrate``: carry files with ``allocation_mode`` over."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from areal_conf.cli.arguments import named_path
from areal_conf.documents import roots
from areal_conf.migrate.files import FEW, FileMigration, find_files, migrate_file

# -- the command --------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``areal-conf migrate``."""
    parser.add_argument(
        "paths", nargs="+", type=named_path, metavar="PATH", help="file or directory"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--diff", action="store_true", help="show what would change (the default)")
    how.add_argument("--write", action="store_true", help="change the files")
    how.add_argument(
        "--check",
        action="store_true",
        help="exit 1 if a file would change or cannot be decided, for CI",
    )
    parser.add_argument(
        "--target",
        choices=("controller", "spmd"),
        default="controller",
        help="controller: remove allocation_mode (the default); "
        "spmd: keep it in its newest form beside the backends",
    )
    parser.add_argument(
        "--no-colocation",
        action="store_true",
        help="give engines that shared the trainer's GPUs their own, "
        "instead of writing scheduling_strategy",
    )


def run(args: argparse.Namespace) -> int:
    """Run ``areal-conf migrate``; returns the exit status.

    Raises:
        OSError: a file that was named is missing or cannot be read; nothing is changed then.
    """
    paths = [Path(path) for path in args.paths]
    for path in paths:
        if path.is_dir():
            os.listdir(path)
        elif not path.is_fifo():
            path.open("rb").close()
    roots.forget()
    changed = left = told = 0
    closed: list[OSError] = []
    files = list(find_files(paths, closed.append))
    for error in closed:
        print(f"{error.filename}: not searched: {error.strerror or error}", file=sys.stderr)
    unread = len(closed)
    for path in _with_progress(files):
        try:
            result = migrate_file(path, args.target, apart=args.no_colocation)
        except OSError as error:
            result = FileMigration(path)
            result._failed(
                "AC520", f"cannot be read: {error.strerror or error}", "make it readable"
            )
        if args.write:
            result.write()
        _show(result, args)
        changed += result.new is not None
        left += result.undecided
        told += sum(found.error.code in ("AC528", "AC529") for found in result.found)
        unread += any(found.error.code == "AC520" for found in result.found)
    _summary(changed, left, told, unread, args.write)
    if args.check:
        return int(bool(changed or left or closed))
    return int(bool(args.write and (left or closed)))


def _with_progress(files: Sequence[Path]) -> Iterable[Path]:
    """`files`, with a bar on the terminal where they are many."""
    if len(files) < FEW or not sys.stderr.isatty():
        return files
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(files, description="migrating", console=console, transient=True)


def _show(result: FileMigration, args: argparse.Namespace) -> None:
    """The change on stdout, what there is to tell on stderr."""
    for found in sorted(result.found, key=lambda found: found.line):
        word = "left alone: " if found.severity == "error" else ""
        print(f"{result.path}:{found.line}: {word}{found.error.describe()}", file=sys.stderr)
    if result.new is None:
        return
    if args.write:
        print(f"migrated {result.path}")
    elif args.check:
        print(f"would change {result.path}")
        return
    else:
        print(unified_diff(result.path, result.old, result.new), end="")
    if result.command:
        print(f"run it with: {result.command}")


def unified_diff(path: Path, old: str, new: str) -> str:
    """The change of one file as ``diff -u`` prints it."""
    name = path.as_posix().lstrip("/")
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _summary(changed: int, left: int, told: int, unread: int, written: bool) -> None:
    parts = [f"{changed} {'migrated' if written else 'to migrate'}"]
    if left:
        parts.append(f"{left} left alone")
    if told:
        parts.append(f"{told} places to change by hand")
    if unread:
        parts.append(f"{unread} not read")
    print(", ".join(parts), file=sys.stderr)
