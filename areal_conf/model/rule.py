"""What a rule of a model is: a row of a table, with the settings that it asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from areal_conf.model.facts import ModelFacts
from areal_conf.spec.backends import Sizes


class Settings(NamedTuple):
    """What else of an engine's config a rule asks for.

    Attributes:
        context_length: longest sequence in tokens the engine will see; None where not known.
        attention_dp: SGLang's ``dp_size`` where ``enable_dp_attention`` is on, else 1: attention
            is then split over t / dp_size ranks (sglang/srt/layers/dp_attention.py,
            compute_dp_attention_world_info).
        stages_per_rank: pipeline stages of one rank; None for the backend's default. Megatron:
            ``virtual_pipeline_parallel_size`` (default 1). Archon: 1 with schedule 1F1B, else 2.
        expert_groups: groups of a server's ranks that hold different experts whole: SGLang's
            ``ep_size``; 0 for all ranks (vLLM's ``enable_expert_parallel``).
        vision_split: whether the vision tower is split over t; not so with vLLM's
            ``mm_encoder_tp_mode: data`` and SGLang's ``mm_enable_dp_encoder``.
    """

    context_length: int | None = None
    attention_dp: int = 1
    stages_per_rank: int | None = None
    expert_groups: int = 1
    vision_split: bool = True

    def attention_ranks(self, sizes: Sizes) -> int:
        """Ranks that share the heads of one layer."""
        return max(1, sizes.t // self.attention_dp)

    def expert_ranks(self, sizes: Sizes) -> int:
        """Ranks that share the matrices of one expert of a server."""
        return max(1, sizes.t // (self.expert_groups or sizes.t))

    def stages(self, sizes: Sizes, default: int) -> int:
        """Pipeline stages in all."""
        return sizes.p * (self.stages_per_rank or default)


NO_SETTINGS = Settings()
"""Nothing known of the engine's config."""

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


TABLE: list[Rule] = []
"""Every rule, as the modules of rules add them."""


def rule(
    code: str, dim: str, demand: str, *, message: str, advice: str, sources: dict[str, str]
) -> Callable[[Breaks], Breaks]:
    """Add a function as a row of `TABLE`; the arguments are those of `Rule`."""

    def add(breaks: Breaks) -> Breaks:
        TABLE.append(Rule(code, dim, demand, sources, breaks, message, advice))
        return breaks

    return add
