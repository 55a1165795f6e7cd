"""What is read of AReaL's logs and of tensorboard's event files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from areal_conf.sweeps.results.event_files import Scalar, _masked_crc, read_scalars
from areal_conf.sweeps.results.measured import read_measured

# As AReaL 1.0.4 prints them: the prefix of its logger, colours, tabulate's fancy_grid.
LOG = """\
(AReaL) 20261201-03:04:05.678 RLTrainer INFO: Memory-Usage ref logp: memory allocated (GB): 5.00, \
memory reserved (GB): 41.50, device memory used/total (GB): 44.25/79.10
\x1b[1;38;2;180;140;80m(AReaL)\x1b[0m \x1b[32m20261201-03:04:06.001 [FSDPEngine Rank 0] INFO: \
Memory-Usage ppo update: memory allocated (GB): 12.25, memory reserved (GB): 30.50, \
device memory used/total (GB): 33.75/79.10\x1b[0m
(AReaL) 20261201-03:04:07.100 StatsLogger INFO: Stats (1/1):
(AReaL) 20261201-03:04:07.101 StatsLogger INFO:
╒══════════════════════════╤════════════╤══════════════════╤════════════╕
│ ppo_actor/update/loss    │ 1.0000e-01 │ timeperf/rollout │ 9.5000e+00 │
├──────────────────────────┼────────────┼──────────────────┼────────────┤
│ timeperf/train_step      │ {train:10.4e} │ timeperf/save    │ nan        │
╘══════════════════════════╧════════════╧══════════════════╧════════════╛
"""


def test_logs(tmp_path: Path) -> None:
    text = "".join(LOG.replace("{train:10.4e}", f"{n:.4e}") for n in (30.0, 10.0, 12.0))
    (tmp_path / "areal.log").write_text(text, encoding="utf-8")
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "0.log").write_text(text, encoding="utf-8")  # the same lines again
    found = read_measured(tmp_path)
    assert found.memory == {
        "head": "ppo update",
        "allocated": 12.25,
        "reserved": 30.5,
        "used": 33.75,
        "total": 79.1,
        "most_used": 44.25,
        "most_reserved": 41.5,
    }
    assert found.timeperf == {"train_step": 12.0, "rollout": 9.5}
    assert found.typical == {"train_step": 11.0, "rollout": 9.5}
    assert (found.steps, found.out_of_memory) == (3, False)


def test_other_units(tmp_path: Path) -> None:
    line = "Memory-Usage x: memory allocated (MB): 512, memory reserved (MB): 1024, "
    (tmp_path / "a.log").write_text(f"{line}device memory used/total (MB): 2048/81920\n")
    assert read_measured(tmp_path).memory["used"] == 2.0


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: HIP out of memory",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0",
    ],
)
def test_memory_that_ran_out(line: str, tmp_path: Path) -> None:
    (tmp_path / "slurm.out").write_text(line)
    assert read_measured(tmp_path).out_of_memory


def test_what_is_no_log_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "events.out.tfevents.1").write_bytes(b"no such file of events, but long enough")
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    assert read_measured(tmp_path, tmp_path / "missing").timeperf == {}


# -- event files ----------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def chunk(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(tag: str, step: int, value: bytes) -> bytes:
    summary = chunk(1, chunk(1, tag.encode()) + value)
    body = b"\x09" + struct.pack("<d", 1.5) + b"\x10" + varint(step) + chunk(5, summary)
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", _masked_crc(head)) + body + struct.pack("<I", _masked_crc(body))


def simple(value: float) -> bytes:
    return b"\x15" + struct.pack("<f", value)


def test_scalars(tmp_path: Path) -> None:
    tensor = chunk(8, b"\x08\x01" + chunk(5, struct.pack("<f", 2.5)))
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(event("a", 3, simple(0.5)) + event("b", 300, tensor) + event("c", 1, b""))
    assert list(read_scalars(path)) == [Scalar("a", 3, 0.5), Scalar("b", 300, 2.5)]


def test_a_file_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    whole = event("a", 1, simple(1)) + event("a", 2, simple(2))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        expected = [Scalar("a", 1, 1.0)] if length >= len(whole) // 2 else []
        assert list(read_scalars(path)) == expected


def test_broken_messages_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    bad = chunk(5, chunk(1, b"\xff\xff\xff"))
    head = struct.pack("<Q", len(bad))
    record = head + struct.pack("<I", _masked_crc(head)) + bad + b"\0\0\0\0"
    path.write_bytes(record + event("a", 1, simple(1)))
    assert list(read_scalars(path)) == [Scalar("a", 1, 1.0)]


def test_the_checksum_is_castagnolis() -> None:
    # RFC 3720, B.4: 32 bytes of zeros; masked as record_writer.h says
    crc = 0x8A9136AA
    assert _masked_crc(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_event_files_count_as_logs(tmp_path: Path) -> None:
    (tmp_path / "tb").mkdir()
    path = tmp_path / "tb" / "events.out.tfevents.1.host"
    steps = [(0, 30.0), (1, 10.0), (2, 14.0)]
    path.write_bytes(b"".join(event("timeperf/train_step", n, simple(s)) for n, s in steps))
    found = read_measured(tmp_path)
    assert (found.timeperf, found.typical, found.steps) == (
        {"train_step": 14.0},
        {"train_step": 12.0},
        3,
    )
