"""What AReaL's SPMD launchers trip over, though the cluster has the GPUs.

`RULES` is the table. The rules of whole nodes (AC307), of the exact cluster (AC308) and of missing
keys (AC319) are in `areal_conf.planning.rules.cluster` and `areal_conf.planning.rules.trainer`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from areal_conf.config.areal_defaults import DIRECTORIES
from areal_conf.config.view import is_mapping, is_unset
from areal_conf.errors import AllocationError, Diagnostic, Severity, wrong_type
from areal_conf.planning.rules.findings import refused
from areal_conf.planning.state import NODE_GRANULAR, Engine, ResolvedExperiment, Rule

_STARTED = ("rollout", "actor")
_VALUES = {
    "experiment_name": "a name",
    "trial_name": "a name",
    **dict.fromkeys(DIRECTORIES, "a directory"),
    **dict.fromkeys(("cluster.name_resolve", "recover", "launcher"), "a section"),
}
"""What the launchers read besides engines, cluster and the servers' own section; what is unset is
AC319 where it matters."""

_IS: dict[str, Callable[[object], bool]] = {
    "a name": lambda value: isinstance(value, (str, int, float)),
    "a directory": lambda value: isinstance(value, str),
    "a section": is_mapping,
}
_VALUE_HINTS = {
    "a name": "write {}=mine",
    "a directory": "write {}=/tmp/areal",
    "a section": "write {}: {{}}, or leave it out",
}
_SPLITS = re.compile(r"[\s;&|<>()]")
_QUOTES = re.compile(r"['\"\\]")


def check(facts: ResolvedExperiment) -> list[Diagnostic]:
    """What every rule of the table finds; nothing where no launcher is named."""
    if facts.launcher is None or facts.experiment.own_engines:
        return []
    return [finding for rule in RULES for finding in rule(facts)]


def _servers(facts: ResolvedExperiment) -> Engine | None:
    """The rollout that the launcher starts servers for."""
    rollout = facts.engines.get("rollout")
    if rollout is None or not rollout.active or rollout.section.external:
        return None
    return rollout if rollout.allocation and rollout.serves else None


def engines_started(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC318: the launchers start one set of servers and one trainer, and need an ``actor`` section
    (infra/utils/launcher.py, ``validate_config_for_launcher``); critic, ref and a training teacher
    run in the trainer's ranks."""
    root, who = facts.experiment.root, f"the {facts.launcher} launcher"
    if facts.engines and "actor" not in facts.engines:
        path = root.at("actor")
        yield refused(facts, "AC318", f"{who} needs an actor", path, f"write {path}.backend")
    for engine in facts.active():
        if engine.name not in _STARTED and engine.colocated_with is None:
            message = f"{who} starts rollout and actor alone, not {engine.name}"
            hint = f"use the single controller: {root.at('scheduler.type')}=slurm"
            yield refused(facts, "AC318", message, engine.path, hint, engine.text)


