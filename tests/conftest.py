"""Settings that every test shares."""

from __future__ import annotations

import os

from hypothesis import settings

# Machines that run tests are busy: a deadline would fail tests for what others do meanwhile. In CI
# the examples are the same every time; new ones are looked for elsewhere.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
