"""Finds what is wrong in YAML files, at the line and column where it stands.

A file is read twice: as nodes, which know their place, and by OmegaConf, which knows its meaning.
Each experiment in it is planned as ``areal-conf plan`` does (composed by Hydra first, where it has
a ``defaults`` list), and every backend string of any depth is parsed. The environment is never
read, and no code that a file names is imported: what depends on them, or on resolvers of the app,
is no finding. A config that cannot be composed here is said to be not composed.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from areal_conf.config.areal_defaults import INHERITS, ROLES
from areal_conf.config.compose import compose_file, compose_named, named_app
from areal_conf.config.packages import experiment_packages
from areal_conf.documents import yaml_text
from areal_conf.documents.isolation import environment_hidden, foreign_source
from areal_conf.documents.roots import ConfigPlace, config_place
from areal_conf.documents.yaml_text import BadYamlError
from areal_conf.errors import AllocationError, Diagnostic, clip
from areal_conf.files import MAX_BYTES, TooLargeError, read_limited, walk
from areal_conf.lint.nodes import (
    TEXT,
    FileFinding,
    Place,
    at_index,
    child,
    has_engine,
    is_set,
    join,
    mappings,
    pair,
    specs,
)
from areal_conf.planning.options import PlanOptions

_SUFFIXES = (".yaml", ".yml")
_LARGE = 2**18
_WORDS = re.compile(
    rb"backend|allocation_mode|areal|defaults|(?:fsdp|megatron|archon|sglang|vllm)[\[:.]|\\[xuU]"
)
"""What a text that is ours to check says somewhere; escapes may say anything."""

_NEEDS_ALL = {"AC301", "AC308", "AC350", "AC352", "AC356"}
"""Codes that are only known where every engine is."""

_NEEDS_WHOLE = {*_NEEDS_ALL, "AC303", "AC357", "AC514"}
"""Codes that are only known where the whole config is, not a part of it."""

_NOT_SHOWN = {"AC316", "AC357"}
"""Codes that say nothing of a file: the scheduler is often named when the app is started, and
without a known cluster there is no budget to hold a plan to."""

NOT_COMPOSED = "AC320"
"""The code of a config that could not be composed here."""

_LOOKED_AT = 500
"""Files around a config that are searched for a word of ours."""

_OF_THE_ENVIRONMENT = ("InterpolationResolutionError", "UnsupportedInterpolationType")
"""What OmegaConf raises where a value cannot be known without the environment, or the app."""

_DEFAULT = PlanOptions()


def files_below(
    path: str | Path, on_error: Callable[[OSError], object] | None = None
) -> Iterator[Path]:
    """The YAML files that `path` stands for: itself, or those that `walk` finds below it.

    `on_error` takes the error of a folder that cannot be listed.

    Raises:
        OSError: there is no such file or directory.
    """
    top = Path(path)
    if not top.is_dir():
        top.stat()  # opened by who reads it, once: it may be a pipe
        yield top
        return
    for file in walk(top, on_error):
        if file.name.endswith(_SUFFIXES) and (file.is_file() or not file.exists()):
            yield file


def lint_file(
    path: str | Path, allow: Iterable[str] = (), options: PlanOptions = _DEFAULT
) -> list[FileFinding]:
    """Everything wrong with the experiments of one YAML file, by position.

    Args:
        path: the file.
        allow: codes of errors that count as warnings.
        options: what its plans are held to; with a `root`, only that package is planned.

    Raises:
        OSError: it cannot be read.
    """
    file = Path(path)
    options = replace(options, allow=(*options.allow, *allow))
    try:
        data = read_limited(file, MAX_BYTES)
        found = [] if _says_nothing(data) else _lint_text(_decoded(data), file, options)
    except TooLargeError:
        message = f"the file is larger than {MAX_BYTES // 2**20} MiB"
        found = [(_not_yaml(message), Place())]
    except _BrokenError as broken:
        found = [(Diagnostic.of("error", broken.error), broken.place)]
    out = [FileFinding(str(path), place, one.severity, one.error()) for one, place in found]
    return sorted(out, key=lambda f: (f.place, f.severity, f.error.code))


def _says_nothing(data: bytes) -> bool:
    """Whether a large file holds no word of ours, so that it need not be parsed."""
    return len(data) > _LARGE and b"\0" not in data[:4] and not _WORDS.search(data)


Placed = list[tuple[Diagnostic, Place]]


class _BrokenError(Exception):
    """The file, or a document of it, cannot be read any further."""

    def __init__(self, finding: Diagnostic, place: Place) -> None:
        super().__init__(finding, place)
        self.error = finding.error()
        self.place = place


def _not_yaml(message: str) -> Diagnostic:
    hint = "fix the YAML here"
    return Diagnostic.of("error", AllocationError("AC330", message, hint=hint))


def _broken(fault: BadYamlError, line: int = 0) -> _BrokenError:
    """The error of a fault, whose text begins `line` lines below the top of the file."""
    at = fault.line + line
    return _BrokenError(_not_yaml(fault.message), Place(at, fault.column, at, fault.column))


def _decoded(data: bytes) -> str:
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        message = "the file is no text in UTF-8 or UTF-16"
        raise _BrokenError(_not_yaml(message), at_index(before, len(before))) from None


def _lint_text(text: str, file: Path, options: PlanOptions) -> Placed:
    found: Placed = []
    try:
        documents = yaml_text.compose_nodes(text)
    except BadYamlError as fault:
        raise _broken(fault) from None
    for node in documents:
        if isinstance(node, yaml.MappingNode):
            document = _Document(text, node, file, options, alone=len(documents) == 1)
            try:
                found += document.lint()
            except _BrokenError as broken:
                found.append((Diagnostic.of("error", broken.error), broken.place))
    return found


# -- one document -------------------------------------------------------------------------------


class _NotComposedError(Exception):
    """A config cannot be composed here; the arguments say why, and what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)


