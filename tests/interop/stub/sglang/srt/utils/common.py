"""Stands in for SGLang: what AReaL imports of it, and a server that answers /v1/models."""

from __future__ import annotations


def suppress_noisy_warnings() -> None:
    """Nothing to suppress."""
