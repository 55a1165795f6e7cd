"""The one place where the deprecated `allocation_mode` fills in per-engine backends.

`carry_over` says what an `allocation_mode` does to a config; the plan, `main`, the callback and the
launchers all ask it. AReaL's SPMD launchers read the string, its single controller ignores it
(AReaL, docs/en/reference/alloc_mode.md).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from areal_conf.errors import AllocationError, Diagnostic, clip
from areal_conf.legacy.allocation_mode import AllocationMode
from areal_conf.spec.allocation import ModelAllocation

FIELD = "allocation_mode"
_OURS = ("areal_conf", "hydra", "hydra_plugins", "omegaconf")
_shown: set[str] = set()


class AllocationModeDeprecationWarning(DeprecationWarning):
    """A config sets `allocation_mode`; the message names the fields and values to write."""


@dataclass(frozen=True)
class Carried:
    """What an `allocation_mode` does to a config.

    Attributes:
        mode: the mode as read; None where it is unset or cannot be read.
        says: backend string of each engine the mode names, as the user spelled it.
        filled: those of `says` that fill a backend that was unset.
        findings: errors and warnings, paths included.
        warning: text for `warn_once`; None where there is nothing to warn of.
    """

    mode: AllocationMode | None = None
    says: dict[str, str] = field(default_factory=dict)
    filled: dict[str, str] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    warning: str | None = None

    def host_of(self, engine: str) -> str | None:
        """The engine whose GPUs `engine` shares, as the mode says with ``|``; None: its own."""
        for host, *guests in self.mode.groups() if self.mode else ():
            if engine in guests:
                return host
        return None


def carry_over(
    mode: str | None,
    backends: Mapping[str, str | None],
    *,
    spmd: bool,
    paths: Mapping[str, str] | None = None,
    path: str = FIELD,
) -> Carried:
    """What `mode` does to a config whose engines have these `backends`.

    Args:
        mode: the `allocation_mode`; None and blank are unset.
        backends: each engine section of the config and its backend string (None or "": unset).
        spmd: whether an SPMD launcher runs; else the field is ignored.
        paths: config path of an engine's backend, where it is not ``ENGINE.backend``.
        path: config path of the mode.

    Nothing is raised: what is wrong is in `Carried.findings`.
    """
    if mode is None or not mode.strip():
        return Carried()
    places = _Places(paths or {}, path)
    try:
        read = AllocationMode.from_str(mode)
    except AllocationError as error:
        return _unreadable(mode, error, spmd, places)
    says = read.spelled()
    lines = places.lines(says)
    if not spmd:
        finding = places.ignored(mode, lines)
        return Carried(read, says, {}, [finding], _text(finding))
    filled = {e: spec for e, spec in says.items() if e in backends and not backends[e]}
    deprecated = places.deprecated(mode, lines)
    findings = [deprecated, *_compared(read, says, backends, places)]
    findings += (places.warning("AC515", note, lines, mode) for note in read.notes)
    return Carried(read, says, filled, findings, _text(deprecated))


def warn_once(carried: Carried) -> None:
    """Issue the warning of `carried`, if there is one: each text once per process.

    Python hides a DeprecationWarning unless ``__main__`` caused it. The config did, so the warning
    is issued in the name of ``__main__``: it is shown by default, and the filters that the user
    sets (``-W ignore``, ``-W error``) still come first. No filter is touched.

    Raises:
        AllocationModeDeprecationWarning: where the user's filters say error.
    """
    text = carried.warning
    if text is None or text in _shown:
        return
    _shown.add(text)
    filename, line = _users_place()
    warnings.warn_explicit(
        text, AllocationModeDeprecationWarning, filename, line, module="__main__"
    )


def _users_place() -> tuple[str, int]:
    """File and line of the innermost caller that is neither ours nor Hydra's."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in _OURS:
            break
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _text(finding: Diagnostic) -> str:
    return f"{finding.message}; {finding.hint}"


class _Places:
    """Where the mode and the backends stand in the config, and findings at those places."""

    def __init__(self, paths: Mapping[str, str], mode: str) -> None:
        self.paths = paths
        self.mode = mode

    def backend(self, engine: str) -> str:
        return self.paths.get(engine, f"{engine}.backend")

    def lines(self, says: Mapping[str, str]) -> str:
        """What to write instead of the mode."""
        written = " ".join(f"{self.backend(engine)}={spec}" for engine, spec in says.items())
        return f"write {written} (areal-conf migrate does it)"

    def warning(self, code: str, message: str, hint: str, text: str) -> Diagnostic:
        return self.finding("warning", code, message, hint, text, self.mode)

    def finding(
        self,
        severity: Literal["error", "warning"],
        code: str,
        message: str,
        hint: str,
        text: str,
        path: str,
    ) -> Diagnostic:
        return Diagnostic(severity, code, path, message, hint, text, (0, len(text)))

    def deprecated(self, mode: str, hint: str) -> Diagnostic:
        message = "allocation_mode is deprecated: each engine has a backend of its own"
        return self.warning("AC512", message, hint, mode)

    def ignored(self, mode: str, hint: str) -> Diagnostic:
        message = (
            "allocation_mode is ignored: the single controller runs, "
            "which reads each engine's backend"
        )
        return self.warning("AC513", message, hint, mode)


def _unreadable(mode: str, error: AllocationError, spmd: bool, places: _Places) -> Carried:
    if spmd:
        return Carried(findings=Diagnostic.all_of("error", error.at(places.mode)))
    hint = f"delete it, and write each engine's backend ({error.code}: it cannot be read either)"
    finding = places.ignored(mode, hint)
    return Carried(findings=[finding], warning=_text(finding))


def _compared(
    mode: AllocationMode,
    says: Mapping[str, str],
    backends: Mapping[str, str | None],
    places: _Places,
) -> Iterator[Diagnostic]:
    """What there is to say of each engine that the mode names."""
    for engine, allocation in mode.engines().items():
        place, spec = places.backend(engine), says[engine]
        if engine not in backends:
            yield places.finding(
                "warning",
                "AC514",
                f"allocation_mode gives {clip(engine)} {spec}, and the config has no such engine",
                f"add the section, or take {clip(engine)} out of allocation_mode",
                "",
                places.mode,
            )
            continue
        own = backends[engine]
        same = means(own, allocation) if own else None
        if same is None or own is None:  # unset, or not readable, which is told at its place
            continue
        if same:
            message = f"{engine}: allocation_mode and {place} are both set, and mean the same"
            hint = "keep both for an SPMD launcher, else delete allocation_mode"
            yield places.finding("warning", "AC511", message, hint, own, place)
        else:
            message = f"{engine}: allocation_mode says {spec}, {place} says {clip(own)}"
            hint = f"keep one: write {place}={spec}, or delete allocation_mode"
            yield places.finding("error", "AC510", message, hint, own, place)


def means(spec: str, allocation: ModelAllocation) -> bool | None:
    """Whether the backend string `spec` means `allocation`; None where it cannot be read."""
    try:
        other = ModelAllocation.from_str(spec)
    except AllocationError:
        return None
    return (other.backend, other.parallel) == (allocation.backend, allocation.parallel)
