"""What is said of the estimates: AC701 to AC709, each with what to change and its new figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any

from areal_conf.config.versions import V2_0
from areal_conf.errors import AllocationError, Diagnostic, counted
from areal_conf.estimate.areal_keys import EngineKeys
from areal_conf.estimate.ranges import Range
from areal_conf.estimate.serving import ServingMemory
from areal_conf.estimate.training import TrainingMemory
from areal_conf.planning.memory import Estimate, ExperimentMemory, needed_tokens
from areal_conf.planning.state import ResolvedExperiment
from areal_conf.spec.allocation import ModelAllocation

_MOST_TRIED = 1500
"""Layouts that are estimated to find those that fit: a tenth of a second."""

_MOST_NAMED = 2
_FAR_ABOVE = 4
"""How many times the requests that fit `max_concurrent_rollouts` may be before it is said."""


def check(facts: ResolvedExperiment, memory: ExperimentMemory) -> Iterator[Diagnostic]:
    """Everything that the estimates give reason to say."""
    for estimated in memory.engines.values():
        for error in _of_engine(facts, estimated, memory):
            yield Diagnostic.of("warning", error)
    for shared in memory.shared:
        if len(shared.engines) == 1 or shared.verdict not in ("no", "may"):
            continue
        alone = [memory.engines[name].memory for name in shared.engines]
        if any(one is not None and one.verdict == shared.verdict for one in alone):
            continue  # said of the engine already
        host = memory.engines[shared.engines[0]].engine
        code, verb = ("AC701", "do not fit") if shared.verdict == "no" else ("AC702", "may not fit")
        yield Diagnostic.of(
            "warning",
            AllocationError(
                code,
                f"{', '.join(shared.engines)} on the same GPUs {verb}: "
                f"{shown(shared.step)} of {memory.card.usable:g} GiB",
                path=host.path,
                hint="write ++enable_offload=true, so that they take turns, or give one of them "
                "GPUs of its own",
            ),
        )


def _of_engine(
    facts: ResolvedExperiment, estimated: Estimate, memory: ExperimentMemory
) -> Iterator[AllocationError]:
    gpu = memory.card.usable
    if estimated.memory is None:
        yield _not_estimated(estimated)
    elif isinstance(estimated.memory, ServingMemory):
        yield from _of_server(facts, estimated, estimated.memory, gpu)
    else:
        yield from _of_trainer(facts, estimated, estimated.memory, gpu)


def shown(ends: Range) -> str:
    """A range of GiB in whole numbers, rounded outwards: ``31-40``."""
    low, high = math.floor(ends[0]), math.ceil(ends[1])
    return f"{low:,}-{high:,}" if low != high else f"{low:,}"


def _not_estimated(estimated: Estimate) -> AllocationError:
    name = estimated.engine.name
    return AllocationError(
        "AC708",
        f"the memory of {name} is not estimated: {estimated.why}",
        path=estimated.engine.path,
        hint=f"name its model: --model {name}=Qwen/Qwen3-8B, or a config.json with all sizes",
    )


# -- trainers --------------------------------------------------------------------------------------


def _of_trainer(
    facts: ResolvedExperiment, estimated: Estimate, memory: TrainingMemory, gpu: float
) -> Iterator[AllocationError]:
    engine = estimated.engine
    verdict = memory.verdict if memory.verdict == "unknown" else _step_verdict(memory, gpu)
    assert memory.step is not None
    if verdict in ("no", "may"):
        code, verb = ("AC701", "does not fit") if verdict == "no" else ("AC702", "may not fit")
        part = max(memory.parts or {}, key=(memory.parts or {}).__getitem__)
        size = (memory.parts or {})[part]
        yield AllocationError(
            code,
            f"a step of {engine.name} {verb}: {shown(memory.step)} of {gpu:g} GiB, "
            f"most of it {part} ({size:.0f} GiB)",
            text=engine.text,
            path=engine.path,
            hint=_cures(estimated, gpu, facts),
        )
    if memory.load is not None and memory.load[1] > gpu:
        yield _load(estimated, memory.load, gpu)
    yield from _tokens(facts, estimated)
    if verdict in ("no", "may"):
        yield from _checkpointing(estimated, memory, gpu)
        yield from _unsharded(estimated, memory)


def _step_verdict(memory: TrainingMemory, gpu: float) -> str:
    """The verdict of a step alone, without loading."""
    assert memory.step is not None
    if memory.step[0] > gpu:
        return "no"
    return "may" if memory.step[1] >= gpu else "fits"


def _load(estimated: Estimate, load: Range, gpu: float) -> AllocationError:
    engine = estimated.engine
    verb = "does not fit" if load[0] > gpu else "may not fit"
    return AllocationError(
        "AC703",
        f"loading {engine.name} {verb}: every GPU holds the whole model first, {shown(load)} of "
        f"{gpu:g} GiB",
        path=engine.section.view.at("fsdp.memory_efficient_load"),
        hint=f"write {_override(estimated, 'fsdp.memory_efficient_load', True)}",
    )


def _tokens(facts: ResolvedExperiment, estimated: Estimate) -> Iterator[AllocationError]:
    """AC705: the size of a micro-batch is not known, or is too small for one sequence."""
    view, tokens = estimated.engine.section.view, estimated.keys.keys("mb_spec.max_tokens_per_mb")
    path, needed = view.at("mb_spec.max_tokens_per_mb"), needed_tokens(facts)
    figure = needed or 10240
    if tokens is None:
        yield AllocationError(
            "AC705",
            f"{path} is not set: activations of {estimated.engine.name} are not counted",
            path=path,
            hint=f"write {_override(estimated, 'mb_spec.max_tokens_per_mb', figure)}",
        )
    elif needed is not None and type(tokens) is int and tokens < needed:
        yield AllocationError(
            "AC705",
            f"{path} is {tokens:,}, and a sequence may have {needed:,} tokens",
            text=str(tokens),
            path=path,
            hint=f"write {path}={needed}",
        )


def _checkpointing(
    estimated: Estimate, memory: TrainingMemory, gpu: float
) -> Iterator[AllocationError]:
    """AC706: gradient checkpointing is off, and decides."""
    engine = estimated.engine
    if estimated.keys.keys("gradient_checkpointing") is True:
        return
    better = _changed(estimated, gpu, {"gradient_checkpointing": True})
    if better is None or memory.step is None or better[1] >= memory.step[1]:
        return
    if better[1] < gpu or better[0] <= gpu < memory.step[0]:
        path = engine.section.view.at("gradient_checkpointing")
        yield AllocationError(
            "AC706",
            f"{path} is off: with it a step of {engine.name} needs {shown(better)} GiB instead of "
            f"{shown(memory.step)}",
            path=path,
            hint=f"write {_override(estimated, 'gradient_checkpointing', True)}",
        )


def _unsharded(estimated: Estimate, memory: TrainingMemory) -> Iterator[AllocationError]:
    """AC707: under a pipeline Archon keeps parameters gathered and gradients unsharded."""
    engine, allocation = estimated.engine, estimated.engine.allocation
    if allocation is None or allocation.backend != "archon":
        return
    if allocation.parallel.pipeline_parallel_size > 1:
        gathered = (memory.parts or {}).get("gathered", 0.0)
        yield AllocationError(
            "AC707",
            f"with p over 1 Archon keeps parameters gathered and gradients unsharded: "
            f"{gathered:.0f} GiB of {engine.name}",
            text=engine.text,
            path=engine.path,
            hint="take p1 and a larger d or t, or megatron",
        )


# -- servers ---------------------------------------------------------------------------------------


def _of_server(
    facts: ResolvedExperiment, estimated: Estimate, memory: ServingMemory, gpu: float
) -> Iterator[AllocationError]:
    engine, cache = estimated.engine, memory.cache
    if cache is None:
        return
    if cache.room[1] <= 0:
        yield _server_error(estimated, "AC701", "weights of {name} leave no room for a cache", gpu)
    elif memory.verdict == "no":
        yield _server_error(
            estimated, "AC704", "one full-length request of {name} does not fit the cache", gpu
        )
    elif memory.verdict == "may":
        yield _server_error(
            estimated, "AC702", "{name} may have no room for one full-length request", gpu
        )
    yield from _rollouts(facts, estimated, memory, engine.allocation)


def _server_error(estimated: Estimate, code: str, message: str, gpu: float) -> AllocationError:
    engine, memory = estimated.engine, estimated.memory
    assert isinstance(memory, ServingMemory)
    assert memory.cache is not None
    room = memory.cache.room
    return AllocationError(
        code,
        f"{message.format(name=engine.name)}: {memory.weights:.0f} GiB of weights, "
        f"{room[0]:.0f} to {room[1]:.0f} GiB left of {gpu:g}",
        text=engine.text,
        path=engine.path,
        hint=_server_cures(estimated, gpu),
    )


def _rollouts(
    facts: ResolvedExperiment,
    estimated: Estimate,
    memory: ServingMemory,
    allocation: ModelAllocation | None,
) -> Iterator[AllocationError]:
    """AC709: far more rollouts at once than requests fit."""
    asked = facts.experiment.value("rollout.max_concurrent_rollouts")
    if estimated.engine.name != "rollout" or type(asked) is not int or memory.cache is None:
        return
    length = needed_tokens(facts)
    servers = allocation.instances if allocation else None
    if length is None or not servers:
        return
    most = int(memory.cache.tokens[1] / length) * servers
    if 0 < most * _FAR_ABOVE < asked:
        path = estimated.engine.section.view.at("max_concurrent_rollouts")
        yield AllocationError(
            "AC709",
            f"{path} is {asked:,}, and the caches of {counted(servers, 'server')} hold about "
            f"{counted(most, 'sequence')} of {length:,} tokens",
            text=str(asked),
            path=path,
            hint=f"write {path}={most}",
        )


def _server_cures(estimated: Estimate, gpu: float) -> str:
    """Layouts with room, and the key that gives the cache more."""
    engine = estimated.engine
    cures = [f"{engine.path}={spec}" for spec, _ in _layouts_that_fit(estimated, gpu)]
    if engine.allocation is not None and engine.allocation.backend == "sglang":
        key, length = "sglang.mem_fraction_static", "sglang.context_length"
    else:
        key, length = "vllm.gpu_memory_utilization", "vllm.max_model_len"
    fraction = estimated.keys.keys(key.partition(".")[2])
    if isinstance(fraction, (int, float)) and fraction < 0.9:
        cures.append(f"{key}=0.9")
    return f"write {' or '.join(cures)}" if cures else f"take a larger t, or a smaller {length}"


# -- what to change --------------------------------------------------------------------------------


def _with(estimated: Estimate, changes: Mapping[str, Any]) -> EngineKeys:
    """The engine's keys, with other values of some."""
    keys = estimated.keys.keys
    return replace(estimated.keys, keys=lambda key: changes[key] if key in changes else keys(key))


