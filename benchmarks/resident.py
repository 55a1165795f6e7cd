"""The greatest resident size of a fresh Python that does each job once, imports included."""

from __future__ import annotations

from collections.abc import Iterator

from measure import Effort, Row, peak

TITLE = "Memory"
JOBS = (
    ("parsing", "parsing four strings", "the same with AReaL 1.0.4"),
    ("composing", "composing and reading ten values", "plain values, without the package"),
    ("pruning", "pruning 10,000 combinations", "20 of them with hydra-filter-sweeper"),
    ("enumerating", "enumerating the layouts of 64 GPUs", "brute force"),
    ("planning", "plan of 16,384 GPUs as JSON", "plan of 8 GPUs as JSON"),
    ("migrating", "migrating 1,000 files", "PyYAML, load and dump"),
)


def rows(effort: Effort) -> Iterator[Row]:
    """A process for each side of each job: it needs the same every time, so that one is enough."""
    for module, what, peer in JOBS:
        here = [peak(module, "here")]
        try:
            theirs = [peak(module, "peer")]
        except ImportError:
            theirs = []
        yield Row(what, here, peer, theirs, unit="MiB")
