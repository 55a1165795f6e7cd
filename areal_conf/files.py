"""Files: written so that a crash, a kill or a full disk leaves the old one whole, and found below
a directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:self|thread-self))/fd/(\d+)")
_MAY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_PATIENCE = 2.0
"""Seconds that another process has to finish writing the same file."""


_NOT_WALKED = ("node_modules", "__pycache__", "site-packages")
"""Directories of files that somebody else maintains."""

_SWEEP_RECORD = "multirun.yaml"
"""What Hydra writes beside the jobs of a sweep; what it writes of a job is in ``.hydra``."""

MAX_BYTES = 16 * 2**20
"""Files over this size are not read as text."""


def walk(
    directory: str | os.PathLike[str], on_error: Callable[[OSError], object] | None = None
) -> Iterator[Path]:
    """Every file below `directory`, sorted, folder by folder; broken links too.

    Left out: hidden directories (Hydra's ``.hydra`` among them), virtual environments, vendored
    packages (``node_modules``, ``site-packages``), and the record that Hydra writes of a sweep.
    What the user has beside those is found. `on_error` takes the error of a folder that cannot be
    listed; without it such folders are passed over.
    """
    for folder, below, names in os.walk(directory, onerror=on_error):
        below[:] = sorted(name for name in below if _is_walked(folder, name))
        for name in sorted(names):
            path = Path(folder, name)
            if name != _SWEEP_RECORD or not _is_sweep_record(path):
                yield path


def _is_walked(folder: str, name: str) -> bool:
    return (
        not name.startswith(".")
        and name not in _NOT_WALKED
        and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
    )


def _is_sweep_record(path: Path) -> bool:
    """Whether Hydra wrote the file: its own config, and nothing else, is in it."""
    try:
        data = read_limited(path, 2**20)
    except (OSError, TooLargeError):
        return False
    return data.startswith(b"hydra:") and b"\n  sweep:" in data


class TooLargeError(Exception):
    """A file holds more than is read."""


def read_limited(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> bytes:
    """What a file or pipe holds, read once and never more than `limit` bytes.

    Raises:
        OSError: it cannot be read, or is a device, which may have no end.
        TooLargeError: it holds more.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            raise OSError(errno.EINVAL, "it is a device, no file", str(path))
        if stat.S_ISREG(status.st_mode) and status.st_size > limit:
            raise TooLargeError(path)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise TooLargeError(path)
    return data


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
        OSError: where the file is read-only, or its directory; the old file is untouched.
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
    if old is not None and not (old.st_mode & _MAY_WRITE and os.access(path, os.W_OK)):
        raise PermissionError(errno.EACCES, "the file is read-only", str(path))
    try:
        _replace(path, data, old, expected)
    except OSError as error:  # report the caller's path, not the temporary file's
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
