"""Findings of ``areal-conf check`` as text, GitHub annotations, JSON and SARIF."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from areal_conf._version import __version__
from areal_conf.errors import CODES

if TYPE_CHECKING:
    from areal_conf.lint.nodes import FileFinding


_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


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
    return path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))


FORMATS: dict[str, Callable[[Iterable[FileFinding]], str]] = {
    "human": _human,
    "github": _github,
    "sarif": _sarif,
    "json": _json,
}
"""Each output format by its name, the default one first."""
