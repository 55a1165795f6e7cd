"""Public models that people train, by name: `known_models.json` has the sizes of their configs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("known_models.json")

_VARIANT = re.compile(
    r"[-_ ](instruct|base|chat|hf|it|bf16|thinking|v0\.\d+|\d{4}|distilled|think|sft|dpo|rm)$"
)
"""Words at the end of a name that change weights and not sizes. Words of quantisation are none of
them: they change the bytes."""


@lru_cache(maxsize=1)
def known_models() -> Mapping[str, Mapping[str, Any]]:
    """Hub id -> the sizes in its ``config.json``."""
    models: Mapping[str, Mapping[str, Any]] = json.loads(_TABLE.read_text("utf-8"))["models"]
    return models


@lru_cache(maxsize=1)
def _by_key() -> Mapping[str, str]:
    keys: dict[str, str] = {}
    for name in known_models():
        keys.setdefault(_key(name, strip=False), name)
    for name in known_models():
        keys.setdefault(_key(name), name)
    return keys


def _key(name: str, strip: bool = True) -> str:
    """`name` without its organisation, case, punctuation and words of variants."""
    short = name.strip().lower().rsplit("/", 1)[-1]
    while strip and (found := _VARIANT.search(short)):
        short = short[: found.start()]
    return re.sub(r"[^a-z0-9.]|^meta-", "", short)


_CLASSES = Path(__file__).with_name("class_defaults.json")

_REMOTE_TYPES = frozenset(
    {
        "RefinedWeb", "RefinedWebModel", "NemotronH_Nano_VL_V2", "arctic", "bagel",
        "bailing_moe", "bailing_moe_v2", "baichuan", "chatglm", "deepseek_vl_v2", "deepseek-ocr",
        "dots_ocr", "dots_vlm", "ernie4_5_moe_vl", "gpt", "grok-1", "grok-2", "h2ovl_chat",
        "hunyuan", "intern_s2_preview", "internlm", "internlm2", "internlm3", "interns1",
        "internvl_chat", "isaac", "keye", "KeyeVL1_5", "kimi_k2", "kimi_k25", "kimi_k3",
        "kimi_linear", "kimi_vl", "llama_nemotron", "mimo", "mimo_v2", "mimo_v2_flash", "mimovl",
        "minicpm", "minicpm3", "minicpmo", "minicpmv", "minimax_m1", "minimax_text_01",
        "moondream3", "nemotron-nas", "NVLM_D", "openelm", "opencua", "openvla", "orion", "ovis",
        "pangu_ultra_moe", "phi3_v", "phi3small", "phi4mm", "plamo2", "plamo3", "qwen",
        "skywork", "skywork_chat", "solar", "step3_text", "step3_vl", "step3p5", "step5",
        "telechat", "teleflm", "xverse",
    }
)  # fmt: skip
"""Model types of code beside the checkpoint that vLLM or SGLang serve (vllm/model_executor/models,
sglang/srt/models)."""


@lru_cache(maxsize=1)
def _classes() -> Mapping[str, Mapping[str, Any]]:
    """Defaults of configuration classes by model type, made by ``tools/model_defaults.py``."""
    types: Mapping[str, Mapping[str, Any]] = json.loads(_CLASSES.read_text("utf-8"))["types"]
    return types


def class_defaults(model_type: str) -> Mapping[str, Any]:
    """What a key left out means for a model type: the defaults of its class in transformers."""
    return _classes().get(model_type, {})


def is_known_type(model_type: str) -> bool:
    """Whether the class of a model type is known, of transformers or of remote code."""
    return model_type in _classes() or model_type in _REMOTE_TYPES


def known_model(name: str) -> tuple[str, Mapping[str, Any]] | None:
    """The Hub id and config of a model that is known by name; None where it is not.

    Args:
        name: with or without organisation, in any case: ``Qwen3-30B-A3B``, ``qwen/qwen3-8b``.
    """
    found = _by_key().get(_key(name, strip=False)) or _by_key().get(_key(name))
    return (found, known_models()[found]) if found else None


def hub_id(name: str) -> str:
    """The Hub id of a model: a known one gets its organisation, any other name is left as it is.

    Words such as Instruct, which change weights alone, stay: ``Qwen2.5-7B-Instruct`` is
    ``Qwen/Qwen2.5-7B-Instruct``.
    """
    found = None if "/" in name else known_model(name)
    if found is None:
        return name
    organisation, _, known = found[0].partition("/")
    return found[0] if known.lower() == name.lower() else f"{organisation}/{name}"
