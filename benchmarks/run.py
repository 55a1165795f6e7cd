"""What areal-conf costs, each number beside a named peer in the same run.

    python benchmarks/run.py                    prints the page
    python benchmarks/run.py --write            writes it to docs/benchmarks.md
    python benchmarks/run.py --quick            few repetitions: does it run at all
    python benchmarks/run.py parsing planning   these tables alone

`bash tests/run.sh bench` makes an environment with every peer and prints the page. A peer that is
not installed is said in its row. Each table is a module of this folder; `measure` says how its
numbers come about.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from measure import FULL, QUICK, Effort, Row, table

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
TABLES = (
    "parsing",
    "starting",
    "composing",
    "pruning",
    "enumerating",
    "estimating",
    "planning",
    "migrating",
    "resident",
)
PEERS = ("hydra-core", "omegaconf", "areal", "hydra-filter-sweeper", "PyYAML", "ruamel.yaml")
INTRODUCTION = """\
`python benchmarks/run.py --write` writes this page. `bash tests/run.sh bench` first creates an
environment with every peer. Times are CPU seconds, so other load on the machine counts little. The
two sides of a row run in turn. Each ratio is the median of the pairs, with the minimum and maximum
in parentheses. A ratio below 1 means that this package takes less."""


def page(names: list[str], effort: Effort) -> Iterator[str]:
    """The page, line by line."""
    yield "# Benchmarks"
    yield ""
    yield from INTRODUCTION.splitlines()
    yield ""
    yield f"{datetime.date.today().isoformat()}, {machine()}, {', '.join(versions())}."
    missed: list[str] = []
    for name in names:
        module = importlib.import_module(name)
        rows: list[Row] = list(module.rows(effort))
        yield ""
        yield f"## {module.TITLE}"
        yield ""
        yield from table(rows)
        missed += [f"{row.what}: {bar}" for row in rows for bar, met in row.bars if not met]
    yield ""
    yield "## Bars missed"
    yield ""
    yield from [f"- {line}" for line in missed] or ["None."]


def machine() -> str:
    """Processor, cores and Python, in one phrase."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def versions() -> Iterator[str]:
    """The peers that are installed."""
    for name in PEERS:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description="What areal-conf costs.")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    args = parser.parse_args()
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"no such table: {', '.join(sorted(unknown))}")
    lines = []
    for line in page(args.tables or list(TABLES), QUICK if args.quick else FULL):
        print(line, flush=True)
        lines.append(line)
    if args.write:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
