"""A model against a layout: facts of a Hugging Face ``config.json``, and the rules of the backends.

`read_model` reads the facts, `check_model` holds an allocation to them, `fits` answers only yes or
no and is what the enumeration of layouts uses. `RULES` is the table: one row a rule, with the
backends it holds for and the file of each backend that says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from areal_conf.allocation import ModelAllocation, trusted_allocation
from areal_conf.backends import BACKENDS, Sizes, broken_rules, divisors, legal_expert_sizes
from areal_conf.errors import AllocationError, Finding, clip, wrong_type
from areal_conf.syntax import dimension_span

MAX_CONFIG_BYTES = 16 * 2**20
"""Largest config.json that is read; real ones have some kilobytes."""

_MAX_NUMBER = 2**31 - 1
_GIVE = "give a Hugging Face config.json, or the directory that holds one"


# -- facts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelFacts:
    """What the rules need to know of a model. For vision-language models: of its language part.

    Attributes:
        heads: attention heads of one layer.
        kv_heads: key/value heads of one layer (`heads` where the model has no groups).
        layers: transformer layers.
        experts: routed experts of one MoE layer; 0 for a dense model.
        expert_intermediate: inner size of one routed expert; None where dense or not known.
        hidden: hidden size; None where the config does not say.
        max_positions: longest sequence in tokens the model was made for; None where not said.
        tied_embeddings: whether input and output embeddings are one matrix.
        vision: whether the model has a vision tower.
        kv_lora_rank: rank of the latent of multi-head latent attention (MLA), None for other
            attention. MLA keeps one latent for all heads, so key/value heads do not split.
        model_type: the architecture, as ``model_type`` of the config; empty where not said.
        source: where the facts were read, for messages.
    """

    heads: int
    kv_heads: int
    layers: int
    experts: int = 0
    expert_intermediate: int | None = None
    hidden: int | None = None
    max_positions: int | None = None
    tied_embeddings: bool = False
    vision: bool = False
    kv_lora_rank: int | None = None
    model_type: str = ""
    source: str = ""


_LANGUAGE_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multi-modal configs keep their language model, in this order of preference."""

_FIELDS: dict[str, tuple[str, ...]] = {
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "expert_intermediate": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "intermediate": ("intermediate_size",),
    "hidden": ("hidden_size", "n_embd"),
    "max_positions": ("max_position_embeddings", "n_positions", "seq_length"),
    "kv_lora_rank": ("kv_lora_rank",),
}
"""The names each fact goes by in real configs."""

_DEFAULTS: dict[str, dict[str, int]] = {
    "deepseek_v2": {"experts": 64, "expert_intermediate": 1407},
    "deepseek_v3": {"kv_heads": 128, "experts": 256, "expert_intermediate": 2048},
    "gemma2": {"kv_heads": 4},
    "gemma3_text": {"kv_heads": 4},
    "glm4": {"kv_heads": 2},
    "glm4_moe": {"kv_heads": 8, "experts": 128, "expert_intermediate": 1408},
    "glm4v_moe_text": {"kv_heads": 8, "experts": 128, "expert_intermediate": 1408},
    "gpt_oss": {"kv_heads": 8, "experts": 128},
    "llama4_text": {"kv_heads": 8, "experts": 16},
    "minimax_m2": {"kv_heads": 8, "experts": 256},
    "mistral": {"kv_heads": 8},
    "mixtral": {"kv_heads": 8, "experts": 8},
    "olmoe": {"kv_heads": 16, "experts": 64},
    "phimoe": {"kv_heads": 8, "experts": 16},
    "qwen2": {"kv_heads": 32},
    "qwen2_moe": {"kv_heads": 16, "experts": 60, "expert_intermediate": 1408},
    "qwen2_5_vl": {"kv_heads": 8},
    "qwen2_5_vl_text": {"kv_heads": 8},
    "qwen2_vl": {"kv_heads": 8},
    "qwen2_vl_text": {"kv_heads": 8},
    "qwen3": {"kv_heads": 32},
    "qwen3_moe": {"kv_heads": 4, "experts": 128, "expert_intermediate": 768},
    "qwen3_next": {"kv_heads": 2, "experts": 512, "expert_intermediate": 512},
    "qwen3_vl_text": {"kv_heads": 32},
    "qwen3_vl_moe_text": {"kv_heads": 16, "experts": 60, "expert_intermediate": 1408},
    "qwen3_5_text": {"kv_heads": 4},
    "qwen3_5_moe_text": {"kv_heads": 2, "experts": 256, "expert_intermediate": 512},
}
"""What a key left out means, where it is no rule of thumb: the defaults of the configuration class
of each model type (transformers 5.3, ``models/*/configuration_*.py``)."""

