"""Facts of a model: what a Hugging Face ``config.json`` says, and what it leaves to its class."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from areal_conf.errors import AllocationError, clip, wrong_type
from areal_conf.model.hub import cached_config, download, is_hub_id
from areal_conf.model.known import class_defaults, known_model
from areal_conf.model.quantization import Quantization
from areal_conf.model.sizes import NO_ATTENTION, read_sizes

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
        heads: attention heads of one layer; 0 where no layer attends, and no key/value heads.
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
        vision_heads: attention heads of the vision tower.
        linear_key_heads, linear_value_heads: heads of linear attention (gated delta net).
        linear_norm_groups: groups of the norm behind linear attention (Bailing).
        mamba_heads, mamba_groups: heads and groups of state-space layers.
        mamba_inner: inner size of state-space layers without heads (Mamba-1).
        other_heads: heads and key/value heads of the layers that have others than most do.
        vision_type: ``model_type`` of the vision tower; empty where not said.
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
    vision_heads: int | None = None
    linear_key_heads: int | None = None
    linear_value_heads: int | None = None
    mamba_heads: int | None = None
    mamba_groups: int | None = None
    mamba_inner: int | None = None
    linear_norm_groups: int | None = None
    other_heads: tuple[tuple[int, int], ...] = ()
    vision_type: str = ""
    dtype: str = ""
    model_type: str = ""
    source: str = ""

    @property
    def recurrent_sizes(self) -> tuple[int, ...]:
        """Heads and groups of the layers that are no attention."""
        sizes = (
            self.linear_key_heads,
            self.linear_value_heads,
            self.mamba_heads,
            self.mamba_groups,
            self.mamba_inner,
        )
        return tuple(size for size in sizes if size)

    @property
    def recurrent_heads(self) -> str:
        """The same in words, for messages."""
        named = (
            (self.linear_key_heads, "linear key heads"),
            (self.linear_value_heads, "linear value heads"),
            (self.mamba_heads, "state-space heads"),
            (self.mamba_groups, "state-space groups"),
            (self.mamba_inner, "state-space columns"),
            (self.linear_norm_groups, "groups of the norm"),
        )
        return ", ".join(f"{size} {name}" for size, name in named if size)

    @property
    def mlp_sizes(self) -> str:
        """Inner sizes of the MLPs in words, for messages."""
        named = (
            (self.intermediate, "MLP columns"),
            (self.expert_intermediate, "columns of an expert"),
            (self.shared_intermediate, "columns of the shared experts"),
        )
        return ", ".join(f"{size} {name}" for size, name in named if size)

    @property
    def other_heads_in_words(self) -> str:
        """Heads of the layers that have others, for messages."""
        pairs = (f"{heads} ({kv_heads} key/value heads)" for heads, kv_heads in self.other_heads)
        return ", ".join(pairs)

    @property
    def quantised_blocks(self) -> str:
        """What shares a scale, in words, for messages."""
        if self.quantization is None or self.quantization.block is None:
            return "nothing"
        rows, columns = self.quantization.block
        return f"groups of {columns}" if rows == 1 else f"blocks of {rows} x {columns}"


_LANGUAGE_SECTIONS = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "vlm_config",
)
"""Where multi-modal configs keep their language model, in this order of preference."""

_FIELDS: dict[str, tuple[str, ...]] = {
    "heads": (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "attention_heads",
        "num_query_heads",
    ),
    "kv_heads": (
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "multi_query_group_num",
        "num_attention_groups",
        "num_query_groups",
        "num_key_value_heads_per_layer",
        "kv_n_heads",
    ),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_transformer_layers"),
    "experts": (
        "num_experts",
        "num_local_experts",
        "n_routed_experts",
        "moe_num_experts",
        "num_routed_experts",
        "num_moe_experts",
    ),
    "expert_intermediate": (
        "moe_intermediate_size",
        "expert_ffn_hidden_size",
        "moe_ffn_hidden_size",
        "moe_hidden_size",
    ),
    "intermediate": ("intermediate_size",),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "max_positions": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "kv_lora_rank": ("kv_lora_rank",),
}
"""The names each fact goes by in real configs."""

_NESTED = {"attn_config": ("kv_heads",), "ffn_config": ("experts", "expert_intermediate")}
"""Sections below the language model that hold single facts (DBRX, MPT)."""

_LISTED = ("heads", "kv_heads", "experts", "expert_intermediate", "intermediate")
"""Facts that may be a list, with one number for each layer or for text and images."""

_NESTED_NAMES = {"expert_intermediate": ("ffn_hidden_size",)}

_OTHER_HEADS = (
    ("swa_num_attention_heads", "num_sliding_attention_heads"),
    ("swa_num_key_value_heads", "num_sliding_attention_groups", "num_global_key_value_heads"),
)
"""Heads, and key/value heads, of layers that have others than most do (MiMo, Step, Gemma 4)."""

_OF_TYPE = {"longcat_flash": {"layers": "num_layers"}}
"""Types in which a fact goes by another of its names first: num_hidden_layers of LongCat counts the
attention sub-layers, two of each layer (vllm/transformers_utils/model_arch_config_convertor.py)."""

_DEFAULTS: dict[str, dict[str, int]] = {
    "qwen2_vl": {"kv_heads": 8},
    "qwen2_5_vl": {"kv_heads": 8},
    "olmoe": {"kv_heads": 16},
    "falcon": {"kv_heads": 1},
    "RefinedWebModel": {"kv_heads": 1},
    "gpt_bigcode": {"kv_heads": 1},
}
"""What a key left out means where the class has no default that says it: old configs of
vision-language models, and flags that are on by default. All other defaults are those of
`areal_conf.model.known.class_defaults`."""


ModelSource = str | Path | Mapping[str, Any] | ModelFacts
"""What a model may be given as: a path, the content of a ``config.json``, or facts read before."""


def read_model(source: ModelSource) -> ModelFacts:
    """The facts of a model.

    Args:
        source: path of a Hugging Face ``config.json``, a directory that holds one, its content as a
            mapping, a Hub id that the local cache holds, the name of a known model
            (``Qwen3-8B``), or facts read before. Nothing is fetched from a network.

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
    path = _config_path(source) or cached_config(str(source))
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
        get = f"; to cache it, run: {download(name)}" if is_hub_id(name) else ""
        raise FileNotFoundError(f"no model config at {clip(name, 200)}: {_GIVE}, {_NAMES}{get}")
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
    heads, layers = read.heads(), read.required("layers")
    experts = read.experts()
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
        other_heads=read.other_heads(heads),
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
            if not any(name in config for name in _FIELDS["heads"]) and _has_heads(inner, config):
                return [*chain, config]
    return [config]