def shared_gpus(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC318: ray and slurm give servers and trainer nodes of their own (infra/launcher/ray.py,
    slurm.py: the trainer gets ``n_nodes`` less those of the servers)."""
    rollout, actor = _servers(facts), facts.engines.get("actor")
    if rollout is None or actor is None or facts.launcher not in NODE_GRANULAR:
        return
    if rollout.colocated_with == "actor" or actor.colocated_with == "rollout":
        who = f"the {facts.launcher} launcher"
        message = f"{who} cannot put rollout and actor on the same GPUs"
        path = facts.experiment.root.at("allocation_mode")
        hint = "write + for |, or use the single controller"
        yield refused(facts, "AC318", message, path, hint)


def cluster_known(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC319: ray and slurm deal out ``n_nodes`` x ``n_gpus_per_node``, which are 32 x 8 where the
    config does not say (api/cli_args.py, ``ClusterSpecConfig``)."""
    experiment = facts.experiment
    if facts.launcher not in NODE_GRANULAR or experiment.cluster_gpus is not None:
        return
    path = facts.cluster_path
    message = f"the {facts.launcher} launcher deals out the cluster, whose size is not known"
    hint = f"write {path}.n_nodes and {path}.n_gpus_per_node"
    yield refused(facts, "AC319", message, path, hint)


def devices_left_alone(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC318: slurm sets the visible devices itself, and refuses them among the variables of a spec
    (infra/launcher/slurm.py, ``submit_array``)."""
    for engine, variables in _slurm_variables(facts):
        if "CUDA_VISIBLE_DEVICES" in variables:
            path = engine.section.view.at("scheduling_spec")
            message = "the slurm launcher sets CUDA_VISIBLE_DEVICES itself"
            hint = "take CUDA_VISIBLE_DEVICES out of env_vars"
            yield refused(facts, "AC318", message, path, hint)


def values_arrive_whole(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC318: variables of a spec that the ranks would get in part, or not at all.

    The slurm launcher writes them into a shell script without quotes, and where there is no
    container into ``srun --export=A=1,B=2``, which ends a value at a comma, quoted or not
    (infra/launcher/slurm.py, ``submit_array``). The values themselves may be secrets.
    """
    for engine, variables in _slurm_variables(facts):
        for name, value in variables.items():
            path = engine.section.view.at("scheduling_spec")
            if "," in value and not _in_containers(facts):
                message = f"srun --export ends the value of {name} at its comma"
                hint = f"export {name} by additional_bash_cmds of the actor's scheduling_spec"
            elif _SPLITS.search(value) and not _QUOTES.search(value):
                message = (
                    f"the launcher's shell would split the value of {name}, which has no quotes"
                )
                hint = f"write the value of {name} within single quotes that are part of it"
            else:
                continue
            yield refused(facts, "AC318", message, path, hint)


def _slurm_variables(facts: ResolvedExperiment) -> Iterator[tuple[Engine, dict[str, str]]]:
    """The ``env_vars`` that slurm gives to servers and ranks: those of each first spec."""
    for name in _STARTED if facts.launcher == "slurm" else ():
        engine = facts.engines.get(name)
        variables = _first_spec(engine, "env_vars") if engine else None
        if engine is None or not isinstance(variables, Mapping):
            continue
        try:
            texts = {str(key): str(variables[key]) for key in variables}
        except Exception:  # an interpolation that leads nowhere
            continue
        yield engine, texts


def _in_containers(facts: ResolvedExperiment) -> bool:
    """Whether slurm starts servers and ranks in containers; the actor's spec decides for both."""
    actor = facts.engines.get("actor")
    return actor is None or _first_spec(actor, "container_type") != "none"


def _first_spec(engine: Engine, key: str) -> Any:
    """A key of an engine's first ``scheduling_spec``; None where it cannot be read."""
    try:
        return engine.section.view.get("scheduling_spec")[0][key]
    except Exception:
        return None


def values_usable(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC309: the launchers merge sections into dataclasses, and join names and directories to paths
    (infra/launcher/{local,ray,slurm}.py, ``to_structured_cfg``; infra/utils/launcher.py)."""
    severity: Severity = "error" if facts.strict else "warning"
    root, servers = facts.experiment.root, _servers(facts)
    of_servers = {servers.allocation.backend: "a section"} if servers and servers.allocation else {}
    for key, expected in {**_VALUES, **of_servers}.items():
        try:
            value = root.select(key)
        except AllocationError as error:
            yield Diagnostic.of(severity, error)
            continue
        if not (is_unset(value) or _IS[expected](value)):
            hint = _VALUE_HINTS[expected].format(root.at(key))
            yield Diagnostic.of(severity, wrong_type(value, expected, path=root.at(key), hint=hint))


RULES: tuple[Rule, ...] = (
    values_usable,
    engines_started,
    shared_gpus,
    cluster_known,
    devices_left_alone,
    values_arrive_whole,
)
