"""A JSON Schema of AReaL-style YAML, for completion and red lines in an editor.

The schema is made from the table of backends. Its patterns accept a backend string exactly where
the parser finds no syntax error (AC1xx) in it, but for a world size over the limit, which is a
product and beyond any pattern; what a string means (AC2xx) is for ``areal-conf check``. Patterns
keep to what ECMA-262 and other engines share: no lookbehind, no named groups, no ``\\w``.

Every mapping is open, and any value that is read may be an interpolation or unset.
"""

from __future__ import annotations

from typing import Any

from areal_conf.config.areal_defaults import LAUNCHERS, ROLES
from areal_conf.config.view import UNSET
from areal_conf.spec.allocation import SchedulingStrategyType
from areal_conf.spec.backends import BACKENDS, DIMENSIONS, MAX_SIZE, SECTIONS, Backend, Role

_B = r"[ \t\r\n]*"
_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_LETTERS = "".join(DIMENSIONS)
_EXAMPLES: dict[Role | None, list[str]] = {
    "inference": ["sglang:d2t4", "vllm:d8"],
    "training": ["fsdp:d8", "megatron:d2p2t2", "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)"],
    None: ["fsdp:d8", "sglang:d2t4"],
}

Schema = dict[str, Any]


def schema() -> Schema:
    """The JSON Schema (2020-12) of an experiment."""
    named = {"areal_plan": {"type": "object", "required": ["engines"]}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "RL experiment with backend strings (AReaL)",
        "type": "object",
        "properties": {
            "allocation_mode": _or_unset(
                {"type": "string"},
                "Deprecated: one string for all engines, for AReaL's SPMD launchers. Give each "
                "engine its own backend instead.",
                deprecated=True,
            ),
            "cluster": _section("cluster", "What there is to run on."),
            "scheduler": _section("scheduler", "The scheduler of AReaL's single controller."),
            "areal_plan": _section("areal_plan", "Where areal-conf finds engines of other names."),
        },
        "if": {"properties": named, "required": list(named)},
        "then": {},
        "else": {
            "properties": {name: _engine_section(name) for name in ROLES},
            "additionalProperties": {"$ref": "#/$defs/other_section"},
        },
        "$defs": _definitions(),
    }


def backend_pattern(role: Role | None = None) -> str:
    """A regular expression of the backend strings that parse, of one role where given."""
    rows = [b for b in BACKENDS.values() if role in (None, b.role)]
    by_dims: dict[str, list[Backend]] = {}
    for row in rows:
        by_dims.setdefault(row.dims, []).append(row)
    label = rf"{_B}(?:\[{_B}{_NAME}{_B}\]{_B})?:{_B}"
    # Whether a backend has the attn/ffn form, and which dimension stands in which section, is
    # meaning (AC205, AC206), not syntax.
    forms = [_names(same) + label + _dims(dims) for dims, same in by_dims.items()]
    first, second = (rf"{section}{_B}:{_B}{_dims(_LETTERS)}" for section in SECTIONS)
    folded = rf"{first}\|{_B}{second}"
    forms.append(rf"{_names(rows)}{label}(?:{folded}|\({_B}{folded}\){_B})")
    return f"^{_B}(?:{'|'.join(forms)})$"


def _names(rows: list[Backend]) -> str:
    return f"(?:{'|'.join(row.name for row in rows)})"


def _dims(own: str) -> str:
    """dims, where only the letters of `own` may be over 1: each letter at most once."""
    once = "".join(f"(?![^{x}|)]*{x}[^{x}|)]*{x})" for x in _LETTERS)
    foreign = "".join(x for x in _LETTERS if x not in own)
    dim = f"[{own}]{_B}{_numbers(MAX_SIZE)}{_B}"
    if foreign:
        dim += f"|[{foreign}]{_B}1{_B}"
    return f"{once}(?:{dim})+"


def _numbers(limit: int) -> str:
    """A regular expression of the decimal numbers from 1 to `limit` (two digits or more)."""
    digits = str(limit)
    parts = [f"[1-9][0-9]{{0,{len(digits) - 2}}}", digits]
    for place, digit in enumerate(digits):
        least = 0 if place else 1
        if int(digit) > least:
            rest = f"[0-9]{{{len(digits) - place - 1}}}" if place < len(digits) - 1 else ""
            parts.append(f"{digits[:place]}[{least}-{int(digit) - 1}]{rest}")
    return f"(?:{'|'.join(parts)})"


# -- sections -----------------------------------------------------------------------------------


def _or_unset(kind: Schema, description: str, **more: Any) -> Schema:
    """A value of the schema `kind`, an interpolation, or nothing."""
    choices = [kind, {"$ref": "#/$defs/interpolation"}, {"$ref": "#/$defs/unset"}]
    return {"description": description, "anyOf": choices, **more}


def _mapping(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, **more}


def _section(definition: str, description: str) -> Schema:
    return _or_unset({"$ref": f"#/$defs/{definition}"}, description)


