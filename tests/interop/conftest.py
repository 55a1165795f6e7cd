"""The process that imports AReaL, for all tests of the stage."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)
            if importlib.util.find_spec("areal") is None:
                reason = "AReaL is not installed: requirements/interop.txt says how"
                item.add_marker(pytest.mark.skip(reason=reason))


class ArealSide:
    """Calls functions of ``areal_side.py`` in its process."""

    def __init__(self) -> None:
        assert metadata.version("areal") == "1.0.4"
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE / "areal_side.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "WANDB_MODE": "disabled", "SWANLAB_MODE": "disabled"},
        )

    def __call__(self, function: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([function, arguments]) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "raised" in answer:
            raise RuntimeError(answer["raised"])
        return answer["ok"]

    def close(self) -> None:
        """End the process."""
        self.process.communicate(timeout=60)


@pytest.fixture(scope="session")
def areal() -> Iterator[ArealSide]:
    side = ArealSide()
    yield side
    side.close()
