"""Whether a layout fits: memory of a trainer's or a server's GPU, as a range with its parts.

Knows allocations, facts of models, cards and plain settings; must not know experiments, plans or
the command line. Every function is pure. Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_conf._lazy import lazy_names

if TYPE_CHECKING:
    from areal_conf.estimate.areal_keys import EngineKeys, fitting
    from areal_conf.estimate.cards import CARDS, Card, read_card
    from areal_conf.estimate.serving import ServingMemory, serving_memory
    from areal_conf.estimate.settings import ServingSettings, TrainingSettings
    from areal_conf.estimate.training import TrainingMemory, training_memory

_HOMES = {
    "CARDS": "cards",
    "Card": "cards",
    "EngineKeys": "areal_keys",
    "ServingMemory": "serving",
    "ServingSettings": "settings",
    "TrainingMemory": "training",
    "TrainingSettings": "settings",
    "fitting": "areal_keys",
    "read_card": "cards",
    "serving_memory": "serving",
    "training_memory": "training",
}

__all__ = [
    "CARDS",
    "Card",
    "EngineKeys",
    "ServingMemory",
    "ServingSettings",
    "TrainingMemory",
    "TrainingSettings",
    "fitting",
    "read_card",
    "serving_memory",
    "training_memory",
]

if not TYPE_CHECKING:  # a checker knows the names above, and no others
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
