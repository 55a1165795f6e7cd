"""Hold the estimates of memory to published figures.

    python benchmarks/memory.py FILE.tsv ... [--json]

Each row of a file is one figure: model, layout, settings, metric, what was measured, its source.
For each family of figures it prints their number, the median and the 90th percentile of the error
in per cent, and the share of them inside the estimated range.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from areal_conf.estimate.ranges import DYNAMIC_RANGE, GIB, STATIC_RANGE
from areal_conf.estimate.serving import WEIGHTS_RANGE, serving_memory
from areal_conf.estimate.settings import Recompute, ServingSettings, Shard, TrainingSettings
from areal_conf.estimate.training import WORKSPACE, TrainingMemory, training_memory
from areal_conf.model import ModelFacts, read_model
from areal_conf.spec.allocation import ModelAllocation

Row = Mapping[str, str]


# -- models ----------------------------------------------------------------------------------------


def _gpt(hidden: int, layers: int, heads: int, inner: int, vocabulary: int, **more: Any) -> Any:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "gated": False,
        **more,
    }


def _paper(hidden: int, layers: int, heads: int) -> Any:
    """Table 3 of Korthikanti et al. 2022 (arXiv 2205.05198)."""
    return _gpt(hidden, layers, heads, 4 * hidden, 51200, tie_word_embeddings=True)


def _llama(hidden: int, layers: int, heads: int, kv_heads: int, inner: int) -> Any:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "vocab_size": 128000,
    }


MODELS: dict[str, Any] = {
    # NVIDIA/Megatron-LM@d98e8a64 tests/functional_tests/test_cases/*/model_config.yaml
    "mlm-7b": _gpt(4096, 32, 32, 16384, 131073, num_key_value_heads=8),
    "mlm-15b": _gpt(6144, 32, 48, 24576, 256000, num_key_value_heads=8),
    "mlm-345m": _gpt(
        512, 12, 8, 2048, 50257, model_type="gpt", tie_word_embeddings=True, n_positions=1024
    ),
    "mlm-8x7b-256k": ("mixtral-8x7b", {"vocab_size": 256000}),
    "mlm-dsv3-14l": (
        "deepseek-v3",
        {"num_hidden_layers": 14, "n_routed_experts": 64, "vocab_size": 256000},
    ),
    # ISEEKYAN/mbridge@10cb17f5 memory_estimator/README.md
    "mixtral-8x2b-4l": {
        "model_type": "mixtral",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "intermediate_size": 5440,
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "megatron-22b": _paper(6144, 48, 64),
    "gpt3-175b": _paper(12288, 96, 96),
    "mtnlg-530b": _paper(20480, 105, 128),
    "megatron-1t": _paper(25600, 128, 160),
    # Aleph Alpha, arXiv 2311.05610, table 1
    "aa-13b": _llama(5120, 40, 40, 40, 13824),
    "aa-30b": _llama(6656, 60, 52, 52, 17920),
    "aa-65b": _llama(8192, 80, 64, 64, 22016),
}
"""Models that the figures name and nobody trains."""

SHORT = {
    "llama3-405b": "Llama-3.1-405B",
    "moonlight-16b": "Moonlight-16B-A3B",
}
"""Names in the files for models whose Hub id says more."""


def model_facts(name: str) -> ModelFacts:
    """Facts of the model of a row: a name, or ``cfg={...}`` with the fields themselves."""
    if name.startswith("cfg="):
        config = json.loads(name[4:])
        return _facts({"model_type": "gpt", **config} if config.get("gated") is False else config)
    found = MODELS.get(name.lower())
    if isinstance(found, tuple):
        base, changes = found
        known = read_model(base)
        return _changed(known, changes)
    if found is not None:
        return _facts(found)
    return read_model(SHORT.get(name.lower(), name))


def _facts(config: Mapping[str, Any]) -> ModelFacts:
    plain = {key: value for key, value in config.items() if key not in ("gated", "act")}
    if not plain.get("num_experts", 1):
        plain = {key: value for key, value in plain.items() if "expert" not in key}
    if plain.get("model_type") == "gpt":
        plain.setdefault("max_position_embeddings", plain.pop("n_positions", 1024))
    return dataclasses.replace(read_model(plain), gated_mlp=config.get("gated", True) is not False)


def _changed(facts: ModelFacts, changes: Mapping[str, int]) -> ModelFacts:
    names = {
        "vocab_size": "vocabulary",
        "num_hidden_layers": "layers",
        "n_routed_experts": "experts",
    }
    fields: dict[str, Any] = {names[key]: value for key, value in changes.items()}
    if "layers" in fields and facts.moe_layers is not None:
        fields["moe_layers"] = fields["layers"] - (facts.layers - facts.moe_layers)
    return dataclasses.replace(facts, **fields)


# -- settings --------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """Bytes per token and vocabulary entry: at the peak, and until the backward pass ends."""

    peak: float
    kept: float = 0


LOSSES = {
    "none": Loss(0),
    "critic": Loss(0),
    # Megatron-LM, core/tensor_parallel/cross_entropy.py: bf16 logits, fp32 softmax.
    "mcore": Loss(6),
    # TransformerEngine, pytorch/cross_entropy.py: gradients in the place of the logits.
    "te-fused": Loss(4),
    # torch.nn.functional.cross_entropy on fp32 logits: logits, copy, softmax, gradient.
    "torch": Loss(14),
    # DTensor's loss_parallel; fitted, since no source says it.
    "torch-tp": Loss(20),
    "torch-compile": Loss(6),  # fitted
    # AReaL's chunks, compiled. Fake tensors cannot be summed in place (PyTorch,
    # torch/csrc/autograd/input_buffer.cpp): the tracker sees 2 more than a GPU does.
    "areal-fsdp": Loss(6.25, 2),
    "areal-fsdp-tp": Loss(9.25, 2),
    "areal-megatron": Loss(12.5, 4),
    "areal-megatron-tp": Loss(15, 4),
    "tracker": Loss(8.25, 2),
    "tracker-tp": Loss(11.25, 2),
}

RECOMPUTE: dict[str, Recompute] = {
    "none": "none",
    "full": "full",
    "selective": "selective",
    "sac": "op",
    "op": "op",
}
SHARD: dict[str, Shard] = {"0": "nothing", "1": "optimizer", "2": "optimizer", "3": "all"}

TORCH = ("torchtitan", "torch-fsdp2-tracker", "areal-fsdp", "areal-archon", "fsdp2")
"""Frameworks that shard by FSDP2 and split by DTensor."""


class Settings:
    """The column `settings` of a row, with what is not said."""

    def __init__(self, row: Row) -> None:
        self.framework = row["framework"]
        self.sizes = ModelAllocation.from_str(row["layout"]).parallel.sizes
        self.backend = row["layout"].split(":")[0]
        pairs = (word.split("=", 1) for word in row["settings"].split() if "=" in word)
        self.said = dict(pairs)

    def number(self, name: str, default: float = 0) -> float:
        """A number; `default` where it is not said."""
        return float(self.said.get(name) or default)

    def flag(self, name: str, default: bool = False) -> bool:
        """0 or 1, true or false."""
        return self.said.get(name, str(int(default))).lower() not in ("0", "false", "no", "")

    def loss(self, torch: bool) -> Loss:
        """The kernel of the loss; the framework's own where the row names none that is known."""
        name = self.said.get("loss", "")
        if name in LOSSES:
            return LOSSES[name]
        if "compile" in name:
            return LOSSES["torch-compile"]
        if torch:
            return LOSSES["torch-tp" if self.sizes.t > 1 else "torch"]
        return LOSSES["mcore"]

    def recompute(self, torch: bool) -> Recompute:
        """Torch's frameworks call their list of operations selective."""
        name = self.said.get("ac", "none")
        return "op" if torch and name == "selective" else RECOMPUTE.get(name, "none")

    def stage(self) -> int | Literal["last"] | None:
        """The stage that the figure is of; None: the fullest."""
        name = self.said.get("stage", "max")
        if name == "last":
            return "last"
        number = int(name) if name.isdecimal() else 0
        return min(number, self.sizes.p - 1) if name == "first" or name.isdecimal() else None

    def training(self) -> TrainingSettings:
        """Settings of a training engine."""
        torch = self.backend in ("fsdp", "archon") or self.framework in TORCH
        shard = SHARD.get(self.said.get("zero", "3" if torch else "1"), "optimizer")
        loss = self.loss(torch)
        padding = int(self.number("vocab_pad", 1 if torch else 128))
        split = self.sizes.t > 1
        return TrainingSettings(
            tokens=int(self.number("tokens")) or None,
            micro_batches=max(1, int(self.number("n_mb", 1))),
            chunks=max(1, int(self.number("vpp", 1))),
            recompute=self.recompute(torch),
            sequence_parallel=self.flag("sp", default=torch and split),
            shard=shard,
            parameter_bytes=self.number("param", 4 if torch else 2),
            gradient_bytes=self.number("grad", 4),
            optimizer_bytes=self.number("opt", 8 if torch else 12),
            kernels="eager" if torch or self.flag("hf_eager") else "fused",
            loss_bytes=loss.peak,
            loss_kept_bytes=loss.kept,
            head=loss.peak > 0,
            vocabulary_multiple=padding,
            padded_by_t="vocab_pad" not in self.said and not torch,
            experts_split=self.backend != "fsdp",
            root_gathered=self.framework == "torchtitan",
            reshard=self.flag("reshard", default=True),
            unsharded_gradients=self.flag("unsharded_grads"),
            gather_saved=self.flag("tp_gather_saved", default=torch and split),
            dropout=self.flag("dropout"),
            attention_scores=self.flag("unfused"),
            sequence_length=int(self.number("seq")) or None,
            compiled=self.flag("compiled"),
            fp8=self.flag("fp8") and not torch,
            stage=self.stage(),
            mtp=self.flag("mtp"),
        )

    def serving(self) -> ServingSettings:
        """Settings of an inference server."""
        quantised: Any = self.said.get("quantised", "")
        return ServingSettings(
            fraction=self.number("frac", 0.9),
            kv_bytes=self.number("kv_bytes", 2),
            attention_dp=max(1, int(self.number("dp_attn", 1))),
            quantised=quantised if quantised in ("linear", "experts", "mlp") else "",
            weight_bits=self.number("weight_bits", 8 if quantised else 16),
            unquantised_layers=int(self.number("unquantised_layers")),
            expert_padding=self.number("expert_pad", 1),
        )

    @property
    def gpu(self) -> float | None:
        """GiB of the card, where the row says it."""
        return self.number("gpu") or None


