"""Keeps what a config takes from the environment out of what is printed.

``${oc.env:TOKEN}`` may stand anywhere, behind other keys too. Values are read as they resolve, for
a backend may come from the environment; what is told of them is looked through here before anybody
sees it, and shows ``${oc.env:TOKEN}`` instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from areal_conf.allocation import SchedulingStrategyType
from areal_conf.dialects import AllocationMode
from areal_conf.engines import ROLES, looks_like_spec
from areal_conf.errors import AllocationError, Finding, clip

_ENV = re.compile(r"\$\{\s*oc\.env\s*:\s*([^,}\s]*)")
_LEAST = 4
"""Characters of a secret: shorter values (1, off, ddp) are none, and stand in every other word."""
_HEAD = 16
_WORDS = ("local", "ray", "slurm", "disk", "nccl", "awex")
_PLAIN_WORDS = {*ROLES, *SchedulingStrategyType.__members__, *_WORDS}
"""Values of configs that are no secrets."""


class Redactor:
    """Rewrites errors so that they show nothing of the environment variables that a config names.

    A value that is a backend string, or a word of the configs (``slurm``), is no secret.
    """

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg
        self._patterns: list[tuple[re.Pattern[str], str]] | None = None

    def findings(self, findings: Iterable[Finding]) -> list[Finding]:
        """`findings` with every error redacted."""
        return [Finding(severity, self.error(error)) for severity, error in findings]

    def error(self, error: AllocationError) -> AllocationError:
        """`error` and its companions, redacted; itself where there is nothing to hide."""
        if self._patterns is None:
            self._patterns = [pattern for name in _named(self._cfg) for pattern in _patterns(name)]
        if not self._patterns:
            return error
        return redacted(error, self._patterns)


def redacted(
    error: AllocationError, patterns: list[tuple[re.Pattern[str], str]]
) -> AllocationError:
    """`error` with everything that matches a pattern replaced; itself where nothing does."""
    others = tuple(redacted(other, patterns) for other in error.errors[1:])
    parts = [error.message, error.hint, error.text, error.path or ""]
    for pattern, shown in patterns:
        parts = [shown.join(pattern.split(part)) for part in parts]
    message, hint, text, path = parts
    same = (message, hint, text, path) == (error.message, error.hint, error.text, error.path or "")
    if same and others == error.errors[1:]:
        return error
    span = error.span if text == error.text else (0, len(text))
    return AllocationError(
        error.code, message, hint=hint, text=text, span=span, path=path or None, others=others
    )


def of_whole_value(error: AllocationError) -> AllocationError:
    """`error`, redacted where its whole text is the value of some environment variable."""
    names = [name for name, value in os.environ.items() if value == error.text]
    return redacted(error, [pattern for name in names[:1] for pattern in _patterns(name)])


def _named(cfg: Any) -> list[str]:
    """Names of the environment variables that `cfg` asks for, anywhere; longest values first."""
    names: set[str] = set()
    for text in _raw_strings(cfg):
        for name in _ENV.findall(text):
            names.update(os.environ if "$" in name or not name else [name.strip("'\"")])
    return sorted(names & os.environ.keys(), key=lambda name: (-len(os.environ[name]), name))


def _raw_strings(cfg: Any) -> Iterator[str]:
    """Every interpolation of the whole config that `cfg` is of, as it is written."""
    if not hasattr(cfg, "_get_root"):
        return
    stack = [cfg._get_root()]
    while stack:
        value = stack.pop()._value()
        if isinstance(value, str):
            if "${" in value:
                yield value
        elif isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list):
            stack += value


def _patterns(name: str) -> Iterator[tuple[re.Pattern[str], str]]:
    """What finds the value of an environment variable, whole or cut, and what is shown for it."""
    value = os.environ.get(name, "")
    if len(value) < _LEAST or value in _PLAIN_WORDS or _is_layout(value):
        return
    for form in dict.fromkeys((value, repr(value)[1:-1], clip(value, len(value)))):
        body = re.escape(form)
        if len(form) > 2 * _HEAD:
            head, tail = re.escape(form[:_HEAD]), re.escape(form[-_HEAD:])
            body = f"{body}|{head}.*?{tail}"
        yield re.compile(body, re.DOTALL), f"${{oc.env:{name}}}"


def _is_layout(value: str) -> bool:
    if looks_like_spec(value):
        return True
    try:
        AllocationMode.from_str(value)
    except AllocationError:
        return False
    return True
