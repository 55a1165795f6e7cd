"""From what a config says to what runs: backends read, inherited, their roles and colocation."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from areal_conf.config.areal_defaults import INHERITS
from areal_conf.config.experiment import EngineSection, Experiment
from areal_conf.config.versions import V1_0_4, Version
from areal_conf.errors import AllocationError, clip, wrong_type
from areal_conf.legacy.carry_over import Carried
from areal_conf.planning.colocation import check_colocation, colocate
from areal_conf.planning.state import Engine, Mode, ResolvedExperiment
from areal_conf.spec.allocation import ModelAllocation, looks_like_spec
from areal_conf.spec.backends import BACKENDS

_EXAMPLES = {"inference": ("sglang:d2t4", "vllm:d8"), "training": ("fsdp:d8", "megatron:d2p2t2")}


def resolve(
    experiment: Experiment,
    launcher: str | None,
    mode: Mode,
    carried: Carried,
    areal: Version = V1_0_4,
) -> ResolvedExperiment:
    """Judge every engine of `experiment`.

    Args:
        experiment: what the config says.
        launcher: the SPMD launcher that was named, if one was.
        mode: who starts the workers.
        carried: what a legacy ``allocation_mode`` does to the config.
        areal: the AReaL to judge by.
    """
    findings = [*experiment.findings, *carried.findings]
    state = ResolvedExperiment(experiment, mode, launcher, carried, findings=findings, areal=areal)
    for name, section in experiment.engines.items():
        if mode == "spmd" and section.external:  # the launchers start servers all the same
            section = replace(section, external=False)
        state.engines[name] = Engine(section)
    for engine in state.engines.values():
        _read_backend(state, engine)
    for engine in state.engines.values():
        if engine.active:
            _check_role(state, engine)
    for engine in state.engines.values():
        if engine.active:
            colocate(state, engine)
    for engine in state.engines.values():
        if engine.active and engine.colocated_with:
            check_colocation(state, engine)
    return state


# -- backends -----------------------------------------------------------------------------------


def _read_backend(state: ResolvedExperiment, engine: Engine) -> None:
    section = engine.section
    value = section.backend
    if value is None:
        value = state.carried.filled.get(engine.name)
    if value is None:
        _inherit(state, engine)
        return
    engine.text = value if isinstance(value, str) else ""
    error = _parse(engine, value)
    if error is not None and engine.active and not _is_echo(state, engine):
        state.error(error)


def _parse(engine: Engine, value: object) -> AllocationError | None:
    section = engine.section
    example = _EXAMPLES[section.role or "training"][0]
    if not isinstance(value, str):
        hint = f"write {engine.path}={example}"
        if type(value) is int:
            hint += "; in YAML put the string in quotes"
        return wrong_type(value, "a backend string", hint=hint, path=engine.path)
    try:
        engine.allocation = ModelAllocation.from_str(value)
        engine.world_size = engine.allocation.world_size
    except AllocationError as error:
        if section.raw and not looks_like_spec(value):
            return _masked(section, error)
        return error.at(engine.path)
    return None


def _masked(section: EngineSection, error: AllocationError) -> AllocationError:
    """The same error, with the interpolation instead of its (possibly secret) value."""
    return AllocationError(
        error.code,
        "the interpolation does not lead to a backend string",
        text=clip(section.raw or "", 200),
        path=section.backend_path,
        hint=f"let it lead to a string such as {_EXAMPLES[section.role or 'training'][0]}",
    )


def _is_echo(state: ResolvedExperiment, engine: Engine) -> bool:
    """Whether this engine interpolates a backend that is reported at its own place already."""
    if not engine.section.raw or not engine.text:
        return False
    return any(
        other is not engine and other.text == engine.text and other.allocation is None
        for other in state.engines.values()
        if not other.section.raw
    )


def _inherit(state: ResolvedExperiment, engine: Engine) -> None:
    parent = state.engines.get(INHERITS.get(engine.name, ""))
    filled = state.carried.filled
    if parent is not None:
        given = parent.section.backend is not None or parent.name in filled
        if given:
            engine.inherited_from = parent.name
            own = parent.section.backend
            value = filled.get(parent.name) if own is None else own
            if isinstance(value, str):
                engine.text = value
                _parse(engine, value)  # what is wrong with it is said at the parent's path
            return
    legacy = state.carried.says.get(engine.name)
    if engine.active and not engine.section.external and (parent is None or legacy):
        state.error(_no_backend(engine, _heirs(state, engine), legacy))


def _heirs(state: ResolvedExperiment, parent: Engine) -> list[str]:
    """The engines that would take the backend of `parent`."""
    unset = [e for e in state.engines.values() if e.active and e.section.backend is None]
    says = state.carried.says
    return [e.name for e in unset if INHERITS.get(e.name) == parent.name and e.name not in says]


def _no_backend(engine: Engine, heirs: list[str], legacy: str | None) -> AllocationError:
    first, second = _EXAMPLES[engine.section.role or "training"]
    if legacy:
        hint = f"write {engine.path}={legacy} (allocation_mode says so, but is ignored here)"
    else:
        hint = f"write {engine.path}={first} or {engine.path}={second}"
    if misspelt := _misspelt(engine):
        hint = f"did you mean {engine.path} by {misspelt}? Otherwise {hint}"
    if heirs:
        hint += f" ({' and '.join(heirs)} will take it too)"
    return AllocationError(
        "AC301", f"{engine.name} has no backend and inherits none", path=engine.path, hint=hint
    )


def _misspelt(engine: Engine) -> str | None:
    """The path of a key of the engine that looks like a slip for its backend; None: there is none.

    AReaL's sections take any key, so that nobody else says so.
    """
    view = engine.section.view
    try:
        keys = [key for key in view.keys() if key != "backend"]  # noqa: SIM118
    except AllocationError:
        return None
    near = get_close_matches("backend", keys, n=1, cutoff=0.8)
    return view.at(near[0]) if near else None


def _check_role(state: ResolvedExperiment, engine: Engine) -> None:
    needed, allocation = engine.section.role, engine.allocation
    if needed is None or allocation is None or allocation.role == needed:
        return
    parent = state.engines.get(engine.inherited_from or "")
    if parent is not None and parent.section.role == needed:
        return  # said at the parent's path
    start = engine.text.find(allocation.backend)
    rows = [row for row in BACKENDS.values() if row.role == needed]
    dims, sizes = str(allocation.parallel), allocation.parallel.sizes
    fixes = [f"{engine.path}={row.name}:{dims}" for row in rows if row.takes(sizes)]
    fixes = fixes or [f"{engine.path}={spec}" for spec in _EXAMPLES[needed]]
    state.error(
        AllocationError(
            "AC302",
            f"{allocation.backend} is for {allocation.role}; {engine.name} needs a backend "
            f"for {needed}: {', '.join(row.name for row in rows)}",
            text=engine.text,
            span=(start, start + len(allocation.backend)),
            path=engine.path,
            hint=f"write {' or '.join(fixes[:2])}",
        )
    )
