"""``areal-conf layouts --rank``: verdict and relative time beside each layout, best first."""

from __future__ import annotations

import json

import pytest

from areal_conf.cli import main

MODEL = ["--model", "Qwen2.5-7B"]
H100 = [*MODEL, "--gpu", "H100", "--rank"]


def printed(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["layouts", *words]) == status
    return capsys.readouterr().out


def test_the_table_has_the_best_first(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "megatron:d*p*t*@16", *H100).splitlines()
    titles = ("layout", "memory", "GiB a GPU", "time", "costs most", "warnings")
    assert lines[0].split() == " ".join(titles).split()
    assert "1.00" in lines[1]
    assert any(line.startswith("time: estimated, beside the fastest") for line in lines)
    assert any("max_tokens_per_mb" in line for line in lines)


def test_json_has_verdict_time_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(capsys, "megatron:d*p*t*@16", *H100, "--format", "json"))
    times = [row["time"] for row in rows if row["verdict"] == "fits"]
    assert times == sorted(times)
    assert times[0] == 1
    assert rows[0]["about_equal"]
    assert sum(rows[0]["parts"].values()) == pytest.approx(1, abs=0.01)
    assert {w["code"] for row in rows for w in row["warnings"]} == {"AC452"}
    assert not any(row["rough"] for row in rows)


def test_lines_and_hydra_have_nothing_but_specs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "fsdp:d*t*@8", *H100, "--format", "lines").splitlines()
    assert lines[0] == "fsdp:d8"
    assert set(lines) == {"fsdp:d8", "fsdp:d4t2", "fsdp:d2t4"}
    assert printed(capsys, "fsdp:d*t*@8", *H100, "--format", "hydra") == ",".join(lines) + "\n"


def test_what_does_not_fit_is_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["megatron:d*p*t*@16", "--model", "Qwen2.5-72B", "--gpu", "H100", "--rank"]
    out = printed(capsys, *words)
    assert "by AC701" in out
    assert "megatron:d16 " not in out


def test_nothing_that_fits_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with_little = ["--model", "Qwen2.5-72B", "--gpu", "24", "--rank"]
    assert main(["layouts", "megatron:d*@8", *with_little]) == 1
    assert "AC603" in capsys.readouterr().err


def test_servers_are_ordered_by_their_cache(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(capsys, "sglang:d*t*@16", *H100, "--format", "json"))
    assert [row["spec"] for row in rows] == ["sglang:d4t4", "sglang:d8t2", "sglang:d16"]
    assert rows[0]["requests"] > rows[-1]["requests"] > 0
    assert "time" not in rows[0]


def test_experts_are_rough(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "Qwen3-30B-A3B", "--gpu", "H100", "--rank"]
    assert "rough" in printed(capsys, "megatron:d*e*@16", *words)


def test_without_a_card_there_is_time_and_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(capsys, "fsdp:d*t*@8", *MODEL, "--rank", "--format", "json"))
    assert {row["verdict"] for row in rows} == {"unknown"}
    assert rows[0]["time"] == 1


def test_ranking_needs_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["layouts", "fsdp:d*@8", "--rank"])
    assert raised.value.code == 2
    assert "--rank needs --model" in capsys.readouterr().err


def test_warnings_of_the_model_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """D7: t16 on 4 key/value heads must not look as good as t4."""
    words = ["sglang:d*t*@16", "--model", "Qwen3-30B-A3B"]
    assert main(["layouts", *words]) == 0
    told = capsys.readouterr()
    assert "sglang:t16" in told.out
    assert "AC451" in told.err
    assert "of 5, such as sglang:d2t8" in told.err
    rows = json.loads(printed(capsys, *words, "--format", "json"))
    marked = {row["spec"] for row in rows if row["warnings"]}
    assert marked == {"sglang:d2t8", "sglang:t16"}
