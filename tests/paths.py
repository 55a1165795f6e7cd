"""Where the tests find the repository and their data."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
FAKES = TESTS / "fakes"
CASES = TESTS / "data"
"""Cases with the right answer: backend strings, modes, budgets, configs of AReaL's examples."""
