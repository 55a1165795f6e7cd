"""What type checkers make of the public names."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_public_names_are_typed_strictly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(HERE.parent))
    out, err, status = api.run(
        [
            "--strict",
            "--config-file=",
            "--python-version=3.10",
            f"--cache-dir={tmp_path}",
            "--no-error-summary",
            str(HERE / "typed_api.py"),
        ]
    )
    assert (status, out, err) == (0, "", "")
