"""Reads YAML as Hydra does, in C, and refuses what would take all the memory or time there is.

Values are those of OmegaConf's own loader: which base of a merge wins, and which keys count as
given twice, is asked of what is installed.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from areal_conf.errors import clip

MAX_VALUES = 200_000
"""Values of one file, aliases and merges followed."""

MAX_STEPS = 100_000
"""Interpolations that one value may resolve to be known."""

_SMALL = 2**13
_LARGE = 2**20

MANY = f"more than {MAX_VALUES} values"
"""How the refusal of too many values begins."""
_TOKEN = re.compile(r"\$\{\s*(\.*)([\w.\[\]-]*)|([\w.\[\]-]+)")


class BadYamlError(Exception):
    """A text is no YAML that Hydra can read.

    Attributes:
        message: why; never a line of the text, which may hold a secret.
        line, column: where, from 1.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message, line, column)
        self.message = message
        self.line = line
        self.column = column


def loader(text: str = "") -> Any:
    """OmegaConf's loader of YAML; for larger texts on the parser in C, where PyYAML has it.

    Of a small text the parser in Python says more exactly where a fault is.
    """
    return _in_c() if len(text) > _SMALL else _in_python()


@functools.cache
def _own() -> Any:
    """OmegaConf's loader: on the parser in Python up to 2.3, on the one in C from 2.4 on."""
    try:
        module = importlib.import_module("omegaconf._yaml")  # from 2.4.1 on
    except ImportError:
        module = importlib.import_module("omegaconf._utils")
    return module.get_yaml_loader()


@functools.cache
def _in_python() -> Any:
    import yaml  # type: ignore[import-untyped]

    base = _own()
    fast = getattr(yaml, "CSafeLoader", None)
    if fast is None or not issubclass(base, fast):
        return base
    return type("Loader", (yaml.SafeLoader, base), _tables(base))


def _tables(base: Any) -> dict[str, Any]:
    names = ("yaml_constructors", "yaml_multi_constructors", "yaml_implicit_resolvers")
    return {name: getattr(base, name) for name in names}


@functools.cache
def _in_c() -> Any:
    import yaml

    base = _own()
    fast = getattr(yaml, "CSafeLoader", None)
    if fast is None or issubclass(base, fast):
        return base
    return type("Loader", (fast, base), _tables(base))


def compose_nodes(text: str, own: Any = None) -> list[Any]:
    """The nodes of each document of a text.

    Raises:
        BadYamlError: it is no YAML, or is nested deeper than any config.
    """
    import yaml

    _refuse_large(text)
    try:
        return list(yaml.compose_all(text, Loader=own or loader(text)))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise fault_of(error, text) from None


def load(text: str, *, lenient: bool = False) -> Any:
    """The value of a text of one document, as OmegaConf reads it.

    `lenient` takes what only the parser in C does (a tab before a comment).

    Raises:
        BadYamlError: it cannot be read, or holds more than `MAX_VALUES` values.
    """
    own = _in_c() if lenient else loader(text)
    nodes = [node for node in compose_nodes(text, own) if node is not None]
    if len(nodes) > 1:
        raise BadYamlError("the file holds several documents", nodes[1].start_mark.line + 1)
    for node in nodes:
        refuse_bomb(node)
    # Merges are written into a node as it becomes a value: it can become one only once.
    return _value_of(lambda: own("").construct_document(nodes[0]), text) if nodes else None


def loaded(text: str) -> Any:
    """`load`, of a text whose nodes `refuse_bomb` has seen."""
    import yaml

    return _value_of(lambda: yaml.load(text, Loader=loader(text)), text)


def _value_of(construct: Callable[[], Any], text: str) -> Any:
    try:
        return construct()
    except Exception as error:  # a value or key that there is no type for, too
        raise fault_of(error, text) from None


def fault_of(error: Exception, text: str) -> BadYamlError:
    """What a loader of YAML raised, without the lines that it quotes."""
    import yaml

    if isinstance(error, RecursionError):
        return BadYamlError("the YAML is nested too deeply")
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        why = ", ".join(str(part) for part in (error.context, error.problem) if part)
        place = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        return BadYamlError(f"not valid YAML: {clip(why or type(error).__name__, 200)}", *place)
    if isinstance(error, (yaml.reader.ReaderError, UnicodeError)):
        position = getattr(error, "position", getattr(error, "start", 0))
        at = min(position if isinstance(position, int) else 0, len(text))
        reason = clip(str(getattr(error, "reason", "")), 120)
        line, last = text.count("\n", 0, at) + 1, text.rfind("\n", 0, at) + 1
        return BadYamlError(f"not valid YAML: {reason}", line, at - last + 1)
    return BadYamlError(f"Hydra cannot read this file ({type(error).__name__})")