def _has_heads(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> bool:
    """Whether the class of a section that does not say its heads has a default for them."""
    return any("heads" in class_defaults(kind) for kind in _types_of(inner, outer))


def _types_of(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> list[str]:
    """The model type of a section of text; that of the whole with _text where it does not say."""
    own, whole = inner.get("model_type"), outer.get("model_type")
    if isinstance(own, str):
        return [own]
    return [f"{whole}_text"] if isinstance(whole, str) else []


class _Reader:
    """Typed access to the fields of a config whose content nobody vouches for."""

    def __init__(self, chain: list[Mapping[str, Any]], source: str) -> None:
        self.chain = chain
        self.source = source
        self.defaults: dict[str, Any] = {}
        for part in reversed(chain):
            kind = self.model_type(part)
            self.defaults |= {**class_defaults(kind), **_DEFAULTS.get(kind, {})}
        if len(chain) > 1:
            for kind in _types_of(chain[0], chain[-1]):
                self.defaults |= class_defaults(kind)

    def find(self, fact: str) -> tuple[str, Any] | None:
        """The first name of `fact` that is there, and its value; inner sections first."""
        first = _OF_TYPE.get(self.model_type(self.chain[0]), {}).get(fact)
        names = (first, *_FIELDS[fact]) if first else _FIELDS[fact]
        for part in self.chain:
            for name in names:
                if name in part:
                    return name, part[name]
        for part in self.chain:
            for section, facts in _NESTED.items():
                inner = part.get(section)
                if fact in facts and isinstance(inner, Mapping):
                    for name in (*_FIELDS[fact], *_NESTED_NAMES.get(fact, ())):
                        if name in inner:
                            return name, inner[name]
        return None

    def number(self, fact: str, least: int = 1) -> int | None:
        """`fact` as a number; the default of the model type, or None, where it is not there."""
        found = self.find(fact)
        if found is None:
            return self.defaults.get(fact)
        name, value = found
        if (
            fact in _LISTED
            and isinstance(value, list)
            and value
            and all(type(one) is int for one in value)
        ):
            value = _of_list(fact, value)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= MAX_NUMBER:
            raise self.wrong(name, value, f"a whole number from {least} to {MAX_NUMBER}")
        return value

    def required(self, fact: str) -> int:
        value = self.number(fact)
        if value is None and fact == "layers":
            value = self.listed_layers()
        if value is None:
            name = _FIELDS[fact][0]
            raise AllocationError(
                "AC423",
                f"{clip(self.source, 200)} has no {name}",
                hint=f"{_GIVE}: it has {name}, at its root or in "
                f"{', '.join(_LANGUAGE_SECTIONS[:-1])}",
            )
        return value

    def listed_layers(self) -> int | None:
        """The layers that a config lists one by one, without their number (Nemotron-H)."""
        for part in self.chain:
            for name in ("layers_block_type", "hybrid_override_pattern", "layer_types"):
                listed = part.get(name)
                if isinstance(listed, (list, str)) and listed:
                    return len(listed)
        return None

    def heads(self) -> int:
        """Attention heads; 0 where no layer attends (Mamba)."""
        if NO_ATTENTION.intersection(map(self.model_type, self.chain)):
            return 0
        return self.required("heads")

    def kv_heads(self, heads: int) -> int:
        if not heads:
            return 0
        single = self.single_group()
        if single:
            return 1
        if single is False and self.find("kv_heads") is None:
            return heads
        value = self.number("kv_heads")
        if value is None or (self.find("kv_heads") is None and heads % value):
            return heads
        return value

    def other_heads(self, heads: int) -> tuple[tuple[int, int], ...]:
        """Heads and key/value heads of layers that have others than `heads` and `kv_heads`."""
        if not heads:
            return ()
        most = (heads, self.kv_heads(heads))
        found = {self.by_kind(most), *self.by_layer(most)}
        return tuple(sorted(found - {most}))

    def by_kind(self, most: tuple[int, int]) -> tuple[int, int]:
        """Those of layers with a window, or of the layers without (Gemma 4)."""
        heads, kv_heads = (self.first(names) for names in _OTHER_HEADS)
        return heads or most[0], kv_heads or most[1]

    def by_layer(self, most: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Those that a config gives layer by layer: by index, or as blocks (Nemotron-NAS)."""
        for part in self.chain:
            layers = part.get("per_layer_config")
            for layer in layers.values() if isinstance(layers, Mapping) else ():
                if isinstance(layer, Mapping):
                    heads, kv_heads = _size(layer, "heads"), _size(layer, "kv_heads")
                    yield heads or most[0], kv_heads or most[1]
            blocks = part.get("block_configs")
            for block in blocks if isinstance(blocks, list) else ():
                attention = block.get("attention") if isinstance(block, Mapping) else None
                group = attention.get("n_heads_in_group") if isinstance(attention, Mapping) else 0
                if type(group) is int and group > 0:
                    yield most[0], most[0] // group or 1
            listed = part.get("num_attention_heads_per_layer")
            for heads in listed if isinstance(listed, list) else ():
                if type(heads) is int and heads > 0:
                    yield heads, most[1]

    def first(self, names: tuple[str, ...]) -> int | None:
        """The first of `names` whose value is a number over 0."""
        values = (part.get(name) for part in self.chain for name in names)
        return next((v for v in values if type(v) is int and 0 < v <= MAX_NUMBER), None)

    def single_group(self) -> bool | None:
        """Whether a flag says multi-query attention (Falcon, StarCoder); None where none does.

        Falcon's new decoder ignores the flag.
        """
        for part in self.chain:
            if part.get("new_decoder_architecture") is True:
                return False
            if part.get("multi_query") is not None:
                return part["multi_query"] is True
        return None

    def experts(self) -> int:
        """Routed experts; 0 where a switch, or the list of layers (Nemotron-H), says none."""
        if self.no_layer_has_experts():
            return 0
        experts = self.number("experts", least=0) or 0
        return experts if experts > 1 else 0

    def no_layer_has_experts(self) -> bool:
        """Whether the config says so, whatever number of experts its class has by default."""
        for part in self.chain:
            if any(part.get(switch) is False for switch in ("enable_moe_block", "is_moe")):
                return True
            blocks, pattern = part.get("layers_block_type"), part.get("hybrid_override_pattern")
            if isinstance(blocks, list) and "mlp" in blocks:
                return "moe" not in blocks
            if isinstance(pattern, str):
                return "E" not in pattern
        return False

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
        return self.defaults.get("tied") is True

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


def _size(layer: Mapping[str, Any], fact: str) -> int | None:
    """`fact` of one layer; None where it says none."""
    found = (layer.get(name) for name in _FIELDS[fact])
    return next((value for value in found if type(value) is int and 0 < value <= MAX_NUMBER), None)


def _of_list(fact: str, values: list[int]) -> int:
    """One number for a list with one for each layer, or for text and images (ERNIE): what all heads
    have in common must split; of anything else the largest counts."""
    return math.gcd(*values) if fact in ("heads", "kv_heads") else max(values)


def _shown(value: object) -> str:
    """`value` as JSON on one line; its type where it cannot be written (a huge number, a loop)."""
    try:
        return clip(json.dumps(value, default=repr, ensure_ascii=False))
    except (ValueError, TypeError, RecursionError):
        return f"<{type(value).__name__}>"