_TIED_BY_DEFAULT = {"gemma", "gemma2", "gemma3", "gemma3_text", "cohere2", "smollm3"}


ModelSource = str | Path | Mapping[str, Any] | ModelFacts
"""What a model may be given as: a path, the content of a ``config.json``, or facts read before."""


def read_model(source: ModelSource) -> ModelFacts:
    """The facts of a model.

    Args:
        source: path of a Hugging Face ``config.json``, a directory that holds one, or its content
            as a mapping, or facts read before. Nothing is fetched from a network.

    Raises:
        OSError: the file is missing or cannot be read (`FileNotFoundError` where it is missing).
        AllocationError: AC421 for what is no JSON object, AC422 for a field of the wrong type or
            range, AC423 where heads or layers are missing, AC309 for a source of another type.
    """
    if isinstance(source, ModelFacts):
        return source
    if isinstance(source, Mapping):
        return _facts(source, "model config")
    if not isinstance(source, (str, Path)):
        raise wrong_type(source, "a path or a mapping as model config", hint=_GIVE)
    path = _config_path(source)
    return _facts(_load(path), str(path))


def _config_path(source: str | Path) -> Path:
    try:
        path = Path(source)
        path = path / "config.json" if path.is_dir() else path
        if path.exists():
            return path
    except ValueError:  # a NUL in the path
        pass
    raise FileNotFoundError(f"no model config at {clip(str(source), 200)}: {_GIVE}")


def _load(path: Path) -> Mapping[str, Any]:
    with path.open("rb") as file:
        content = file.read(MAX_CONFIG_BYTES + 1)
    if len(content) > MAX_CONFIG_BYTES:
        raise _unreadable(path, f"is larger than {MAX_CONFIG_BYTES >> 20} MiB")
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, f"is not JSON: {clip(str(error), 120)}") from None
    if not isinstance(config, dict):
        raise _unreadable(path, f"holds a JSON {type(config).__name__}, not an object")
    return config


def _unreadable(path: Path, what: str) -> AllocationError:
    return AllocationError("AC421", f"{clip(str(path), 200)} {what}", hint=_GIVE)


def _facts(config: Mapping[str, Any], source: str) -> ModelFacts:
    chain = _language_chain(config)
    read = _Reader(chain, source)
    heads, layers = read.required("heads"), read.required("layers")
    experts = read.number("experts", least=0) or 0
    experts = experts if experts > 1 else 0
    return ModelFacts(
        heads=heads,
        kv_heads=read.kv_heads(heads),
        layers=layers,
        experts=experts,
        expert_intermediate=read.expert_intermediate() if experts else None,
        hidden=read.number("hidden"),
        max_positions=read.number("max_positions"),
        tied_embeddings=read.tied(),
        vision=any(isinstance(part.get("vision_config"), Mapping) for part in chain),
        kv_lora_rank=read.number("kv_lora_rank", least=0) or None,
        model_type=read.model_type(chain[-1]),
        source=source,
    )


def _language_chain(config: Mapping[str, Any], depth: int = 3) -> list[Mapping[str, Any]]:
    """The sections that describe the language model, innermost first; the last one is the root."""
    for key in _LANGUAGE_SECTIONS if depth else ():
        inner = config.get(key)
        if isinstance(inner, Mapping):
            chain = _language_chain(inner, depth - 1)
            if any(name in part for part in chain for name in _FIELDS["heads"]):
                return [*chain, config]
    return [config]


