"""A model against a layout: facts of a Hugging Face ``config.json``, and the rules of the backends.

Knows backend strings and configs of models; must not know experiments, plans or the command line.
Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names

if TYPE_CHECKING:
    from areal_conf.model.check import check_model, fits
    from areal_conf.model.facts import MAX_CONFIG_BYTES, ModelFacts, ModelSource, read_model
    from areal_conf.model.rule import Rule, Settings
    from areal_conf.model.rules import RULES

_HOMES = {
    "MAX_CONFIG_BYTES": "facts",
    "ModelFacts": "facts",
    "ModelSource": "facts",
    "read_model": "facts",
    "RULES": "rules",
    "Rule": "rule",
    "Settings": "rule",
    "check_model": "check",
    "fits": "check",
}

__all__ = [
    "MAX_CONFIG_BYTES",
    "RULES",
    "ModelFacts",
    "ModelSource",
    "Rule",
    "Settings",
    "check_model",
    "fits",
    "read_model",
]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
