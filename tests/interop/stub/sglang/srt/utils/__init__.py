"""Stands in for SGLang: what AReaL imports of it, and a server that answers /v1/models."""

from __future__ import annotations


def kill_process_tree(*args: object, **options: object) -> None:
    """Nothing to kill."""
