"""What AReaL's trainer refuses at start, though every engine fits the cluster.

`RULES` is the table. Such a finding is a warning in a plan and an error where something is launched
or exported (``strict``): the keys it is about are often typed later, on the command line of the
run. A rule that came or went with a version of AReaL says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from areal_conf.config.areal_defaults import DIRECTORIES
from areal_conf.config.experiment import Experiment
from areal_conf.config.versions import AFTER_2_0, V1_0_3, V1_0_4
from areal_conf.config.view import View, is_unset
from areal_conf.errors import AllocationError, Diagnostic, clip, safe_repr
from areal_conf.planning.rules.findings import refused
from areal_conf.planning.state import Engine, ResolvedExperiment, Rule

_NAMES = {"experiment_name": "_/", "trial_name": "-/"}
"""Characters that AReaL's documentation of each name asks not to use (api/cli_args.py)."""

_READ_BY_LAUNCHERS = {
    "experiment_name": "experiment_name=mine",
    "trial_name": "trial_name=first",
    "cluster": "cluster.n_nodes=1",
    "recover": "recover.mode=disabled",
}
"""Keys that the SPMD launchers read, and what may be written for each."""

_SEEDS = {"sglang": "sglang.random_seed", "vllm": "vllm.seed"}
"""Where the seed of each kind of server stands; the SPMD launchers override it by name."""


