"""Compare suggestions with the layouts that authors of experiments run.

    python benchmarks/authors.py DIRECTORY [--gpu H100]

DIRECTORY holds AReaL's ``examples``. For each experiment of `EXPERIMENTS` it prints what its
authors run, whether that is among the suggestions, and where their layouts are in the order of
their own engine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from areal_conf.config.compose import compose_file
from areal_conf.planning.options import PlanOptions
from areal_conf.planning.result import planned
from areal_conf.search_space import layouts
from areal_conf.spec.allocation import ModelAllocation
from areal_conf.suggest.experiment import Gpus, Open, open_experiment
from areal_conf.suggest.ranking import LeftOut, Ranked, rank, rank_trainers, that_run
from areal_conf.suggest.suggestions import suggest

EXPERIMENTS = (
    "math/gsm8k_grpo.yaml",
    "math/gsm8k_ppo_megatron.yaml",
    "math/boba_grpo.yaml",
    "math/gsm8k_sft_archon_fp8.yaml",
    "alignment/hhrlhf_rw.yaml",
    "skypilot/gsm8k_grpo_ray.yaml",
    "tau2/config_1.7b_airline.yaml",
    "tau2/config_8b_airline.yaml",
    "dte/gsm8k_grpo_qwen3_30b_a3b.yaml",
    "tau2/config_30b_moe_airline.yaml",
    "tau2/config_235b_moe_airline.yaml",
)

TOP = 5


class Place(NamedTuple):
    """Where a layout stands among those of its engine and number of GPUs."""

    spec: str
    place: int
    of: int
    relative: float | None
    verdict: str

    def words(self) -> str:
        """For a table."""
        if not self.place:
            return f"`{self.spec}` left out"
        time = "" if self.relative is None else f", time {self.relative:.2f}"
        return f"`{self.spec}` {self.place} of {self.of}{time}, {self.verdict}"


def place_of(opened: Open, engine: Any, allocation: ModelAllocation) -> Place:
    """Rank the authors' own layout among all of the same engine."""
    subject = opened.subject(engine)
    kind, gpus = allocation.backend, allocation.world_size
    dims = {"sglang": "d*t*", "vllm": "d*t*", "fsdp": "d*t*c*"}.get(kind, "d*t*p*c*e*")
    found = {*layouts(f"{kind}:{dims}", gpus), allocation}
    ordered = sorted(found, key=str)
    left_out = LeftOut()
    kept: list[Ranked]
    if allocation.role == "inference":
        kept = rank(that_run(ordered, subject, left_out), subject, left_out)
    else:
        kept = rank_trainers(that_run(ordered, subject, left_out), subject, left_out)
    for index, one in enumerate(kept):
        if one.allocation == allocation:
            return Place(str(allocation), index + 1, len(kept), one.relative, one.verdict)
    return Place(str(allocation), 0, len(kept), None, "no")


def compare(file: Path, gpu: str) -> str:
    """One row of the table."""
    cfg = compose_file(file)
    options = PlanOptions(model="auto", gpu=gpu)
    made = planned(cfg, options)
    assert made.cluster is not None
    gpus = Gpus(made.cluster.n_nodes, made.cluster.n_gpus_per_node)
    opened = open_experiment(cfg, options, gpus, bare=False)
    own: dict[str, ModelAllocation] = {}
    places = []
    for engine in (opened.server, opened.trainer):
        if engine is not None and engine.allocation is not None:
            own[engine.name] = ModelAllocation.from_str(str(engine.allocation))
            places.append(place_of(opened, engine, own[engine.name]))
    found = suggest(cfg, options, gpus, TOP).suggestions
    each = {name: any(s.engines[name]["spec"] == str(x) for s in found) for name, x in own.items()}
    together = any(all(s.engines[name]["spec"] == str(x) for name, x in own.items()) for s in found)
    answer = "yes" if together else "each" if all(each.values()) else "no"
    if answer == "no":
        answer = ", ".join(f"{name} {'yes' if there else 'no'}" for name, there in each.items())
    engine = opened.trainer or opened.server
    assert engine is not None
    model = opened.subject(engine).facts.source.split("/")[-1]
    words = "; ".join(place.words() for place in places)
    return f"| {file.parent.name}/{file.stem} | {model} | {gpus.count} | {answer} | {words} |"


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Suggestions beside what authors run.")
    parser.add_argument("directory", type=Path, help="the examples of AReaL")
    parser.add_argument("--gpu", default="H100")
    chosen = parser.parse_args(arguments)
    print("| experiment | model | GPUs | suggested | the authors' layouts in the order |")
    print("| --- | --- | --- | --- | --- |")
    for name in EXPERIMENTS:
        print(compare(chosen.directory / name, chosen.gpu))
    return 0


if __name__ == "__main__":
    sys.exit(main())