class _Reader:
    """Typed access to the fields of a config whose content nobody vouches for."""

    def __init__(self, chain: list[Mapping[str, Any]], source: str) -> None:
        self.chain = chain
        self.source = source
        self.defaults: dict[str, int] = {}
        for part in reversed(chain):
            self.defaults |= _DEFAULTS.get(self.model_type(part), {})

    def find(self, fact: str) -> tuple[str, Any] | None:
        """The first name of `fact` that is there, and its value; inner sections first."""
        for part in self.chain:
            for name in _FIELDS[fact]:
                if name in part:
                    return name, part[name]
        return None

    def number(self, fact: str, least: int = 1) -> int | None:
        """`fact` as a number; the default of the model type, or None, where it is not there."""
        found = self.find(fact)
        if found is None:
            return self.defaults.get(fact)
        name, value = found
        if value is None:
            return None
        if type(value) is not int or not least <= value <= _MAX_NUMBER:
            raise self.wrong(name, value, f"a whole number from {least} to {_MAX_NUMBER}")
        return value

    def required(self, fact: str) -> int:
        value = self.number(fact)
        if value is None:
            name = _FIELDS[fact][0]
            raise AllocationError(
                "AC423",
                f"{clip(self.source, 200)} has no {name}",
                hint=f"{_GIVE}: it has {name}, at its root or in "
                f"{', '.join(_LANGUAGE_SECTIONS[:-1])}",
            )
        return value

    def kv_heads(self, heads: int) -> int:
        value = self.number("kv_heads")
        if value is None or (self.find("kv_heads") is None and heads % value):
            return heads
        return value

    def expert_intermediate(self) -> int | None:
        """Models without a size of their own for experts (Mixtral, gpt-oss) use the plain one."""
        return self.number("expert_intermediate") or self.number("intermediate")

    def tied(self) -> bool:
        """The root decides: transformers ties what the outermost config says."""
        for part in reversed(self.chain):
            value = part.get("tie_word_embeddings")
            if value is None:
                continue
            if not isinstance(value, bool):
                raise self.wrong("tie_word_embeddings", value, "true or false")
            return value
        return any(self.model_type(part) in _TIED_BY_DEFAULT for part in self.chain)

    def model_type(self, part: Mapping[str, Any]) -> str:
        value = part.get("model_type")
        if value is not None and not isinstance(value, str):
            raise self.wrong("model_type", value, "a string")
        return value or ""

    def wrong(self, name: str, value: object, expected: str) -> AllocationError:
        shown = _shown(value)
        text = f'"{name}": {shown}'
        return AllocationError(
            "AC422",
            f"{clip(self.source, 200)}: {name} must be {expected}, not {type(value).__name__}",
            text=text,
            span=(len(text) - len(shown), len(text)),
            hint=f"{_GIVE}, as it came with the model",
        )


def _shown(value: object) -> str:
    """`value` as JSON on one line; its type where it cannot be written (a huge number, a loop)."""
    try:
        return clip(json.dumps(value, default=repr, ensure_ascii=False))
    except (ValueError, TypeError, RecursionError):
        return f"<{type(value).__name__}>"


# -- rules -----------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """What else of an engine's config a rule asks for.

    Attributes:
        context_length: longest sequence in tokens the engine will see; None where not known.
        attention_dp: SGLang's ``dp_size`` where ``enable_dp_attention`` is on, else 1: attention
            is then split over t / dp_size ranks (sglang/srt/layers/dp_attention.py,
            compute_dp_attention_world_info).
        stages_per_rank: pipeline stages of one rank; None for the backend's default. Megatron:
            ``virtual_pipeline_parallel_size`` (default 1). Archon: 1 with schedule 1F1B, else 2.
    """

    context_length: int | None = None
    attention_dp: int = 1
    stages_per_rank: int | None = None

    def attention_ranks(self, sizes: Sizes) -> int:
        """Ranks that share the heads of one layer."""
        return max(1, sizes.t // self.attention_dp)

    def stages(self, sizes: Sizes, default: int) -> int:
        """Pipeline stages in all."""
        return sizes.p * (self.stages_per_rank or default)


_NO_SETTINGS = Settings()

Breaks = Callable[[Sizes, ModelFacts, Settings], bool]


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes:
        code: its code; from AC451 on a warning (the backend runs, in another way than the string
            suggests), below it an error (the backend stops).
        dim: the dimension at fault (``"etp"``: t of ffn); empty where it is no dimension.
        demand: what must hold, in words, as the documentation lists it.
        sources: backend -> file and function of the backend (or of AReaL's engine for it).
        breaks: whether sizes, model and settings break the rule; its docstring says why. Asked only
            where `dim` is over 1: a dimension that is not split breaks no rule.
        message: what is wrong, with ``{s.t}``, ``{m.heads}``, ``{x.context_length}`` filled in.
        advice: what to do, filled in the same way.
    """

    code: str
    dim: str
    demand: str
    sources: dict[str, str]
    breaks: Breaks
    message: str
    advice: str

    @property
    def severity(self) -> Literal["error", "warning"]:
        """Whether breaking the rule stops the backend."""
        return "warning" if self.code >= "AC451" else "error"

    def broken(self, sizes: Sizes, facts: ModelFacts, settings: Settings) -> bool:
        """Whether a layout breaks the rule."""
        split = not self.dim or getattr(sizes, self.dim) > 1
        return split and self.breaks(sizes, facts, settings)


