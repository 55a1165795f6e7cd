"""Hold the order of layouts to published runs.

    python benchmarks/ranking.py FILE.tsv ... [--json]

Each row of a file is one run of a layout: model, layout, settings, and seconds a step or OOM. For
each source (the last word of that column) it prints the number of layouts; Kendall's tau between
estimated and measured times of those that ran; how much slower than the best the layout is that
the estimate puts first; the share of runs out of memory that the estimate says do not fit; and the
share of layouts that ran of which it says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from areal_conf.errors import AllocationError
from areal_conf.estimate.cards import CARDS, Card, card_of_device, read_card
from areal_conf.estimate.settings import TrainingSettings
from areal_conf.estimate.timing.layer import Attention, Work
from areal_conf.estimate.timing.speed import FITTED, Fitted, speed_of
from areal_conf.estimate.timing.step import step_time
from areal_conf.estimate.training import training_memory
from areal_conf.model import ModelFacts
from areal_conf.spec.allocation import ModelAllocation
from benchmarks.memory import RECOMPUTE, Row, Settings, model_facts, print_report, read_rows

SCALING = "aleph-alpha-scaling"
"""A framework of its own: see `own_settings`."""

_GBS_TOKENS = 4_194_304


class Run(NamedTuple):
    """One row, read.

    Attributes:
        source: what the row is grouped by.
        allocation: its layout.
        facts: its model.
        work: what a step does.
        memory: settings of the estimate of memory.
        card: the accelerator.
        seconds: measured; None: out of memory.
    """

    source: str
    allocation: ModelAllocation
    facts: ModelFacts
    work: Work
    memory: TrainingSettings
    card: Card
    seconds: float | None


def read_run(row: Row) -> Run | None:
    """The run of a row; None for a row that is neither a time nor out of memory.

    Raises:
        AllocationError: its model or layout is not known.
    """
    value = row["measured value"].strip()
    timed = row["unit"] in ("s", "ms") or "time" in row["metric"]
    if row["kind"] != "train" or not (value == "OOM" or timed):
        return None
    settings = Settings(row)
    allocation = ModelAllocation.from_str(row["layout"])
    memory = settings.training()
    if row["framework"] == SCALING:
        memory = own_settings(settings, memory)
    return Run(
        source=row["source"].split()[-1],
        allocation=allocation,
        facts=model_facts(row["model"]),
        work=_work(settings, allocation, memory),
        memory=memory,
        card=_card(row["gpu"]),
        seconds=None if value == "OOM" else float(value),
    )


def read_runs(rows: Iterable[Row]) -> list[Run]:
    """The runs of all rows; one that cannot be read is told on stderr."""
    runs = []
    for row in rows:
        try:
            run = read_run(row)
        except (AllocationError, OSError, ValueError) as error:
            print(f"{row['id']} is left out: {error}", file=sys.stderr)
            continue
        if run is not None:
            runs.append(run)
    return runs


def _card(name: str) -> Card:
    """The card of a row; an A100 where it is none that is known."""
    with contextlib.suppress(AllocationError):
        return read_card(name)
    return card_of_device(name) or CARDS["A100-80GB"]


def own_settings(settings: Settings, memory: TrainingSettings) -> TrainingSettings:
    """Real facts of Aleph Alpha's framework (arXiv 2311.05610).

    ZeRO-1 with fp32 master weights and moments, logits gathered over t and cast to fp32 for the
    loss, eager SwiGLU, stages balanced by parameters. Gradients are in bf16, and in fp32 only the
    share that a rank updates: 13B on d32 and 30B on d128p2 ran, where weights in bf16 and all
    gradients in fp32 alone take 78 and 94 GiB of 79.
    """
    kernel = settings.said.get("kernel", "flash")
    eager = "RMS" not in kernel
    t = settings.sizes.t
    return dataclasses.replace(
        memory,
        micro_batches=_micro_batches(settings, memory.tokens or 2048),
        gradient_bytes=2,
        optimizer_bytes=16,
        # bf16 logits and their gradient of each rank; gathered ones in bf16 and fp32, softmax.
        loss_bytes=4 + 14 * t if t > 1 else 14,
        kernels="eager" if eager else "fused",
        attention_scores="flash" not in kernel,
        balanced_stages=True,
        vocabulary_multiple=1,
        padded_by_t=False,
    )


def _micro_batches(settings: Settings, tokens: int) -> int:
    """Micro-batches of a step on one data rank."""
    total = settings.number("gbs_tokens", _GBS_TOKENS)
    found = settings.number("n_mb") or total / (tokens * settings.sizes.d)
    return max(1, round(found))


def _work(settings: Settings, allocation: ModelAllocation, memory: TrainingSettings) -> Work:
    sizes, said = allocation.parallel.sizes, settings.said
    tokens = memory.tokens or 2048
    kernel = said.get("kernel", "flash_attention2")
    own = settings.framework == SCALING
    torch = memory.shard == "all"
    recompute = RECOMPUTE.get(said.get("ac", "none"), "none")
    return Work(
        tokens=tokens,
        micro_batches=_micro_batches(settings, tokens),
        sequence=int(settings.number("seq", tokens)),
        chunks=memory.chunks,
        recompute="selective" if recompute == "op" else recompute,
        sharding={"nothing": 0, "optimizer": 1, "all": 3}[memory.shard],
        gradient_bytes=4 if own else memory.gradient_bytes,
        sequence_parallel=memory.sequence_parallel and sizes.t > 1,
        attention=_attention(kernel),
        eager_norm=(own and "RMS" not in kernel) or memory.kernels == "eager",
        eager_mlp=own or memory.kernels == "eager",
        gathered_logits=own,
        expert_split=memory.experts_split,
        context="all_to_all" if torch else "ring",
        balanced_stages=memory.balanced_stages,
    )


def _attention(kernel: str) -> Attention:
    if "flash" in kernel:
        return "flash1" if "v1" in kernel or "attention1" in kernel else "flash2"
    return "fused_softmax" if "megatron" in kernel else "eager"


def estimated_seconds(run: Run, fitted: Fitted = FITTED) -> float:
    """The estimate of one run, meaningful beside those of its source alone."""
    sizes = run.allocation.parallel.sizes
    found = step_time(sizes, run.facts, run.work, speed_of(run.card), fitted)
    return math.inf if found is None else found.total


def refused(run: Run) -> bool:
    """Whether the estimate of memory says that the run does not fit."""
    memory = training_memory(run.allocation, run.facts, run.memory, run.card.usable)
    return memory.verdict == "no"


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b of two orders; 0 where either has nothing to order."""
    agree = ties_first = ties_second = pairs = 0
    for i in range(len(first)):
        for j in range(i):
            a = (first[i] > first[j]) - (first[i] < first[j])
            b = (second[i] > second[j]) - (second[i] < second[j])
            agree += a * b
            ties_first += a == 0
            ties_second += b == 0
            pairs += 1
    product = (pairs - ties_first) * (pairs - ties_second)
    return agree / math.sqrt(product) if product else 0.0