def _refuse_large(text: str) -> None:
    """Refuse a large text of too many values before their nodes are made, which takes longest."""
    import yaml

    if len(text) < _LARGE:
        return
    count = 0
    try:
        for event in yaml.parse(text, Loader=loader(text)):
            count += isinstance(event, yaml.NodeEvent)
            if count > 2 * MAX_VALUES:  # keys too
                raise BadYamlError(MANY)
    except (yaml.YAMLError, ValueError) as error:
        raise fault_of(error, text) from None


# -- sizes --------------------------------------------------------------------------------------


def refuse_bomb(top: Any) -> None:
    """Refuse nodes that stand for more values than memory holds, aliases and merges followed.

    Raises:
        BadYamlError: there are more than `MAX_VALUES`, or a mapping or list is in itself.
    """
    sizes: dict[int, int] = {}
    open_: set[int] = set()
    stack: list[tuple[Any, bool]] = [(top, False)]
    while stack:
        node, seen = stack.pop()
        if id(node) in sizes:
            continue
        if seen:
            open_.discard(id(node))
            sizes[id(node)] = size = 1 + sum(sizes[id(child)] for child in _children(node))
            if size > MAX_VALUES:
                raise _too_many(top)
            continue
        if id(node) in open_:
            mark = node.start_mark
            raise BadYamlError(
                "a mapping or list that holds itself", mark.line + 1, mark.column + 1
            )
        children = list(_children(node))
        if len(children) > MAX_VALUES:
            raise _too_many(top)
        if not children:
            sizes[id(node)] = 1
            continue
        open_.add(id(node))
        stack.append((node, True))
        stack += [(child, False) for child in children]


def _too_many(top: Any) -> BadYamlError:
    message = f"{MANY}, aliases and merges followed"
    return BadYamlError(message, top.start_mark.line + 1, top.start_mark.column + 1)


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node.value, list):
        for item in node.value:
            yield item[1] if isinstance(item, tuple) else item


def endless_interpolation(data: Any) -> str | None:
    """Path of a value whose interpolations take more than `MAX_STEPS` steps; None: there is none.

    `data` is a config as plain values. ``a: ${b}${b}``, ``b: ${c}${c}`` doubles with every key.
    """
    texts = dict(_interpolated(data))
    if not any(text.count("${") > 1 for text in texts.values()):
        return None
    steps: dict[str, int] = {}
    for first in texts:
        stack: list[tuple[str, tuple[str, ...] | None]] = [(first, None)]
        while stack:
            path, needs = stack.pop()
            if needs is None:
                if path in steps:
                    continue
                steps[path] = 0  # a circle, where it is asked for again: OmegaConf refuses it
                needs = tuple(_needed(texts, path))
                stack.append((path, needs))
                stack += [(other, None) for other in set(needs) if other not in steps]
            else:
                steps[path] = 1 + sum(steps[other] for other in needs)
                if steps[path] > MAX_STEPS:
                    return path
    return None


def _interpolated(data: Any) -> Iterator[tuple[str, str]]:
    """Path and text of every value that interpolates."""
    todo = [("", data)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, dict):
            todo += [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
        elif isinstance(value, list):
            todo += [(f"{path}.{i}" if path else str(i), item) for i, item in enumerate(value)]
        elif isinstance(value, str) and "${" in value:
            yield path, value


def _needed(texts: dict[str, str], path: str) -> Iterator[str]:
    """Paths of the interpolated values that the one at `path` asks for, as often as it does."""
    for dots, node, word in _TOKEN.findall(texts[path]):
        name = (node or word).replace("[", ".").replace("]", "").strip(".")
        up = len(dots) or len(word) - len(word.lstrip("."))
        parents = path.split(".")[:-up] if up else []
        yield from _on_the_way(texts, ".".join(filter(None, (*parents, name))))


def _on_the_way(texts: dict[str, str], name: str) -> Iterator[str]:
    """The interpolated values at `name`, and at the sections above that lead elsewhere."""
    for _ in range(20):
        parts = name.split(".")
        head = next(
            (h for n in range(1, len(parts) + 1) if (h := ".".join(parts[:n])) in texts), None
        )
        if head is None:
            return
        yield head
        led = re.fullmatch(r"\$\{\s*(\.*)([\w.\[\]-]+)\s*\}", texts[head])
        rest = name[len(head) :]
        if led is None or not rest:
            return
        parents = head.split(".")[: -len(led[1])] if led[1] else []
        name = ".".join(filter(None, (*parents, led[2]))) + rest