def _engine_section(name: str) -> Schema:
    role = ROLES[name]
    if role is None:
        return _section("teacher", "The teacher of a distillation: it serves, or it trains.")
    return _section(f"{role}_engine", f"The {name} engine: a backend for {role}.")


def _backend(role: Role | None) -> Schema:
    rows = [b.name for b in BACKENDS.values() if role in (None, b.role)]
    kind = {"$ref": f"#/$defs/{role or 'any'}_backend"}
    what = "Backend and layout, such as " + " or ".join(_EXAMPLES[role][:2])
    return _or_unset(
        kind, f"{what}. Backends: {', '.join(rows)}.", examples=_EXAMPLES[role], default=""
    )


def _engine(role: Role | None) -> Schema:
    strategy = _section("scheduling_strategy", "Own GPUs, or those of another engine.")
    return _mapping({"backend": _backend(role), "scheduling_strategy": strategy})


def _count(least: int, description: str) -> Schema:
    choices = [{"type": "integer", "minimum": least}, {"type": "string", "pattern": "^[0-9]+$"}]
    return _or_unset({"anyOf": choices}, description)


def _definitions() -> Schema:
    backends = {
        f"{role or 'any'}_backend": {
            "type": "string",
            "pattern": backend_pattern(role),
            "patternErrorMessage": f"No backend string{f' for {role}' if role else ''}: write "
            f"one such as {' or '.join(_EXAMPLES[role][:2])}.",
        }
        for role in _EXAMPLES
    }
    return {
        "interpolation": {"type": "string", "pattern": r"\$\{"},
        "unset": {"enum": list(UNSET)},
        **backends,
        "inference_engine": _engine("inference"),
        "training_engine": _engine("training"),
        "teacher": _teacher(),
        "other_section": _other_section(),
        "scheduling_strategy": _scheduling_strategy(),
        "cluster": _mapping(
            {
                "n_nodes": _count(1, "Nodes; null where not known."),
                "n_gpus_per_node": _count(0, "GPUs of each node; null where not known."),
            }
        ),
        "scheduler": _mapping(
            {"type": _or_unset({"enum": list(LAUNCHERS)}, "Who starts the workers.")}
        ),
        "areal_plan": _areal_plan(),
    }


def _teacher() -> Schema:
    """Both shapes: ``backend``, or ``engine_type`` with an engine below it."""
    kinds = {"enum": ["rollout", "train"]}
    teacher = _engine(None)
    teacher["properties"] |= {
        "engine_type": _or_unset(kinds, "Which of the two engines below runs.", default="rollout"),
        "rollout": _section("inference_engine", "A teacher that serves."),
        "train": _section("training_engine", "A teacher that is loaded as a training engine."),
    }
    return teacher


def _other_section() -> Schema:
    """Any other section: an engine where its backend begins as a backend string does."""
    begins = rf"^{_B}{_names(list(BACKENDS.values()))}[:\[]"
    backend = {"type": "string", "pattern": begins, "not": {"$ref": "#/$defs/interpolation"}}
    return {
        "if": {"type": "object", "properties": {"backend": backend}, "required": ["backend"]},
        "then": _engine(None),
    }


def _scheduling_strategy() -> Schema:
    kinds = {"enum": [str(kind) for kind in SchedulingStrategyType]}
    return _mapping(
        {
            "type": _or_unset(kinds, "Own GPUs, or those of the target.", default="separation"),
            "target": _or_unset(
                {"type": "string"}, "The engine whose GPUs are shared.", examples=["actor"]
            ),
            "fork": _or_unset({"type": "boolean"}, "Fork the workers of the target."),
        }
    )


def _areal_plan() -> Schema:
    code = {"type": "string", "pattern": "^AC[34][0-9][0-9]$"}
    role = {"enum": sorted({b.role for b in BACKENDS.values()})}
    entry = _mapping(
        {
            "path": {"type": "string", "description": "Dotted path of the engine's section."},
            "role": _or_unset(role, "The role its backend must have."),
            "settings": _or_unset(
                {"type": "object"}, "What estimates of memory read, under AReaL's names of keys."
            ),
        },
        required=["path"],
    )
    return _mapping(
        {
            "engines": {
                "description": "Engines by name.",
                "type": ["object", "null"],
                "additionalProperties": entry,
            },
            "cluster": _section("cluster", "What there is to run on."),
            "allow": {
                "description": "Codes of errors to count as warnings.",
                "anyOf": [code, {"type": "array", "items": code}, {"type": "null"}],
            },
            "root": _or_unset({"type": "string"}, "The package that holds the experiment."),
            "model": _or_unset(
                {"type": ["string", "object"]},
                "A Hugging Face config.json, or auto, or one of them for each engine.",
            ),
            "gpu": _or_unset(
                {"type": ["string", "number"]}, "The card that memory is estimated for."
            ),
            "areal": _or_unset(
                {"type": ["string", "number"]}, "The AReaL to judge by, such as 1.0.4 or main."
            ),
            "app": _or_unset(
                {"type": "string"}, "A module that fills Hydra's ConfigStore, imported first."
            ),
        }
    )