class _Document:
    def __init__(
        self, text: str, node: Any, file: Path, options: PlanOptions, *, alone: bool
    ) -> None:
        self.text = text
        self.node = node
        self.file = file
        self.options = options
        self.has_defaults = alone and isinstance(child(node, "defaults"), yaml.SequenceNode)
        self.place_of_file = config_place(file, text) if alone else ConfigPlace()

    def lint(self) -> Placed:
        ours = self.mentions_engines()
        if not ours and not self.has_defaults:
            return []
        try:
            yaml_text.refuse_bomb(self.node)
        except BadYamlError as fault:
            if not ours:
                return []
            raise _BrokenError(_not_yaml(fault.message), self.start(self.node)) from None
        placed = list(self.duplicates()) if ours else []
        if not placed:
            findings = self.plan_findings(ours)
            placed += [(f, self.place(f)) for f in findings]
        seen = {(f.code, place) for f, place in placed}
        strings = ((f, self.place(f)) for f in self.string_findings())
        placed += [(f, place) for f, place in strings if (f.code, place) not in seen]
        return [(f, place) for f, place in placed if f.code not in _NOT_SHOWN]

    def mentions_engines(self) -> bool:
        """Whether the document says anything that is ours to check."""
        if is_set(child(self.node, "allocation_mode")) or child(self.node, "areal_plan"):
            return True
        return has_engine(self.node) or any(True for _ in specs(self.node))

    def duplicates(self) -> Iterator[tuple[Diagnostic, Place]]:
        """AC331: keys given twice, which Hydra refuses: texts, not numbers."""
        for path, node in mappings(self.node):
            seen: set[str] = set()
            for key, _ in node.value:
                if key.tag != TEXT or not isinstance(key, yaml.ScalarNode):
                    continue
                if key.value in seen:
                    error = AllocationError(
                        "AC331",
                        f"the key {clip(key.value)!r} is given twice",
                        path=join(path, key.value),
                        hint="leave one of the two: Hydra refuses the file",
                    )
                    yield Diagnostic.of("error", error), self.start(key)
                seen.add(key.value)

    # -- the plan ------------------------------------------------------------------------------

    def plan_findings(self, ours: bool) -> list[Diagnostic]:
        """What the plans of the document's experiments find."""
        with environment_hidden():
            found: list[Diagnostic] = []
            cfg = None
            if self.has_defaults:
                try:
                    cfg = self.composed()
                except _NotComposedError as reason:
                    if ours or self.is_among_ours():
                        found.append(_not_composed(*reason.args))
            if cfg is None and not ours:
                return found
            is_part = self.place_of_file.is_part or (cfg is None and self.has_defaults)
            cfg = self.plain() if cfg is None else cfg
            return found + self.planned(cfg, is_part)

    def planned(self, cfg: Any, is_part: bool) -> list[Diagnostic]:
        """What the plan of each experiment in `cfg` finds."""
        data = _container(cfg)
        if path := yaml_text.endless_interpolation(data):
            message = f"{clip(path, 120)} takes more than {yaml_text.MAX_STEPS} interpolations"
            at = pair(self.node, path.partition(".")[0])
            raise _BrokenError(_not_yaml(message), self.start(at[0] if at else self.node))
        named = self.options.root
        roots = [named] if named else list(experiment_packages(data))
        if not named and not roots and self.mentions_engines():
            roots = [""]
        out: list[Diagnostic] = []
        for root in roots:
            found = _check(cfg, replace(self.options, root=root))
            out += _known(found, data, is_part or _is_fragment(data, root))
        return out

    def plain(self) -> Any:
        """The document as OmegaConf reads it."""
        from omegaconf import OmegaConf

        start, end = self.node.start_mark, self.node.end_mark
        source = " " * start.column + self.text[start.index : end.index]
        try:
            return OmegaConf.create(yaml_text.loaded(source))
        except BadYamlError as fault:
            if fault.message.startswith("not valid YAML"):
                raise _broken(fault, start.line) from None
            raise _BrokenError(_not_yaml(fault.message), self.start(self.node)) from None
        except Exception as error:  # a value or key that OmegaConf has no type for
            message = f"Hydra cannot read this file ({type(error).__name__})"
            raise _BrokenError(_not_yaml(message), self.start(self.node)) from None

    def composed(self) -> Any:
        """The config that Hydra composes, as an option of its group where it is one.

        Raises:
            _NotComposedError: it cannot be composed here.
        """
        try:
            data = yaml_text.loaded(self.text)
        except BadYamlError as fault:
            raise _NotComposedError(fault.message, "fix the YAML") from None
        if named := foreign_source(data):
            reason = f"hydra.searchpath names {clip(named, 120)}, which is not imported here"
            raise _NotComposedError(reason, self.hint_to_plan())
        with warnings.catch_warnings(), environment_hidden() as asked:
            warnings.simplefilter("ignore")
            try:
                return self.composed_by_hydra()
            except AllocationError as error:
                reason = error.message.partition(" Config search path:")[0]
            except Exception as error:
                reason = type(error).__name__
        if asked:
            reason, hint = "it takes the environment, which is not read here", self.hint_to_plan()
        else:
            hint = "fix the key named above"
            if app := named_app(self.file):
                hint = f"check it with --app {clip(app, 120)}, which fills the app's ConfigStore"
            elif "Could not" in reason:
                hint += ", or name the module that fills the app's ConfigStore: --app MODULE"
        raise _NotComposedError(reason, hint)

    def composed_by_hydra(self) -> Any:
        root = self.place_of_file.root
        if root is not None and self.file.suffix == ".yaml":
            name = self.file.absolute().relative_to(root).as_posix()
            with contextlib.suppress(AllocationError):  # or it is one of its own, below others
                return compose_named(str(root), name)
        return compose_file(self.file)

    def hint_to_plan(self) -> str:
        return f"plan it: areal-conf plan {shlex.quote(str(self.file))}"

    def is_among_ours(self) -> bool:
        """Whether the defaults list, or a config of its folder, says a word of ours."""
        listed = child(self.node, "defaults")
        source = self.text[listed.start_mark.index : listed.end_mark.index]
        words = {name for name in ROLES if re.search(rf"\b{name}\b", source)}
        return "areal" in source or bool(words) or _folder_is_ours(self.file.absolute().parent)

    def string_findings(self) -> Iterator[Diagnostic]:
        """What is wrong with any string, of any depth, that begins as a backend string does."""
        from areal_conf.spec.allocation import ModelAllocation

        for path, value in specs(self.node):
            try:
                ModelAllocation.from_str(value)
            except AllocationError as error:
                yield from Diagnostic.all_of("error", error.at(path))

    # -- places --------------------------------------------------------------------------------

    def place(self, error: Diagnostic) -> Place:
        """Where `error` stands: its characters, its value, or the nearest section there is."""
        key, value, exact = self.find(error.path)
        if isinstance(value, yaml.ScalarNode) and exact:
            return self.inside(value, error)
        return self.start(key or value)

    def find(self, path: str | None) -> tuple[Any, Any, bool]:
        """Key and value at a config path, or of the nearest section above; whether it is there."""
        key, value = None, self.node
        for part in path.replace("[", ".[").split(".") if path else ():
            found = pair(value, part)
            if found is None:
                if value is self.node and (listed := pair(self.node, "defaults")):
                    return *listed, False
                return key, value, False
            key, value = found
        return key, value, True

    def start(self, node: Any) -> Place:
        """The first line of a node."""
        start, end = node.start_mark, node.end_mark
        if isinstance(node, yaml.ScalarNode) and start.line == end.line:
            return Place(start.line + 1, start.column + 1, end.line + 1, end.column + 1)
        return Place(start.line + 1, start.column + 1, start.line + 1, start.column + 1)

    def inside(self, node: Any, error: Diagnostic) -> Place:
        """The characters of a scalar that are at fault, where it stands as it reads."""
        source = self.text[node.start_mark.index : node.end_mark.index]
        at = source.find(error.text) if error.text else -1
        if at < 0 or "\n" in error.text:
            return self.start(node)
        first = at_index(self.text, node.start_mark.index + at + error.span[0])
        width = error.span[1] - error.span[0]
        return first._replace(end_column=first.column + width)


