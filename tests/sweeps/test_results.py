"""``areal-conf results``: jobs best first, how far off the estimates were, what to try next."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from areal_conf.cli.entry import main
from areal_conf.sweeps.results.neighbours import neighbours_of
from areal_conf.sweeps.results.summary import results

KIND = [["actor", "fsdp", 8]]


def estimate(low: float, high: float, time: float, verdict: str = "fits") -> dict[str, Any]:
    return {
        "verdict": verdict,
        "most": high,
        "memory": {"actor": {"verdict": verdict, "step": [low, high], "gpu": 79.1}},
        "shared": [{"engines": ["actor"], "step": [low, high]}],
        "time": time,
        "compare_within": KIND,
    }


def job(number: int, spec: str, state: str, **more: Any) -> dict[str, Any]:
    return {
        "job": number,
        "directory": str(number),
        "overrides": [f"actor.backend={spec}", "trial_name=t_0"],
        "layouts": {"actor": spec},
        "gpus": 8,
        "estimate": None,
        "warnings": [],
        "state": state,
        "seconds": 10.0,
        "return_value": None,
        **more,
    }


def measured(training: float, used: float) -> dict[str, Any]:
    return {
        "typical": {"train_step": training, "rollout": 5.0, "save": 100.0},
        "timeperf": {"train_step": training},
        "memory": {"head": "ppo update", "most_used": used},
        "steps": 3,
    }


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    jobs = [
        job(0, "fsdp:d8", "completed", estimate=estimate(40, 50, 1.0), **measured(10.0, 45.0)),
        job(1, "fsdp:d4t2", "completed", estimate=estimate(30, 40, 1.2), **measured(8.0, 50.0)),
        job(2, "fsdp:d2t4", "out_of_memory", estimate=estimate(20, 30, 1.5), error="CUDA\nx"),
        job(3, "fsdp:t8", "waiting", estimate=estimate(20, 30, 1.7)),
        job(4, "fsdp:d2t2c2", "waiting", estimate=estimate(20, 30, 1.1)),
    ]
    record = {"version": 1, "left_out": {"AC306": 2}, "jobs": jobs}
    (tmp_path / "layouts.json").write_text(json.dumps(record))
    return tmp_path


def test_best_first_and_estimate_beside_measurement(sweep: Path) -> None:
    found = results(sweep)
    assert found["ordered_by"] == "step"
    assert [row["job"] for row in found["jobs"]] == [1, 0, 2, 3, 4]
    best, second = found["jobs"][:2]
    assert (best["step"], best["training"]) == (13.0, 8.0)
    assert (second["memory_off"], second["memory_inside"]) == (0.0, True)
    assert (best["memory_off"], best["memory_inside"]) == (-0.3, False)
    assert second["time_off"] == pytest.approx((1.0 / 1.2) / (10 / 8) - 1, abs=1e-4)
    assert best["time_off"] is None  # the others are held to it
    assert found["accuracy"]["time_off"]["jobs"] == 1
    assert found["accuracy"]["memory_off"] == {"jobs": 2, "median": 0.15, "inside": 1}
    assert found["accuracy"]["out_of_memory"] == {"jobs": 1, "not_said": 1}


def test_what_to_try_next(sweep: Path) -> None:
    tried = results(sweep)["next"]
    assert [one["overrides"][0] for one in tried[:2]] == [
        "actor.backend=fsdp:d2t2c2",
        "actor.backend=fsdp:t8",
    ]
    assert "1.10 times the fastest of its kind" in tried[0]["reason"]
    record = json.loads((sweep / "layouts.json").read_text())
    record["jobs"] = record["jobs"][:3]
    (sweep / "layouts.json").write_text(json.dumps(record))
    assert results(sweep)["next"] == [
        {
            "overrides": ["actor.backend=fsdp:d2t2c2"],
            "reason": "one move from the best layout, and not in this sweep",
        }
    ]


def test_neighbours_keep_the_number_of_gpus() -> None:
    best = job(0, "megatron:d4t2", "completed")
    best["layouts"]["ref"] = "megatron:d4t2"
    found = list(neighbours_of(best))
    assert len(found) == 5
    for overrides, layouts in found:
        assert len(overrides) == 1
        assert layouts["ref"] == layouts["actor"]
        assert overrides == [f"actor.backend={layouts['actor']}"]


def test_every_job_out_of_memory(tmp_path: Path) -> None:
    jobs = [job(0, "fsdp:d8", "out_of_memory", estimate=estimate(90, 99, 1, "no"))]
    (tmp_path / "layouts.json").write_text(json.dumps({"jobs": jobs}))
    (one,) = results(tmp_path)["next"]
    assert "max_tokens_per_mb" in one["reason"]


def test_return_values_of_any_app(tmp_path: Path) -> None:
    jobs = [{"state": "completed", "return_value": v, "overrides": [f"x={v}"]} for v in (3, 1.5, 2)]
    (tmp_path / "layouts.json").write_text(json.dumps({"jobs": jobs}))
    values = [row["return_value"] for row in results(tmp_path)["jobs"]]
    assert values == [1.5, 2, 3]
    values = [row["return_value"] for row in results(tmp_path, maximize=True)["jobs"]]
    assert values == [3, 2, 1.5]


def test_a_multirun_without_a_record(tmp_path: Path) -> None:
    for number, spec in enumerate(("fsdp:d8", r"fsdp\:d4t2")):
        folder = tmp_path / str(number)
        (folder / ".hydra").mkdir(parents=True)
        (folder / ".hydra" / "overrides.yaml").write_text(f"- actor.backend={spec}\n")
    line = "│ timeperf/train_step │ 2.0000e+00 │\n"
    (tmp_path / "1" / "areal.log").write_text(line, encoding="utf-8")
    found = results(tmp_path)
    assert [(row["job"], row["layouts"], row["state"]) for row in found["jobs"]] == [
        (1, {"actor": "fsdp:d4t2"}, "completed"),
        (0, {"actor": "fsdp:d8"}, "ended"),
    ]


# -- the command ----------------------------------------------------------------------------------


def test_table(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", str(sweep)]) == 0
    out = capsys.readouterr().out
    first = out.splitlines()[1]
    assert first.split()[:5] == ["1", "1", "completed", "13.00", "50.0"]
    assert first.endswith("actor.backend=fsdp:d4t2 trial_name=t_0")
    assert "memory: 1 of 2 inside the estimate; its middle is 15 % off (median)" in out
    assert "out of memory: 1, of which the estimate had warned of 0" in out
    assert "left out before the start: 2 by AC306" in out
    assert "job 2: CUDA\n" in out
    assert "try next:\n  actor.backend=fsdp:d2t2c2 trial_name=t_0  # not run yet" in out


def test_what_is_tried_next_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = "megatron:(attn:d4t2|ffn:t2e4)"
    waiting = {**job(0, spec, "waiting"), "overrides": [f"actor.backend='{spec}'"]}
    (tmp_path / "layouts.json").write_text(json.dumps({"jobs": [waiting]}))
    assert main(["results", str(tmp_path)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert shlex.split(line, comments=True) == waiting["overrides"]


def test_csv(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", str(sweep), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["actor"] for row in rows][:2] == ["fsdp:d4t2", "fsdp:d8"]
    assert rows[0]["gib_used"] == "50.0"


def test_page(sweep: Path, tmp_path: Path) -> None:
    record = json.loads((sweep / "layouts.json").read_text())
    record["jobs"][0]["error"] = "<script>alert(1)</script>"
    record["jobs"][0]["return_value"] = {"</td>": '"><img src=x>'}
    (sweep / "layouts.json").write_text(json.dumps(record))
    assert main(["results", str(sweep), "-o", str(tmp_path / "out.html")]) == 0
    page = (tmp_path / "out.html").read_text()
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "fsdp:d4t2" in page


@pytest.mark.parametrize("text", ["", "[]", '{"jobs": 3}', '{"jobs": [1]}', "{"])
def test_what_is_no_record_is_told(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "layouts.json").write_text(text)
    with pytest.raises(SystemExit) as raised:
        main(["results", str(tmp_path)])
    assert raised.value.code == 2
    assert capsys.readouterr().err.startswith("areal-conf: ")


def test_a_directory_above(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    above = sweep / "multirun" / "2026-12-01"
    for name in ("10-00", "11-00"):
        (above / name).mkdir(parents=True)
    (above / "10-00" / "layouts.json").write_text((sweep / "layouts.json").read_text())
    assert main(["results", str(above)]) == 0
    (above / "11-00" / "layouts.json").write_text((sweep / "layouts.json").read_text())
    with pytest.raises(SystemExit):
        main(["results", str(above)])
    assert "holds 2 sweeps; name one" in capsys.readouterr().err
    assert main(["results", str(sweep / "gone")]) == 2
