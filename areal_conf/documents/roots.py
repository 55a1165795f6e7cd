"""Where a file lies among the configs of a Hydra app: whether others take it in, and from where."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from areal_conf.documents.yaml_text import BadYamlError, load
from areal_conf.files import TooLargeError, read_limited

_LEVELS = 4
"""Folders above a file that are looked at."""
_FILES = 200
_BYTES = 2**18
_HEADER = re.compile(r"\A\ufeff?(?:\s*#[^\n]*\n)*?\s*#\s*@package\s+(\S+)")
_DEFAULTS = re.compile(rb"(?:^|[\s{\"'])defaults[\"']?\s*:")


class ConfigPlace(NamedTuple):
    """What is known of a config file from its header and the folders around it.

    Attributes:
        package: the package of its ``@package`` header.
        root: the folder whose configs can take it in as an option of a group; None: none is known.
        is_taken: whether a config beside it takes it in.
    """

    package: str | None = None
    root: Path | None = None
    is_taken: bool = False

    @property
    def is_part(self) -> bool:
        """Whether it is a part of other configs, not one of its own."""
        return self.package is not None or self.root is not None or self.is_taken

    @property
    def is_elsewhere(self) -> bool:
        """Whether what it holds may land in a package, not at the root of a config."""
        if self.package is not None:
            return self.package != "_global_"
        return self.root is not None or self.is_taken


def config_place(file: Path, text: str) -> ConfigPlace:
    """What is known of the config `file`, which holds `text`."""
    header = _HEADER.match(text)
    package = header[1] if header else None
    if not file.is_file():
        return ConfigPlace(package)
    folder = file.absolute().parent
    root = next((up for up in islice(folder.parents, _LEVELS) if _defaults_of(up)), None)
    beside = _defaults_of(folder)
    taken = any(
        name == file.stem for other, names in beside.items() for name in names if other != file.name
    )
    return ConfigPlace(package, root, taken)


@functools.lru_cache(maxsize=256)
def _defaults_of(folder: Path) -> dict[str, tuple[str, ...]]:
    """The configs of a folder that have a defaults list, and the configs of the same folder that
    each takes in."""
    found: dict[str, tuple[str, ...]] = {}
    for file in islice(_configs(folder), _FILES):
        try:
            data = read_limited(file, _BYTES)
            if not _DEFAULTS.search(data):
                continue
            top = load(data.decode())
        except (OSError, TooLargeError, UnicodeDecodeError, BadYamlError):
            continue
        listed = top.get("defaults") if isinstance(top, dict) else None
        if isinstance(listed, list):
            found[file.name] = tuple(_names(listed))
    return found


def forget() -> None:
    """Look at the folders again: they may have changed."""
    _defaults_of.cache_clear()


def _configs(folder: Path) -> Iterator[Path]:
    try:
        for path in sorted(folder.iterdir()):
            if path.suffix in (".yaml", ".yml") and path.is_file() and path.name[0] != ".":
                yield path
    except OSError:
        return


def _names(listed: list[Any]) -> Iterator[str]:
    for entry in listed:
        if isinstance(entry, str):
            yield entry.lstrip("/").partition("@")[0].removesuffix(".yaml")
