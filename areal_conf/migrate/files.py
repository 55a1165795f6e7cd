"""``areal-conf migrate``: whole trees moved from `allocation_mode` to per-engine backends.

YAML files are rewritten (`areal_conf.migrate.config`), and so are simple commands of shell scripts
(`areal_conf.migrate.scripts`). Other commands, documents and Python code are only reported
(`areal_conf.migrate.usages`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from areal_conf.errors import AllocationError, counted
from areal_conf.files import (
    MAX_BYTES,
    FileChangedError,
    TooLargeError,
    read_limited,
    walk,
    write_atomically,
)
from areal_conf.legacy.carry_over import FIELD
from areal_conf.migrate.config import Target, migrate_yaml
from areal_conf.migrate.outcome import Found

Kind = Literal["yaml", "shell", "lines", "python"]

SUFFIXES: dict[str, Kind] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".py": "python",
    **dict.fromkeys((".sh", ".bash", ".zsh", ".sbatch", ".slurm"), "shell"),
    **dict.fromkeys((".md", ".mdx", ".markdown", ".rst", ".txt"), "lines"),
}
"""How files of a tree are read, by suffix; one without a suffix counts if it begins with ``#!``."""
NAMES: dict[str, Kind] = dict.fromkeys(("Makefile", "Dockerfile", "justfile"), "lines")
_MARKS = (FIELD, "AllocationMode")
FEW = 200


@dataclass
class FileMigration:
    """What became of one file.

    Attributes:
        path: the file.
        old: its text.
        new: the text it is to have; None where it stays.
        found: what there is to tell, by line; errors are reasons why it was left alone.
        command: the command that replaces the launcher's, where there is one.
        data: the bytes that were read.
        encoding: of those bytes.
    """

    path: Path
    old: str = ""
    new: str | None = None
    found: list[Found] = field(default_factory=list)
    command: str | None = None
    data: bytes = b""
    encoding: str = "utf-8"

    @property
    def undecided(self) -> bool:
        """Whether something in it was left alone that has to change."""
        return any(found.severity == "error" for found in self.found)

    def write(self) -> None:
        """Write the new text, atomically; what fails is told in `found`, and nothing is changed."""
        if self.new is None:
            return
        try:
            names = self.path.stat().st_nlink
            write_atomically(self.path, self.new.encode(self.encoding), expected=self.data)
            if names > 1:
                self.found.append(Found(1, "warning", _other_names(names - 1)))
        except FileChangedError:
            hint = "look at what changed it, and migrate again"
            self._failed("AC525", "the file changed while it was being migrated", hint)
        except OSError as error:
            hint = "make the file and its directory writable, and migrate again"
            self._failed("AC526", f"cannot be written: {error.strerror or error}", hint)

    def _failed(self, code: str, message: str, hint: str) -> None:
        self.found = [Found(1, "error", AllocationError(code, message, hint=hint))]
        self.new = None


def _other_names(others: int) -> AllocationError:
    message = f"the file has {counted(others, 'other name')} (hard links), which keep the old text"
    return AllocationError("AC526", message, hint="migrate each name, or link them again")


def migrate_file(
    path: Path, target: Target = "controller", *, apart: bool = False
) -> FileMigration:
    """What is to become of one file. Nothing is written.

    Args:
        path: the file.
        target: ``controller`` removes the mode; ``spmd`` keeps it beside the backends.
        apart: give engines that shared the trainer's GPUs their own.

    Raises:
        OSError: it cannot be read.
    """
    result = FileMigration(path)
    try:
        result.data = data = read_limited(path)
    except TooLargeError:
        severity: Literal["error", "warning"] = "error" if kind_of(path) == "yaml" else "warning"
        message = f"it is larger than {MAX_BYTES // 2**20} MiB, and was not read"
        hint = "look for allocation_mode in it yourself: grep -n allocation_mode"
        error = AllocationError("AC520", message, hint=f"{hint} {shlex.quote(str(path))}")
        result.found = [Found(1, severity, error)]
        return result
    if not _mentions(data):
        return result
    try:
        result.encoding = _encoding(data)
        result.old = data.decode(result.encoding)
    except UnicodeDecodeError as error:
        if kind_of(path) == "yaml":
            line = data.count(b"\n", 0, error.start) + 1
            message = "the file is not UTF-8, so no config is read from it"
            hint = "save it as UTF-8, and migrate again"
            result.found = [Found(line, "error", AllocationError("AC520", message, hint=hint))]
        return result
    _judge(result, target, kind_of(path) or "lines", apart)
    return result


def _judge(result: FileMigration, target: Target, kind: Kind, apart: bool) -> None:
    from areal_conf.migrate.scripts import edited_script
    from areal_conf.migrate.usages import command_lines, python_uses

    if kind == "python":
        uses = list(python_uses(result.old))
    elif kind == "shell":
        result.new, uses = edited_script(result.old, target, result.path)
    else:
        is_config = kind == "yaml"
        uses = list(command_lines(result.old, target, result.path, is_config=is_config))
    if kind == "yaml":
        migration = migrate_yaml(result.old, target, file=result.path, apart=apart)
        result.new, result.found = migration.new, migration.found
        if result.new is not None and target == "controller":
            fitting = "slurm" if migration.several_nodes else "local"
            scheduler = migration.scheduler or fitting
            key = "scheduler.type" if migration.has_scheduler else "+scheduler.type"
            named = shlex.quote(str(result.path))
            result.command = f"python3 SCRIPT --config {named} {key}={scheduler}"
    result.found += uses


def _mentions(data: bytes) -> bool:
    encodings = ("utf-8", "utf-16-le", "utf-16-be")
    return any(mark.encode(encoding) in data for mark in _MARKS for encoding in encodings)


def _encoding(data: bytes) -> str:
    """UTF-16 where a byte order mark says so; else UTF-8. The mark stays in the text."""
    return {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(data[:2], "utf-8")


# -- trees --------------------------------------------------------------------------------------


def kind_of(path: Path) -> Kind | None:
    """How a file is read; None where it is none of ours."""
    kind = SUFFIXES.get(path.suffix.lower()) or NAMES.get(path.name)
    if kind or path.suffix:
        return kind
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            first = file.readline(200)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    if b"python" in first:
        return "python"
    return "shell" if re.search(rb"\b(?:ba|z|da|k)?sh\b", first) else "lines"


def find_files(
    paths: Iterable[Path], on_error: Callable[[OSError], object] | None = None
) -> Iterator[Path]:
    """The files to look at, each once: the given ones, and in directories what `walk` finds
    and `kind_of` knows. `on_error` takes the error of a folder that cannot be listed."""
    seen: set[str] = set()
    for path in paths:
        for found in _below(path, on_error) if path.is_dir() else (path,):
            real = os.path.realpath(found)
            if real not in seen:
                seen.add(real)
                yield found


def _below(directory: Path, on_error: Callable[[OSError], object] | None) -> Iterator[Path]:
    return (path for path in walk(directory, on_error) if path.is_file() and kind_of(path))