def _changed(estimated: Estimate, gpu: float, changes: Mapping[str, Any]) -> Range | None:
    """The range of a step with other values of some keys."""
    allocation, model = estimated.engine.allocation, estimated.facts
    if allocation is None or model is None:
        return None
    return _with(estimated, changes).memory(allocation, model, gpu).step


def _cures(estimated: Estimate, gpu: float, facts: ResolvedExperiment) -> str:
    """What lets a step fit, each with its new figure: another layout or key, else several."""
    path = estimated.engine.path
    cures = [
        f"{path}={spec} ({shown(step)} GiB)" for spec, step in _layouts_that_fit(estimated, gpu)
    ]
    changes: dict[str, Any] = {}
    for key, value in _candidates(estimated, facts):
        step = _changed(estimated, gpu, {key: value})
        if step is not None and step[1] < gpu:
            cures.append(f"{_overrides(estimated, {key: value})} ({shown(step)} GiB)")
        changes[key] = value
        together = _changed(estimated, gpu, changes)
        if not cures and together is not None and together[1] < gpu:
            cures.append(f"{_overrides(estimated, changes)} ({shown(together)} GiB)")
    if not cures:
        cures = [
            f"{_overrides(estimated, changes)} {path}={spec} ({shown(step)} GiB)"
            for spec, step in _layouts_that_fit(estimated, gpu, changes)
        ]
    if cures:
        return f"write {', or '.join(cures[:4])}"
    return "take more GPUs for this engine, or a smaller model"


