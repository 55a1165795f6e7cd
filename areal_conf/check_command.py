"""``areal-conf check FILE ...``"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from areal_conf._version import __version__
from areal_conf.arguments import named_path
from areal_conf.errors import CODES, counted

if TYPE_CHECKING:
    from areal_conf.lint import FileFinding

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


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
    from areal_conf.plan_command import check_codes

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
    from areal_conf.lint import files_below, lint_file

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


# -- formats ------------------------------------------------------------------------------------


def _human(findings: Iterable[FileFinding]) -> str:
    """``file:line:col: error AC104 in actor.backend: ...``, the text underlined, and the hint."""
    from areal_conf.errors import clip, underline

    lines = []
    for finding in findings:
        error, place = finding.error, finding.place
        where = f" in {clip(error.path)}" if error.path else ""
        lines.append(
            f"{clip(finding.file, 4096)}:{place.line}:{place.column}: {finding.severity} "
            f"{error.code}{where}: {clip(error.message, 600)}"
        )
        if error.text:
            lines += [f"  {line}" for line in underline(error.text, error.span)]
        lines.append(f"  hint: {clip(error.hint, 900)}")
    return "".join(f"{line}\n" for line in lines)


def _github(findings: Iterable[FileFinding]) -> str:
    """Workflow commands, which GitHub shows as annotations of a pull request."""
    lines = []
    for finding in findings:
        error, place = finding.error, finding.place
        properties = {
            "file": finding.file,
            "line": place.line,
            "endLine": place.end_line,
            "col": place.column,
            "endColumn": place.end_column,
            "title": f"{error.code} {error.path or ''}".strip(),
        }
        text = ",".join(f"{key}={_escaped(str(v), ':,')}" for key, v in properties.items())
        message = _escaped(f"{error.message}\nhint: {error.hint}")
        lines.append(f"::{finding.severity} {text}::{message}\n")
    return "".join(lines)


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(char):02X}" if char in "%\r\n" + more else char for char in text)


def _json(findings: Iterable[FileFinding]) -> str:
    """A list of mappings: file, place, severity and what a plan's JSON has of an error."""
    return json.dumps([_record(finding) for finding in findings], indent=2) + "\n"


def _record(finding: FileFinding) -> dict[str, Any]:
    error = finding.error
    return {
        "file": finding.file,
        **finding.place._asdict(),
        "severity": finding.severity,
        "code": error.code,
        "path": error.path,
        "message": error.message,
        "hint": error.hint,
        "text": error.text,
        "span": list(error.span),
    }


def _sarif(findings: Iterable[FileFinding]) -> str:
    """SARIF 2.1.0, which code scanning takes."""
    found = list(findings)
    codes = sorted({finding.error.code for finding in found})
    rules = [{"id": code, "shortDescription": {"text": CODES[code]}} for code in codes]
    driver = {"name": "areal-conf", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes) for finding in found],
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(finding: FileFinding, codes: list[str]) -> dict[str, Any]:
    error, place = finding.error, finding.place
    where = f"{error.path}: " if error.path else ""
    region = {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    location = {"artifactLocation": {"uri": _uri(finding.file)}, "region": region}
    return {
        "ruleId": error.code,
        "ruleIndex": codes.index(error.code),
        "level": finding.severity,
        "message": {"text": f"{where}{error.message}\nhint: {error.hint}"},
        "locations": [{"physicalLocation": location}],
    }


def _uri(file: str) -> str:
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


FORMATS: dict[str, Callable[[Iterable[FileFinding]], str]] = {
    "human": _human,
    "github": _github,
    "sarif": _sarif,
    "json": _json,
}
"""Each output format by its name, the default one first."""
