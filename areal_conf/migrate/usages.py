"""Where shell scripts, documents and Python code use `allocation_mode`, and what to write instead.

These files are never rewritten: a line is found, and the line to write is told.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from areal_conf.errors import AllocationError, clip
from areal_conf.legacy.allocation_mode import AllocationMode
from areal_conf.legacy.carry_over import FIELD

_SETS = re.compile(
    rf"""(?<![\w.$-])(?:
        (?P<outer>["'])\+{{0,2}}{FIELD}=(?!=)(?P<quoted>(?:(?!(?P=outer)).)*)(?P=outer)
      | \+{{0,2}}{FIELD}=(?!=)(?:
            (?P<inner>["'])(?P<value>(?:(?!(?P=inner)).)*)(?P=inner)
          | (?P<bare>(?:\([^()\s"'`]*\)|\$\{{[^}}\s]*\}}|\|(?=[a-z]*\[)|[^\s"'`\\()|;,<>&])+)
        )
    )""",
    re.VERBOSE,
)
_FIELD_LINE = re.compile(rf"""^\s*{FIELD}:[ \t]+(["']?)([^"'#\n]+?)\1[ \t]*(?:#.*)?$""")
_LAUNCHER = re.compile(r"\b(python3?\s+)-m\s+areal(?:\.infra)?\.launcher\.(local|ray|slurm)\s+")
_PLAIN_ARGUMENT = re.compile(r"[\w.:=@,/+-]+", re.ASCII)
_FROM_AREAL = "AllocationMode"


class Use(NamedTuple):
    """One place that uses the old string; `error` is AC528 or AC529, with what to write."""

    line: int
    error: AllocationError


def command_lines(text: str, target: str = "controller") -> Iterator[Use]:
    """Command lines (and fields of YAML in documents) that set an `allocation_mode`."""
    if FIELD not in text:
        return
    lines = [line.rstrip("\r") for line in text.split("\n")]
    for first, last in _commands(lines):
        command = lines[first:last]
        if any(_SETS.search(line) for line in command):
            yield from _command(command, first + 1, target)
        else:
            yield from _field_lines(command[0], first + 1)


def _commands(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Lines that belong together, since all but the last end in a backslash."""
    first = 0
    for i, line in enumerate(lines):
        if not line.endswith("\\"):
            yield first, i + 1
            first = i + 1
    if first < len(lines):
        yield first, len(lines)


def _command(command: list[str], number: int, target: str) -> Iterator[Use]:
    launcher = next((m[2] for line in command if (m := _LAUNCHER.search(line))), None)
    extra = ""
    if target == "controller" and launcher and "scheduler.type=" not in " ".join(command):
        extra = f" scheduler.type={launcher}"
    for i, line in enumerate(command):
        reasons: list[str] = []

        def replaced(m: re.Match[str], reasons: list[str] = reasons) -> str:
            arguments, reason = _arguments(_value(m), target)
            reasons += [reason] * bool(reason)
            return f"{arguments}{extra}" if arguments else m[0]

        new, found = _SETS.subn(replaced, line)
        if target == "controller":
            new = _LAUNCHER.sub(r"\1", new)
        if found:
            message = "the command line sets allocation_mode"
        elif new != line:
            message = "this launcher reads allocation_mode; the single controller needs none"
        else:
            continue
        hint = reasons[0] if reasons else f"write {new.strip()}"
        error = AllocationError("AC528", message, text=clip(line.strip(), 400), hint=hint)
        yield Use(number + i, error)


def _value(m: re.Match[str]) -> str:
    return next(value for value in m.group("quoted", "value", "bare") if value is not None)


def _arguments(value: str, target: str = "controller") -> tuple[str, str]:
    """Overrides to write for a mode, and else why there are none."""
    if "$" in value or "{" in value or not value:
        return "", "its value is computed: write rollout.backend=... actor.backend=... instead"
    try:
        mode = AllocationMode.from_str(value.strip("\"' "))
    except AllocationError as error:
        return "", f"{error.code}, {error.message}: {error.hint}"
    overrides = [f"{engine}.backend={spec}" for engine, spec in mode.spelled().items()]
    if target == "spmd":
        overrides.insert(0, f"{FIELD}={mode.modern()}")
    return " ".join(map(_quoted, overrides)), ""


def _quoted(override: str) -> str:
    """An override as it stands in a shell, for Hydra's grammar."""
    if _PLAIN_ARGUMENT.fullmatch(override):
        return override
    key, _, value = override.partition("=")
    return f"'{key}=\"{value}\"'"


def _field_lines(line: str, number: int) -> Iterator[Use]:
    m = _FIELD_LINE.match(line)
    if m is None:
        return
    try:
        spelled = AllocationMode.from_str(m[2]).spelled()
    except AllocationError:
        return  # prose that looks alike
    fields = ", ".join(f'{engine}.backend: "{spec}"' for engine, spec in spelled.items())
    message = "a config in this text sets allocation_mode"
    error = AllocationError("AC528", message, text=clip(line.strip(), 400), hint=f"write {fields}")
    yield Use(number, error)


# -- Python -------------------------------------------------------------------------------------


def python_uses(text: str) -> Iterator[Use]:
    """Imports of AReaL's `AllocationMode`, reads of ``config.allocation_mode``, and overrides."""
    if FIELD not in text and _FROM_AREAL not in text:
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield from _lines_of_python(text)
        return
    uses = [use for node in ast.walk(tree) for use in _uses_of(node)]
    seen: set[tuple[int, str, str]] = set()
    for use in sorted(uses, key=lambda use: use.line):
        key = (use.line, use.error.message, use.error.hint)
        if key not in seen:
            seen.add(key)
            yield use


def _uses_of(node: ast.AST) -> Iterator[Use]:
    if isinstance(node, ast.ImportFrom):
        if (node.module or "").partition(".")[0] != "areal_conf":
            for alias in node.names:
                if alias.name == _FROM_AREAL:
                    yield _python(alias.lineno, f"imports {_FROM_AREAL}, which AReaL removed")
    elif isinstance(node, ast.Attribute):
        if node.attr == FIELD:
            yield _python(node.end_lineno or node.lineno, f"reads {FIELD} of a config")
        elif node.attr == _FROM_AREAL:
            yield _python(
                node.end_lineno or node.lineno, f"uses {_FROM_AREAL}, which AReaL removed"
            )
    elif isinstance(node, ast.keyword) and node.arg == FIELD:
        yield _sets(node.value.lineno, node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        for i, line in enumerate(node.value.splitlines()):
            if m := _SETS.search(line):
                yield _sets(node.lineno + i, ast.Constant(_value(m)))
            elif line.endswith(f"{FIELD}="):
                yield _sets(node.lineno + i, None)


def _sets(line: int, value: ast.AST | None) -> Use:
    text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else "$"
    arguments, reason = _arguments(text)
    error = AllocationError(
        "AC529", f"sets {FIELD}", hint=f"write {arguments}" if arguments else reason
    )
    return Use(line, error)


def _python(line: int, message: str) -> Use:
    hint = (
        "read config.ENGINE.backend with areal_conf.ModelAllocation.from_str; "
        "areal_conf.AllocationMode reads the old strings"
    )
    return Use(line, AllocationError("AC529", message, hint=hint))


def _lines_of_python(text: str) -> Iterator[Use]:
    """The same, line by line, where the code cannot be parsed."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        if re.search(rf"\bimport\b.*\b{_FROM_AREAL}\b", line):
            yield _python(number, f"imports {_FROM_AREAL}, which AReaL removed")
        elif re.search(rf"\.{FIELD}\b", line):
            yield _python(number, f"reads {FIELD} of a config")
        elif m := _SETS.search(line):
            yield _sets(number, ast.Constant(_value(m)))
