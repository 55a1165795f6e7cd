"""The arguments other programs take for the layout of a backend string.

`TARGETS` is the table: for each framework and each kind of backend, the names of its arguments or
config keys and the size each one gets. Sizes of 1 are written too, since defaults differ
(Megatron-LM takes expert tensor size t where nothing is said).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from areal_conf.errors import AllocationError, clip, wrong_type
from areal_conf.spec.allocation import ModelAllocation
from areal_conf.spec.backends import BACKENDS, Sizes
from areal_conf.spec.parser import dimension_span

Style = Literal["dashes", "dots", "overrides"]

_INFERENCE = ("sglang", "vllm")


@dataclass(frozen=True)
class Target:
    """One row of the table: what a framework takes for some backends.

    Attributes:
        framework: name of the framework, as ``--for`` takes it.
        style: how its command line is written: ``dashes`` (``--tp-size 4``), ``dots``
            (``--parallelism.tensor_parallel_degree 4``) or ``overrides`` (``key=4``).
        backends: backends whose strings it expresses.
        keys: argument or config key -> what it gets: a size (``d t p c e etp``), ``world`` (all
            ranks), ``instance`` (t x p), ``t>1`` (a switch), or a fixed value.
        derived: dimensions without a key of their own, which the framework derives from the
            number of ranks or servers that are started.
        source: file of the framework where the names stand.
    """

    framework: str
    style: Style
    backends: tuple[str, ...]
    keys: dict[str, str | int | bool]
    derived: str
    source: str

    def missing(self, sizes: Sizes) -> list[str]:
        """Dimensions over 1 that the framework has no word for here."""
        known = {*self.keys.values(), *self.derived}
        return [dim for dim in Sizes._fields if getattr(sizes, dim) > 1 and dim not in known]

    def values(self, sizes: Sizes) -> dict[str, int | bool]:
        """Each key with its value."""
        words: dict[str | int | bool, int | bool] = {
            **{dim: getattr(sizes, dim) for dim in Sizes._fields},
            "world": sizes.world,
            "instance": sizes.t * sizes.p,
            "t>1": sizes.t > 1,
        }
        return {
            key: words[value] if isinstance(value, str) else value
            for key, value in self.keys.items()
        }


TARGETS: tuple[Target, ...] = (
    Target(
        "sglang",
        "dashes",
        _INFERENCE,
        {"tp_size": "t", "pp_size": "p"},
        "d",
        "sglang/srt/server_args.py, ServerArgs.add_cli_args",
    ),
    Target(
        "vllm",
        "dashes",
        _INFERENCE,
        {"tensor_parallel_size": "t", "pipeline_parallel_size": "p"},
        "d",
        "vllm/engine/arg_utils.py, EngineArgs.add_cli_args",
    ),
    Target(
        "megatron",
        "dashes",
        ("megatron",),
        {
            "tensor_model_parallel_size": "t",
            "pipeline_model_parallel_size": "p",
            "context_parallel_size": "c",
            "expert_model_parallel_size": "e",
            "expert_tensor_parallel_size": "etp",
            "sequence_parallel": "t>1",
        },
        "d",
        "megatron/core/model_parallel_config.py, ModelParallelConfig (fields are arguments)",
    ),
    Target(
        "torchtitan",
        "dots",
        ("archon", "fsdp"),
        {
            "parallelism.data_parallel_replicate_degree": 1,
            "parallelism.data_parallel_shard_degree": "d",
            "parallelism.tensor_parallel_degree": "t",
            "parallelism.pipeline_parallel_degree": "p",
            "parallelism.context_parallel_degree": "c",
            "parallelism.expert_parallel_degree": "e",
        },
        "",
        "torchtitan/config/configs.py, ParallelismConfig",
    ),
    Target(
        "verl",
        "overrides",
        _INFERENCE,
        {
            "actor_rollout_ref.rollout.tensor_model_parallel_size": "t",
            "actor_rollout_ref.rollout.pipeline_model_parallel_size": "p",
        },
        "d",
        "verl/trainer/config/rollout/rollout.yaml",
    ),
    Target(
        "verl",
        "overrides",
        ("fsdp",),
        {
            "actor_rollout_ref.actor.fsdp_config.fsdp_size": "world",
            "actor_rollout_ref.actor.ulysses_sequence_parallel_size": "c",
        },
        "d",
        "verl/trainer/config/engine/fsdp.yaml and actor/dp_actor.yaml",
    ),
    Target(
        "verl",
        "overrides",
        ("megatron",),
        {
            "actor_rollout_ref.actor.megatron.tensor_model_parallel_size": "t",
            "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size": "p",
            "actor_rollout_ref.actor.megatron.context_parallel_size": "c",
            "actor_rollout_ref.actor.megatron.expert_model_parallel_size": "e",
            "actor_rollout_ref.actor.megatron.expert_tensor_parallel_size": "etp",
            "actor_rollout_ref.actor.megatron.sequence_parallel": "t>1",
        },
        "d",
        "verl/trainer/config/engine/megatron.yaml",
    ),
    Target(
        "nemo-rl",
        "overrides",
        ("vllm",),
        {
            "policy.generation.vllm_cfg.tensor_parallel_size": "t",
            "policy.generation.vllm_cfg.pipeline_parallel_size": "p",
        },
        "d",
        "examples/configs/grpo_math_1B.yaml",
    ),
    Target(
        "nemo-rl",
        "overrides",
        ("sglang",),
        {
            "policy.generation.sglang_cfg.tp_size": "t",
            "policy.generation.sglang_cfg.pp_size": 1,
            "policy.generation.sglang_cfg.sglang_server_config.num_gpus_per_engine": "instance",
        },
        "d",
        "nemo_rl/models/generation/sglang/config.py (p over 1 is not supported there)",
    ),
    Target(
        "nemo-rl",
        "overrides",
        ("fsdp",),
        {
            "policy.dtensor_cfg.enabled": True,
            "policy.megatron_cfg.enabled": False,
            "policy.dtensor_cfg.tensor_parallel_size": "t",
            "policy.dtensor_cfg.context_parallel_size": "c",
            "policy.dtensor_cfg.sequence_parallel": "t>1",
        },
        "d",
        "examples/configs/grpo_math_1B.yaml",
    ),
    Target(
        "nemo-rl",
        "overrides",
        ("megatron",),
        {
            "policy.dtensor_cfg.enabled": False,
            "policy.megatron_cfg.enabled": True,
            "policy.megatron_cfg.tensor_model_parallel_size": "t",
            "policy.megatron_cfg.pipeline_model_parallel_size": "p",
            "policy.megatron_cfg.context_parallel_size": "c",
            "policy.megatron_cfg.expert_model_parallel_size": "e",
            "policy.megatron_cfg.expert_tensor_parallel_size": "etp",
            "policy.megatron_cfg.sequence_parallel": "t>1",
        },
        "d",
        "examples/configs/grpo_math_1B.yaml",
    ),
)
"""The table. Names checked at the sources in August 2026 (SGLang, vLLM, Megatron-LM, torchtitan,
NeMo-RL main; verl main of January 2026)."""

FRAMEWORKS: tuple[str, ...] = tuple(dict.fromkeys(row.framework for row in TARGETS))
"""The frameworks there are, in the order of the table."""

_OWN = {"sglang": "sglang", "vllm": "vllm", "megatron": "megatron"} | {
    "fsdp": "torchtitan",
    "archon": "torchtitan",
}
"""The framework of each backend where none is named. AReaL's FSDP and Archon engines have no
command line; torchtitan is where their meshes come from."""


def as_mapping(spec: str | ModelAllocation, framework: str = "") -> dict[str, int | bool]:
    """Argument or config key -> value, for the layout of `spec`.

    Args:
        spec: backend string or allocation.
        framework: one of `FRAMEWORKS`; default is the one of the backend.

    Raises:
        AllocationError: for a bad spec; AC309 for an unknown framework; AC321 where the framework
            has no words for the layout.
    """
    allocation, text = _read(spec)
    return _target(allocation, text, framework).values(allocation.parallel.sizes)


def engine_args(spec: str | ModelAllocation, framework: str = "") -> list[str]:
    """The layout of `spec` as arguments of the framework's command line, as `as_mapping` raises.

    A switch that is off is left out where the command line has no word for off. For SGLang and vLLM
    these are the arguments of one server: d counts servers.
    """
    allocation, text = _read(spec)
    target = _target(allocation, text, framework)
    out: list[str] = []
    for key, value in target.values(allocation.parallel.sizes).items():
        if target.style == "overrides":
            out.append(f"{key}={str(value).lower() if isinstance(value, bool) else value}")
        elif value is not False:
            out.append(f"--{key.replace('_', '-') if target.style == 'dashes' else key}")
            out += [] if value is True else [str(value)]
    return out


def _read(spec: str | ModelAllocation) -> tuple[ModelAllocation, str]:
    if isinstance(spec, ModelAllocation):
        return spec, str(spec)
    return ModelAllocation.from_str(spec), spec


def _target(allocation: ModelAllocation, text: str, framework: str) -> Target:
    """The row of the table that holds, once it is sure that it can say the layout."""
    if not isinstance(framework, str):
        raise wrong_type(framework, "the name of a framework", hint=f"name {_names(FRAMEWORKS)}")
    framework = framework or _OWN[allocation.backend]
    rows = [row for row in TARGETS if row.framework == framework]
    if not rows:
        raise AllocationError(
            "AC309",
            f"unknown framework {clip(framework)!r}",
            text=clip(framework),
            hint=f"name {_names(FRAMEWORKS)}",
        )
    row = next((row for row in rows if allocation.backend in row.backends), None)
    if row is None:
        raise _no_backend(allocation, text, rows)
    missing = row.missing(allocation.parallel.sizes)
    if missing:
        raise _no_dimension(allocation, text, row, missing[0])
    return row


def _no_backend(allocation: ModelAllocation, text: str, rows: list[Target]) -> AllocationError:
    backend = allocation.backend
    framework = rows[0].framework
    start = text.find(backend)
    same = [spec for row in rows for name in row.backends if (spec := _moved(allocation, name))]
    elsewhere = [row.framework for row in TARGETS if backend in row.backends]
    hint = f"name the framework {_names(elsewhere)}"
    return AllocationError(
        "AC321",
        f"{framework} has no arguments for {backend}",
        text=text,
        span=(start, start + len(backend)),
        hint=f"write {_names(same)}, or {hint}" if same else hint,
    )


def _moved(allocation: ModelAllocation, backend: str) -> str | None:
    """The same sizes for another backend of the same role; None where it does not take them."""
    if BACKENDS[backend].role != allocation.role:
        return None
    try:
        return str(ModelAllocation(backend, allocation.name, allocation.parallel))
    except AllocationError:
        return None


def _no_dimension(allocation: ModelAllocation, text: str, row: Target, dim: str) -> AllocationError:
    backend = allocation.backend
    sizes = allocation.parallel.sizes
    others = [
        other.framework
        for other in TARGETS
        if backend in other.backends and not other.missing(sizes)
    ]
    letter = "t of ffn" if dim == "etp" else dim
    hint = f"use {letter} of 1 with {row.framework}"
    return AllocationError(
        "AC321",
        f"{row.framework} cannot split {letter} for {backend}",
        text=text,
        span=dimension_span(text, dim),
        hint=f"{hint}, or name the framework {_names(others)}" if others else hint,
    )


def _names(names: list[str] | tuple[str, ...]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
