"""Files: written so that a crash, a kill or a full disk leaves the old one whole, and found below
a directory.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:self|thread-self))/fd/(\d+)")
_PATIENCE = 2.0
"""Seconds that another process has to finish writing the same file."""


def is_hydra_output(directory: str | os.PathLike[str]) -> bool:
    """Whether Hydra made a directory, of a run or of a sweep."""
    return any(
        os.path.exists(os.path.join(directory, name)) for name in (".hydra", "multirun.yaml")
    )


_NOT_WALKED = ("node_modules", "__pycache__", "site-packages")
"""Directories of files that somebody else maintains."""


def walk(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Every file below `directory`, sorted, folder by folder; broken links too.

    Left out: hidden directories, virtual environments, vendored packages (``node_modules``,
    ``site-packages``), and what Hydra wrote for runs and sweeps.
    """
    for folder, below, names in os.walk(directory):
        below[:] = sorted(name for name in below if _is_walked(folder, name))
        for name in sorted(names):
            yield Path(folder, name)


def _is_walked(folder: str, name: str) -> bool:
    path = os.path.join(folder, name)
    return (
        not name.startswith(".")
        and name not in _NOT_WALKED
        and not os.path.exists(os.path.join(path, "pyvenv.cfg"))
        and not is_hydra_output(path)
    )


class FileChangedError(Exception):
    """The file is no longer what was read."""


def write_atomically(path: Path, content: str | bytes, expected: bytes | None = None) -> None:
    """Replace the file at `path` by `content` in one step.

    A symlink stays one (its target is replaced), and the file keeps its mode, and its owner where
    that is allowed. What is no regular file (a device, a pipe) is written to instead, and so is an
    open file (``/dev/stdout``, ``/dev/fd/3``), after what is in it.

    A process that is killed meanwhile may leave ``.NAME.areal-conf`` beside the file; the next one
    that writes the file removes it.

    Args:
        path: the file.
        content: what it shall hold.
        expected: what it must still hold at the last moment; None: whatever it holds.

    Raises:
        OSError: where the directory cannot be written; the old file is untouched.
        FileChangedError: where the file does not hold `expected`; it is untouched.
    """
    data = content.encode() if isinstance(content, str) else content
    descriptor = _descriptor(path)
    if descriptor is not None:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        return
    old = _status(path)
    if old is not None and not stat.S_ISREG(old.st_mode):
        path.write_bytes(data)
        return
    try:
        _replace(path, data, old, expected)
    except OSError as error:  # of a name that nobody knows
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, data: bytes, old: os.stat_result | None, expected: bytes | None) -> None:
    target = Path(os.path.realpath(path))
    handle, name = _open_beside(target, 0o600 if old else 0o666)
    with os.fdopen(handle, "wb") as file:  # open to the end: it holds the lock
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if expected is not None and target.read_bytes() != expected:
                raise FileChangedError(path)
            if old is not None:
                _take_over(name, old)
            os.replace(name, target)
        except BaseException:
            if _is_named(handle, name):
                os.unlink(name)
            raise


def _descriptor(path: Path) -> int | None:
    """The open file of this process that `path` stands for; None where it is a file by name."""
    name = os.path.abspath(path)
    for _ in range(40):  # links, as many as Linux follows
        found = _DESCRIPTOR.fullmatch(name)
        if found:
            return int(found[1])
        try:
            name = os.path.abspath(os.path.join(os.path.dirname(name), os.readlink(name)))
        except OSError:
            return None
    return None


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _take_over(name: str, old: os.stat_result) -> None:
    """Give the new file the owner and the mode of the old one."""
    new = os.stat(name)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(OSError):
            os.chown(name, old.st_uid, old.st_gid)
    os.chmod(name, stat.S_IMODE(old.st_mode))


def _open_beside(target: Path, mode: int) -> tuple[int, str]:
    """A new file beside `target`, as descriptor and name, that nobody else writes to.

    Its name is always the same, so that what a killed process left is found; another name where
    files cannot be locked, or where what bears that name cannot be removed.
    """
    stem = str(target.with_name(f".{target.name[:48]}"))
    if fcntl is not None:
        with contextlib.suppress(OSError):
            name = f"{stem}.areal-conf"
            return _open_locked(name, mode), name
    name = f"{stem}.{secrets.token_hex(8)}.areal-conf"
    return os.open(name, _NEW, mode), name


def _open_locked(name: str, mode: int) -> int:
    """Create the file `name`, and lock it.

    Raises:
        OSError: files cannot be locked here, or one of that name is there and stays.
    """
    while True:
        try:
            handle = os.open(name, _NEW, mode)
        except FileExistsError:
            _remove_leftover(name)
            continue
        try:
            _lock(handle)
        except BaseException:
            os.unlink(name)
            os.close(handle)
            raise
        if _is_named(handle, name):  # else another process took it for a leftover
            return handle
        os.close(handle)


def _remove_leftover(name: str) -> None:
    """Remove what a killed process left, or wait for a living one to be done with it."""
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            _lock(handle)
            if _is_named(handle, name):
                os.unlink(name)
        finally:
            os.close(handle)


def _lock(handle: int) -> None:
    """Lock an open file; BlockingIOError where another process does not let go of it."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _is_named(handle: int, name: str) -> bool:
    """Whether `name` is still the file that is open."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(name, follow_symlinks=False))
    return False
