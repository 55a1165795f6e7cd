"""How a rule says what it found."""

from __future__ import annotations

from areal_conf.errors import AllocationError, Diagnostic, Severity
from areal_conf.planning.state import ResolvedExperiment


def finding(
    severity: Severity, code: str, message: str, path: str, hint: str, text: str = ""
) -> Diagnostic:
    """Something found at the config path `path`; `text` is underlined as a whole."""
    return Diagnostic.of(severity, AllocationError(code, message, path=path, hint=hint, text=text))


def refused(
    facts: ResolvedExperiment, code: str, message: str, path: str, hint: str, text: str = ""
) -> Diagnostic:
    """What AReaL refuses at start: an error where something is started, a warning in a plan."""
    return finding("error" if facts.strict else "warning", code, message, path, hint, text)
