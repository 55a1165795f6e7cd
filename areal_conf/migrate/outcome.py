"""What becomes of one file, and why it is left alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from areal_conf.errors import AllocationError


class Found(NamedTuple):
    """Something to tell of a file: an error says why it is left alone."""

    line: int
    severity: Literal["error", "warning"]
    error: AllocationError


@dataclass
class Migration:
    """What becomes of one file.

    Attributes:
        new: its new text; None where nothing changes.
        found: errors (why something was left alone) and warnings, by line.
        scheduler: ``scheduler.type`` of the file; None where it has none.
        has_scheduler: whether ``scheduler.type`` stands in the file, so that an override needs no
            ``+``.
        several_nodes: whether ``cluster.n_nodes`` is over 1, where scheduler local will not do.
    """

    new: str | None = None
    found: list[Found] = field(default_factory=list)
    scheduler: str | None = None
    has_scheduler: bool = field(default=False, compare=False)
    several_nodes: bool = field(default=False, compare=False)

    @property
    def undecided(self) -> bool:
        """Whether something was left alone that has to change."""
        return any(found.severity == "error" for found in self.found)


class LeftAloneError(Exception):
    """A file cannot be decided."""

    def __init__(self, found: list[Found]) -> None:
        super().__init__(found)
        self.found = found
