"""Facts of a model: what a Hugging Face ``config.json`` says, and what it leaves to its class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from areal_conf.errors import AllocationError, clip, wrong_type
from areal_conf.model.known import known_model
from areal_conf.model.sizes import Quantization, read_sizes

MAX_CONFIG_BYTES = 16 * 2**20
"""Largest config.json that is read; real ones have some kilobytes."""

MAX_NUMBER = 2**31 - 1
"""Largest number that a config may hold."""

_GIVE = "give a Hugging Face config.json, or the directory that holds one"
_NAMES = "or the name of a known model, such as Qwen/Qwen3-8B"


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
        vocabulary: rows of the embedding; None where not said, as for all sizes below.
        head_dim: size of one head; None: hidden / heads.
        intermediate: inner size of a dense MLP.
        gated_mlp: whether an MLP has three matrices (SwiGLU) or two.
        experts_per_token: routed experts that one token goes to.
        shared_experts: experts that every token goes to.
        shared_intermediate: inner size of all shared experts together.
        moe_layers: layers with routed experts; None where the model has none.
        q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim: sizes of MLA.
        qk_norm: whether queries and keys are normed.
        attention_bias, mlp_bias: whether projections have a bias.
        layer_types: kind of each layer (full_attention, sliding_attention, linear_attention,
            mamba ...); empty: all of one kind.
        sliding_window: tokens that sliding attention sees.
        mtp_layers: modules for multi-token prediction.
        learned_positions: whether positions are an embedding.
        quantization: how the weights are quantised, None where they are not.
        dtype: type of the weights, empty where not said.
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
    vocabulary: int | None = None
    head_dim: int | None = None
    intermediate: int | None = None
    gated_mlp: bool = True
    experts_per_token: int | None = None
    shared_experts: int | None = None
    shared_intermediate: int | None = None
    moe_layers: int | None = None
    q_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None
    qk_norm: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    mtp_layers: int | None = None
    learned_positions: bool = False
    quantization: Quantization | None = None
    dtype: str = ""
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
        source: path of a Hugging Face ``config.json``, a directory that holds one, its content as a
            mapping, the name of a known model (``Qwen/Qwen3-8B``), or facts read before. Nothing is
            fetched from a network.

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
    if path is None:
        name, config = _known(str(source))
        return _facts(config, name)
    return _facts(_load(path), str(path))


def _config_path(source: str | Path) -> Path | None:
    """The config that `source` names as a path; None where there is nothing at that path."""
    try:
        path = Path(source)
        path = path / "config.json" if path.is_dir() else path
        if path.exists():
            return path
    except ValueError:  # a NUL in the path
        pass
    return None


def _known(name: str) -> tuple[str, Mapping[str, Any]]:
    found = known_model(name)
    if found is None:
        raise FileNotFoundError(f"no model config at {clip(name, 200)}: {_GIVE}, {_NAMES}")
    return found


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
    inner = read.expert_intermediate() if experts else None
    return ModelFacts(
        heads=heads,
        kv_heads=read.kv_heads(heads),
        layers=layers,
        experts=experts,
        expert_intermediate=inner,
        hidden=read.number("hidden"),
        max_positions=read.number("max_positions"),
        tied_embeddings=read.tied(),
        vision=any(isinstance(part.get("vision_config"), Mapping) for part in chain),
        kv_lora_rank=read.number("kv_lora_rank", least=0) or None,
        model_type=read.model_type(chain[-1]),
        source=source,
        **read_sizes(chain, layers, experts, inner),
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
        if type(value) is not int or not least <= value <= MAX_NUMBER:
            raise self.wrong(name, value, f"a whole number from {least} to {MAX_NUMBER}")
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