def regret(estimated: Sequence[float], measured: Sequence[float]) -> float:
    """How much slower than the best the first pick is, as a share."""
    first = min(range(len(estimated)), key=estimated.__getitem__)
    return measured[first] / min(measured) - 1


def by_source(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each source."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.source, []).append(run)
    return groups


def judge(runs: Sequence[Run], fitted: Fitted = FITTED) -> dict[str, Any]:
    """Figures of one source; None for those that its rows do not allow."""
    ran = [run for run in runs if run.seconds is not None]
    out = [run for run in runs if run.seconds is None]
    measured = [run.seconds for run in ran if run.seconds is not None]
    estimated = [estimated_seconds(run, fitted) for run in ran]
    return {
        "n": len(runs),
        "tau": kendall_tau(estimated, measured) if len(ran) > 1 else None,
        "regret": regret(estimated, measured) if ran else None,
        "oom_said": sum(map(refused, out)) / len(out) if out else None,
        "good_refused": sum(map(refused, ran)) / len(ran) if ran else None,
    }


def report(rows: Iterable[Row]) -> dict[str, Any]:
    """`judge` of each source."""
    groups = by_source(read_runs(rows))
    return {"groups": {name: judge(group) for name, group in groups.items()}}


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def main(arguments: list[str] | None = None) -> int:
    """Print the figures of each source."""
    about = "The order of layouts, held to published runs."
    return print_report(arguments, about, lambda files: report(read_rows(files)), _lines)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{'n':>4} {'tau':>6} {'regret %':>9} {'OOM said %':>11} {'good refused %':>15}  source"
    for name, row in found["groups"].items():
        tau = "-" if row["tau"] is None else f"{row['tau']:.3f}"
        shares = [_percent(row[key]) for key in ("regret", "oom_said", "good_refused")]
        yield f"{row['n']:4} {tau:>6} {shares[0]:>9} {shares[1]:>11} {shares[2]:>15}  {name}"


if __name__ == "__main__":
    sys.exit(main())
