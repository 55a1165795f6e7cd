"""Everything that is checked of a whole experiment, in one pass and without pydantic.

`examine` is what `areal_conf.plan` builds on, `check_only` gives the findings alone, and
`first_error` is what the pruning of a sweep asks for thousands of times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from areal_conf.config.areal_defaults import INHERITS, LAUNCHERS
from areal_conf.config.experiment import EngineSection, Experiment, code_list, read_experiment
from areal_conf.config.overrides import with_plus
from areal_conf.config.packages import find_root
from areal_conf.config.redaction import Redactor
from areal_conf.config.versions import V1_0_3, Version, areal_version
from areal_conf.config.view import View
from areal_conf.errors import AllocationError, Diagnostic, can_be_allowed, clip, wrong_type
from areal_conf.legacy.allocation_mode import AllocationMode
from areal_conf.legacy.carry_over import FIELD, Carried, carry_over
from areal_conf.legacy.older import of_first_generation
from areal_conf.planning.options import PlanOptions
from areal_conf.planning.resolve import resolve
from areal_conf.planning.rules import (
    cluster,
    keys,
    launchers,
    models,
    scheduling_spec,
    trainer,
    versions,
    workers,
)
from areal_conf.planning.state import Mode, ResolvedExperiment, Rule

_STOPPING: tuple[Rule, ...] = (
    cluster.has_engines,
    cluster.known_scheduler,
    cluster.within_budget,
    cluster.spmd_exact,
    cluster.whole_nodes,
)
"""The rules that may find an error before anything is launched or exported."""

_OF_LAYOUTS: tuple[Rule, ...] = (
    cluster.straddling,
    cluster.batch_divides,
    cluster.worker_counts,
    cluster.spmd_pipeline,
)
"""The rules whose warnings are of a layout, so that another layout cures them."""

_DEFAULT = PlanOptions()


def check_only(cfg: Any, options: PlanOptions = _DEFAULT) -> list[Diagnostic]:
    """The errors and warnings of a plan, without the plan; exceptions are those of a plan."""
    return examine(cfg, options)[1]


def examine(cfg: Any, options: PlanOptions) -> tuple[ResolvedExperiment, list[Diagnostic]]:
    """The resolved experiment, and everything found, each thing once.

    What the config takes from the environment is in none of it (`areal_conf.config.redaction`), nor
    in the exceptions, which are those of `areal_conf.plan`.
    """
    hidden = Redactor(cfg)
    try:
        experiment = read_experiment(cfg, find_root(cfg, options.root))
        options = options.or_of(experiment)
        facts, refused = _gathered(experiment, options)
        findings = [*_found(facts, options.model), *refused, *_memory(facts, options)]
        found = _once([as_allowed(finding, facts.allowed) for finding in findings])
    except AllocationError as error:
        raise hidden.error(error) from None
    found = [_pasteable(one, cfg) for one in hidden.findings(found)]
    return facts, found


def _pasteable(one: Diagnostic, cfg: Any) -> Diagnostic:
    """The finding with a hint that Hydra takes when it is pasted behind the command."""
    hint = with_plus(one.hint, cfg)
    return one if hint == one.hint else replace(one, hint=hint)


def _memory(facts: ResolvedExperiment, options: PlanOptions) -> Iterator[Diagnostic]:
    """What the estimates of memory say, where a card is named; they are kept in `facts`."""
    if options.gpu is None:
        return
    from areal_conf.planning import memory, memory_advice

    experiment = facts.experiment
    try:
        facts.memory = memory.estimate(facts, options.model, options.gpu)
    except AllocationError as error:
        if error.code != "AC710" or options.gpu is not experiment.gpu:
            raise
        # A card that the config names and this machine cannot tell must not stop a job.
        yield Diagnostic.of("warning", error.at(f"{experiment.own_path}.gpu"))
        return
    yield from memory.unknown_settings(facts)
    yield from memory_advice.check(facts, facts.memory)


def first_error(
    experiment: Experiment, model: Any = None
) -> tuple[ResolvedExperiment, AllocationError | None]:
    """The experiment resolved, and the first error of its plan; only rules that stop are asked.

    `model` is that of `areal_conf.plan`, and so are the exceptions.
    """
    options = PlanOptions(model=model).or_of(experiment)
    model = options.model
    facts, refused = _gathered(experiment, options)
    stopping = (finding for rule in _STOPPING for finding in rule(facts))
    fits = models.check(facts, model) if model is not None else ()
    for one in chain(facts.findings, stopping, fits, refused):
        if one.severity == "error" and one.code not in facts.allowed:
            return facts, one.error()
    return facts, None


def layout_report(
    experiment: Experiment, options: PlanOptions
) -> tuple[ResolvedExperiment, list[AllocationError]]:
    """An experiment that may start, and what is odd about its layouts.

    `options` are those of `areal_conf.plan`, and so are the exceptions. Where they or the config
    name a card, the memory of every engine is estimated; what follows from it is not said.
    """
    options = options.or_of(experiment)
    facts, _ = _gathered(experiment, options)
    if options.gpu is not None:
        from areal_conf.planning import memory

        facts.memory = memory.estimate(facts, options.model, options.gpu)
    found = [finding for rule in _OF_LAYOUTS for finding in rule(facts)]
    if options.model is not None:
        found += models.check(facts, options.model)
    odd = [one.error() for one in found if one.severity == "warning" and one.code != "AC362"]
    return facts, odd


def _gathered(
    experiment: Experiment, options: PlanOptions
) -> tuple[ResolvedExperiment, list[Diagnostic]]:
    """The resolved experiment, and what is wrong with the codes that it allows."""
    launcher = options.launcher
    if launcher is not None and launcher not in LAUNCHERS:
        raise AllocationError(
            "AC309",
            f"unknown launcher {clip(str(launcher))!r}",
            text=clip(str(launcher)),
            hint="name local, ray or slurm",
        )
    version = areal_version(options.areal)
    named = _codes(options.allow)
    allowed, refused = _allowed(experiment.allow, f"{experiment.own_path}.allow")
    allowed |= named
    facts = _resolve(experiment, launcher, version)
    facts.strict, facts.allowed = options.strict, frozenset(allowed)
    return facts, refused


def _found(facts: ResolvedExperiment, model: Any) -> Iterator[Diagnostic]:
    """What is wrong with a resolved experiment, rule by rule."""
    yield from facts.findings
    for table in (cluster, scheduling_spec, trainer, workers, launchers, versions, keys):
        yield from table.check(facts)
    if model is not None:
        yield from models.check(facts, model)


def resolved(experiment: Experiment) -> ResolvedExperiment:
    """The experiment resolved, and no rule asked yet."""
    return _resolve(experiment, None, areal_version())


def _resolve(experiment: Experiment, launcher: str | None, areal: Version) -> ResolvedExperiment:
    spmd = launcher is not None or (bool(experiment.allocation_mode) and not experiment.scheduler)
    mode: Mode = "spmd" if spmd else "single_controller"
    if not experiment.allocation_mode:
        return resolve(experiment, launcher, mode, Carried(), areal)
    if not spmd and areal >= V1_0_3:
        return resolve(experiment, launcher, mode, _carried(experiment, False), areal)
    experiment, carried = _of_its_time(experiment)
    if areal < V1_0_3:  # not deprecated yet
        found = [finding for finding in carried.findings if finding.code != "AC512"]
        carried = replace(carried, findings=found, warning=None)
    return resolve(experiment, launcher, mode, carried, areal)


def _carried(experiment: Experiment, read: bool) -> Carried:
    """What the ``allocation_mode`` does to `experiment`; `read`: whether AReaL reads it."""
    sections = experiment.engines
    return carry_over(
        experiment.allocation_mode,
        {name: _unjudged(section.backend) for name, section in sections.items()},
        spmd=read,
        paths={name: section.backend_path for name, section in sections.items()},
        path=experiment.root.at(FIELD),
    )


def _of_its_time(experiment: Experiment) -> tuple[Experiment, Carried]:
    """An experiment whose ``allocation_mode`` is read, with the keys of older versions as they were
    meant: bare names as labels, and engines of the first generation that have no section."""
    experiment = _without_labels(experiment)
    carried = _carried(experiment, True)
    if experiment.first_generation:
        root = experiment.root
        unsaid = {
            name: EngineSection(name, View({}, root.at(name)), root.at(f"{name}.backend"), None)
            for name in carried.says
            if name not in experiment.engines
        }
        experiment = replace(experiment, engines={**experiment.engines, **unsaid})
        carried = of_first_generation(_carried(experiment, True))
    return experiment, carried


def _without_labels(experiment: Experiment) -> Experiment:
    """`experiment` without backends that only name what its ``allocation_mode`` gives in full.

    Up to 0.4.1 AReaL's files had ``backend: fsdp`` beside ``allocation_mode: sglang.d4+d4``.
    """
    try:
        says = AllocationMode.from_str(experiment.allocation_mode).engines()
    except AllocationError:
        return experiment
    engines = dict(experiment.engines)
    for name, section in engines.items():
        meant = says.get(name) or says.get(INHERITS.get(name, ""))
        if meant is not None and section.backend == meant.backend:
            engines[name] = replace(section, backend=None)
    return replace(experiment, engines=engines)


def _unjudged(backend: object) -> str | None:
    """A backend for the legacy reader; non-strings are validated in `resolve`."""
    return backend if isinstance(backend, str) or backend is None else repr(backend)


def _codes(allow: Any) -> set[str]:
    codes, refused = _allowed(code_list(allow))
    if refused:
        raise refused[0].error()
    return codes


def _allowed(codes: Iterable[Any], path: str | None = None) -> tuple[set[str], list[Diagnostic]]:
    """Codes that may be allowed, and what is wrong with the others."""
    good: set[str] = set()
    bad: list[Diagnostic] = []
    for code in codes:
        if not isinstance(code, str):
            error = wrong_type(code, "a code", hint="write AC306", path=path)
            bad.append(Diagnostic.of("error", error))
        elif can_be_allowed(code):
            good.add(code)
        else:
            error = AllocationError(
                "AC309",
                f"{clip(code)!r} cannot be allowed: only AC3xx and AC4xx of what was read can",
                text=clip(code),
                path=path,
                hint="write a code such as AC306",
            )
            bad.append(Diagnostic.of("error", error))
    return good, bad


def as_allowed(finding: Diagnostic, allowed: Collection[str]) -> Diagnostic:
    """`finding`, as a warning where it is an error whose code is allowed."""
    if finding.severity != "error" or finding.code not in allowed:
        return finding
    message = f"{finding.message} (allowed: {finding.code} counts as a warning)"
    return replace(finding, severity="warning", message=message)


def _once(findings: list[Diagnostic]) -> list[Diagnostic]:
    """Each finding once, whatever its severity and hint."""
    out: list[Diagnostic] = []
    seen = set()
    for one in findings:
        key = (one.code, one.path, one.message, one.text, one.span)
        if key not in seen:
            seen.add(key)
            out.append(one)
    return out
