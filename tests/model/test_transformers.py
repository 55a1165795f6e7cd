"""Facts against every configuration class of the installed transformers (stage `models`)."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

from areal_conf.model import read_model
from areal_conf.model.known import class_defaults, is_known_type

pytestmark = pytest.mark.models
transformers = pytest.importorskip("transformers")

ENCODERS = ("encoder", "decoder", "audio", "vision", "speech", "vit", "codec", "tokenizer")


def classes() -> Iterator[Any]:
    """Every configuration class that has a model type."""
    for folder in pkgutil.iter_modules(transformers.models.__path__):
        package = importlib.import_module(f"transformers.models.{folder.name}")
        for entry in pkgutil.iter_modules(package.__path__):
            if not entry.name.startswith("configuration_"):
                continue
            module = importlib.import_module(f"{package.__name__}.{entry.name}")
            for found in vars(module).values():
                own = inspect.isclass(found) and found.__module__ == module.__name__
                if own and issubclass(found, transformers.PreTrainedConfig) and found.model_type:
                    yield found


def says(config: Any, name: str) -> Any:
    """An attribute; None where it is missing, or differs from layer to layer."""
    try:
        return getattr(config, name, None)
    except Exception:
        return None


def language(found: Any) -> Any | None:
    """A default config of a class, where it is of a language model that decodes."""
    try:
        config = found()
        text = config.get_text_config(decoder=True)
    except Exception:  # some classes have no defaults
        return None
    if (
        says(config, "is_encoder_decoder")
        or found.model_type in NOT_READ
        or any(word in found.model_type for word in ENCODERS)
    ):
        return None
    names = ("vocab_size", "num_hidden_layers", "num_attention_heads")
    return config if all(says(text, name) for name in names) else None


OF_THEIR_OWN = {"dory"}
"""Types that report another number of layers than their configs hold: Dory counts MLPs apart."""

SIZES = {
    "hidden": "hidden_size",
    "vocabulary": "vocab_size",
    "head_dim": "head_dim",
    "experts_per_token": "num_experts_per_tok",
    "expert_intermediate": "moe_intermediate_size",
    "kv_lora_rank": "kv_lora_rank",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
}
DERIVED = {"hrm_text": "layers", "hy_v4_vl_text": "kv_heads", "longcat_flash": "layers"}
"""What classes work out from other keys, so that a default of their own is not the last word."""

NOT_READ = {"funnel", "lxmert", "coarse_acoustics", "fine_acoustics", "semantic"}
"""Encoders whose layers are no single number, and models of sound (Bark)."""

CLASSES = {found.model_type: found for found in classes()}
LANGUAGE = [kind for kind, found in sorted(CLASSES.items()) if language(found) is not None]


def test_there_are_many() -> None:
    assert len(CLASSES) > 700
    assert len(LANGUAGE) > 150


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_each_type_is_known(kind: str) -> None:
    assert is_known_type(kind)


def first(config: Any, *names: str) -> Any:
    """The first of `names` that says something."""
    values = (says(config, name) for name in names)
    return next((value for value in values if value is not None), None)


def kv_heads(text: Any) -> int | None:
    if getattr(text, "multi_query", False) and not getattr(text, "new_decoder_architecture", False):
        return 1
    nested = getattr(text, "attn_config", None)
    value = first(text, "num_key_value_heads", "num_kv_heads", "num_attention_groups")
    value = first(nested, "kv_n_heads") if value is None and nested is not None else value
    return text.num_attention_heads if value is None else value


@pytest.mark.parametrize("kind", LANGUAGE)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "differences"])
def test_facts_are_those_of_the_class(kind: str, whole: bool) -> None:
    """As transformers writes a config, and in full."""
    config = language(CLASSES[kind])
    assert config is not None
    content = json.loads(config.to_json_string(use_diff=not whole))
    text = config.get_text_config(decoder=True)
    facts = read_model(content)
    heads, layers = says(text, "num_attention_heads"), says(text, "num_hidden_layers")
    layers = text.num_layers if kind == "longcat_flash" else layers
    if isinstance(heads, int) and kind not in OF_THEIR_OWN:
        assert (facts.heads, facts.layers) == (heads, layers)
    if isinstance(heads, int) and says(text, "num_key_value_heads") is not None:
        assert facts.kv_heads == kv_heads(text)
    experts = first(text, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    if isinstance(experts, int) and first(text, "enable_moe_block", "is_moe") is not False:
        assert facts.experts == (experts if experts > 1 else 0)


@pytest.mark.parametrize("kind", LANGUAGE)
def test_sizes_are_those_of_the_class(kind: str) -> None:
    config = language(CLASSES[kind])
    assert config is not None
    text = config.get_text_config(decoder=True)
    facts = read_model(json.loads(config.to_json_string(use_diff=False)))
    for fact, name in SIZES.items():
        said, read = says(text, name), getattr(facts, fact)
        if fact == "head_dim":
            read = read or (facts.hidden or 0) // facts.heads
        if "expert" in fact and not facts.experts:
            continue
        if isinstance(said, int) and not isinstance(said, bool) and said > 0:
            assert read == said, fact


@pytest.mark.parametrize("kind", LANGUAGE)
def test_defaults_are_those_of_the_class(kind: str) -> None:
    """The table of `class_defaults` against a config of the class itself."""
    config = CLASSES[kind]()
    names = {"heads": "num_attention_heads", "layers": "num_hidden_layers"}
    names |= {
        "kv_heads": "num_key_value_heads",
        "hidden": "hidden_size",
        "vocabulary": "vocab_size",
    }
    for fact, name in names.items():
        value = class_defaults(kind).get(fact)
        said = says(config, name)
        if value is not None and said is not None and DERIVED.get(kind) != fact:
            assert value == said, fact
