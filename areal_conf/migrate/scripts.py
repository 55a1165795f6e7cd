"""Shell scripts: simple commands are rewritten, the others are reported.

A command is simple where it splits into words as a shell does, one of them is the override, and the
words of the new command are those of the old one with nothing else changed.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from areal_conf.legacy.carry_over import FIELD
from areal_conf.migrate.outcome import Found
from areal_conf.migrate.usages import commands, reported, rewritten

_HEREDOC = re.compile(r"<<-?\s*[\"'\\]?(\w+)")
_IS_SET = re.compile(rf"\+{{0,2}}{FIELD}=[^=]", re.DOTALL)
_NOT_RUN = ("echo", "printf", "export", "alias", "declare", "local", "readonly", "eval")
"""Words behind which a command is text of another one."""


def edited_script(text: str, target: str, file: Path | None) -> tuple[str | None, list[Found]]:
    """The text with its simple commands rewritten (None: as it is), and what is left by hand."""
    if FIELD not in text:
        return None, []
    lines = text.split("\n")
    bare = [line.rstrip("\r") for line in lines]
    uses: list[Found] = []
    new: list[str] = []
    quoted_to = ""
    for first, last in commands(bare):
        command = bare[first:last]
        edited = None if quoted_to else _edited(command, target, file)
        if edited is None:
            new += lines[first:last]
            if not command[0].lstrip().startswith("#"):
                uses += reported(command, first + 1, target, file)
        else:
            pairs = zip(lines[first:last], command, edited, strict=True)
            new += [one + line[len(old) :] for line, old, one in pairs]
        if quoted_to and command[-1].strip() == quoted_to:
            quoted_to = ""
        elif not quoted_to and (opened := _HEREDOC.search(command[-1])):
            quoted_to = opened[1]
    result = "\n".join(new)
    return (result if result != text else None), uses


def _edited(command: list[str], target: str, file: Path | None) -> list[str] | None:
    """The lines of a simple command, rewritten; None where it is none."""
    if not any(FIELD in line for line in command) or command[0].lstrip().startswith("#"):
        return None
    parts = rewritten(command, target, file)
    if any(part.reason for part in parts) or not any(part.sets for part in parts):
        return None
    before = _words(command)
    if before is None or sum(map(bool, map(_IS_SET.match, before))) != 1:
        return None
    if any(FIELD in word and not _IS_SET.match(word) for word in before):
        return None
    if before[0] in _NOT_RUN or any("`" in line or "$(" in line for line in command):
        return None
    lines = [part.line for part in parts]
    after = _words(lines)
    if after is None or not _is_rewritten(before, after):
        return None
    return lines


def _words(command: list[str]) -> list[str] | None:
    """The words of a command as a shell splits it; None where it cannot be split."""
    joined = "".join(line.removesuffix("\\") if line.endswith("\\") else line for line in command)
    try:
        return shlex.split(joined, comments=True)
    except ValueError:
        return None


def _is_rewritten(before: list[str], after: list[str]) -> bool:
    """Whether only the override, and the launcher before the script, are other words."""
    kept = [word for word in before if not _IS_SET.match(word)]
    added = re.compile(r"\+{0,2}(?:\w+(?:\.\w+)*\.backend|scheduler\.type|allocation_mode)=")
    left = [word for word in after if not added.match(word)]
    if left == [word for word in kept if not added.match(word)]:
        return True
    at = next((i for i, pair in enumerate(zip(kept, left, strict=False)) if pair[0] != pair[1]), 0)
    launched = kept[at : at + 2]
    is_launcher = len(launched) == 2 and launched[0] == "-m" and "launcher" in launched[1]
    rest = [word for word in [*kept[:at], *kept[at + 2 :]] if not added.match(word)]
    return is_launcher and left == rest
