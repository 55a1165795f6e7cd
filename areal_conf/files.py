"""Writing files so that a crash or a full disk leaves the old one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class FileChangedError(Exception):
    """The file is no longer what was read."""


def write_atomically(path: Path, content: str | bytes, expected: bytes | None = None) -> None:
    """Replace the file at `path` by `content` in one step.

    A symlink stays one (its target is replaced), and the file keeps its mode.

    Args:
        path: the file.
        content: what it shall hold.
        expected: what it must still hold at the last moment; None: whatever it holds.

    Raises:
        OSError: where the directory cannot be written; the old file is untouched.
        FileChangedError: where the file does not hold `expected`; it is untouched.
    """
    target = Path(os.path.realpath(path))
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _mode(target))
        if expected is not None and target.read_bytes() != expected:
            raise FileChangedError(path)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _mode(target: Path) -> int:
    try:
        return target.stat().st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
