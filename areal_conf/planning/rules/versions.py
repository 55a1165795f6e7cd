"""Keys and forms that another version of AReaL reads, and the one that is judged by does not.

`docs/reference/areal-versions.md` has the table. Always warnings: what is exported or launched is
written as that version reads it; ``areal-conf run`` hands the file over as it is, and refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator

from areal_conf.config.versions import MAIN, V0_5_1, V1_0_3
from areal_conf.errors import Diagnostic, clip
from areal_conf.legacy.carry_over import FIELD
from areal_conf.legacy.dialects import NEWEST
from areal_conf.planning.rules.findings import finding
from areal_conf.planning.state import ResolvedExperiment, Rule

_PAIR = 2
"""Components that AReaL's SPMD launchers can tell apart (api/alloc_mode.py, ``type_``)."""


def check(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """What every rule finds; nothing where the engines are an app's own."""
    if not facts.experiment.own_engines:
        for rule in RULES:
            yield from rule(facts)


def _unread(message: str, path: str, hint: str, text: str = "") -> Diagnostic:
    return finding("warning", "AC324", message, path, hint, text)


def _shown(facts: ResolvedExperiment) -> str:
    return "main" if facts.areal >= MAIN else ".".join(map(str, facts.areal))


def backends_of_their_own(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC324: before 1.0.3 the layout stands in ``allocation_mode`` alone
    (experimental/trainer/rl.py, trainer/rl_trainer.py: ``AllocationMode.from_str``)."""
    if facts.areal >= V1_0_3:
        return
    root = facts.experiment.root
    given = [e for e in facts.engines.values() if e.section.backend is not None and e.active]
    if given and not facts.experiment.allocation_mode:
        specs = {engine.role: str(engine.allocation) for engine in reversed(given)}
        mode = "+".join(specs[role] for role in ("inference", "training") if role in specs)
        message = f"AReaL {_shown(facts)} reads no backend of an engine, but {FIELD}"
        yield _unread(message, root.at(FIELD), f"write ++{root.at(FIELD)}={mode}")


def old_trainer(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC324: SFT and RW configs call the trainer's section ``model`` up to 0.5.1, ``actor`` from
    0.5.2 on (api/cli_args.py)."""
    actor = facts.engines.get("actor")
    root = facts.experiment.root
    if actor is None or actor.section.view.path != root.at("model") or not _starts(facts):
        return
    if facts.areal > V0_5_1:
        message = f"AReaL {_shown(facts)} calls the section of the trainer actor, not model"
        yield _unread(message, root.at("model"), f"rename it to {root.at('actor')}")


def _starts(facts: ResolvedExperiment) -> bool:
    """Whether it is known that this version of AReaL is to start the file."""
    return facts.strict or facts.launcher is not None


def mode_as_today(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC324: from 1.0.3 on the SPMD launchers read an ``allocation_mode`` of one or two components,
    each with its backend, and the trainer reads the engines' own (api/alloc_mode.py;
    trainer/rl_trainer.py)."""
    if facts.mode != "spmd" or facts.areal < V1_0_3 or not _starts(facts):
        return
    path, text = facts.experiment.root.at(FIELD), facts.experiment.allocation_mode
    mode = facts.carried.mode
    if mode is None:
        return
    who = f"AReaL {_shown(facts)}"
    if mode.dialect < NEWEST:
        today = "+".join(str(one) for one in mode.allocations)
        message = f"{who} reads {clip(text)} no longer: each component names its backend"
        yield _unread(message, path, f"write {path}={today}", clip(text))
    if len(mode.allocations) > _PAIR:
        message = f"the launchers of {who} tell no more than {_PAIR} components apart"
        hint = "use the single controller (scheduler.type=...), or write rollout and actor alone"
        yield _unread(message, path, hint, clip(text))
    unset = [n for n in facts.carried.filled if facts.engines[n].section.backend is None]
    if unset:
        lines = " ".join(f"++{facts.engines[n].path}={facts.carried.filled[n]}" for n in unset)
        message = f"the trainer of {who} reads the backend of {' and '.join(unset)}, which is unset"
        yield _unread(message, facts.engines[unset[0]].path, f"write {lines} beside {FIELD}")


def old_teacher(facts: ResolvedExperiment) -> Iterator[Diagnostic]:
    """AC324: the ``allocation_mode`` of a teacher was read by 1.0.2 alone (api/cli_args.py)."""
    teacher = facts.engines.get("teacher")
    if teacher is None or facts.areal < V1_0_3 or not teacher.path.endswith(f".{FIELD}"):
        return
    if _starts(facts):
        root, spec = facts.experiment.root, teacher.section.backend
        place = root.at("teacher")
        nested = f"++{place}.engine_type=train ++{place}.train.backend={spec}"
        hint = f"write {nested}, and delete {teacher.path}"
        message = f"AReaL {_shown(facts)} reads no {FIELD} of a teacher"
        yield _unread(message, teacher.path, hint, clip(str(spec)))


RULES: tuple[Rule, ...] = (backends_of_their_own, old_trainer, old_teacher, mode_as_today)
