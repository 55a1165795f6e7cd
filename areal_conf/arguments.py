"""Types of command-line arguments that several commands take."""

from __future__ import annotations

import argparse


def named_path(text: str) -> str:
    """A path of a command line: empty is none, or an unset variable would mean the directory."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return text
