"""Single functions and classes of packages that cannot be imported without a GPU's libraries."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import pytest


def package(name: str) -> Path:
    """The folder of an installed package, which is not imported; skips where it is missing."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    return Path(found.submodule_search_locations[0])


def parts(file: Path, *names: str, **context: Any) -> dict[str, Any]:
    """The functions, classes and assignments of `file` with these names, made without its imports.

    Args:
        file: a source file.
        names: what to make, at the top or inside a class (``Class.method``).
        context: what else they use.
    """
    made: dict[str, Any] = dict(context)
    tree = ast.parse(file.read_text("utf-8"))
    wanted = [_find(tree.body, name.split(".")) for name in names]
    for node in wanted:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
    module = ast.Module([*_annotations(), *wanted], type_ignores=[])
    exec(compile(ast.fix_missing_locations(module), str(file), "exec"), made)
    return made


def _annotations() -> list[ast.stmt]:
    return ast.parse("from __future__ import annotations").body


def _find(body: list[ast.stmt], path: list[str]) -> Any:
    for node in body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        names = [getattr(node, "name", None), *(getattr(target, "id", None) for target in targets)]
        if path[0] in names:
            return _find(node.body, path[1:]) if len(path) > 1 else node  # type: ignore[attr-defined]
    raise LookupError(path[0])
