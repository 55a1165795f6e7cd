"""Which AReaL a config is for, and what each version reads, reserves and refuses.

The rules of `areal_conf.planning.rules` judge by these; one that came or went with a version names
a constant of this module. Commits and the fields of every section are in ``areal_fields.json``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import metadata
from typing import NamedTuple

from areal_conf.config.areal_fields import versions
from areal_conf.errors import AllocationError, clip, wrong_type

Version = tuple[int, ...]

V0_5_1: Version = (0, 5, 1)
"""The last whose SFT and RW configs call the trainer's section ``model``."""

V1_0_3: Version = (1, 0, 3)
"""The first whose engines have backends of their own, and whose trainers read them alone."""

V1_0_4: Version = (1, 0, 4)
"""The AReaL that is assumed where none is installed and none is named."""

V2_0: Version = (2, 0)
AFTER_2_0: Version = (2, 0, 1)
"""What AReaL's main branch has and the release 2.0.0 has not."""

MAIN: Version = (2**30,)

_NUMBERS = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})", re.ASCII)


def areal_version(named: str | None = None) -> Version:
    """The AReaL to judge by: the one named, else the installed one, else 1.0.4.

    A checkout of AReaL's main branch still calls itself 2.0.0, so that an installed 2.0.0 counts as
    main: what may well run is not refused.

    Args:
        named: a version such as ``"1.0.4"``, or ``"main"``.

    Raises:
        AllocationError: AC309 for anything else.
    """
    if named is None:
        return _installed()
    hint = "write a version such as 1.0.4, or main"
    if not isinstance(named, str):
        raise wrong_type(named, "a version of AReaL", hint=hint)
    if named == "main":
        return MAIN
    match = _NUMBERS.match(named)
    if match is None:
        message = f"{clip(named)!r} is no version of AReaL"
        raise AllocationError("AC309", message, text=clip(named), hint=hint)
    return tuple(map(int, match[1].split(".")))


@lru_cache(maxsize=1)
def _installed() -> Version:
    try:
        match = _NUMBERS.match(metadata.version("areal"))
    except metadata.PackageNotFoundError:
        return V1_0_4
    if match is None:
        return MAIN
    found = tuple(map(int, match[1].split(".")))
    return MAIN if found[:2] == V2_0 else found


# -- facts by version -----------------------------------------------------------------------------

_NEWEST = "main"


class Fact(NamedTuple):
    """One thing that holds from one version to another.

    Attributes:
        subject: what it is about.
        since: the first version it holds in.
        until: the last one.
        what: the fact.
        source: file of AReaL that shows it.
        codes: codes of this package that rest on it.
    """

    subject: str
    since: str
    until: str
    what: str
    source: str
    codes: tuple[str, ...] = ()


_MODE = "`allocation_mode`"