# -- estimates -------------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """One figure and its range."""

    value: float
    low: float
    high: float


def _scaled(value: float, factors: tuple[float, float]) -> Estimate:
    return Estimate(value, value * factors[0], value * factors[1])


def _peak(memory: TrainingMemory) -> Estimate:
    low, high = memory.allocator or (memory.peak, memory.peak)
    return Estimate(memory.peak, low, high)


def _reserved(memory: TrainingMemory) -> Estimate:
    """The allocator reserves more than it hands out: the middle of the range with its pools."""
    low, high = memory.reserved or (memory.peak, memory.peak)
    return Estimate((low + high) / 2, low, high)


def _tracked(memory: TrainingMemory) -> Estimate:
    """A fake device has no workspaces."""
    low, high = memory.allocator or (memory.peak, memory.peak)
    return Estimate(*(end - WORKSPACE / GIB for end in (memory.peak, low, high)))


def _static(memory: TrainingMemory) -> Estimate:
    return _scaled(memory.static, STATIC_RANGE)


def _allocated_static(memory: TrainingMemory) -> Estimate:
    """What is allocated between two steps: the states, and the workspaces."""
    return _scaled(memory.static + WORKSPACE / GIB, STATIC_RANGE)


def _activations(memory: TrainingMemory) -> Estimate:
    return _scaled((memory.parts or {})["activations"], DYNAMIC_RANGE)