_table: list[Rule] = []


def _rule(
    code: str, dim: str, demand: str, *, message: str, advice: str, sources: dict[str, str]
) -> Callable[[Breaks], Breaks]:
    def add(breaks: Breaks) -> Breaks:
        _table.append(Rule(code, dim, demand, sources, breaks, message, advice))
        return breaks

    return add


_FSDP = "areal/engine/fsdp_utils/parallel.py, apply_non_moe_tp"
_ULYSSES = "areal/models/transformers/ulyssess_patch.py, apply_monkey_patch"
_MCORE = "megatron/core/transformer/transformer_config.py, TransformerConfig.__post_init__"
_MCORE_ATTENTION = "megatron/core/transformer/attention.py, Attention.__init__"
_MCORE_MOE = "megatron/core/transformer/moe/moe_layer.py, BaseMoELayer.__init__"
_MCORE_LAYERS = "areal/engine/megatron_utils/pipeline_parallel.py, configure_pipeline_layer_splits"
_ARCHON = "areal/experimental/models/archon"
_ARCHON_LAYERS = f"{_ARCHON}/pipeline_parallel.py, generate_llm_fqn_per_model_part"
_SGLANG_QKV = "sglang/srt/layers/linear.py, QKVParallelLinear.__init__"
_SGLANG_LAYERS = "sglang/srt/distributed/utils.py, get_pp_indices"
_VLLM_HEADS = "vllm/config/model.py, ModelConfig.verify_with_parallel_config"
_VLLM_QKV = "vllm/model_executor/layers/linear.py, QKVParallelLinear.__init__"
_VLLM_LAYERS = "vllm/distributed/utils.py, get_pp_indices"

_ARCHON_MODELS = {"qwen2", "qwen3", "qwen3_moe"}
_ARCHON_UNSPLIT = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}