FACTS: tuple[Fact, ...] = (
    Fact(
        "generation",
        "0.3.0",
        "0.5.1",
        "realhf is part of it: `n_nodes` and `n_gpus_per_node` at the root are the "
        "experiment's size, "
        f"servers come from {_MODE}, Megatron alone trains",
        "realhf/api/cli_args.py",
    ),
    Fact(
        "layout",
        "0.3.0",
        "1.0.2",
        f"{_MODE}, read by launchers and trainers alike",
        "areal/trainer/rl_trainer.py (before 1.0.0: areal/experimental/trainer/rl.py)",
        ("AC324",),
    ),
    Fact(
        "layout",
        "1.0.3",
        _NEWEST,
        f"`backend` of each engine; the SPMD launchers read {_MODE} beside it, of one "
        "or two components "
        "that name their backends",
        "areal/api/alloc_mode.py, areal/infra/launcher/",
        ("AC324", "AC511", "AC513"),
    ),
    Fact(
        "engine backend",
        "0.3.0",
        "0.4.0",
        "`backend: fsdp` is a bare name",
        "areal/api/cli_args.py, TrainEngineConfig",
    ),
    Fact(
        "engine backend",
        "0.4.1",
        "1.0.2",
        "no such key",
        "areal/api/cli_args.py, TrainEngineConfig",
        ("AC324",),
    ),
    Fact(
        "SFT and RW",
        "0.3.0",
        "0.5.1",
        "the section of the trainer is called `model`",
        "areal/api/cli_args.py, SFTConfig",
        ("AC324",),
    ),
    Fact(
        "SFT and RW",
        "0.5.2",
        _NEWEST,
        "the section of the trainer is called `actor`",
        "areal/api/cli_args.py, SFTConfig",
        ("AC324",),
    ),
    Fact(
        "who starts workers",
        "0.3.0",
        "0.5.1",
        "SPMD launchers alone",
        "areal/launcher/",
        ("AC308", "AC318", "AC319"),
    ),
    Fact(
        "who starts workers",
        "0.5.2",
        _NEWEST,
        "SPMD launchers, or the single controller by `scheduler.type`",
        "areal/api/cli_args.py, SchedulerConfig",
        ("AC316",),
    ),
    Fact(
        "controller v2",
        "1.0.3",
        _NEWEST,
        "`_version: v2` of a trainer: its workers are called `actor-guard`, and so on; "
        "servers since 1.0.4",
        "areal/v2/training_service/controller/controller.py (to 1.0.4: areal/experimental)",
        ("AC303", "AC363"),
    ),
    Fact(
        "controller v2",
        "1.0.4",
        _NEWEST,
        "`_version: v2` of rollout: `scheduling_strategy` is not read, `api_url` is, a "
        "worker for each node "
        "of an instance; actor and rollout must agree",
        "areal/v2/inference_service/controller/controller.py (to 1.0.4: areal/experimental)",
        ("AC315", "AC364"),
    ),
    Fact(
        "teacher",
        "1.0.2",
        "1.0.2",
        f"its section has an {_MODE} of its own",
        "areal/api/cli_args.py, TeacherConfig",
        ("AC324",),
    ),
    Fact(
        "teacher",
        "1.0.3",
        "1.0.3",
        "its section has a `backend` (so has the tag of 1.0.4, not its wheel)",
        "areal/api/cli_args.py, TeacherConfig",
    ),
    Fact(
        "teacher",
        "1.0.4",
        _NEWEST,
        "the engine stands below `teacher.rollout` or `teacher.train`, by `engine_type`",
        "areal/api/cli_args.py, TeacherConfig",
        ("AC324",),
    ),
    Fact(
        "shared GPUs",
        "1.0.3",
        "2.0.0",
        "actor and rollout: `enable_offload`, and weights over `disk`",
        "areal/trainer/rl_trainer.py, _validate_cfg",
        ("AC310", "AC311"),
    ),
    Fact(
        "shared GPUs",
        _NEWEST,
        _NEWEST,
        "the same, or `awex`, which offloads by itself and reserves as the strategies say",
        "areal/trainer/rl_trainer.py, _is_v1_awex_colocate",
        ("AC310", "AC311", "AC312"),
    ),
    Fact(
        "scheduler local",
        "0.5.0",
        _NEWEST,
        "deals the GPUs of one node out round robin, past the last one too; needs "
        "`cmd` in an entry that is "
        "written; colocated engines have as many workers",
        "areal/infra/scheduler/local.py",
        ("AC306", "AC325", "AC354"),
    ),
    Fact(
        "scheduler slurm",
        "0.5.2",
        "2.0.0",
        "gives whole nodes to each engine; colocated engines have as many workers",
        "areal/infra/scheduler/slurm.py",
        ("AC307", "AC354"),
    ),
    Fact(
        "scheduler slurm",
        _NEWEST,
        _NEWEST,
        "gives whole nodes to each engine; a colocated engine of other counts is a job "
        "on the same nodes",
        "areal/infra/scheduler/slurm.py, create_workers",
        ("AC304", "AC307"),
    ),
    Fact(
        "scheduler ray",
        "0.5.2",
        "2.0.0",
        "a bundle for each worker: over a node only if `ray_placement_strategy` is "
        "`deferred` (from 1.0.2), no "
        "several GPUs to a worker that shares",
        "areal/infra/utils/ray_placement_group.py",
        ("AC307", "AC325", "AC354"),
    ),
    Fact(
        "scheduler ray",
        _NEWEST,
        _NEWEST,
        "a bundle for each node: rollout may span whole nodes, `ray_placement_strategy` and "
        "`additional_bash_cmds` are not read; colocated engines may differ in workers "
        "of equal GPUs",
        "areal/infra/scheduler/ray.py",
        ("AC325", "AC354"),
    ),
    Fact(
        "GPUs granted",
        "0.5.2",
        _NEWEST,
        "`scheduling_spec[0].gpu` for each rank, 0 by default; servers get t * p where "
        "it is over 0",
        "areal/infra/controller/",
        ("AC359",),
    ),
    Fact(
        "delta weight updates",
        _NEWEST,
        _NEWEST,
        "`actor.enable_delta_weight_update`: megatron, sglang, controllers v2, awex, one minibatch",
        "areal/utils/dte.py",
        ("AC311",),
    ),
)


def facts_of(version: str) -> list[Fact]:
    """The facts that hold in `version`, a name of `areal_conf.config.areal_fields.versions`."""
    names = versions()
    rank = names.index(version)
    return [f for f in FACTS if names.index(f.since) <= rank <= names.index(f.until)]
