"""`areal_conf.files`: files that are written whole, or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from areal_conf import files
from areal_conf.files import FileChangedError, write_atomically


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_files_are_walked_in_order_and_vendored_folders_left_out(tmp_path: Path) -> None:
    for name in ("b/z", "b/a", "a", "node_modules/a", "__pycache__/a", ".git/a", "env/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "broken").symlink_to("nowhere")
    walked = [path.relative_to(tmp_path).as_posix() for path in files.walk(tmp_path)]
    assert walked == ["a", "broken", "b/a", "b/z"]


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o222, 0o755])
def test_an_old_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    file.chmod(mode)
    write_atomically(file, b"new")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", mode)


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o555, 0])
def test_a_file_that_nobody_may_write_is_left_alone(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    file.chmod(mode)
    (tmp_path / "link").symlink_to(file)
    for path in (file, tmp_path / "link"):
        with pytest.raises(PermissionError):
            write_atomically(path, b"new")
    file.chmod(0o600)
    assert file.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "link"]


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert files.read_limited(tmp_path / "a", 5) == b"12345"
    with pytest.raises(files.TooLargeError):
        files.read_limited(tmp_path / "a", 4)
    for device in ("/dev/zero", "/dev/full", "/dev/null"):
        with pytest.raises(OSError, match="device"):
            files.read_limited(device)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    os.chown(file, 1234, 4321)
    write_atomically(file, "new")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 4321)


def test_nobody_else_reads_a_private_file_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    file.chmod(0o600)
    seen: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(
        files.os, "fsync", lambda fd: (seen.append(os.fstat(fd).st_mode & 0o777), fsync(fd))
    )
    write_atomically(file, "new")
    assert seen == [0o600]


def test_what_is_no_regular_file_is_written_to(tmp_path: Path) -> None:
    """``areal-conf export -o /dev/null``, run by root, must not take the place of the device."""
    pipe, link = tmp_path / "pipe", tmp_path / "null"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "through")
    reader.join(timeout=30)
    assert read == ["through"]
    write_atomically(link, "lost")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, "text")
    assert names(tmp_path) == ["null", "pipe"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
def test_an_open_file_is_written_on(tmp_path: Path, name: str) -> None:
    """``(echo before; areal-conf schema -o /dev/stdout; echo after) > log`` keeps all three."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    write = f"from areal_conf.files import *; write_atomically(Path({name!r}), 'text\\n')"
    script = f'echo before; {sys.executable} -c "{write}"; echo after'
    with (tmp_path / "log").open("wb") as log:
        subprocess.run(["sh", "-c", script], stdout=log, cwd=tmp_path, check=True)
    assert (tmp_path / "log").read_text() == "before\ntext\nafter\n"


def test_names_of_any_length(tmp_path: Path) -> None:
    for name in ("a" * 255, "\N{GRINNING FACE}" * 63, "字" * 85, "é" * 127):
        write_atomically(tmp_path / name, name)
        write_atomically(tmp_path / name, name + "!")
        assert (tmp_path / name).read_text() == name + "!"
    assert len(names(tmp_path)) == 4


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.areal-conf").write_text("half")
    write_atomically(tmp_path / "a", "whole")
    assert (names(tmp_path), (tmp_path / "a").read_text()) == (["a"], "whole")


def test_what_bears_the_name_and_is_not_ours_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder, a symlink, a file that another process does not let go of."""
    monkeypatch.setattr(files, "_PATIENCE", 0.05)
    precious = tmp_path / "precious"
    precious.write_text("old")
    (tmp_path / ".a.areal-conf").mkdir()
    (tmp_path / ".b.areal-conf").symlink_to(precious)
    held = tmp_path / ".c.areal-conf"
    with held.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        before = names(tmp_path)
        for name in "abc":
            write_atomically(tmp_path / name, "text")
    assert names(tmp_path) == sorted([*before, "a", "b", "c"])
    assert precious.read_text() == "old"


def test_where_files_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", fail)
    write_atomically(tmp_path / "a", "text")
    assert (names(tmp_path), (tmp_path / "a").read_text()) == (["a"], "text")


def test_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    file = tmp_path / "a"
    contents = [bytes([65 + i]) * 100_000 for i in range(8)]

    def write(content: bytes) -> None:
        for _ in range(20):
            write_atomically(file, content)
            assert file.read_bytes() in contents

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, contents))
    assert names(tmp_path) == ["a"]


def test_a_file_that_changed_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("theirs")
    with pytest.raises(FileChangedError):
        write_atomically(file, "ours", expected=b"old")
    assert (names(tmp_path), file.read_text()) == (["a"], "theirs")
