"""The structured configs that any Hydra app can compose from.

Nothing here runs until a config asks for it: turning one experiment into a config takes
milliseconds, and Hydra discovers plugins at the start of every app. `build` does it on demand.

Every experiment is an open mapping: its root and its sections take any key that is not named here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass
class Strategy:
    """Own GPUs (separation), or those of `target` (colocation)."""

    type: str = "separation"
    target: Optional[str] = None  # noqa: UP045 - read by OmegaConf at run time
    fork: bool = True


@dataclass
class TrainEngine:
    """actor, critic, ref, or a teacher that trains: fsdp, megatron or archon."""

    backend: Optional[str] = ""  # noqa: UP045
    scheduling_strategy: Strategy = field(default_factory=Strategy)


@dataclass
class InferenceEngine:
    """rollout: sglang or vllm."""

    backend: Optional[str] = ""  # noqa: UP045
    scheduling_strategy: Strategy = field(default_factory=Strategy)


@dataclass
class Cluster:
    """What there is to run on; null is unknown, and then there is no budget to check."""

    n_nodes: Optional[int] = None  # noqa: UP045
    n_gpus_per_node: Optional[int] = None  # noqa: UP045


@dataclass
class Scheduler:
    """Which scheduler of AReaL's single controller runs: null, local, ray or slurm."""

    type: Optional[str] = None  # noqa: UP045


def _on_actor() -> TrainEngine:
    return TrainEngine(scheduling_strategy=Strategy("colocation", "actor"))


@dataclass
class Experiment:
    """What all experiments have."""

    cluster: Cluster = field(default_factory=Cluster)
    scheduler: Scheduler = field(default_factory=Scheduler)
    allocation_mode: Optional[str] = ""  # noqa: UP045
    actor: TrainEngine = field(default_factory=TrainEngine)


@dataclass
class PPO(Experiment):
    """Proximal policy optimization: rollout and actor, critic and ref on the actor's GPUs."""

    rollout: InferenceEngine = field(default_factory=InferenceEngine)
    critic: TrainEngine = field(default_factory=_on_actor)
    ref: TrainEngine = field(default_factory=_on_actor)


@dataclass
class GRPO(Experiment):
    """Group-relative policy optimization: no critic."""

    rollout: InferenceEngine = field(default_factory=InferenceEngine)
    ref: TrainEngine = field(default_factory=_on_actor)


@dataclass
class SFT(Experiment):
    """Supervised fine-tuning."""


@dataclass
class RW(Experiment):
    """Reward modelling."""


@dataclass
class DPO(Experiment):
    """Direct preference optimization."""

    ref: TrainEngine = field(default_factory=_on_actor)


@dataclass
class Distill(GRPO):
    """GRPO with a teacher, on the teacher's own GPUs."""

    teacher: TrainEngine = field(default_factory=TrainEngine)


EXPERIMENTS: dict[str, type[Experiment]] = {
    "ppo": PPO,
    "grpo": GRPO,
    "sft": SFT,
    "rw": RW,
    "dpo": DPO,
    "distill": Distill,
}
"""Options of the config group ``areal/experiment``."""


def build(name: str) -> DictConfig:
    """The experiment `name` as an open config: typed where a field is named, else free.

    The fields keep their types; the mappings around them have none. So an app whose own root or
    section is a dataclass can merge with it, and a section can be null (no such engine).
    """
    from omegaconf import DictConfig, OmegaConf

    def opened(node: Any) -> Any:
        if not isinstance(node, DictConfig):
            return node
        mapping = DictConfig({key: opened(node._get_node(key)) for key in node})
        OmegaConf.set_struct(mapping, False)
        return mapping

    cfg = opened(OmegaConf.structured(EXPERIMENTS[name]))
    assert isinstance(cfg, DictConfig)
    return cfg
