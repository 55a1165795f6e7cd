"""Write ``areal_conf/model/class_defaults.json`` from the sources of transformers.

    python tools/model_defaults.py PATH_OF_THE_TRANSFORMERS_PACKAGE

Reads ``models/*/configuration_*.py`` as text, by `ast`: nothing is imported. Each model type gets
the defaults of its configuration class, under the names of `areal_conf.model.facts`.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "areal_conf" / "model" / "class_defaults.json"
NAMES = {
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "expert_intermediate": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "intermediate": ("intermediate_size",),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "head_dim": ("head_dim",),
    "vocabulary": ("vocab_size",),
    "linear_key_heads": ("linear_num_key_heads",),
    "linear_value_heads": ("linear_num_value_heads",),
    "mamba_heads": ("mamba_n_heads", "mamba_num_heads"),
    "mamba_groups": ("mamba_n_groups", "n_groups"),
    "tied": ("tie_word_embeddings",),
}


def classes(file: Path) -> dict[str, dict[str, Any]]:
    """The defaults of each configuration class of a file, by model type."""
    found = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            values, aliases = fields(node)
            kind = values.get("model_type")
            if isinstance(kind, str) and kind:
                found[kind] = named(values, aliases)
    return found


def fields(node: ast.ClassDef) -> tuple[dict[str, Any], dict[str, str]]:
    """What a class sets, as fields or as arguments of ``__init__``, and its attribute map."""
    values: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    for item in node.body:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            if item.targets[0].id == "attribute_map":
                aliases = literal(item.value) or {}
            else:
                values[item.targets[0].id] = literal(item.value)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            values[item.target.id] = literal(item.value)
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            arguments = item.args.args[len(item.args.args) - len(item.args.defaults) :]
            for argument, value in zip(arguments, item.args.defaults, strict=True):
                values[argument.arg] = literal(value)
    return values, aliases


def literal(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def named(values: dict[str, Any], aliases: dict[str, str]) -> dict[str, Any]:
    """`values` under the names of facts; what is None or of another type is left out."""
    out: dict[str, Any] = {}
    for fact, names in NAMES.items():
        every = [*names, *(aliases[name] for name in names if name in aliases)]
        value = next((values[name] for name in every if values.get(name) is not None), None)
        kind = bool if fact == "tied" else int
        if type(value) is kind and value not in (0, False):
            out[fact] = value
    return out


def main(package: Path) -> None:
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(package.glob("models/*/configuration_*.py")):
        found |= classes(file)
    version = next(
        line.split('"')[1]
        for line in (package / "__init__.py").read_text(encoding="utf-8").splitlines()
        if line.startswith("__version__")
    )
    rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(found.items()))
    source = json.dumps(f"transformers {version}, models/*/configuration_*.py")
    TARGET.write_text(f'{{"source": {source}, "types": {{\n{rows}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
