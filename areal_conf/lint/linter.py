"""Finds what is wrong in YAML files, at the line and column where it stands.

A file is read twice: as nodes, which know their place, and by OmegaConf, which knows its meaning.
Each experiment in it is planned (composed by Hydra first, where it has a ``defaults`` list that can
be composed from the file's own directory), and every backend string of any depth is parsed. The
environment is never read: what depends on it, or on resolvers of the app, is no finding.
"""

from __future__ import annotations

import codecs
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from areal_conf.config.areal_defaults import INHERITS
from areal_conf.config.packages import experiment_packages
from areal_conf.errors import AllocationError, Finding, clip
from areal_conf.files import walk
from areal_conf.lint.nodes import (
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

MAX_BYTES = 16 * 2**20
"""Files over this size are not read."""

_MAX_NODES = 200_000
_ENVIRONMENT = re.compile(r"\$\{\s*(?:oc\.)?env\s*:")
_UNKNOWN = "${areal_conf_not_resolved}"
_HEADER = re.compile(r"\A(?:\s*#[^\n]*\n)*?\s*#\s*@package\s")
_SUFFIXES = (".yaml", ".yml")

_NEEDS_ALL = {"AC301", "AC308", "AC350", "AC352", "AC356"}
"""Codes that are only known where every engine is."""

_NEEDS_WHOLE = {*_NEEDS_ALL, "AC303", "AC357", "AC514"}
"""Codes that are only known where the whole config is, not a part of it."""

_NOT_SHOWN = {"AC316", "AC357"}
"""Codes that say nothing of a file: the scheduler is often named when the app is started, and
without a known cluster there is no budget to hold a plan to."""


def files_below(path: str | Path) -> Iterator[Path]:
    """The YAML files that `path` stands for: itself, or those that `walk` finds below it.

    Raises:
        OSError: there is no such file or directory.
    """
    top = Path(path)
    if not top.is_dir():
        top.stat()  # opened by who reads it, once: it may be a pipe
        yield top
        return
    for file in walk(top):
        if file.name.endswith(_SUFFIXES) and (file.is_file() or not file.exists()):
            yield file


def lint_file(path: str | Path, allow: Iterable[str] = ()) -> list[FileFinding]:
    """Everything wrong with the experiments of one YAML file, by position.

    Args:
        path: the file.
        allow: codes (AC3xx, AC4xx) of errors to count as warnings.

    Raises:
        OSError: the file is missing or cannot be read.
    """
    file = Path(path)
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES // 2**20} MiB"
        found = [(_not_yaml(message), Place())]
    else:
        try:
            found = _lint_text(_decoded(data), file, tuple(allow))
        except _BrokenError as broken:
            found = [(Finding("error", broken.error), broken.place)]
    out = [FileFinding(str(path), place, severity, error) for (severity, error), place in found]
    return sorted(out, key=lambda f: (f.place, f.severity, f.error.code))


Placed = list[tuple[Finding, Place]]


class _BrokenError(Exception):
    """The file, or a document of it, cannot be read any further."""

    def __init__(self, finding: Finding, place: Place) -> None:
        super().__init__(finding, place)
        self.error = finding.error
        self.place = place


def _not_yaml(message: str) -> Finding:
    hint = "mend the YAML at this place"
    return Finding("error", AllocationError("AC330", message, hint=hint))


def _decoded(data: bytes) -> str:
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        message = "the file is no text in UTF-8 or UTF-16"
        raise _BrokenError(_not_yaml(message), at_index(before, len(before))) from None


def _lint_text(text: str, file: Path, allow: tuple[str, ...]) -> Placed:
    found: Placed = []
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise _BrokenError(_yaml_finding(error), _yaml_place(error, text)) from None
    except RecursionError:
        raise _BrokenError(_not_yaml("the YAML is nested too deeply"), Place()) from None
    for node in documents:
        if isinstance(node, yaml.MappingNode):
            document = _Document(text, node, file, allow, alone=len(documents) == 1)
            try:
                found += document.lint()
            except _BrokenError as broken:
                found.append((Finding("error", broken.error), broken.place))
    return found


def _yaml_finding(error: Exception) -> Finding:
    # Never str(error): it quotes a line of the file, which may hold a secret.
    if isinstance(error, yaml.reader.ReaderError):
        return _not_yaml(f"not valid YAML: {clip(str(error.reason), 120)}")
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    why = ", ".join(str(part) for part in parts if part) or type(error).__name__
    return _not_yaml(f"not valid YAML: {clip(why, 200)}")


def _yaml_place(error: Exception, text: str) -> Place:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return Place(mark.line + 1, mark.column + 1, mark.line + 1, mark.column + 1)
    position = getattr(error, "position", None)
    return at_index(text, position) if isinstance(position, int) else Place()


# -- one document -------------------------------------------------------------------------------


class _Document:
    def __init__(
        self, text: str, node: Any, file: Path, allow: tuple[str, ...], *, alone: bool
    ) -> None:
        self.text = text
        self.node = node
        self.file = file
        self.allow = allow
        listed = isinstance(child(node, "defaults"), yaml.SequenceNode)
        self.composable = alone and listed and file.suffix == ".yaml"
        self.is_part = alone and bool(_HEADER.match(text))

    def lint(self) -> Placed:
        ours = self.mentions_engines()
        if not ours and not self.composable:
            return []
        self.check_size()
        placed = list(self.duplicates()) if ours else []
        findings = [] if placed else self.plan_findings(ours)
        placed += [(f, self.place(f.error)) for f in findings]
        seen = {(f.error.code, place) for f, place in placed}
        strings = ((f, self.place(f.error)) for f in self.string_findings())
        placed += [(f, place) for f, place in strings if (f.error.code, place) not in seen]
        return [(f, place) for f, place in placed if f.error.code not in _NOT_SHOWN]

    def mentions_engines(self) -> bool:
        """Whether the document says anything that is ours to check."""
        if is_set(child(self.node, "allocation_mode")) or child(self.node, "areal_plan"):
            return True
        return has_engine(self.node) or any(True for _ in specs(self.node))

    def check_size(self) -> None:
        """Refuse a document that aliases blow up: OmegaConf would copy every node."""
        todo, count = [self.node], 0
        while todo:
            node = todo.pop()
            count += 1
            if count > _MAX_NODES:
                message = f"more than {_MAX_NODES} values, aliases followed"
                raise _BrokenError(_not_yaml(message), self.start(self.node))
            if isinstance(node, yaml.MappingNode):
                todo += [value for _, value in node.value]
            elif isinstance(node, yaml.SequenceNode):
                todo += node.value

    def duplicates(self) -> Iterator[tuple[Finding, Place]]:
        """AC331: keys given twice, which Hydra refuses."""
        for path, node in mappings(self.node):
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                    continue
                if key.value in seen:
                    error = AllocationError(
                        "AC331",
                        f"the key {clip(key.value)!r} is given twice",
                        path=join(path, key.value),
                        hint="leave one of the two: Hydra refuses the file",
                    )
                    yield Finding("error", error), self.start(key)
                seen.add(key.value)

    # -- the plan ------------------------------------------------------------------------------

    def plan_findings(self, ours: bool) -> list[Finding]:
        """What the plans of the document's experiments find."""
        composed = self.composed() if self.composable else None
        if composed is None and not ours:
            return []
        cfg = self.plain() if composed is None else composed
        is_part = self.is_part or (composed is None and self.composable)
        data = _container(cfg)
        found: list[Finding] = []
        for root in experiment_packages(data):
            found += _known(_check(cfg, root, self.allow), data, bool(root) or is_part)
        return found

    def plain(self) -> Any:
        """The document as OmegaConf reads it."""
        from omegaconf import OmegaConf

        start, end = self.node.start_mark, self.node.end_mark
        source = " " * start.column + self.text[start.index : end.index]
        try:
            return _without_environment(OmegaConf.create(source))
        except yaml.YAMLError as error:
            at = _yaml_place(error, source)
            at = at._replace(line=at.line + start.line, end_line=at.end_line + start.line)
            raise _BrokenError(_yaml_finding(error), at) from None
        except Exception as error:  # a value or key that OmegaConf has no type for
            message = f"Hydra cannot read this file ({type(error).__name__})"
            raise _BrokenError(_not_yaml(message), self.start(self.node)) from None

    def composed(self) -> Any:
        """The config that Hydra composes from the file's directory; None where it cannot."""
        from areal_conf.config.compose import compose_file

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _without_environment(compose_file(self.file))
        except Exception:  # part of an app whose other configs are elsewhere
            return None

    def string_findings(self) -> Iterator[Finding]:
        """What is wrong with any string, of any depth, that begins as a backend string does."""
        from areal_conf.spec.allocation import ModelAllocation

        for path, value in specs(self.node):
            try:
                ModelAllocation.from_str(value)
            except AllocationError as error:
                yield from (Finding("error", one) for one in error.at(path).errors)

    # -- places --------------------------------------------------------------------------------

    def place(self, error: AllocationError) -> Place:
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

    def inside(self, node: Any, error: AllocationError) -> Place:
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


def _without_environment(cfg: Any) -> Any:
    """`cfg` with each value that reads the environment replaced by one that leads nowhere."""
    from omegaconf import OmegaConf

    def masked(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [masked(item) for item in value]
        return _UNKNOWN if isinstance(value, str) and _ENVIRONMENT.search(value) else value

    return OmegaConf.create(masked(_container(cfg)))


def _check(cfg: Any, root: str, allow: tuple[str, ...]) -> list[Finding]:
    from areal_conf import resolvers
    from areal_conf.planning.checks import check_only
    from areal_conf.planning.options import PlanOptions

    resolvers.register()
    try:
        return check_only(cfg, PlanOptions(root, allow=allow))
    except AllocationError as error:
        return [Finding("error", error)]


def _known(findings: list[Finding], data: dict[Any, Any], is_part: bool) -> list[Finding]:
    """`findings` without those that another config, or the environment, may put right."""
    gone = {e.path for _, e in findings if e.code == "AC309" and "${" in e.text}
    gone |= {e.path for _, e in findings if e.code == "AC301" and _is_promised(data, e.path)}
    dropped = _NEEDS_WHOLE if is_part else _NEEDS_ALL if gone else set()
    return [f for f in findings if f.error.code not in dropped and f.error.path not in gone]


def _is_promised(data: Any, path: str | None) -> bool:
    """Whether a backend, or the one it inherits, is ``???``: to be given when the app starts."""
    *parents, engine, _ = (path or "").split(".") if path and "." in path else ("", "")
    for part in parents:
        data = data.get(part) if isinstance(data, dict) else None
    sections = (data.get(name) for name in (engine, INHERITS.get(engine))) if data else ()
    return any(isinstance(s, dict) and s.get("backend") == "???" for s in sections)
