"""Scalars of tensorboard's event files, read without tensorboard.

An event file is a series of records (length, its checksum, data, its checksum), each an ``Event``
of protocol buffers. Read is what holds scalars: ``Event.step`` (2) and ``Event.summary`` (5), of
that ``Value.tag`` (1), ``Value.simple_value`` (2) and small ``Value.tensor`` (8). Sources:
tensorflow/core/util/event.proto, framework/summary.proto, lib/io/record_writer.h of
tensorflow/tensorflow@v2.19.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_LARGEST = 16 * 2**20
"""Bytes of a record that is read; pictures and sounds may be larger."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE = 1, 2
"""``DataType`` of a tensor."""


class Scalar(NamedTuple):
    """One value that was written.

    Attributes:
        tag: its name.
        step: number of the step.
        value: the value.
    """

    tag: str
    step: int
    value: float


def read_scalars(path: Path) -> Iterator[Scalar]:
    """Every scalar of an event file, in the order of writing.

    A file that ends within a record, as one of a killed process does, is read up to there.

    Raises:
        OSError: the file cannot be read.
    """
    for data in _records(path):
        try:
            yield from _scalars(data)
        except (ValueError, struct.error, UnicodeDecodeError):
            continue


def _records(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            length, checksum = struct.unpack("<QI", head)
            if _masked_crc(head[:8]) != checksum:
                return  # no event file, or a broken one
            if length > _LARGEST:
                file.seek(length + 4, 1)
                continue
            data = file.read(length)
            if len(data) < length or len(file.read(4)) < 4:
                return
            yield data


def _scalars(data: bytes) -> Iterator[Scalar]:
    step, summaries = 0, []
    for number, value in _fields(data):
        if number == 2 and isinstance(value, int):
            step = value - 2**64 if value >= 2**63 else value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                yield from _value(value, step)


def _value(data: bytes, step: int) -> Iterator[Scalar]:
    tag, found = "", None
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode("utf-8")
        elif number == 2 and len(value) == 4:
            found = struct.unpack("<f", value)[0]
        elif number == 8:
            found = _tensor(value)
    if found is not None:
        yield Scalar(tag, step, found)


def _tensor(data: bytes) -> float | None:
    """The value of a tensor that holds one float or double."""
    kind, content = 0, b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(kind)
    if form is None or len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message: a whole number, or bytes as they are.

    Raises:
        ValueError: the data is no message.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"no such type of field: {kind}")
        if at + length > len(data):
            raise ValueError("a field is longer than the message")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number does not end")


def _crc_table() -> tuple[int, ...]:
    """Of CRC-32C (Castagnoli), reflected."""
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
