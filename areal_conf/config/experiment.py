"""Reads a composed config: which engines there are, and what it says of each.

A config is read key by key, and only the keys that a plan needs are resolved: other keys may hold
secrets of the environment or interpolations that lead nowhere. It may be a DictConfig, a plain
mapping or a dataclass.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from areal_conf.config.areal_defaults import DEFAULT_KL_CTL, ROLES, turns_ref_off
from areal_conf.config.tree import as_tree
from areal_conf.config.versions import areal_version
from areal_conf.config.view import View, is_mapping, is_unset, whole_number
from areal_conf.errors import AllocationError, Diagnostic, clip, wrong_type
from areal_conf.legacy.allocation_mode import AllocationMode
from areal_conf.spec.allocation import looks_like_spec
from areal_conf.spec.backends import Role

_CLUSTER = {"n_nodes": 1, "n_gpus_per_node": 0, "cpus_per_node": 1, "mem_per_node": 1}
"""Numbers of a cluster section, and the least each may be."""


_FIRST_GENERATION = {"n_nodes": 1, "n_gpus_per_node": 8}
"""Defaults of its size (realhf/api/cli_args.py, ``BaseExperimentConfig``)."""

_OWN_KEYS = ("engines", "cluster", "allow", "root", "model", "gpu", "areal", "app")
"""Keys of ``areal_plan``."""

_ENGINES_HINT = "write engines: {policy: {path: my_app.actor, role: training}}"
_CLUSTER_HINT = "write cluster: {n_nodes: 2, n_gpus_per_node: 8}"
_SCHEDULER_HINT = "write scheduler: {type: local}, or ray or slurm"


@dataclass(frozen=True, slots=True)
class EngineSection:
    """What a config says of one engine, not yet judged.

    Attributes:
        name: name of the engine.
        view: its section.
        backend_path: config path of its backend string.
        backend: the value there; None where unset.
        raw: the interpolation that gave the value; None where it stands there itself.
        role: the role its backend must have; None where either will do.
        inactive: why it does not run; None where it does.
        external: an external server does its work: no GPUs of this experiment.
    """

    name: str
    view: View
    backend_path: str
    backend: Any
    raw: str | None = None
    role: Role | None = None
    inactive: str | None = None
    external: bool = False


@dataclass(frozen=True)
class Experiment:
    """What a config says of the whole experiment.

    Attributes:
        root: the mapping that holds the engines.
        engines: by name, in the order AReaL creates them, then as written.
        allocation_mode: the legacy string; empty where unset.
        scheduler: ``scheduler.type``; None where unset.
        has_scheduler: whether there is a scheduler section at all.
        n_nodes: nodes of the cluster; None where not known.
        n_gpus_per_node: GPUs of a node; None where not known.
        cpus_per_node: CPU cores of a node; None where not known.
        mem_per_node: memory of a node in GB; None where not known.
        allow: what ``areal_plan.allow`` names, not yet judged.
        own_path: config path of ``areal_plan``.
        model: ``areal_plan.model``, not yet judged; None where unset.
        gpu: ``areal_plan.gpu``, not yet judged; None where unset.
        areal: ``areal_plan.areal``; None where unset.
        first_generation: its keys are those of AReaL's first generation (realhf).
        own_engines: the engines are an app's own (``areal_plan.engines``), not AReaL's trainer's.
        findings: what is wrong with what was read.
    """

    root: View
    engines: dict[str, EngineSection]
    allocation_mode: str = ""
    scheduler: str | None = None
    has_scheduler: bool = False
    n_nodes: int | None = None
    n_gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    mem_per_node: int | None = None
    allow: tuple[Any, ...] = ()
    own_path: str = "areal_plan"
    model: Any = None
    gpu: Any = None
    areal: str | None = None
    own_engines: bool = False
    first_generation: bool = False
    findings: list[Diagnostic] = field(default_factory=list)
    _values: dict[str, Any] = field(default_factory=dict)

    def value(self, dotted: str, default: Any = None) -> Any:
        """The value at `dotted` below `root`; `default` where it is unset or leads nowhere."""
        value = self._read(dotted)
        return default if value is None else value

    def _read(self, dotted: str) -> Any:
        """The value, or the `View` of the section, at `dotted`; None where there is none."""
        if dotted in self._values:
            return self._values[dotted]
        head, _, key = dotted.rpartition(".")
        view = self._read(head) if head else self.root
        value = None
        if isinstance(view, View):
            try:
                value = view.get(key)
            except AllocationError:
                value = None
            if is_mapping(value):
                value = View(value, view.at(key))
        self._values[dotted] = None if is_unset(value) else value
        return self._values[dotted]

    @property
    def cluster_gpus(self) -> int | None:
        """GPUs of the cluster; None where it is not known."""
        if self.n_nodes is None or not self.n_gpus_per_node:
            return None
        return self.n_nodes * self.n_gpus_per_node


def read_experiment(cfg: Any, root: str = "") -> Experiment:
    """Read `cfg`, or the part of it at the dotted path `root`.

    ``areal_plan`` may be in that part or, where it has none, at the root of the config.

    Raises:
        AllocationError: AC309 where there is no mapping to read. What is wrong further inside is
            collected in `Experiment.findings`.
    """
    if not is_mapping(cfg):
        raise wrong_type(cfg, "a config (mapping, DictConfig or dataclass)", hint="compose one")
    if not isinstance(root, str):
        hint = "write the dotted path of the package that holds the experiment, or leave it out"
        raise wrong_type(root, "text for root", hint=hint)
    whole = view = View(as_tree(cfg))
    for part in filter(None, root.split(".")):
        found = view.section(part)
        if found is None:
            raise AllocationError(
                "AC309",
                f"there is no section {clip(root)!r} in the config",
                path=root,
                hint="name a package that holds an experiment, or leave the name out",
            )
        view = found
    return _Reader(view, whole).read()


class _Reader:
    def __init__(self, view: View, whole: View) -> None:
        self.view = view
        self.whole = whole
        self.findings: list[Diagnostic] = []

    def read(self) -> Experiment:
        own = self.own(self.view)
        if own is None and self.view is not self.whole:
            own = self.own(self.whole)
        listed = self.section(own, "engines", _ENGINES_HINT) if own else None
        engines = dict(self.named_engines(listed) if listed else self.standard_engines())
        # An app with engines of its own, or with none, may call something else a scheduler.
        areals = bool(engines) and listed is None
        scheduler = self.section(self.view, "scheduler", _SCHEDULER_HINT, areals)
        kind = self.text(scheduler, "type") if scheduler else None
        self.unread_keys(own, _OWN_KEYS)
        return Experiment(
            root=self.view,
            engines=engines,
            allocation_mode=self.text(self.view, "allocation_mode") or "",
            scheduler=kind,
            has_scheduler=scheduler is not None,
            **self.cluster(own, areals),
            allow=self.codes(own),
            own_path=own.path if own else self.view.at("areal_plan"),
            model=self.option(own, "model"),
            gpu=self.option(own, "gpu"),
            areal=self.version(own),
            own_engines=listed is not None,
            first_generation=areals and self.first_generation(),
            findings=self.findings,
        )

    def own(self, view: View) -> View | None:
        return self.section(view, "areal_plan", "write areal_plan: {engines: ..., allow: ...}")

    def option(self, own: View | None, key: str) -> Any:
        """An option of ``areal_plan``, judged by who reads it; None where it is unset."""
        value = self.guard(lambda: own.get(key)) if own else None
        if is_mapping(value):
            mapping = View(value)
            return {key: mapping.get(key) for key in mapping.keys()}  # noqa: SIM118
        return None if is_unset(value) else value

    def version(self, own: View | None) -> str | None:
        """``areal_plan.areal``; a YAML number such as 1.0 is what it was written as."""
        value = self.option(own, "areal")
        if own is None or value is None:
            return None
        try:
            areal_version(str(value))
        except AllocationError as error:
            self.findings += Diagnostic.all_of("error", error.at(own.at("areal")))
            return None
        return str(value)

    def cluster(self, own: View | None, areals: bool) -> dict[str, Any]:
        """What there is to run on: each number from ``areal_plan.cluster``, else ``cluster``.

        `areals`: whether what is called ``cluster`` must be AReaL's.
        """
        named = self.section(own, "cluster", _CLUSTER_HINT) if own else None
        told = areals and named is None
        sections = [named, self.section(self.view, "cluster", _CLUSTER_HINT, told)]
        if areals and self.first_generation():  # its cluster section only caps the experiment
            sections = [named, self.view, View(_FIRST_GENERATION)]
        numbers: dict[str, int | None] = {}
        for key, least in _CLUSTER.items():
            found = (self.count(view, key, least) for view in sections if view)
            numbers[key] = next((number for number in found if number is not None), None)
        return numbers

    def first_generation(self) -> bool:
        """Whether the root itself says the size of the experiment, as in AReaL's first generation
        (realhf/api/cli_args.py, ``BaseExperimentConfig``), which had no rollout section."""
        keys = self.view.keys()  # a View is no mapping
        sized = "n_nodes" in keys or "n_gpus_per_node" in keys
        return sized and "rollout" not in keys and "allocation_mode" in keys

    # -- engines ---------------------------------------------------------------------------

    def standard_engines(self) -> Iterator[tuple[str, EngineSection]]:
        for name, role in ROLES.items():
            section = self.standard_section(name)
            if section is None and name == "actor":
                section = self.old_trainer()
            if section is None:
                continue
            engine = self.teacher(section) if name == "teacher" else None
            yield name, engine or self.engine(name, section, role)
        yield from self.other_engines()

    def old_trainer(self) -> View | None:
        """The trainer of SFT and RW configs up to AReaL 0.5.1: its section is called ``model``
        (api/cli_args.py, ``SFTConfig``), and an ``allocation_mode`` says its layout."""
        keys = self.view.keys()
        if "model" not in keys or "rollout" in keys or not self.text(self.view, "allocation_mode"):
            return None
        return self.guard(lambda: self.view.section("model"))  # type: ignore[no-any-return]

    def standard_section(self, name: str) -> View | None:
        return self.section(self.view, name, _backend_line(name), what="a section with a backend")

    def engine(self, name: str, section: View, role: Role | None) -> EngineSection:
        external = name == "rollout" and self.is_external(section)
        return EngineSection(
            name,
            section,
            section.at("backend"),
            self.backend(section),
            section.raw("backend"),
            role,
            inactive=self.ref_is_off() if name == "ref" else None,
            external=external,
        )

    def is_external(self, section: View) -> bool:
        """Whether a server of others is asked: only the controller v2 reads ``api_url``
        (v2/inference_service/controller/controller.py, ``external_mode``)."""
        url = self.guard(lambda: section.get("api_url"))
        return not is_unset(url) and self.guard(lambda: section.get("_version")) == "v2"

    def backend(self, section: View) -> Any:
        value = self.guard(lambda: section.get("backend"), failed="")
        return None if is_unset(value) else value

    def teacher(self, section: View) -> EngineSection | None:
        """AReaL's newer shape: the engine stands below ``teacher.rollout`` or ``teacher.train``."""
        if self.backend(section) is not None:
            return None
        kind = self.text(section, "engine_type")
        inner = {k: self.guard(lambda k=k: section.section(k)) for k in ("rollout", "train")}
        if kind is None and not any(inner.values()):
            return self.old_teacher(section)
        kind = kind or "rollout"
        if kind not in inner:
            error = AllocationError(
                "AC309",
                f"unknown engine type {clip(kind)!r}",
                text=clip(kind),
                path=section.at("engine_type"),
                hint="write rollout or train",
            )
            self.findings += Diagnostic.all_of("error", error)
            return None
        view = inner[kind] or View({}, section.at(kind))
        engine = self.engine("teacher", view, "inference" if kind == "rollout" else "training")
        return dataclasses.replace(engine, external=False)

    def old_teacher(self, section: View) -> EngineSection | None:
        """The teacher of AReaL 1.0.2, whose section has an ``allocation_mode`` of its own
        (api/cli_args.py, ``TeacherConfig``)."""
        text = self.text(section, "allocation_mode")
        if text is None:
            return None
        path = section.at("allocation_mode")
        try:
            specs = list(AllocationMode.from_str(text).spelled().values())
        except AllocationError as error:
            self.findings += Diagnostic.all_of("error", error.at(path))
            unread = "its allocation_mode cannot be read"
            return EngineSection("teacher", section, path, None, inactive=unread)
        raw = section.raw("allocation_mode")
        return EngineSection("teacher", section, path, specs[0], raw) if len(specs) == 1 else None

    def ref_is_off(self) -> str | None:
        """Why AReaL builds no ref engine here (trainer/rl_trainer.py); None where it does."""
        if self.guard(lambda: self.view.section("rollout")) is None:
            return None
        actor = self.guard(lambda: self.view.section("actor"))
        value = self.guard(lambda: actor.get("kl_ctl", DEFAULT_KL_CTL)) if actor else None
        return f"actor.kl_ctl is {clip(str(value))}" if turns_ref_off(value) else None

    def other_engines(self) -> Iterator[tuple[str, EngineSection]]:
        """Sections of other names whose backend begins as a backend string does."""
        for key in self.view.sections():
            if key in ROLES or key == "areal_plan":
                continue
            if self.view.raw(key) is not None:
                continue  # not ours to resolve: it may ask for this very plan (${areal.gpus:})
            try:
                section = self.view.section(key)
                value = section.get("backend") if section else None
            except AllocationError:
                continue
            if section and looks_like_spec(value):
                yield key, self.engine(key, section, None)

    def named_engines(self, listed: View) -> Iterator[tuple[str, EngineSection]]:
        """Engines under the paths that ``areal_plan.engines`` gives."""
        for key in listed.other_keys():
            error = wrong_type(
                key, "the name of an engine", path=listed.path, hint="write the name in quotes"
            )
            self.findings += Diagnostic.all_of("error", error)
        for name in listed.keys():  # noqa: SIM118
            entry = self.guard(lambda name=name: listed.section(name))
            path = self.text(entry, "path") if entry else None
            role = self.text(entry, "role") if entry else None
            if not path or role not in (None, "training", "inference"):
                error = AllocationError(
                    "AC309",
                    f"engine {clip(name)!r} needs a path, and a role of training or inference",
                    path=listed.at(name),
                    hint="write {path: my_app.actor, role: training}",
                )
                self.findings += Diagnostic.all_of("error", error)
                continue
            self.unread_keys(entry, ("path", "role", "settings"))
            if self.guard(lambda path=path: self.view.leads_nowhere(path)):
                self.findings += Diagnostic.all_of("error", self.nothing_at(path, listed.at(name)))
                continue
            yield from self.engine_at(name, path, role)  # type: ignore[arg-type]

    def nothing_at(self, path: str, entry: str) -> AllocationError:
        """AC309: an engine is said to be at `path`, where the config has nothing."""
        near = get_close_matches(path, self.view.keys(), n=1)
        return AllocationError(
            "AC309",
            f"the config has nothing at {clip(path)!r}",
            text=clip(path),
            path=f"{entry}.path",
            hint=f"did you mean {near[0]}?" if near else "write the dotted path of a section",
        )

    def engine_at(
        self, name: str, path: str, role: Role | None
    ) -> Iterator[tuple[str, EngineSection]]:
        value = self.guard(lambda: self.view.select(path))
        if is_mapping(value):
            yield name, self.engine(name, View(value, self.view.at(path)), role)
        elif not is_unset(value):
            section = View({}, self.view.at(path))
            yield name, EngineSection(name, section, section.path, value, None, role)

    # -- values ----------------------------------------------------------------------------

    def section(
        self, view: View, key: str, hint: str, told: bool = True, what: str = "a section"
    ) -> View | None:
        """The section under `key`; None where it is unset, and for another kind of value.

        That is a finding where `told`.
        """
        value = self.guard(lambda: view.get(key))
        if is_mapping(value):
            return View(value, view.at(key))
        if told and not is_unset(value):
            error = wrong_type(value, what, path=view.at(key), hint=hint)
            self.findings += Diagnostic.all_of("error", error)
        return None

    def unread_keys(self, view: View | None, known: Sequence[str]) -> None:
        """AC364: keys of a section of this package's own that mean nothing to it."""
        if view is None:
            return
        for key in view.keys():  # noqa: SIM118 - a View is no mapping
            if key not in known:
                near = get_close_matches(key, known, n=1)
                error = AllocationError(
                    "AC364",
                    f"unknown key {clip(key)!r} in {view.path} (ignored)",
                    path=view.at(key),
                    hint=f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}",
                )
                self.findings.append(Diagnostic.of("warning", error))

    def guard(self, read: Any, failed: Any = None) -> Any:
        """The value `read` gives; `failed`, and a finding, where it cannot be resolved."""
        try:
            return read()
        except AllocationError as error:
            if all(error.path != f.path for f in self.findings):
                self.findings += Diagnostic.all_of("error", error)
            return failed

    def text(self, view: View, key: str) -> str | None:
        value = self.guard(lambda: view.get(key))
        if is_unset(value):
            return None
        if not isinstance(value, str):
            error = wrong_type(value, f"text for {key}", path=view.at(key), hint="write it as text")
            self.findings += Diagnostic.all_of("error", error)
            return None
        return value

    def count(self, view: View, key: str, least: int) -> int | None:
        value = self.guard(lambda: view.get(key))
        if is_unset(value):
            return None
        if isinstance(value, str) and (number := whole_number(value)) is not None:
            value = number
        if type(value) is not int or not least <= value <= 2**24:
            error = wrong_type(
                value,
                f"a whole number from {least} for {key}",
                path=view.at(key),
                hint=f"write {key}: 8, or null where it is not known",
            )
            self.findings += Diagnostic.all_of("error", error)
            return None
        return value

    def codes(self, own: View | None) -> tuple[Any, ...]:
        value = self.guard(lambda: own.get("allow")) if own else None
        if own is None or value is None:
            return ()
        return tuple(self.guard(lambda: code_list(value, own.at("allow")), failed=()))


def code_list(value: Any, path: str | None = None) -> list[Any]:
    """Codes to be allowed: of a list, or the one that stands alone.

    Raises:
        AllocationError: AC309 for what is no list.
    """
    if isinstance(value, str):
        return [value]
    if not is_mapping(value):
        with contextlib.suppress(Exception):  # no list, or an interpolation that leads nowhere
            return list(value)
    hint = "write a list of codes, such as [AC306]"
    raise wrong_type(value, "a list of codes", path=path, hint=hint)


def _backend_line(name: str) -> str:
    spec = "sglang:d2t4" if ROLES.get(name) == "inference" else "fsdp:d8"
    return f"write {name}.backend={spec}"