def _overrides(estimated: Estimate, changes: Mapping[str, Any]) -> str:
    """`changes` as overrides that can be pasted."""
    return " ".join(_override(estimated, key, value) for key, value in changes.items())


def _override(estimated: Estimate, key: str, value: Any) -> str:
    """One key of the engine as an override; one that the config lacks is added."""
    text = str(value).lower() if isinstance(value, bool) else value
    path = estimated.engine.section.view.at(key)
    return f"{path}={text}" if estimated.keys.keys(key) is not None else f"++{path}={text}"


def _candidates(estimated: Estimate, facts: ResolvedExperiment) -> Iterator[tuple[str, Any]]:
    """Keys of a trainer that make a step smaller, with the value to give them."""
    keys, allocation = estimated.keys.keys, estimated.engine.allocation
    assert isinstance(estimated.memory, TrainingMemory)
    trains = (estimated.memory.parts or {}).get("gradients", 0.0) > 0
    backend = allocation.backend if allocation else ""
    if trains and keys("gradient_checkpointing") is not True:
        yield "gradient_checkpointing", True
    tokens, needed = keys("mb_spec.max_tokens_per_mb"), needed_tokens(facts)
    if type(tokens) is int and needed is not None and tokens > needed:
        yield "mb_spec.max_tokens_per_mb", needed
    if trains and keys("optimizer.type") != "adam_bf16" and backend != "archon":
        if backend == "fsdp" and estimated.keys.version >= V2_0:
            yield "optimizer_dtype", "bfloat16"
        yield "optimizer.type", "adam_bf16"


