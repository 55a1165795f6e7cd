"""What people read on a terminal: wide and narrow, in colour and without, in UTF-8 and in ASCII."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import pytest
from paths import ROOT
from rich.cells import cell_len
from rich.console import Console

from areal_conf import AllocationError, ModelAllocation, plan
from areal_conf.errors import Diagnostic
from areal_conf.report import terminal
from areal_conf.report.explanation import explain, explanation

GUEST = {"type": "colocation", "target": "actor"}


def config(n_nodes: int | None = 2, **engines: Any) -> dict[str, Any]:
    cfg: dict[str, Any] = {name: {"backend": spec} for name, spec in engines.items()}
    if n_nodes is not None:
        cfg["cluster"] = {"n_nodes": n_nodes, "n_gpus_per_node": 8}
    return cfg


def ppo() -> dict[str, Any]:
    cfg = config(rollout="sglang:d2t4", actor="fsdp:d4t2")
    cfg["critic"] = {"backend": "", "scheduling_strategy": GUEST}
    cfg["ref"] = {"backend": "", "scheduling_strategy": GUEST}
    cfg["actor"]["kl_ctl"] = 0.0
    return cfg


class Screen:
    """A console that keeps what was printed."""

    def __init__(self, width: int = 80, encoding: str = "utf-8", terminal: bool = True) -> None:
        self.raw = io.BytesIO()
        file = io.TextIOWrapper(self.raw, encoding=encoding, write_through=True)
        self.console = Console(file=file, width=width, force_terminal=terminal, no_color=True)
        self.encoding = encoding

    @property
    def text(self) -> str:
        import re

        return re.sub(r"\x1b\[[0-9;]*m", "", self.raw.getvalue().decode(self.encoding))

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.text.splitlines()]


def table(cfg: Any, **kwargs: Any) -> Screen:
    screen = Screen(**kwargs)
    terminal.plan_text(plan(cfg), screen.console)
    return screen


def test_table_of_a_ppo_experiment() -> None:
    lines = [" ".join(line.split()) for line in table(ppo(), width=100).lines]
    assert "engine backend layout GPUs where notes" in lines
    assert "rollout sglang d2t4 8 node 1: GPUs 0-7 2 instances of 4 GPUs" in lines
    assert "actor fsdp d4t2 8 node 0: GPUs 0-7" in lines
    assert "critic fsdp d4t2 0 node 0: GPUs 0-7 on the GPUs of actor" in lines
    assert "backend of actor" in lines
    assert any(line.startswith("ref fsdp d4t2 - not running") for line in lines)
    assert any("kl_ctl" in line for line in lines)
    assert lines[-1] == "16 of 16 GPUs · 2 nodes × 8 GPUs · single controller · none idle"


def test_the_expert_sizes_of_a_layout_stand_in_its_notes_once() -> None:
    folded = table(config(actor="megatron:(attn:d2t4|ffn:t2e2)", ref=""), width=120).lines
    assert sum("experts: e2 etp2 edp2" in line for line in folded) == 1
    assert "experts: e4 etp1 edp2" in table(config(actor="megatron:d8e4"), width=40).text
    assert "experts" not in table(config(actor="megatron:d8")).text


@pytest.mark.parametrize("width", [40, 72, 80, 200])
def test_every_line_fits_and_nothing_is_lost(width: int) -> None:
    screen = table(ppo(), width=width)
    assert all(cell_len(line) <= width for line in screen.lines)
    joined = "".join(screen.text.split())
    for word in ("rollout", "critic", "d4t2", "node1", "GPUs0-7", "16of16", "noneidle"):
        assert word in joined
    assert "…" not in screen.text


@pytest.mark.parametrize("width", [72, 80, 90, 100, 160])
def test_no_word_is_broken(width: int) -> None:
    screen = Screen(width=width)
    made = plan(ppo(), model="Qwen3-32B", gpu="H100", areal="1.0.4")
    terminal.plan_text(made, screen.console)
    words = screen.text.split()
    assert all(cell_len(line) <= width for line in screen.lines)
    for said in ("2 instances of 4 GPUs", "on the GPUs of actor", "(GiB): > optimizer"):
        assert set(said.split()) <= {word.rstrip(",") for word in words}
    assert "of 79 GiB" in " ".join(words)


def test_narrow_terminals_get_a_list() -> None:
    lines = table(config(rollout="sglang:d2t4"), width=40).lines
    assert lines[:4] == [
        "rollout sglang:d2t4",
        "  GPUs 8",
        "  node 0: GPUs 0-7",
        "  2 instances of 4 GPUs",
    ]


def test_idle_and_missing_gpus() -> None:
    assert "8 idle" in table(config(actor="fsdp:d8")).text
    short = table(config(1, rollout="sglang:d8", actor="fsdp:d8")).text
    assert "16 of 8 GPUs" in short
    assert "no room for 8 ranks" in short


def test_cluster_unknown_and_no_engines() -> None:
    assert table(config(None, actor="fsdp:d8")).lines[-1] == (
        "8 GPUs · cluster unknown · single controller"
    )
    assert table({}).lines[0] == "no engines"


def test_external_and_faulty_engines() -> None:
    cfg = config(rollout="sglang:d2", actor="fsdp:d2p2")
    cfg["rollout"] |= {"api_url": "http://server", "_version": "v2"}
    text = table(cfg, width=120).text
    assert "external server" in text
    assert "no usable backend" in text
    assert "external" not in table(config(rollout="sglang:d2c2", actor="fsdp:d2")).text


def test_an_engine_colocated_with_another_size_is_not_called_homeless() -> None:
    cfg = config(actor="fsdp:d4")
    cfg["critic"] = {"backend": "fsdp:d2", "scheduling_strategy": GUEST}
    assert "no room" not in table(cfg).text


def test_many_nodes_are_summed_up() -> None:
    text = table(config(2048, actor="fsdp:d16384"), width=100).text
    assert "nodes 0-2047: GPUs 0-7" in text
    assert "16,384 of 16,384 GPUs" in text


def test_node_runs() -> None:
    devices = [(0, 0), (0, 1), (1, 0), (1, 1), (3, 0), (3, 2), None]
    assert [str(run) for run in terminal.node_runs(devices)] == [
        "nodes 0-1: GPUs 0-1",
        "node 3: GPUs 0,2",
    ]


# -- diagnostics --------------------------------------------------------------------------------


def printed(error: AllocationError, severity: str = "error", **kwargs: Any) -> Screen:
    screen = Screen(**kwargs)
    terminal.print_diagnostics([Diagnostic.of(severity, error)], screen.console)  # type: ignore[arg-type]
    return screen


def refused(spec: str) -> AllocationError:
    with pytest.raises(AllocationError) as caught:
        ModelAllocation.from_str(spec)
    return caught.value


def test_a_diagnostic_underlines_what_is_wrong() -> None:
    error = refused("fsdp:d4p2").at("actor.backend")
    lines = printed(error, width=100).lines
    assert lines[0].startswith("error: actor.backend: AC104: ")
    assert lines[1:3] == ["  fsdp:d4p2", "         ^^"]
    assert lines[3].startswith("hint: write fsdp:d8")


def test_errors_come_before_warnings() -> None:
    screen = Screen(width=200)
    terminal.diagnostics(plan(config(actor="fsdp:d4p2", rollout="sglang[x]:d2")), screen.console)
    heads = [line.split(":")[0] for line in screen.lines if ": AC" in line]
    assert heads == ["error", "warning"]


def test_an_exception_is_printed_with_all_that_is_wrong() -> None:
    screen = Screen()
    terminal.refusal(refused("fsdp:d4p2x3"), screen.console)
    assert "AC103" in screen.text
    assert "AC104" in screen.text


@pytest.mark.parametrize("width", [40, 80])
def test_long_and_wide_texts_stay_in_the_terminal(width: int) -> None:
    text = "模" * 500 + "p2" + "型" * 500
    error = AllocationError("AC104", "wrong", text=text, span=(500, 502), hint="write it")
    _, shown, marker, _ = printed(error, width=width).lines
    assert cell_len(shown) <= width
    assert cell_len(shown[: shown.index("p2")]) == marker.index("^^")


def test_elsewhere_than_on_a_terminal_a_line_stays_a_line() -> None:
    error = AllocationError("AC306", "much " * 50, hint="less " * 50)
    head, hint = printed(error, width=40, terminal=False).lines
    assert head == f"error: AC306: {'much ' * 50}".rstrip()
    assert hint == f"hint: {'less ' * 50}".rstrip()


def test_a_very_long_text_is_cut_around_its_fault() -> None:
    error = AllocationError("AC111", "wrong", text="d" * 10**6 + "?", span=(10**6,) * 2, hint="no")
    assert len(printed(error, terminal=False).text) < 500


def test_a_long_list_is_summed_up() -> None:
    error = AllocationError("AC104", "wrong", hint="write it")
    screen = Screen()
    terminal.print_diagnostics([Diagnostic.of("error", error)] * 250, screen.console)
    assert screen.text.count("hint:") == 100
    assert screen.lines[-1] == "150 more errors: AC104 150x"


HOSTILE = "x[bold red]\x1b[31m\n:smile:\x07\u202e"


def test_user_text_is_neither_markup_nor_control() -> None:
    error = AllocationError("AC111", f"no {HOSTILE}", text=HOSTILE, path=HOSTILE, hint=HOSTILE)
    screen = printed(error, width=200)
    assert screen.text.count("[bold red]") == 4
    assert screen.text.count(":smile:") == 4
    assert not set("\x1b\x07\u202e") & set(screen.text)
    cfg = config(actor="fsdp:d8")
    cfg[HOSTILE] = {"backend": "sglang:d1"}
    assert "[boldred]\\x1b" in "".join(table(cfg, width=160).text.split())


# -- explain ------------------------------------------------------------------------------------


def explained(spec: str, **kwargs: Any) -> str:
    screen = Screen(**{"width": 120, **kwargs})
    explanation(ModelAllocation.from_str(spec), screen.console)
    return "\n".join(" ".join(line.split()) for line in screen.lines)


def test_explain_servers() -> None:
    text = explained("sglang:t4d2")
    assert text.startswith("sglang:d2t4\n2 sglang servers generating text on 8 GPUs: 4 GPUs each")
    assert "t 4 tensor GPUs that share each matrix of a layer" in text
    assert "role inference (sglang)" in text
    assert "world size 8 ranks = d2 × t4" in text
    assert "instances 2 of 4 GPUs each" in text
    assert "rank order rank = t + 4d" in text
    assert "tensor groups 2 of 4 ranks: [0 1 2 3] [4 5 6 7]" in text


def test_explain_moe_folding_shows_both_meshes() -> None:
    text = explained("megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)")
    assert "rank order rank = t + 2c + 4d + 16p" in text
    assert "attention (attn) experts (ffn)" in text
    assert "data d 4 edp 2" in text
    assert "tensor t 2 etp 4" in text
    assert "expert groups – 16 of 2 ranks: [0 4] [1 5] …" in text
    assert "data groups 8 of 4 ranks: [0 4 8 12] [1 5 9 13] … 16 of 2 ranks: [0 8] [1 9]" in text
    assert "dealt twice" not in explained("megatron:d4p2")


@pytest.mark.parametrize(
    "spec", ["megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)", "megatron:d2p2t2c2e4", "vllm:d2t2p2"]
)
def test_groups_shown_are_those_of_the_plan(spec: str) -> None:
    name = "rollout" if spec.startswith("vllm") else "actor"
    engine = plan({name: {"backend": spec}}).engines[name]
    text = explained(spec, width=200)
    shown = {"tensor": engine.tensor_groups(), "pipeline": engine.pipeline_groups()}
    for what, groups in shown.items():
        first, second = (f"[{' '.join(map(str, group))}]" for group in groups[:2])
        size = len(groups[0])
        assert f"{what} groups {len(groups)} of {size} ranks: {first} {second}" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_explain_fits(width: int) -> None:
    screen = Screen(width=width)
    explanation(ModelAllocation.from_str("megatron:d1048576"), screen.console)
    explanation(ModelAllocation.from_str("megatron:d8t8p4c2e64"), screen.console)
    assert all(cell_len(line) <= width for line in screen.lines)


def test_explain_takes_a_string_and_refuses_one() -> None:
    screen = Screen()
    screen.console.print(explain("fsdp:d8"))
    assert "canonical" in screen.text
    with pytest.raises(AllocationError):
        explain("fsdp:p8")


# -- terminals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_ascii_terminals(encoding: str) -> None:
    screen = Screen(encoding=encoding, width=100)
    cfg = ppo()
    cfg["模型"] = {"backend": "sglang:d2"}
    terminal.plan_text(plan(cfg), screen.console)
    terminal.diagnostics(plan(cfg), screen.console)
    terminal.print_diagnostics([Diagnostic.of("error", refused("fsdp:模d4"))], screen.console)
    explanation(ModelAllocation.from_str("megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)"), screen.console)
    assert screen.text.isascii()
    assert "\\u6a21" in screen.text


SCRIPT = """
from rich.console import Console
from areal_conf import ModelAllocation, plan
from areal_conf.report import terminal
from areal_conf.report.explanation import explain, explanation
cfg = {"actor": {"backend": "fsdp:d8"}, "rollout": {"backend": "sglang:模"},
       "cluster": {"n_nodes": 2, "n_gpus_per_node": 8}}
console = Console()
terminal.plan_text(plan(cfg), console)
terminal.diagnostics(plan(cfg), Console(stderr=True))
explanation(ModelAllocation.from_str("megatron:d2t2e2"), console)
"""


@pytest.mark.slow
def test_c_locale_in_a_process_of_its_own() -> None:
    env = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    env.pop("PYTHONUTF8", None)
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"fsdp" in done.stdout
    assert b"AC" in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr


def test_no_color() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, _environ={"NO_COLOR": "1", "TERM": "xterm"})
    terminal.print_diagnostics([Diagnostic.of("error", refused("fsdp:p2"))], console)
    assert "\x1b[31m" not in file.getvalue()


def test_moe_guide_shows_the_error_as_it_is() -> None:
    guide = ROOT / "docs" / "guides" / "moe.md"
    error = refused("megatron:(attn:d4p2t2c2|ffn:d4p2t4e2)")
    assert f"```text\n{error}\n```" in guide.read_text(encoding="utf-8")