TRAINING: dict[str, Callable[[TrainingMemory], Estimate]] = {
    "static": _static,
    "allocated-static": _allocated_static,
    "activations": _activations,
    "peak": _peak,
    "allocated-peak": _peak,
    "reserved-peak": _reserved,
    "tracked-peak": _tracked,
}
SERVING = ("weights", "kv_per_token", "kv_room", "kv_tokens")
UNITS = {"GiB": 1.0, "GB": GIB / 1e9, "MiB": 1024.0, "MB": GIB / 1e6}


def family(row: Row) -> str:
    """The family of a figure."""
    metric = row["metric"]
    if metric in ("static", "allocated-static"):
        return "static"
    if metric.endswith("peak"):
        return "peak>=5GiB" if measured(row) / UNITS.get(row["unit"], 1) >= 5 else "peak<5GiB"
    return "kv_room" if metric in ("kv_room", "kv_tokens") else metric


def measured(row: Row) -> float:
    """What was measured, in the unit of the row."""
    return float(row["measured value"])


def estimate(row: Row) -> Estimate | None:
    """The estimate of a row in its unit; None for metrics that are no memory."""
    metric = row["metric"]
    if metric in TRAINING:
        found = _training(row)
    elif metric in SERVING:
        found = _serving(row)
    else:
        return None
    factor = UNITS.get(row["unit"], 1.0)
    return Estimate(*(end * factor for end in found))