# -- configs ------------------------------------------------------------------------------------


def _container(cfg: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(cfg, resolve=False)


def _not_composed(reason: str, hint: str) -> Diagnostic:
    message = f"not composed, so checked only for what the file itself holds: {clip(reason, 500)}"
    return Diagnostic.of(
        "warning", AllocationError(NOT_COMPOSED, message, path="defaults", hint=hint)
    )


@lru_cache(maxsize=64)
def _folder_is_ours(folder: Path) -> bool:
    """Whether a config at or below a folder says a word of ours."""
    for file in islice(walk(folder), _LOOKED_AT):
        if file.suffix in _SUFFIXES and file.is_file():
            try:
                data = read_limited(file, _LARGE)
            except (OSError, TooLargeError):
                continue
            if re.search(rb"areal[_/]|allocation_mode|(?:fsdp|megatron|archon|sglang|vllm):", data):
                return True
    return False


def _check(cfg: Any, options: PlanOptions) -> list[Diagnostic]:
    from areal_conf import resolvers
    from areal_conf.planning.checks import check_only

    resolvers.register()
    try:
        return check_only(cfg, options)
    except AllocationError as error:
        return Diagnostic.all_of("error", error)


def _is_fragment(data: dict[Any, Any], root: str) -> bool:
    """Whether an experiment has no trainer, so that another config must give it."""
    section: Any = data
    for part in root.split(".") if root else ():
        section = section.get(part) if isinstance(section, dict) else None
    if not isinstance(section, dict):
        return False
    complete = ("actor", "allocation_mode", "areal_plan", "rollout", "teacher")
    return not any(key in section for key in complete)


def _known(findings: list[Diagnostic], data: dict[Any, Any], is_part: bool) -> list[Diagnostic]:
    """`findings` without those that another config, or the environment, may put right."""
    gone = {e.path for e in findings if _is_unknown(e, is_part)}
    gone |= {e.path for e in findings if e.code == "AC301" and _is_promised(data, e.path)}
    dropped = _NEEDS_WHOLE if is_part else _NEEDS_ALL if gone else set()
    return [f for f in findings if f.code not in dropped and f.path not in gone]


def _is_unknown(error: Diagnostic, is_part: bool) -> bool:
    """Whether an interpolation leads to what only the app, or its environment, has."""
    if error.code != "AC309" or "${" not in error.text:
        return False
    return is_part or any(name in error.message for name in _OF_THE_ENVIRONMENT)


def _is_promised(data: Any, path: str | None) -> bool:
    """Whether a backend, or the one it inherits, is ``???``: to be given when the app starts."""
    *parents, engine, _ = (path or "").split(".") if path and "." in path else ("", "")
    for part in parents:
        data = data.get(part) if isinstance(data, dict) else None
    sections = (data.get(name) for name in (engine, INHERITS.get(engine))) if data else ()
    return any(isinstance(s, dict) and s.get("backend") == "???" for s in sections)
