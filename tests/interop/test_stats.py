"""What AReaL's own logger writes, read by ``areal-conf results``."""

from __future__ import annotations

from pathlib import Path

from areal_conf.sweeps.results.measured import read_measured

from .conftest import ArealSide


def test_logs_and_event_files_of_areal(areal: ArealSide, tmp_path: Path) -> None:
    areal("log_steps", str(tmp_path), [3.0, 5.0, 4.0])
    found = read_measured(tmp_path)
    assert (found.memory["used"], found.memory["most_used"]) == (4.0, 5.0)
    assert found.memory["head"] == "ppo update"
    assert set(found.timeperf) == {"train_step", "rollout"}
    assert found.steps == 3
    logged = read_measured(tmp_path / "tb")
    assert logged.timeperf == found.timeperf
    assert logged.steps == 3
    (tmp_path / "tb").rename(tmp_path.parent / "elsewhere")
    from_log = read_measured(tmp_path)
    assert from_log.steps == 3
    assert abs(from_log.timeperf["train_step"] - logged.timeperf["train_step"]) < 1e-4
