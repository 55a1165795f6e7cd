"""Imports the module of an app, which fills Hydra's ConfigStore, without starting the app."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from areal_conf.errors import clip


class AppImportError(Exception):
    """The module of an app cannot be imported; the text says why."""


def import_module(name: str) -> None:
    """Import the module `name` (``my_app.configs``), or the file where it ends in ``.py``.

    It is found from the working directory too, as by ``python -m``. What it prints goes to stderr.

    Raises:
        AppImportError: it is missing, it raises, or it starts its app.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with _apps_not_started(name), contextlib.redirect_stdout(sys.stderr):
        try:
            if name.endswith(".py"):
                _import_file(Path(name))
            else:
                importlib.import_module(name)
        except AppImportError:
            raise
        except (Exception, SystemExit) as error:
            told = clip(f"{type(error).__name__}: {error}", 300)
            raise AppImportError(f"cannot be imported ({told})") from None


def _import_file(file: Path) -> None:
    name = file.stem.replace(".", "_")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise AppImportError("there is no such file")
    known = getattr(sys.modules.get(name), "__file__", None)
    if known is not None and os.path.realpath(known) == os.path.realpath(file):
        return  # imported before: its configs are stored
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent.absolute()) not in sys.path:
        sys.path.insert(0, str(file.parent.absolute()))
    spec.loader.exec_module(module)


@contextlib.contextmanager
def _apps_not_started(name: str) -> Iterator[None]:
    """Refuse the call of an app of Hydra: the command line is not the app's."""
    import hydra

    real = hydra.main
    importing = True

    def main(*args: Any, **options: Any) -> Callable[..., Any]:
        decorate = real(*args, **options)

        def decorated(task: Callable[..., Any]) -> Callable[..., Any]:
            app = decorate(task)

            @functools.wraps(task)
            def entry(*words: Any, **named: Any) -> Any:
                if importing:
                    raise AppImportError(
                        f"it starts its app when it is imported: call {task.__name__}() under "
                        'if __name__ == "__main__":'
                    )
                return app(*words, **named)

            return entry

        return decorated

    hydra.main = main
    try:
        yield
    finally:
        importing = False
        hydra.main = real