def check(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """What every rule of the table finds; nothing where the engines are an app's own."""
    if not facts.experiment.own_engines:
        for rule in RULES:
            yield from rule(facts)


def _value(facts: ResolvedExperiment, dotted: str, default: Any = None) -> Any:
    return facts.experiment.value(dotted, default)


def _pair(facts: ResolvedExperiment) -> tuple[Engine, Engine] | None:
    """Actor and rollout, where the experiment has both: AReaL's RL trainer runs."""
    engines = facts.engines
    if "actor" in engines and "rollout" in engines:
        return engines["actor"], engines["rollout"]
    return None


def _backend(engine: Engine) -> str:
    return engine.allocation.backend if engine.allocation else ""


def _take_turns(facts: ResolvedExperiment) -> bool:
    """Whether a scheduling strategy joins actor and rollout (``_is_actor_rollout_colocated``)."""
    return any(
        _value(facts, f"{guest}.scheduling_strategy.type") == "colocation"
        and _value(facts, f"{guest}.scheduling_strategy.target") == host
        for guest, host in (("rollout", "actor"), ("actor", "rollout"))
    )


# -- what _validate_cfg of AReaL refuses (trainer/rl_trainer.py) ----------------------------------


def offload_enabled(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC310: engines that leave their GPUs to others in turn need ``enable_offload``.

    That is actor and rollout where one is colocated with the other, and every engine with
    ``offload: true``; awex (main) switches between actor and rollout itself
    (trainer/rl_trainer.py, ``_init_impl`` and ``_validate_cfg``, which came with 1.0.3).
    """
    if _pair(facts) is None or facts.areal < V1_0_3 or _value(facts, "enable_offload") is True:
        return
    by_awex = _is_awex(facts) and facts.areal >= AFTER_2_0
    why = "actor and rollout share GPUs" if _take_turns(facts) and not by_awex else None
    for name in ("critic", "ref", "teacher") if by_awex else ("actor", "critic", "ref", "teacher"):
        if why is None and _value(facts, f"{name}.offload") is True:
            why = f"{name}.offload is true"
    if why:
        path = facts.experiment.root.at("enable_offload")
        message = f"{why}, and enable_offload is not true"
        yield refused(facts, "AC310", message, path, f"write {path}=true")


def weight_update_mode(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC311: actor and rollout on the same GPUs hand weights over on disk (up to 2.0.0), or through
    awex (main); awex is no mode before (trainer/rl_trainer.py, ``_validate_cfg``)."""
    pair = _pair(facts)
    if pair is None:
        return
    path = pair[0].section.view.at("weight_update_mode")
    mode = _value(facts, "actor.weight_update_mode", "xccl")
    has_awex = facts.areal >= AFTER_2_0
    good = ("disk", "awex") if has_awex else ("disk",)
    if facts.areal >= V1_0_3 and _take_turns(facts) and mode not in good:
        message = f"actor and rollout share GPUs, and weight_update_mode is {clip(str(mode))}"
        hint = " or ".join(f"{path}={one}" for one in good)
        yield refused(facts, "AC311", message, path, f"write {hint}", clip(str(mode)))
    elif _is_awex(facts) and not has_awex:
        message = "weight_update_mode awex came after AReaL 2.0.0"
        hint = f"write {path}=disk, or install a newer AReaL"
        yield refused(facts, "AC311", message, path, hint, "awex")


def _is_awex(facts: ResolvedExperiment) -> bool:
    """Whether weights go through awex: the controller v2 never reads ``weight_update_mode``."""
    mode, version = _value(facts, "actor.weight_update_mode"), _value(facts, "actor._version", "v1")
    return bool(mode == "awex" and version == "v1")


def awex_backends(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC312: awex needs megatron and sglang (trainer/rl_trainer.py, ``_validate_cfg``; main)."""
    pair = _pair(facts)
    if pair is None or not _is_awex(facts):
        return
    for engine, needed in zip(pair, ("megatron", "sglang"), strict=True):
        if _backend(engine) not in ("", needed):
            message = f"weight_update_mode awex needs {needed} for {engine.name}"
            mode = pair[0].section.view.at("weight_update_mode")
            hint = f"write a {needed} backend, or {mode}=disk"
            yield refused(facts, "AC312", message, engine.path, hint, engine.text)


def megatron_lora(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC313: AReaL gives SGLang no LoRA adapter of Megatron (trainer/rl_trainer.py)."""
    pair = _pair(facts)
    if pair is None or _value(facts, "actor.use_lora") is not True:
        return
    if (_backend(pair[0]), _backend(pair[1])) == ("megatron", "sglang"):
        path = pair[0].section.view.at("use_lora")
        message = "LoRA on a megatron actor does not go with sglang rollout"
        hint = f"write {pair[1].path} with vllm, {pair[0].path} with fsdp, or {path}=false"
        yield refused(facts, "AC313", message, path, hint)


def routed_experts(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC314: only SGLang returns the experts it routed to (trainer/rl_trainer.py)."""
    pair = _pair(facts)
    if pair is None or _value(facts, "rollout.return_routed_experts") is not True:
        return
    if _backend(pair[1]) == "vllm":
        path = pair[1].section.view.at("return_routed_experts")
        hint = f"write {path}=false, or {pair[1].path} with sglang"
        yield refused(facts, "AC314", "vllm does not return routed experts", path, hint)


def controller_versions(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC315: both controllers are v1 or both v2 (trainer/rl_trainer.py, ``_validate_cfg``).

    Since the wheel of 1.0.4; the tag of that version does not refuse it.
    """
    pair = _pair(facts)
    if pair is None:
        return
    actor = _value(facts, "actor._version", "v1")
    rollout = _value(facts, "rollout._version", "v1")
    if actor != rollout:
        path = pair[0].section.view.at("_version")
        ours, other = (clip(v if isinstance(v, str) else safe_repr(v)) for v in (actor, rollout))
        shown = f"actor._version is {ours}, rollout._version {other}"
        hint = f"write {path}={other}, or the other way round"
        found = refused(facts, "AC315", shown, path, hint, ours)
        yield found if facts.areal >= V1_0_4 else replace(found, severity="warning")


# -- who starts the workers ---------------------------------------------------------------------


def scheduler_set(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC316: the single controller needs a scheduler (``_init_scheduler`` of every trainer).

    Most of AReaL's example files leave it null and expect it to be typed. A config without the
    section may be another app's, so that a plan says nothing then.
    """
    experiment = facts.experiment
    if facts.mode == "spmd" or experiment.scheduler is not None:
        return
    if facts.strict or experiment.has_scheduler:
        path = experiment.root.at("scheduler.type")
        message = "the single controller needs a scheduler, and scheduler.type is null"
        several = (experiment.n_nodes or 1) > 1
        kinds = "ray or slurm" if several else "local, ray or slurm"
        yield refused(facts, "AC316", message, path, f"write {path}={kinds}")


def controller_only(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC317: LoRA and agents that are served through a proxy need the single controller; the proxy
    does not go with scheduler ray up to 2.0.0 (trainer/rl_trainer.py, ``_init_rollout`` and
    ``_ensure_proxy_started``)."""
    if _pair(facts) is None:
        return
    root = facts.experiment.root
    spmd = facts.mode == "spmd"
    hint = f"start it by the single controller: {root.at('scheduler.type')}=local"
    if spmd and _value(facts, "actor.use_lora") is True:
        path = root.at("actor.use_lora")
        yield refused(facts, "AC317", "SPMD launchers have no LoRA", path, hint)
    if _value(facts, "rollout.agent.mode") != "online":
        return
    path = root.at("rollout.agent.mode")
    if spmd:
        message = "online agents need proxy workers, which SPMD launchers do not start"
        yield refused(facts, "AC317", message, path, hint, "online")
    elif facts.scheduler == "ray" and facts.areal < AFTER_2_0:
        message = "online agents need proxy workers, which scheduler ray lacks up to AReaL 2.0.0"
        hint = f"write {root.at('scheduler.type')}=local or slurm"
        yield refused(facts, "AC317", message, path, hint, "online")


def launcher_keys(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC319: keys that the SPMD launchers read or override, from a file without AReaL's defaults,
    and directories that are null.

    They compose the plain file, where a key that is not written is none, and start each server with
    its seed as an override (infra/launcher/local.py, ray.py, slurm.py; ``parse_cli_args`` of
    api/cli_args.py).
    """
    experiment = facts.experiment
    if facts.mode != "spmd" or not (facts.strict or facts.launcher):
        return
    needed = {**_READ_BY_LAUNCHERS, **{key: f"{key}={at}" for key, at in DIRECTORIES.items()}}
    missing = [key for key in _READ_BY_LAUNCHERS if not _is_set(experiment, key)]
    rollout = facts.engines.get("rollout")
    if rollout is not None and _backend(rollout) in _SEEDS:
        seed = _SEEDS[_backend(rollout)]
        needed[seed] = f"{seed}=1"
        missing += [seed] if not _written(experiment, seed.split(".")) else []
    missing += [
        key
        for key in DIRECTORIES
        if _written(experiment, key.split(".")) and not _is_set(experiment, key)
    ]
    if missing:
        path = experiment.root.at(missing[0])
        message = f"the SPMD launchers read {', '.join(missing)}, which the config does not set"
        hint = f"write {' '.join('++' + experiment.root.at(needed[key]) for key in missing)}"
        yield refused(facts, "AC319", message, path, hint)


def _is_set(experiment: Experiment, key: str) -> bool:
    try:
        return not is_unset(experiment.root.select(key))
    except AllocationError:
        return True  # it is there; where it leads is not ours to say


def _written(experiment: Experiment, keys: Sequence[str]) -> bool:
    view: View | None = experiment.root
    try:
        for key in keys[:-1]:
            view = view.section(key) if view else None
    except AllocationError:
        return True  # it is there; where it leads is not ours to say
    return view is not None and keys[-1] in view.keys()  # noqa: SIM118 - a View is no mapping


# -- names ----------------------------------------------------------------------------------------


def names_plain(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC360: names become parts of paths and job names (api/cli_args.py, experiment_name and
    trial_name). AReaL does not check them: always a warning."""
    root = facts.experiment.root
    for key, bad in _NAMES.items():
        name = _value(facts, key)
        found = [char for char in bad if isinstance(name, str) and char in name]
        if found:
            message = f"{key} holds {' and '.join(map(repr, found))}, which AReaL asks not to use"
            hint = f"write {root.at(key)} without {' and '.join(map(repr, bad))}"
            error = AllocationError("AC360", message, path=root.at(key), hint=hint, text=clip(name))
            yield Diagnostic.of("warning", error)


RULES: tuple[Rule, ...] = (
    offload_enabled,
    weight_update_mode,
    awex_backends,
    megatron_lora,
    routed_experts,
    controller_versions,
    scheduler_set,
    controller_only,
    launcher_keys,
    names_plain,
)
