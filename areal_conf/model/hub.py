"""Configs in the local cache of the Hugging Face Hub. Nothing is fetched.

Layout of the cache: huggingface_hub, docs/source/en/guides/manage-cache.md.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def is_hub_id(name: str) -> bool:
    """Whether `name` has the form ``organisation/model``."""
    return _ID.fullmatch(name) is not None and ".." not in name


def cached_config(name: str) -> Path | None:
    """The ``config.json`` of a model in the cache: of ``main``, else of the newest snapshot."""
    if not is_hub_id(name):
        return None
    folder = _cache() / f"models--{name.replace('/', '--')}"
    try:
        commit = (folder / "refs" / "main").read_text("utf-8").strip()
        configs = [folder / "snapshots" / commit / "config.json"] if commit.isalnum() else []
    except (OSError, ValueError):
        configs = []
    try:
        found = folder.glob("snapshots/*/config.json")
        configs += sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        pass
    return next((path for path in configs if path.is_file()), None)


def download(name: str) -> str:
    """The command that brings a config into the cache."""
    return f"hf download {name} config.json"


def _cache() -> Path:
    """Where the cache is: HF_HUB_CACHE, HF_HOME or the home (huggingface_hub/constants.py)."""
    own = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if own:
        return Path(own).expanduser()
    home = os.environ.get("HF_HOME")
    if home:
        return Path(home).expanduser() / "hub"
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path("~/.cache").expanduser()) / "huggingface" / "hub"
