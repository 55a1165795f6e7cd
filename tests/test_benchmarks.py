"""The benchmark runs, and its tables are whole. Numbers are for quiet machines."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "run.py"


def test_quick_form_prints_every_table() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick"], capture_output=True, text=True, cwd=SCRIPT.parents[1]
    )
    assert done.returncode == 0, done.stderr
    titles = re.findall(r"^## (.*)$", done.stdout, re.M)
    assert len(titles) == 4
    assert re.search(r"^\| `fsdp:d8` \| [\d.]+ us \| [\d.]+ us \|", done.stdout, re.M)
    assert re.search(r"^\| with areal-conf installed \| [\d.]+ \| [\d.]+ \|$", done.stdout, re.M)
    assert "Hydra's own scan statistics" in done.stdout
    assert re.search(r"^\| 16384 \| [\d.]+ \|", done.stdout, re.M)


def test_the_page_is_that_of_the_script() -> None:
    page = (SCRIPT.parents[1] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page.startswith("# Benchmarks\n\nWritten by `python benchmarks/run.py --write`.")
    assert len(re.findall(r"^## ", page, re.M)) == 4