@_rule(
    "AC401",
    "t",
    "t divides the attention heads",
    message="{m.heads} attention heads do not split over t{s.t}",
    advice="t must divide the {m.heads} attention heads",
    sources={
        "sglang": _SGLANG_QKV,
        "vllm": _VLLM_HEADS,
        "fsdp": _FSDP,
        "megatron": _MCORE,
        "archon": f"{_ARCHON}/utils.py, validate_tp_constraints",
    },
)
def _heads_over_t(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Every tensor rank computes whole heads.

    All backends check it themselves: Megatron-LM and vLLM with a ValueError, SGLang when it divides
    the query heads of ``QKVParallelLinear`` (over fewer ranks under ``enable_dp_attention``),
    AReaL's FSDP and Archon before they shard the projections.
    """
    return m.heads % x.attention_ranks(s) != 0


@_rule(
    "AC402",
    "t",
    "t divides the key/value heads",
    message="{m.kv_heads} key/value heads do not split over t{s.t}",
    advice="t must divide the {m.kv_heads} key/value heads: they are not replicated",
    sources={"fsdp": _FSDP, "archon": f"{_ARCHON}/utils.py, validate_tp_constraints"},
)
def _kv_heads_split(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """FSDP and Archon shard k_proj and v_proj by columns and demand whole heads on every rank.

    They read ``num_key_value_heads`` whatever the attention is, so the rule holds for MLA too.
    """
    return m.kv_heads % s.t != 0


@_rule(
    "AC402",
    "t",
    "t divides the key/value heads, or is a multiple of them (MLA: none)",
    message="{m.kv_heads} key/value heads neither split nor replicate evenly over t{s.t}",
    advice="t must divide the {m.kv_heads} key/value heads or be a multiple of them",
    sources={"sglang": _SGLANG_QKV, "vllm": _VLLM_QKV, "megatron": _MCORE},
)
def _kv_heads_split_or_replicate(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Fewer key/value heads than ranks are replicated, the same number of times each.

    SGLang and vLLM divide one number by the other in ``QKVParallelLinear``; Megatron-LM checks
    ``num_query_groups``. MLA has one latent for all heads, which no rank splits.
    """
    ranks = x.attention_ranks(s)
    return m.kv_heads % ranks != 0 and ranks % m.kv_heads != 0 and m.kv_lora_rank is None


@_rule(
    "AC403",
    "p",
    "pipeline stages <= layers (stages = p, Megatron: p x virtual pipeline size)",
    message="p{s.p} makes more pipeline stages than the model has layers ({m.layers})",
    advice="every stage needs a layer: there are {m.layers}",
    sources={"sglang": _SGLANG_LAYERS, "vllm": _VLLM_LAYERS, "megatron": _MCORE_LAYERS},
)
def _stages_over_layers(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """A stage without a layer has no parameters to train and no KV cache to size.

    SGLang and vLLM deal such a stage an empty range of layers, and have no KV cache to size there.
    For Megatron AReaL looks for a partition in which every stage has a layer. Its search leaves the
    first and the last stage empty where p is one or two over the number of layers; this rule
    refuses that all the same (nobody trains like that, and the code can be allowed).
    """
    return x.stages(s, 1) > m.layers


@_rule(
    "AC403",
    "p",
    "stages <= layers + 2 (stages = 2p; p with the schedule 1F1B)",
    message="p{s.p} makes more pipeline stages than the model's layers ({m.layers}) can fill",
    advice="archon puts 2 stages on a rank (1 with archon.pp_schedule=1F1B) and needs at most "
    "{m.layers} + 2 stages",
    sources={"archon": _ARCHON_LAYERS},
)
def _stages_over_layers_archon(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon counts embedding and output as a layer each and gives every stage at least one.

    Its default schedule, Interleaved1F1B, has two stages on each rank (``pipeline_llm``).
    """
    return x.stages(s, 2) > m.layers + 2


@_rule(
    "AC404",
    "e",
    "e divides the experts",
    message="{m.experts} experts do not split over e{s.e}",
    advice="e must divide the {m.experts} experts",
    sources={"megatron": _MCORE_MOE, "archon": f"{_ARCHON}/utils.py, validate_ep_constraints"},
)
def _experts_over_e(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Every expert rank holds the same number of whole experts (asserted by both backends)."""
    return m.experts % s.e != 0


@_rule(
    "AC405",
    "e",
    "e is 1 on a dense model",
    message="e{s.e} on a dense model: it has no experts to spread",
    advice="leave e out",
    sources={"megatron": _MCORE, "archon": f"{_ARCHON}/utils.py, validate_ep_constraints"},
)
def _experts_of_dense_model(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Both backends demand a MoE model for expert parallelism."""
    return m.experts == 0


@_rule(
    "AC406",
    "etp",
    "t of ffn divides the experts' intermediate size",
    message="the experts' intermediate size {m.expert_intermediate} does not split over t{s.etp} "
    "of ffn",
    advice="t of ffn must divide {m.expert_intermediate}",
    sources={"megatron": "megatron/core/transformer/moe/experts.py, TEGroupedMLP.__init__"},
)
def _expert_matrices(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """The grouped linear layers of the experts are split by columns and by rows, evenly."""
    return m.expert_intermediate is not None and m.expert_intermediate % s.etp != 0


@_rule(
    "AC407",
    "c",
    "c divides the attention heads of a tensor rank",
    message="{m.heads} attention heads over t{s.t} do not split further over c{s.c}",
    advice="c splits heads too (Ulysses): t x c must divide the {m.heads} attention heads",
    sources={"fsdp": _ULYSSES, "archon": f"{_ARCHON}/utils.py, validate_cp_constraints"},
)
def _heads_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Ulysses exchanges a part of the sequence for a part of the heads.

    Archon checks the heads that tensor parallelism leaves. AReaL's FSDP checks all heads against c
    at start, and fails in the first all-to-all where those of a tensor rank do not split (areal/
    models/fsdp/ulysses.py, all_to_all_tensor). Megatron uses ring attention and has no such rule.
    """
    return m.heads % s.t == 0 and m.heads // s.t % s.c != 0


@_rule(
    "AC408",
    "c",
    "c divides the key/value heads of a tensor rank, or is a multiple of them",
    message="{m.kv_heads} key/value heads over t{s.t} neither split nor replicate evenly over "
    "c{s.c}",
    advice="c must divide the key/value heads of a tensor rank ({m.kv_heads} over t{s.t}) or be a "
    "multiple of them",
    sources={"fsdp": _ULYSSES, "archon": f"{_ARCHON}/utils.py, validate_cp_constraints"},
)
def _kv_heads_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Ulysses repeats key/value heads where there are fewer of them than ranks.

    That the repetitions fit the groups of query heads follows from this rule and AC407.
    """
    local = m.kv_heads // s.t if m.kv_heads % s.t == 0 else s.c
    return local % s.c != 0 and s.c % local != 0


@_rule(
    "AC409",
    "p",
    "p is 1 where input and output embeddings are tied",
    message="p{s.p} with tied embeddings: first and last stage would share one matrix",
    advice="use p1 or another backend: archon cannot share a matrix between stages",
    sources={"archon": "areal/experimental/engine/archon_utils.py, prepare_training_config"},
)
def _tied_over_p(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon raises a ValueError at start: the two stages are on different GPUs."""
    return m.tied_embeddings


@_rule(
    "AC410",
    "c",
    "c is 1 on a vision-language model",
    message="c{s.c} with a vision-language model",
    advice="AReaL's Megatron engine has no context parallelism for vision-language models",
    sources={"megatron": "areal/engine/megatron_engine.py, MegatronEngine.initialize"},
)
def _vision_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """AReaL's Megatron engine raises NotImplementedError; its FSDP engine slices embeddings."""
    return m.vision


@_rule(
    "AC451",
    "t",
    "t is at most the key/value heads (MLA: none)",
    message="t{s.t} is over the {m.kv_heads} key/value heads: each is replicated",
    advice="it runs; t up to {m.kv_heads} would keep one copy of the KV cache",
    sources={"sglang": _SGLANG_QKV, "vllm": _VLLM_QKV, "megatron": _MCORE_ATTENTION},
)
def _kv_replicated(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Copies of key/value heads cost memory: the KV cache of a rank stops shrinking with t."""
    return x.attention_ranks(s) > m.kv_heads and m.kv_lora_rank is None


@_rule(
    "AC451",
    "c",
    "c is at most the key/value heads of a tensor rank",
    message="c{s.c} is over the key/value heads of a tensor rank ({m.kv_heads} over t{s.t}): each "
    "is replicated",
    advice="it runs, with more to communicate",
    sources={"fsdp": _ULYSSES, "archon": f"{_ARCHON}/utils.py, validate_cp_constraints"},
)
def _kv_replicated_over_c(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Ulysses repeats key/value heads before its all-to-all."""
    return s.c * s.t > m.kv_heads


@_rule(
    "AC452",
    "p",
    "stages divide the layers",
    message="{m.layers} layers over p{s.p} are uneven: stages hold different numbers of layers",
    advice="it runs; the stages wait for the longest one",
    sources={"sglang": _SGLANG_LAYERS, "vllm": _VLLM_LAYERS, "megatron": _MCORE_LAYERS},
)
def _stages_uneven(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """No backend stops: AReaL balances Megatron's stages by parameters, SGLang and vLLM give the
    remaining layers to some stages. Archon weighs embedding and output as layers, so that an even
    number of layers means nothing there."""
    return m.layers % x.stages(s, 1) != 0


@_rule(
    "AC453",
    "c",
    "2 x t x c divides the length of a sequence",
    message="sequences of {x.context_length} tokens are padded to a multiple of 2 x t x c",
    advice="it runs; padding costs compute, most on short sequences",
    sources={"megatron": "areal/engine/megatron_engine.py, MegatronEngine._prepare_mb_list"},
)
def _padded_each(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Each sequence is cut into 2 x c chunks (the causal mask balanced), each dealt over t."""
    return (x.context_length or 0) % (2 * s.t * s.c) != 0


@_rule(
    "AC453",
    "c",
    "t x c divides the length of a sequence",
    message="sequences of {x.context_length} tokens are padded to a multiple of t x c",
    advice="it runs; padding costs compute, most on short sequences",
    sources={
        "fsdp": "areal/engine/fsdp_utils/parallel.py, ParallelHelper.seq_len_divisor",
        "archon": f"{_ARCHON}/parallel_dims.py, ArchonParallelDims.seq_len_divisor",
    },
)
def _padded_packed(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """The packed tokens of a micro-batch are padded at the end, then sliced over c and t."""
    return (x.context_length or 0) % (s.t * s.c) != 0


@_rule(
    "AC454",
    "",
    "context length <= positions of the model",
    message="a context of {x.context_length} tokens is longer than the {m.max_positions} positions "
    "of the model",
    advice="shorten the context, or set rope scaling: SGLang and vLLM refuse to start unless an "
    "environment variable allows it",
    sources={
        "sglang": "sglang/srt/configs/model_config.py, ModelConfig",
        "vllm": "vllm/config/model.py, _get_and_verify_max_len",
        "fsdp": "transformers, max_position_embeddings",
        "megatron": "transformers, max_position_embeddings",
        "archon": "transformers, max_position_embeddings",
    },
)
def _context_over_positions(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Positions the model never saw; a warning, since rope scaling may extend them."""
    return (x.context_length or 0) > (m.max_positions or _MAX_NUMBER)


@_rule(
    "AC455",
    "etp",
    "t of ffn is 1 on a dense model",
    message="t{s.etp} of ffn on a dense model says nothing: it has no experts",
    advice="write the plain form",
    sources={
        "megatron": "megatron/core/parallel_state.py, initialize_model_parallel",
        "archon": f"{_ARCHON}/parallel_dims.py, ArchonParallelDims",
    },
)
def _etp_of_dense_model(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Groups for experts are made, and nothing uses them."""
    return m.experts == 0


@_rule(
    "AC456",
    "",
    "the model type is one of Archon's",
    message="archon has no model of type {m.model_type}",
    advice="use fsdp or megatron, unless the experiment registers a model of its own with archon",
    sources={"archon": "areal/experimental/engine/archon_engine.py, _validate_model_type"},
)
def _archon_model_type(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon stops at a model type nobody registered; a warning, since anybody can register one."""
    known = _ARCHON_MODELS | _ARCHON_UNSPLIT
    return bool(m.model_type) and m.model_type not in known


@_rule(
    "AC457",
    "etp",
    "t of ffn divides the experts' intermediate size",
    message="the experts' intermediate size {m.expert_intermediate} is uneven over t{s.etp} of ffn",
    advice="it runs with shards of different sizes; t of ffn may be 1 or t",
    sources={"archon": f"{_ARCHON}/expert_parallel.py, ExpertTensorParallel"},
)
def _expert_matrices_uneven(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon shards the experts as DTensors, which may be uneven."""
    return m.expert_intermediate is not None and m.expert_intermediate % s.etp != 0


@_rule(
    "AC458",
    "",
    "t, c and e are 1 on Qwen3.5",
    message="archon ignores t, c and e for {m.model_type}: those ranks repeat each other's work",
    advice="spread the GPUs over d",
    sources={"archon": f"{_ARCHON}/qwen3_5/infra/parallelize.py, parallelize_qwen3_5"},
)
def _archon_ignores(s: Sizes, m: ModelFacts, x: Settings) -> bool:
    """Archon only shards the parameters of Qwen3.5 and logs that it ignores the rest."""
    return m.model_type in _ARCHON_UNSPLIT and s.t * s.c * s.e > 1


RULES: tuple[Rule, ...] = tuple(_table)
"""The rules, errors first. The documentation lists them from here."""

_UNSPLIT = "archon, parameters only"
_RULES_OF = {name: tuple(rule for rule in RULES if name in rule.sources) for name in BACKENDS}
_RULES_OF[_UNSPLIT] = tuple(r for r in _RULES_OF["archon"] if r.dim not in ("t", "c", "e"))
_ERRORS_OF = {
    name: tuple(rule for rule in rules if rule.severity == "error")
    for name, rules in _RULES_OF.items()
}
_TESTS_OF = {
    name: tuple((Sizes._fields.index(rule.dim), rule.breaks) for rule in rules)
    for name, rules in _ERRORS_OF.items()
}


# -- checks ----------------------------------------------------------------------------------------


def _rules_key(backend: str, facts: ModelFacts) -> str:
    """Whose rules hold: Archon never splits Qwen3.5, so the rules on t, c and e fall away."""
    if backend == "archon" and facts.model_type in _ARCHON_UNSPLIT:
        return _UNSPLIT
    return backend


def fits(sizes: Sizes, backend: str, facts: ModelFacts, settings: Settings = _NO_SETTINGS) -> bool:
    """Whether `check_model` finds no error; nothing is formatted, for use in enumerations."""
    for index, breaks in _TESTS_OF[_rules_key(backend, facts)]:
        if sizes[index] > 1 and breaks(sizes, facts, settings):
            return False
    return True


def check_model(
    allocation: ModelAllocation,
    facts: ModelFacts,
    *,
    path: str | None = None,
    settings: Settings = _NO_SETTINGS,
    text: str | None = None,
) -> list[Finding]:
    """Every rule of the backend that the layout breaks for this model, errors first.

    Args:
        allocation: the layout.
        facts: the model.
        path: config path of the backend string.
        settings: what else of the engine's config the rules ask for.
        text: the backend string as written; default is the canonical form of `allocation`.

    Returns:
        Errors (AC401 ...) and warnings (AC451 ...). Each names the dimension at fault in `text`,
        and its hint whole specs of as many GPUs that the model takes.
    """
    text = str(allocation) if text is None else text
    case = _Case(allocation, facts, settings, text, path)
    sizes = allocation.parallel.sizes
    rules = _RULES_OF[_rules_key(allocation.backend, facts)]
    broken = [rule for rule in rules if rule.broken(sizes, facts, settings)]
    wrong = {rule.dim for rule in broken if rule.severity == "error"}
    return [
        Finding(rule.severity, case.error(rule))
        for rule in broken
        if rule.severity == "error" or not rule.dim or rule.dim not in wrong
    ]


_MOST_SPECS = 3
"""Specs that a hint names."""


class _Case(NamedTuple):
    """One layout, one model: what a finding about them is built from."""

    allocation: ModelAllocation
    facts: ModelFacts
    settings: Settings
    text: str
    path: str | None

    def error(self, rule: Rule) -> AllocationError:
        """What breaking `rule` means here."""
        sizes = self.allocation.parallel.sizes
        words = {"s": sizes, "m": self.facts, "x": self.settings}
        advice = rule.advice.format(**words)
        specs = list(self.specs(rule)) if rule.dim else []
        return AllocationError(
            rule.code,
            rule.message.format(**words),
            text=self.text,
            span=dimension_span(self.text, rule.dim),
            path=self.path,
            hint=_hint(rule, specs, advice),
        )

    def specs(self, rule: Rule) -> Iterator[str]:
        """The nearest specs of as many GPUs that break neither `rule` nor any that stops."""
        sizes = self.allocation.parallel.sizes
        near = [s for s in _alternatives(sizes, rule.dim) if not self.breaks(rule, s)]
        near = [s for s in near if self.legal(s)] or list(filter(None, map(self.mended, near[:8])))
        for legal in dict.fromkeys(near[:_MOST_SPECS]):
            yield str(trusted_allocation(self.allocation.backend, self.allocation.name, legal))

    def breaks(self, rule: Rule, sizes: Sizes) -> bool:
        """Whether `sizes` break `rule` for this model."""
        return rule.broken(sizes, self.facts, self.settings)

    def legal(self, sizes: Sizes) -> bool:
        """Whether backend and model take `sizes`."""
        backend = self.allocation.backend
        return not broken_rules(BACKENDS[backend], sizes) and fits(
            sizes, backend, self.facts, self.settings
        )

    def mended(self, sizes: Sizes) -> Sizes | None:
        """`sizes` with whatever else is wrong changed too, the nearest way."""
        backend = BACKENDS[self.allocation.backend]
        for _ in range(8):
            if broken_rules(backend, sizes):
                legal = legal_expert_sizes(backend, sizes)
                sizes = sizes._replace(e=legal[0]) if legal else sizes._replace(etp=1)
                continue
            errors = _ERRORS_OF[_rules_key(backend.name, self.facts)]
            rule = next((r for r in errors if self.breaks(r, sizes)), None)
            if rule is None:
                return sizes
            others = _alternatives(sizes, rule.dim)
            sizes = next((s for s in others if not self.breaks(rule, s)), Sizes(d=sizes.world))
        return None


def _hint(rule: Rule, specs: list[str], advice: str) -> str:
    if not specs:
        return advice
    if rule.severity == "warning":
        return f"{advice}; not so with {' or '.join(specs)}"
    return f"write {' or '.join(specs)} ({advice})"


def _alternatives(sizes: Sizes, dim: str) -> list[Sizes]:
    """`sizes` with another size of `dim` and as many GPUs, nearest first: d gives or takes."""
    now = getattr(sizes, dim)
    if dim in ("e", "etp"):
        values = divisors(sizes.world // sizes.p)
        found = [sizes._replace(**{dim: value}) for value in values]
    else:
        ranks = now * sizes.d
        found = [sizes._replace(**{dim: v, "d": ranks // v}) for v in divisors(ranks)]
    others = (s for s in found if getattr(s, dim) != now)
    return sorted(others, key=lambda s: (_ratio(getattr(s, dim), now), getattr(s, dim)))


def _ratio(a: int, b: int) -> float:
    return max(a, b) / min(a, b)
