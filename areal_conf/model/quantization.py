"""How the weights of a checkpoint are quantised: ``quantization_config`` of a ``config.json``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MAX = 2**31 - 1

_BITS = {"fp8": 8.0, "fbgemm_fp8": 8.0, "blockwise_int8": 8.0, "mxfp4": 4.25}
"""Bits of a weight by method, with the scales (one of 8 bits for 32 weights of MXFP4, OCP
Microscaling Formats 1.0; those of FP8 blocks of 128 x 128 are under a thousandth)."""

_GROUPED = frozenset({"gptq", "gptq_marlin", "awq", "awq_marlin", "auto-round"})
"""Methods whose ``group_size`` is a number of inputs."""

_NVFP4_GROUP = 16
"""Inputs that share a scale in NVFP4 (vllm/.../quantization/modelopt.py, ModelOptNvFp4Config)."""


class Quantization(NamedTuple):
    """How the weights of a checkpoint are quantised.

    Attributes:
        method: as ``quant_method`` says.
        bits: of one weight, scales included; None: not known.
        experts_only: whether routed experts alone are quantised.
        block: rows and columns that share a scale: (128, 128) for blocks, (1, 128) for groups
            along the input; None: a scale for each channel or matrix, or padded.
        left_out: parts that stay as they are: "attention", "mlp", "experts", "shared".
    """

    method: str
    bits: float | None
    experts_only: bool = False
    block: tuple[int, int] | None = None
    left_out: frozenset[str] = frozenset()

    def covers(self, part: str) -> bool:
        """Whether the matrices of a part (``"attention"``, ``"mlp"`` ...) are quantised."""
        return part not in self.left_out


def read_quantization(chain: list[Mapping[str, Any]]) -> Quantization | None:
    """The quantisation that a config tells of, None where it tells of none.

    Args:
        chain: the sections that describe the language model, innermost first.
    """
    for part in reversed(chain):
        for key in ("quantization_config", "compression_config"):
            if isinstance(part.get(key), Mapping):
                return _read(part[key])
    return None


def _read(config: Mapping[str, Any]) -> Quantization:
    method = config.get("quant_method")
    method = method.lower() if isinstance(method, str) else ""
    method = {"compressed_tensors": "compressed-tensors", "auto_round": "auto-round"}.get(
        method, method.replace("fbgemm-fp8", "fbgemm_fp8")
    )
    left_out = frozenset(_left_out(config))
    if method == "compressed-tensors":
        return _compressed(config, left_out)
    if method in _BITS:
        block = None if method == "mxfp4" else _pair(config.get("weight_block_size"))
        return Quantization(method, _BITS[method], method == "mxfp4", block, left_out)
    if method.startswith("modelopt") or "quant_algo" in config:
        return _modelopt(config, method, left_out)
    bits = config.get("bits", config.get("w_bit"))
    if method in _GROUPED and type(bits) is int and 1 <= bits <= 8:
        group = _size(config.get("group_size", config.get("q_group_size", 128)))
        exact = bits + (16 + bits) / group if group else float(bits)  # a scale and a zero point
        return Quantization(method, exact, False, (1, group) if group else None, left_out)
    return Quantization(method, None, left_out=left_out)


def _modelopt(config: Mapping[str, Any], method: str, left_out: frozenset[str]) -> Quantization:
    """ModelOpt: NVFP4 has groups of 16 inputs, FP8 a scale for each matrix."""
    algorithm = str(config.get("quant_algo", "")).upper()
    if "NVFP4" in algorithm or method == "modelopt_fp4":
        group = _size(config.get("group_size")) or _NVFP4_GROUP
        return Quantization(method, 4 + 8 / group, False, (1, group), left_out)
    return Quantization(method, 8.0 if "FP8" in algorithm else None, left_out=left_out)


def _compressed(config: Mapping[str, Any], left_out: frozenset[str]) -> Quantization:
    """compressed-tensors: the weights of its first group of layers."""
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        return Quantization("compressed-tensors", None, left_out=left_out)
    bits = _size(weights.get("num_bits"))
    block, group = _pair(weights.get("block_structure")), _size(weights.get("group_size"))
    if block is None and group:
        block = (1, group)
    known = float(bits) if bits and bits <= 16 else None
    if known is not None and block is not None and block[0] == 1:
        known += 16 / block[1]
    return Quantization("compressed-tensors", known, False, block, left_out)


def _pair(value: Any) -> tuple[int, int] | None:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return None
    rows, columns = _size(value[0]), _size(value[1])
    return (rows, columns) if rows and columns else None


def _size(value: Any) -> int | None:
    return value if type(value) is int and 0 < value <= _MAX else None


_PARTS = {
    "attention": re.compile(r"attn|attention|[qkvo]_proj"),
    "experts": re.compile(r"experts"),
    "shared": re.compile(r"shared_expert"),
    "mlp": re.compile(r"(?:mlp|feed_forward)\W*$|(?<!expert)(?:up|down)_proj"),
}
_VISION = re.compile(r"vision|visual|vit\b|audio|projector")
_ONE_LAYER = re.compile(r"(?:layers|blocks|h)\\?\.\d+\\?\.")
_MANY = 8
"""So many layers are taken for all of them: others are named layer by layer too."""


def _left_out(config: Mapping[str, Any]) -> Iterator[str]:
    """Parts of the language model that lists of modules name in every layer."""
    names: list[str] = []
    for key in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules"):
        listed = config.get(key)
        if isinstance(listed, list):
            names += [name for name in listed if isinstance(name, str)]
    names = [name for name in names if not _VISION.search(name) and "norm" not in name]
    for part, pattern in _PARTS.items():
        found = [name for name in names if pattern.search(name)]
        if part == "experts":
            found = [name for name in found if "shared_expert" not in name]
        if any(not _ONE_LAYER.search(name) for name in found) or len(found) >= _MANY:
            yield part