def _training(row: Row) -> Estimate:
    settings, facts = Settings(row), model_facts(row["model"])
    chosen = settings.training()
    if "calculon" in row["source"]:
        # The figures count transformer layers alone: calculon models no embedding.
        facts = dataclasses.replace(facts, vocabulary=1)
        chosen = dataclasses.replace(chosen, vocabulary_multiple=1, padded_by_t=False)
    memory = training_memory(ModelAllocation.from_str(row["layout"]), facts, chosen)
    return TRAINING[row["metric"]](memory)


def _serving(row: Row) -> Estimate:
    settings = Settings(row)
    memory = serving_memory(
        ModelAllocation.from_str(row["layout"]),
        model_facts(row["model"]),
        settings.serving(),
        settings.gpu,
    )
    if row["metric"] == "weights":
        return _scaled(memory.weights, WEIGHTS_RANGE)
    if row["metric"] == "kv_per_token":
        return _scaled(memory.bytes_per_token, WEIGHTS_RANGE)
    if memory.cache is None:
        raise ValueError(f"{row['id']}: the room of a cache needs gpu=GIB in its settings")
    low, high = memory.cache.room if row["metric"] == "kv_room" else memory.cache.tokens
    return Estimate((low + high) / 2, low, high)


# -- report ----------------------------------------------------------------------------------------


def read_rows(paths: Iterable[str]) -> list[Row]:
    """The rows of all files."""
    rows: list[Row] = []
    for path in paths:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file, delimiter="\t")
    return rows


def report(rows: Iterable[Row]) -> dict[str, Any]:
    """Accuracy by family, and the estimate of each row."""
    errors: dict[str, list[float]] = {}
    inside: dict[str, list[bool]] = {}
    each = []
    for row in rows:
        try:
            found = estimate(row)
        except (OSError, ValueError, KeyError) as error:  # an AllocationError is a ValueError
            print(f"{row['id']} is not estimated: {error}", file=sys.stderr)
            continue
        if found is None:
            continue
        value, name = measured(row), family(row)
        errors.setdefault(name, []).append(abs(found.value / value - 1) * 100 if value else 0.0)
        inside.setdefault(name, []).append(found.low <= value <= found.high)
        each.append({"id": row["id"], "estimate": found.value, "lo": found.low, "hi": found.high})
    families = {
        name: {
            "n": len(found),
            "median": statistics.median(found),
            "p90": percentile(found, 0.9),
            "inside": sum(inside[name]) / len(found),
        }
        for name, found in sorted(errors.items())
    }
    return {"families": families, "rows": each}


def percentile(values: Iterable[float], share: float) -> float:
    """The value that `share` of `values` do not exceed, between the two nearest ones."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def main(arguments: list[str] | None = None) -> int:
    """Print the accuracy by family."""
    about = "Accuracy of the estimates of memory by family."
    return print_report(arguments, about, lambda files: report(read_rows(files)), _lines)


def print_report(
    arguments: list[str] | None,
    about: str,
    report_of: Callable[[list[str]], dict[str, Any]],
    lines_of: Callable[[dict[str, Any]], Iterable[str]],
) -> int:
    """Print what `report_of` finds in files of published figures, as lines or as JSON."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("files", nargs="+", metavar="FILE.tsv", help="published figures")
    parser.add_argument("--json", action="store_true", help="one JSON object, with every row")
    chosen = parser.parse_args(arguments)
    found = report_of(chosen.files)
    print(json.dumps(found) if chosen.json else "\n".join(lines_of(found)))
    return 0


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{'family':14} {'n':>4} {'median %':>9} {'p90 %':>7} {'inside':>7}"
    for name, row in found["families"].items():
        yield f"{name:14} {row['n']:4} {row['median']:9.2f} {row['p90']:7.2f} {row['inside']:7.2f}"


if __name__ == "__main__":
    sys.exit(main())
