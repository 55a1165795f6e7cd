"""Where commands, documents and Python code use `allocation_mode`, and what to write instead.

A line is found, and the line to write is told. What of it is simple enough to be rewritten is in
`areal_conf.migrate.scripts`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from areal_conf.documents.yaml_text import BadYamlError, load
from areal_conf.errors import AllocationError, clip
from areal_conf.files import TooLargeError, read_limited
from areal_conf.legacy.allocation_mode import AllocationMode
from areal_conf.legacy.carry_over import FIELD
from areal_conf.migrate.outcome import Found

_SETS = re.compile(
    rf"""(?<![\w.$-])(?:
        (?P<outer>["'])(?P<plus>\+{{0,2}}){FIELD}=(?!=)(?P<quoted>(?:(?!(?P=outer)).)*)(?P=outer)
      | (?P<sign>\+{{0,2}}){FIELD}=(?!=)(?:
            (?P<inner>["'])(?P<value>(?:(?!(?P=inner)).)*)(?P=inner)
          | (?P<bare>(?:
                \([^()\s"'`]*\)|\$\{{[^{{}}\s]*\}}|\|(?=[a-z]*\[)|,(?=[\w(\[])|[^\s"'`\\()|;,<>&]
            )+)
        )
    )""",
    re.VERBOSE,
)
_FIELD_LINE = re.compile(rf"""^\s*{FIELD}:[ \t]+(["']?)([^"'#\n]+)(["']?)[ \t]*(?:#.*)?$""")
_LAUNCHER = re.compile(r"\b(python3?\s+)-m\s+areal(?:\.infra)?\.launcher\.(local|ray|slurm)\s+")
_PLAIN_ARGUMENT = re.compile(r"[\w.:=@/+-]+", re.ASCII)
_FROM_AREAL = "AllocationMode"
_CONFIG = re.compile(r"--config(?:=|\s+\\?\s*)([^\s\\]+)")
_LEVELS = 5
"""Folders above a script in which the config of a command is looked for."""


def command_lines(
    text: str, target: str = "controller", file: Path | None = None, *, is_config: bool = False
) -> Iterator[Found]:
    """Command lines (and fields of YAML in documents) that set an `allocation_mode`.

    Args:
        text: of a document, or the comments of a config.
        target: what is to start the commands.
        file: where the text is from, so that the configs its commands name are found.
        is_config: whether fields are those of the config itself.
    """
    if FIELD not in text:
        return
    lines = [line.rstrip("\r") for line in text.split("\n")]
    for first, last in commands(lines):
        command = lines[first:last]
        if any(_SETS.search(line) for line in command):
            yield from reported(command, first + 1, target, file)
        elif not is_config:
            yield from _field_lines(command[0], first + 1)


def commands(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Lines that belong together, since all but the last end in a backslash."""
    first = 0
    for i, line in enumerate(lines):
        if not line.endswith("\\"):
            yield first, i + 1
            first = i + 1
    if first < len(lines):
        yield first, len(lines)


class Rewritten(NamedTuple):
    """A line of a command as it should be.

    Attributes:
        line: its text; that of before where nothing can be written for it.
        sets: whether it set the mode.
        reason: why nothing can be written; "": it can.
    """

    line: str
    sets: bool
    reason: str


def rewritten(command: list[str], target: str, file: Path | None = None) -> list[Rewritten]:
    """The lines of a command without the mode, and without the launcher that read it."""
    launcher = next((m[2] for line in command if (m := _LAUNCHER.search(line))), None)
    whole = " ".join(command)
    keys = ConfigKeys.of(whole, file)
    extra = ""
    if target == "controller" and launcher and "scheduler.type=" not in whole:
        extra = f" {keys.sign('scheduler.type', '++')}scheduler.type={launcher}"
    out = []
    for line in command:
        reasons: list[str] = []

        def replaced(m: re.Match[str], reasons: list[str] = reasons) -> str:
            if reasons:  # the first one is told, and nothing can be written
                return m[0]
            typed = m["plus"] or m["sign"] or ""
            arguments, reason = _arguments(_value(m), target, keys, "++" if typed else "")
            reasons += [reason] * bool(reason)
            return f"{arguments}{extra}" if arguments else m[0]

        new, found = _SETS.subn(replaced, line)
        if target == "controller" and not reasons:
            new = _LAUNCHER.sub(r"\1", new)
        out.append(Rewritten(new, found > 0, reasons[0] if reasons else ""))
    return out


def reported(
    command: list[str], number: int, target: str, file: Path | None = None
) -> Iterator[Found]:
    """What there is to change by hand in a command whose first line has that number."""
    for i, (line, one) in enumerate(zip(command, rewritten(command, target, file), strict=True)):
        if one.sets:
            message = "the command line sets allocation_mode"
        elif one.line != line:
            message = "this launcher reads allocation_mode; the single controller needs none"
        else:
            continue
        hint = one.reason or f"write {one.line.strip()}"
        error = AllocationError("AC528", message, text=clip(line.strip(), 400), hint=hint)
        yield Found(number + i, "warning", error)


class ConfigKeys:
    """The keys of the config that a command names, as it is after its own migration."""

    def __init__(self, data: Any) -> None:
        self._data = data

    @classmethod
    def of(cls, command: str, file: Path | None) -> ConfigKeys:
        """Of the file behind ``--config``, looked for from the script and the working directory."""
        named = _CONFIG.search(command)
        if named is None or file is None or "$" in named[1]:
            return cls(None)
        above = islice(file.absolute().parents, _LEVELS)
        for folder in (Path(), *above):
            path = folder / named[1].strip("\"'")
            if path.is_file():
                return cls(_migrated(path))
        return cls(None)

    def sign(self, key: str, unknown: str) -> str:
        """What stands before an override of `key`: ``+`` where it is absent, `unknown` where no
        config is known."""
        if not isinstance(self._data, dict) or "defaults" in self._data:
            return unknown
        value: Any = self._data
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                return "++"
            value = value[part]
        return ""


def _migrated(path: Path) -> Any:
    from areal_conf.migrate.config import migrate_yaml

    try:
        text = read_limited(path).decode()
        return load(migrate_yaml(text, file=path).new or text, lenient=True)
    except (OSError, TooLargeError, UnicodeDecodeError, BadYamlError):
        return None


def _value(m: re.Match[str]) -> str:
    return next(value for value in m.group("quoted", "value", "bare") if value is not None)


_UNKNOWN_KEYS = ConfigKeys(None)


def _arguments(
    value: str, target: str = "controller", keys: ConfigKeys = _UNKNOWN_KEYS, sign: str = ""
) -> tuple[str, str]:
    """Overrides to write for a mode, and else why there are none.

    Args:
        value: the mode, or several that a sweep goes through.
        target: what the files are migrated for.
        keys: the config that is overridden.
        sign: what stands before an override where that config is not known.
    """
    if "$" in value or "{" in value or not value:
        return "", "its value is computed: write rollout.backend=... actor.backend=... instead"
    try:
        modes = _modes(value.strip("\"' "))
    except AllocationError as error:
        return "", f"{error.code}, {error.message}: {error.hint}"
    each = [_overrides(mode, target) for mode in modes]
    if (
        len({tuple(one) for one in each}) > 1
        or sum(len({o[k] for o in each}) > 1 for k in each[0]) > 1
    ):
        words = [_words({k: [v] for k, v in one.items()}, keys, sign) for one in each]
        return "", f"no sweep says this: run one command for each, with {'; or with '.join(words)}"
    swept = {key: list(dict.fromkeys(one[key] for one in each)) for key in each[0]}
    return _words(swept, keys, sign), ""


def _modes(value: str) -> list[AllocationMode]:
    """The modes of an override: one, or those of a sweep."""
    try:
        return [AllocationMode.from_str(value)]
    except AllocationError:
        parts = _alternatives(value)
        if len(parts) == 1:
            raise
        return [AllocationMode.from_str(part) for part in parts]


def _alternatives(value: str) -> list[str]:
    """The values of a sweep: between commas outside parentheses."""
    parts, start, depth = [], 0, 0
    for sign in re.finditer(r"[(),]", value):
        if sign[0] != ",":
            depth = max(0, depth + (1 if sign[0] == "(" else -1))
        elif not depth:
            parts.append(value[start : sign.start()])
            start = sign.end()
    return [*parts, value[start:]]


def _overrides(mode: AllocationMode, target: str) -> dict[str, str]:
    found = {f"{engine}.backend": spec for engine, spec in mode.spelled().items()}
    return {FIELD: mode.modern(), **found} if target == "spmd" else found


def _words(overrides: dict[str, list[str]], keys: ConfigKeys, sign: str) -> str:
    return " ".join(
        _quoted(f"{keys.sign(key, sign)}{key}", values) for key, values in overrides.items()
    )


def _quoted(key: str, values: list[str]) -> str:
    """An override as it stands in a shell, for Hydra's grammar."""
    plain = [value if _PLAIN_ARGUMENT.fullmatch(value) else f'"{value}"' for value in values]
    override = f"{key}={','.join(plain)}"
    return override if plain == values else f"'{override}'"


def _field_lines(line: str, number: int) -> Iterator[Found]:
    m = _FIELD_LINE.match(line)
    if m is None or m[1] != m[3]:
        return
    try:
        spelled = AllocationMode.from_str(m[2].strip()).spelled()
    except AllocationError:
        return  # prose that looks alike
    fields = ", ".join(f'{engine}.backend: "{spec}"' for engine, spec in spelled.items())
    message = "a config in this text sets allocation_mode"
    error = AllocationError("AC528", message, text=clip(line.strip(), 400), hint=f"write {fields}")
    yield Found(number, "warning", error)


# -- Python -------------------------------------------------------------------------------------


def python_uses(text: str) -> Iterator[Found]:
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


def _uses_of(node: ast.AST) -> Iterator[Found]:
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


def _sets(line: int, value: ast.AST | None) -> Found:
    text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else "$"
    arguments, reason = _arguments(text)
    error = AllocationError(
        "AC529", f"sets {FIELD}", hint=f"write {arguments}" if arguments else reason
    )
    return Found(line, "warning", error)


def _python(line: int, message: str) -> Found:
    hint = (
        "read config.ENGINE.backend with areal_conf.ModelAllocation.from_str; "
        "areal_conf.AllocationMode reads the old strings"
    )
    return Found(line, "warning", AllocationError("AC529", message, hint=hint))


def _lines_of_python(text: str) -> Iterator[Found]:
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