def _layouts_that_fit(
    estimated: Estimate, gpu: float, changes: Mapping[str, Any] = MappingProxyType({})
) -> list[tuple[str, Range]]:
    """The layouts of as many GPUs nearest to the engine's own that surely fit."""
    allocation, model = estimated.engine.allocation, estimated.facts
    if allocation is None or model is None:
        return []
    own, keys = allocation.parallel.sizes, _with(estimated, changes)
    found = []
    for other in _same_size(allocation.backend, allocation.world_size, model):
        memory = keys.memory(other, model, gpu)
        if memory.verdict == "fits" and memory.step is not None:
            away = sum(
                abs(math.log2(new / old))
                for new, old in zip(other.parallel.sizes, own, strict=True)
            )
            found.append((away, str(other), memory.step))
    return [(spec, step) for _, spec, step in sorted(found)[:_MOST_NAMED]]


@lru_cache(maxsize=64)
def _same_size(backend: str, world: int, model: Any) -> tuple[ModelAllocation, ...]:
    """Layouts of a backend on `world` GPUs that the model allows."""
    from areal_conf.search_space import layouts

    pattern = _PATTERNS[backend].format(world)
    try:
        return tuple(islice(layouts(pattern, model=model), _MOST_TRIED))
    except AllocationError:
        return ()


_PATTERNS: dict[str, str] = {
    "fsdp": "fsdp:d*t*c*@{}",
    "megatron": "megatron:d*t*p*c*e*@{}",
    "archon": "archon:d*t*p*c*e*@{}",
    "sglang": "sglang:d*t*p*@{}",
    "vllm": "vllm:d*t*p*@{}",
}
