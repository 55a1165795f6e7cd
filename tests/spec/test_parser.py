"""The language: what is accepted, what is refused, and how the refusal underlines it.

The tables read as the documentation does: the string, and below it the marker of the span.
"""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paths import CASES, ROOT

from areal_conf import AllocationError, ModelAllocation
from areal_conf.errors import CODES
from areal_conf.spec.backends import BACKENDS, MAX_SIZE
from areal_conf.spec.grammar import Grammar
from areal_conf.spec.parser import dimension_span
from areal_conf.spec.suggestions import _MAX_REPAIRS, CURES

# spec, backend, then d t p c e etp edp and the world size
ACCEPTED = """
sglang:d4t2                             sglang    4 2 1 1 1 1 4 8
sglang:d96p1t1                          sglang    96 1 1 1 1 1 96 96
vllm:d2t4p2                             vllm      2 4 2 1 1 1 2 16
vllm:d12p1t1                            vllm      12 1 1 1 1 1 12 12
fsdp:d8p1t1                             fsdp      8 1 1 1 1 1 8 8
fsdp:d8p1t1c1e1                         fsdp      8 1 1 1 1 1 8 8
fsdp:d7p1t1                             fsdp      7 1 1 1 1 1 7 7
fsdp:d2c2t2                             fsdp      2 2 1 2 1 1 2 8
fsdp:t4                                 fsdp      1 4 1 1 1 1 1 4
fsdp:d4_t2                              fsdp      4 2 1 1 1 1 4 8
fsdp[policy]:d4                         fsdp      4 1 1 1 1 1 4 4
fsdp:d1048576                           fsdp      1048576 1 1 1 1 1 1048576 1048576
megatron:p2t4                           megatron  1 4 2 1 1 1 1 8
megatron:d2p2t4e4                       megatron  2 4 2 1 4 1 2 16
megatron:d2p2t2e4                       megatron  2 2 2 1 4 1 1 8
megatron:d1t4e4                         megatron  1 4 1 1 4 1 1 4
megatron:d2p2t4e2c4                     megatron  2 4 2 4 2 1 16 64
megatron:d8t8e64                        megatron  8 8 1 1 64 1 1 64
megatron:d8p4t2e8                       megatron  8 2 4 1 8 1 2 64
megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)   megatron  4 2 2 2 2 4 2 32
megatron:(attn:d4p2t2c2|ffn:d2p2t2e4)   megatron  4 2 2 2 4 2 2 32
megatron:(attn:d2p2t2c8|ffn:d2p2e16)    megatron  2 2 2 8 16 1 2 64
megatron:(attn:d2p4t2c2|ffn:e8t1)       megatron  2 2 4 2 8 1 1 32
megatron:(attn:d2p4t2|ffn:p4e4)         megatron  2 2 4 1 4 1 1 16
megatron:(attn:d2p1t4|ffn:d1p1t2e4)     megatron  2 4 1 1 4 2 1 8
megatron:(attn:d2c4|ffn:d1e8)           megatron  2 1 1 4 8 1 1 8
megatron:(attn:d1p12t4|ffn:d1p12e4)     megatron  1 4 12 1 4 1 1 48
megatron:attn:d4p2t2c2|ffn:d2p2t4e2     megatron  4 2 2 2 2 4 2 32
megatron:(attn:t8|ffn:e8)               megatron  1 8 1 1 8 1 1 8
megatron:(attn:d4e1|ffn:c1e4)           megatron  4 1 1 1 4 1 1 4
megatron:(attn:d4t2|ffn:t8)             megatron  4 2 1 1 1 8 1 8
archon:(attn:d1p4t2c2|ffn:d1p4t1e4)     archon    1 2 4 2 4 1 1 16
archon:d8                               archon    8 1 1 1 1 1 8 8
archon:d4t4e16                          archon    4 4 1 1 16 1 1 16
archon:(attn:d4t2|ffn:t2e4)             archon    4 2 1 1 4 2 1 8
"""

# code of the first error; the string; below it its span ("^", or "|" where something is missing);
# and all that the hint offers
REFUSED = """
AC101 d4t2
      ^^^^
      fsdp:d4t2, sglang:d4t2 or megatron:d4t2
AC101 d4p2m1
      ^^^^^^
      sglang:d4p2t1, megatron:d4p2t1 or vllm:d4p2t1
AC101 [actor]:d4
      ^
      fsdp[actor]:d4, sglang[actor]:d4 or vllm[actor]:d4
AC101 (attn:d2t4|ffn:d2e4)
      ^
      megatron:(attn:d2t4|ffn:d2e4) or archon:(attn:d2t4|ffn:d2e4)
AC101 attn:d2t4|ffn:d2e4
      ^^^^
      megatron:attn:d2t4|ffn:d2e4 or archon:attn:d2t4|ffn:d2e4
AC101 :d4
      ^
      fsdp:d4, sglang:d4 or vllm:d4
AC101 8
      ^
      fsdp:d8, sglang:d8 or megatron:d8
AC101  d4t2
       ^^^^
      fsdp:d4t2, sglang:d4t2 or megatron:d4t2
AC102 SGLang:d4
      ^^^^^^
      sglang:d4
AC102 torch:d8
      ^^^^^
      sglang:d8, vllm:d8 or fsdp:d8
AC102 megatorn:d4p2
      ^^^^^^^^
      megatron:d4p2
AC102 meg-atron:d4p2
      ^^^^^^^^^
      megatron:d4p2
AC102 null
      ^^^^
      sglang:d1, vllm:d1 or fsdp:d1
AC103 sglang:d4p1m1
                 ^^
      sglang:d4p1t1 or sglang:d4p1
AC103 fsdp:D4
           ^^
      fsdp:d4
AC103 fsdp:d4x2
             ^^
      fsdp:d4t2, fsdp:d4c2 or fsdp:d4
AC103 fsdp:d4x
             ^
      fsdp:d4
AC104 fsdp:d4p2
             ^^
      fsdp:d8, fsdp:d4t2 or fsdp:d4c2
AC104 fsdp:p2
           ^^
      fsdp:d2, fsdp:t2 or fsdp:c2
AC104 fsdp:d2e2
             ^^
      fsdp:d2, megatron:d2e2 or archon:d2e2
AC104 sglang:d2c2
               ^^
      sglang:d4, sglang:d2t2 or sglang:d2p2
AC104 vllm:d2e4
             ^^
      vllm:d2
AC105 fsdp:d2d4
             ^^
      fsdp:d2 or fsdp:d4
AC106 fsdp:
           |
      fsdp:d1 or fsdp:d8
AC106 fsdp
          |
      fsdp:d1 or fsdp:d8
AC106 fsdp[a]
             |
      fsdp[a]:d1 or fsdp:d8
AC106 fsdp:d
           ^
      fsdp:d1
AC106 fsdp:d4t
             ^
      fsdp:d4t1
AC106 fsdp:dp4
           ^
      fsdp:d4
AC106 fsdp:d-4
           ^
      fsdp:d4
AC106 fsdp:d*t2
           ^
      fsdp:d1t2
AC106 fsdp:d0
            ^
      fsdp:d1 or fsdp:d8
AC106 fsdp:d04
            ^^
      fsdp:d4 or fsdp:d8
AC106 fsdp:d４
            ^
      fsdp:d4 or fsdp:d8
AC106 fsdp:d1２
            ^^
      fsdp:d12 or fsdp:d8
AC106 fsdp:d٤
            ^
      fsdp:d4 or fsdp:d8
AC106 fsdp:d1048577
            ^^^^^^^
      fsdp:d8
AC106 fsdp:d1024t2048
           ^^^^^^^^^^
      fsdp:d8, sglang:d2t4 or megatron:d2p2t4
AC106 megatron:(attn:d1024t2048|ffn:e1)
               ^^^^^^^^^^^^^^^^^^^^^^^^
      fsdp:d8, sglang:d2t4 or megatron:d2p2t4
AC107 megatron:(attn:d2t4|ffn:d2e4
               ^
      megatron:(attn:d2t4|ffn:d2e4) or megatron:attn:d2t4|ffn:d2e4
AC107 megatron:attn:d2t4|ffn:d2e4)
                                 ^
      megatron:attn:d2t4|ffn:d2e4
AC107 megatron:(attn:d2t4
               ^
      megatron:(attn:d2t4|ffn:e1) or megatron:attn:d2t4|ffn:e1
AC107 megatron:(
               ^
      megatron:d1
AC107 fsdp:(d4
           ^
      fsdp:d4
AC107 fsdp:d4]
             ^
      fsdp:d4
AC107 fsdp[a:d4
          ^
      fsdp[a]:d4
AC107 fsdp[:d4
          ^
      fsdp[actor]:d4
AC107 fsdp]:d4
          ^
      fsdp:d4
AC107 fsdp[a]:d4]
                ^
      fsdp[a]:d4
AC107 )fsdp:d4
      ^
      fsdp:d4, fsdp:d8 or sglang:d2t4
AC108 megatron:(ffn:d2e4|attn:d2t4)
                ^^^
      megatron:(attn:d2t4|ffn:d2e4) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:ffn:e4
               ^^^
      megatron:attn:d4|ffn:e4 or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:(attn:d2t4)
                         |
      megatron:(attn:d2t4|ffn:e1) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:(attn:d2t4|)
                          |
      megatron:(attn:d2t4|ffn:e1) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:(attn:|ffn:e4)
                ^^^^^
      megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:(attn:d4|ffn:)
                        ^^^^
      megatron:(attn:d4|ffn:e1) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:(atn:d4|ffn:e4)
                ^^^
      megatron:(attn:d4|ffn:e4) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:(attn:d4|fn:e4)
                        ^^
      megatron:(attn:d4|ffn:e4) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:(attn:d4|ffn e4)
                        ^^^
      megatron:(attn:d4|ffn: e4) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:(attn:d4|e4)
                        ^^
      megatron:(attn:d4|ffn:e4) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:(attn:d4ffn:e4)
                       ^^^
      megatron:(attn:d4|ffn:e4)
AC108 megatron:(d4|e4)
                ^^
      megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC108 megatron:()
                |
      megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC111 megatron:((attn:d4|ffn:e4))
                ^
      megatron:(attn:d4|ffn:e4)
AC110 fsdp:d4+d4
             ^
      fsdp:d4
AC110 sglang:d4+fsdp:d4
               ^
      sglang:d4 or fsdp:d4
AC110 fsdp[actor]:d4|fsdp[critic]:d4
                    ^
      fsdp[actor]:d4 or fsdp[critic]:d4
AC110 fsdp:d4,t2
             ^
      fsdp:d4t2
AC110 fsdp:d4,
             ^
      fsdp:d4
AC110 megatron:(attn:d4,ffn:e4)
                       ^
      megatron:(attn:d4|ffn:e4)
AC110 sglang:d4 fsdp:d4
                ^
      sglang:d4 or fsdp:d4
AC111 sglang.d4t2
            ^
      sglang:d4t2
AC111 fsdp：d4
          ^
      fsdp:d4
AC111 fsdp d4
           ^
      fsdp :d4
AC111 fsdpd4
          |
      fsdp:d4
AC111 megatron:(attn:d4\\|ffn:e4)
                       ^
      megatron:(attn:d4|ffn:e4)
AC111 megatron:(attn:d4/ffn:e4)
                       ^
      megatron:(attn:d4|ffn:e4)
AC111 fsdp:(d4)
           ^
      fsdp:d4
AC111 fsdp:d4!
             ^
      fsdp:d4
AC111 fsdp:d4\\\\t2
             ^
      fsdp:d4t2 or fsdp:d4
AC111 fsdp:d4!t2
             ^
      fsdp:d4t2 or fsdp:d4
AC111 fsdp:d4 5
              ^
      fsdp:d45 or fsdp:d4
AC111 fsdp:d4.5
             ^
      fsdp:d4
AC111 fsdp:d4@8
             ^
      fsdp:d4
AC111 fsdp:8
           ^
      fsdp:d8
AC111 "fsdp:d4"
      ^
      fsdp:d4
AC111 ${actor.backend}
      ^
      fsdp:d8, sglang:d2t4 or megatron:d2p2t4
AC112 fsdp[]:d4
           |
      fsdp[actor]:d4
AC112 fsdp[1a]:d4
           ^^
      fsdp[_1a]:d4
AC112 fsdp[my-actor]:d4
           ^^^^^^^^
      fsdp[my_actor]:d4
AC201 megatron:(attn:d2p2t1c4|ffn:d2p4t1e2)
                                    ^^
      megatron:(attn:d2p2t1c4|ffn:d4p2t1e2) or megatron:(attn:d2p2t1c4|ffn:d4t1e2)
AC202 megatron:(attn:d4p2t1c1|ffn:d2p2t2e2)
                                  ^^^^^^^^
      megatron:(attn:d4p2t1c1|ffn:d1p2t2e2), megatron:(attn:d4p2t1c1|ffn:p2t2e2) or megatron:(attn:d4p2t1c1|ffn:t2e1)
AC203 megatron:(attn:d4|ffn:e8)
                            ^^
      megatron:(attn:d4|ffn:e4), megatron:(attn:d4|ffn:e2) or megatron:(attn:d4|ffn:e1)
AC203 megatron:(attn:d2|ffn:t4)
                            ^^
      megatron:(attn:d2|ffn:e1) or megatron:(attn:d2|ffn:e2)
AC204 megatron:d2t2e8
                   ^^
      megatron:d2t2e4, megatron:d2t2e2 or megatron:d2t2e1
AC204 megatron:d2p3e4
                   ^^
      megatron:d2p3e2 or megatron:d2p3e1
AC204 archon:d2t4e2
                 ^^
      archon:d2t4e1, archon:d2t4e4 or archon:d2t4e8
AC204 archon:(attn:d4t2|ffn:t4e2)
                            ^^^^
      archon:(attn:d4t2|ffn:e2), archon:(attn:d4t2|ffn:e1) or archon:(attn:d4t2|ffn:e4)
AC205 fsdp:(attn:d2t4|ffn:d2e4)
           ^^^^^^^^^^^^^^^^^^^^
      megatron:(attn:d2t4|ffn:d2e4), archon:(attn:d2t4|ffn:d2e4) or fsdp:d2t4
AC205 sglang:attn:d2t4|ffn:d2e4
             ^^^^^^^^^^^^^^^^^^
      megatron:attn:d2t4|ffn:d2e4, archon:attn:d2t4|ffn:d2e4 or sglang:d2t4
AC206 megatron:(attn:d4e2|ffn:e4)
                       ^^
      megatron:(attn:d4|ffn:e4) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
AC206 megatron:(attn:d4|ffn:c2e4)
                            ^^
      megatron:(attn:d4|ffn:e4) or megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)
"""  # noqa: E501

SEVERAL = {
    "fsdp:d2t2d4t8": "AC105 AC105",
    "fsdp:d04x2p2": "AC106 AC103 AC104",
    "sglang.d4p1m1+d4p1m1": "AC111 AC103 AC110",
    "megatorn:d0e": "AC102 AC106 AC106",
    "megatron:(attn:d4p2|ffn:d2p4e2c2)": "AC201 AC202 AC206",
    "megatron:(attn:d4p2|ffn:p4e16c2)": "AC201 AC203 AC206",
    "megatron:(attn:d4e2|ffn:c2e3)": "AC203 AC206 AC206",
    "megatron:(attn:d4x2|ffn:e3": "AC107 AC103",
    "megatron:(atn:d4|ffn:e4": "AC107 AC108",
    "megatron[)]:(attn:d4|ffn:e4": "AC112 AC107",
    "megatron[)]:(atn:d4|ffn:e4": "AC112 AC107 AC108",
    "megatorn[a]:d0": "AC102 AC106",
    "megatorn.d0": "AC102 AC111 AC106",
    "fsdp+d04": "AC110",
    "fsdp:d*t2x2": "AC106 AC103",
}


def refused(text: str) -> AllocationError:
    with pytest.raises(AllocationError) as caught:
        ModelAllocation.from_str(text)
    return caught.value


def accepted_rows() -> list[list[str]]:
    return [line.split() for line in ACCEPTED.strip().splitlines()]


def refused_rows() -> list[tuple[str, str, tuple[int, int], list[str]]]:
    lines = [line for line in REFUSED.splitlines() if line]
    rows = []
    for head, marker, hints in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        code, text = head[:5], head[6:]
        found = re.fullmatch(r" {6}( *)(\^+|\|)", marker)
        assert found, marker
        start = len(found[1])
        span = (start, start + len(found[2]) if "^" in found[2] else start)
        rows.append((code, text, span, re.split(r", | or ", hints.strip())))
    return rows


def offered(hint: str) -> list[str]:
    """The strings that a hint tells the user to write."""
    text = re.sub(
        r" \((?:give|known|dimensions|backends|legal|a |d of|p of|the |etp|in a shell).*",
        "",
        hint.rpartition("; for one layout ")[2],
    )
    return re.split(r", | or ", text.removeprefix("write "))


@pytest.mark.parametrize("row", accepted_rows(), ids=lambda row: row[0])
def test_accepted(row: list[str]) -> None:
    spec, backend, *numbers = row
    allocation = ModelAllocation.from_str(spec.replace("fsdp:d4_t2", "fsdp: d4 t2"))
    d, t, p, c, e, etp, edp, world = map(int, numbers)
    assert allocation.backend == backend
    parallel = allocation.parallel
    assert tuple(parallel.sizes) == (d, t, p, c, e, etp)
    assert (parallel.edp_size, parallel.world_size) == (edp, world)
    assert ModelAllocation.from_str(str(allocation)) == allocation


@pytest.mark.parametrize(("code", "text", "span", "hints"), refused_rows())
def test_refused(code: str, text: str, span: tuple[int, int], hints: list[str]) -> None:
    text = text.replace("\\\\", "\\")
    error = refused(text)
    assert (error.code, error.span, error.text) == (code, span, text)
    assert offered(error.hint) == hints
    for one in error.errors:
        assert one.message
        assert one.code in CODES
        for spec in offered(one.hint):
            ModelAllocation.from_str(spec)


@pytest.mark.parametrize(
    ("text", "offers", "note"),
    [
        ("megatron:(attn:d4t2|ffn:d2t2e4)", ["d1t2e4", "t2e4", "t2e2"], "with etp 2: 1, 2, 4"),
        ("megatron:(attn:d4|ffn:t2e8)", ["t2e2", "t2e1"], "with etp 2: 1, 2"),
        ("megatron:(attn:d4t2|ffn:d2t3e4)", ["e4", "e2", "e1"], "etp 3 goes with no e: here it is"),
        ("archon:(attn:d4t2|ffn:t4e2)", ["e2", "e1", "e4"], "etp 4 goes with no e: here it is 1"),
    ],
)
def test_a_hint_for_experts_keeps_etp_or_says_so(text: str, offers: list[str], note: str) -> None:
    hint = refused(text).hint
    assert [one.partition("ffn:")[2].rstrip(")") for one in offered(hint)] == offers
    assert note in hint


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("torch:d8", "(known backends: sglang, vllm, fsdp, megatron, archon)"),
        ("sglang:d4m1", "(the tensor dimension is t (m: its old name))"),
        ("sglang:d4M1", "(the tensor dimension is t (M: its old name))"),
        ("fsdp:D4", "(the data dimension is d (D: letters are lower case))"),
        ("fsdp:d4x", "(dimensions: d data, t tensor, c context)"),
        ("fsdp:d4p2", "(backends with p: megatron, archon; fsdp has d t c)"),
        ("fsdp:d*", "'*' belongs to patterns: "),
        ("fsdp:d4@8", "'@' belongs to patterns: "),
        ("megatron:d2p3e4", "(legal e here: 1, 2)"),
        ("megatron:d64t64e3", "512, 1024, 2048, …)"),
        ("archon:(attn:t2c4|ffn:t2e2)", "(legal e with etp 2: 1, 4)"),
        ("megatron:(attn:d4p2|ffn:p4)", "(p of ffn may be left out)"),
        ("megatron:(attn:d4|ffn:d2e4)", "(d of ffn may be left out: it is derived; legal e"),
        ("fsdp:(attn:d4|ffn:e4)", "(backends with it: megatron, archon)"),
    ],
)
def test_advice(text: str, advice: str) -> None:
    assert advice in refused(text).hint


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("fsdp ", "fsdp:d1"),
        ("fsdp: ", "fsdp:d1"),
        ("megatron:(attn:d4|ffn:e4 ", "megatron:(attn:d4|ffn:e4)"),
    ],
)
def test_blanks_at_the_end_are_not_offered_again(text: str, offered: str) -> None:
    assert refused(text).hint.startswith(f"write {offered} or ")


def test_every_code_of_the_language_has_rows() -> None:
    codes = {code for code, *_ in refused_rows()} | {"AC109"}
    assert codes == {code for code in CODES if code[:3] in ("AC1", "AC2")}


@pytest.mark.parametrize("text", ["", " ", " \t\r\n "])
def test_empty(text: str) -> None:
    error = refused(text)
    assert (error.code, error.span) == ("AC109", (0, len(text)))
    assert all(map(ModelAllocation.from_str, offered(error.hint)))


@pytest.mark.parametrize(("text", "codes"), SEVERAL.items())
def test_several_faults_of_one_string(text: str, codes: str) -> None:
    error = refused(text)
    assert [one.code for one in error.errors] == codes.split()
    assert error.errors[0] is error


@pytest.mark.parametrize("text", [*SEVERAL, *(row[1] for row in refused_rows())])
def test_order_of_faults(text: str) -> None:
    """Syntax by position, then AC2xx by number."""
    errors = refused(text).errors
    keys = [("", e.span[0]) if e.code < "AC2" else (e.code, e.span[0]) for e in errors]
    assert keys == sorted(keys)


@pytest.mark.skipif(not CASES.exists(), reason="no shared cases here")
def test_shared_cases() -> None:
    def rows(name: str) -> list[list[str]]:
        lines = (CASES / name).read_text(encoding="utf-8").splitlines()
        return [line.split("\t") for line in lines if line and not line.startswith("#")]

    for spec, backend, *numbers in rows("specs-accepted.tsv"):
        allocation = ModelAllocation.from_str(spec)
        found = (*allocation.parallel.sizes, allocation.parallel.edp_size, allocation.world_size)
        assert (allocation.backend, *map(str, found)) == (backend, *numbers)
    for spec, code in rows("specs-refused.tsv"):
        assert refused(spec).code == code


# -- blanks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        " fsdp:d4",
        "fsdp:d4\n",
        "fsdp :d4",
        "fsdp: d 4",
        "\tfsdp\r\n:\td\n4 ",
    ],
)
def test_blanks_between_tokens_mean_nothing(text: str) -> None:
    assert ModelAllocation.from_str(text) == ModelAllocation.from_str("fsdp:d4")


def test_blanks_everywhere_in_the_folded_form() -> None:
    tokens = ["megatron", "[", "a", "]", ":", "(", "attn", ":", "d", "4", "|", "ffn", ":"]
    tokens += ["e", "4", "t", "1", ")"]
    plain = ModelAllocation.from_str("".join(tokens))
    for blank in (" ", "\t", "\r\n", "  \n "):
        assert ModelAllocation.from_str(blank + blank.join(tokens) + blank) == plain


@pytest.mark.parametrize(
    "text", ["f sdp:d4", "fsdp:d1 6", "fsdp[a b]:d4", "megatron:(at tn:d1|ffn:e1)"]
)
def test_blanks_inside_a_word_or_a_number_are_errors(text: str) -> None:
    refused(text)


@pytest.mark.parametrize("blank", ["\v", "\f", "\u00a0", "\u3000", "\u200b", "\x00"])
def test_no_other_blank_counts(blank: str) -> None:
    refused(f"fsdp:{blank}d4")


# -- properties ------------------------------------------------------------------------------------

sizes = st.sampled_from([1, 1, 2, 3, 4, 7, 8, 16])
blanks = st.sampled_from(["", "", "", " ", "\t", "\n"])


@st.composite
def dims(draw: st.DrawFn, letters: str) -> str:
    chosen = draw(st.lists(st.sampled_from(letters), min_size=1, unique=True))
    return "".join(f"{draw(blanks)}{x}{draw(blanks)}{draw(sizes)}{draw(blanks)}" for x in chosen)


@st.composite
def specs(draw: st.DrawFn) -> str:
    """Strings that are well formed; most of them are valid too."""
    backend = draw(st.sampled_from([*BACKENDS]))
    name = draw(st.sampled_from(["", "", "[actor]", "[ x1 ]"]))
    if draw(st.booleans()) and BACKENDS[backend].folding:
        body = f"attn:{draw(dims('dptc'))}|ffn:{draw(dims('pte'))}"
        body = draw(st.sampled_from([body, f"({body})"]))
    else:
        body = draw(dims(BACKENDS[backend].dims))
    return f"{draw(blanks)}{backend}{name}{draw(blanks)}:{body}"


near_specs = st.one_of(
    specs(),
    st.text(alphabet="sglanvfdpmetrochk:[]()|+,dtpce0123456789 .\\４：\x00\ud800é*@", max_size=40),
    st.text(max_size=30),
    st.builds(
        lambda text, at, new: text[: at % len(text)] + new + text[at % len(text) + 1 :],
        specs(),
        st.integers(0, 99),
        st.sampled_from(
            [*"dtpcem018:()[]|+,. \\x", "", "attn:", "ffn:", "|ffn:d2", "９", "\ud800"]
        ),
    ),
)


def read(text: str) -> ModelAllocation | AllocationError:
    try:
        return ModelAllocation.from_str(text)
    except AllocationError as error:
        return error


@given(near_specs)
@settings(max_examples=400)
@pytest.mark.slow
def test_any_text_parses_or_raises_allocation_error(text: str) -> None:
    found = read(text)
    if isinstance(found, ModelAllocation):
        assert read(str(found)) == found
        return
    assert found.errors[0] is found
    assert len(str(found)) < 5000
    for one in found.errors:
        start, end = one.span
        assert 0 <= start <= end <= len(text)
        assert one.text == text
        assert one.message
        assert one.hint
        assert one.code in CODES
        assert all(c.isprintable() or c == "\n" for c in str(one))


@given(near_specs)
@settings(max_examples=400)
@example("megatron:attn:d1|ffn:e1)")
@example("megatron:(attn:d4|ffn:e4")
@example("fsdp:d0000004")
@example("archon:(attn:d4t2|ffn:t4e2)")
@pytest.mark.slow
def test_a_text_has_a_meaning_or_faults_with_a_cure(text: str) -> None:
    grammar = Grammar(text)
    assert (grammar.spec() is None) == bool(grammar.faults)
    assert {fault.kind for fault in grammar.faults} <= set(CURES)


def test_every_kind_of_fault_has_a_cure_and_every_cure_a_fault() -> None:
    source = "".join(
        (ROOT / "areal_conf" / "spec" / name).read_text() for name in ("grammar.py", "patterns.py")
    )
    assert {kind for kind in CURES if f'"{kind}"' not in source} == set()


@given(specs(), specs())
@settings(max_examples=200)
@pytest.mark.slow
def test_equal_meaning_is_equal_canonical_form(one: str, other: str) -> None:
    a, b = read(one), read(other)
    if isinstance(a, ModelAllocation) and isinstance(b, ModelAllocation):
        assert (a == b) == (str(a) == str(b))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("fsdp:t2d4", "fsdp:d4t2"),
        ("fsdp:d1p1t1", "fsdp:d1"),
        ("fsdp: d8 p1", "fsdp:d8"),
        ("megatron:e4c2t4p2d2", "megatron:d2p2t4c2e4"),
        ("megatron:attn:d2t4|ffn:e8", "megatron:d2t4e8"),
        ("megatron:(attn:d2t4|ffn:t4e2)", "megatron:(attn:d2t4|ffn:t4e2)"),
        ("megatron:(attn:t4d2c1|ffn:p1t2)", "megatron:(attn:d2t4|ffn:d4t2)"),
        ("megatron[ actor ]:(attn:t8|ffn:t8)", "megatron[actor]:(attn:t8|ffn:t8)"),
        ("archon:attn:d4t2|ffn:t2e4", "archon:(attn:d4t2|ffn:t2e4)"),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    assert str(ModelAllocation.from_str(text)) == canonical


# -- long and strange texts ------------------------------------------------------------------------

LONG = 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        " " * LONG,
        " " * LONG + "x",
        "f" * LONG,
        "f" * LONG + " " * LONG,
        "fsdp:" + "d1" * LONG,
        "fsdp:" + "d1 " * LONG + "x",
        "fsdp:d" + "1" * LONG,
        "fsdp:d" + "0" * LONG,
        "fsdp:d" + "４" * LONG,
        "fsdp:d" + " " * LONG + "!",
        "fsdp:" + " " * LONG + "d8x9",
        "fsdp:" + "d1" + " " * LONG + "x9",
        "fsdp:(" + " " * LONG + "x9",
        "megatron:(attn:d1|ffn" + " " * LONG + "e1)",
        "fsdp:4d|" + "1" * LONG,
        "fsdp:" + "(" * LONG,
        "fsdp[" * LONG,
        "fsdp[" + "é" * LONG + "]:d4",
        "megatron:(attn:" + "d1" * LONG + "|ffn:e1)",
        "megatron:(attn:d1" + " " * LONG + "ffn:e1)",
        "megatron:(attn:d1" + "|ffn:e1" * LONG + ")",
        "megatron:" + "ffn:e4|" * LONG + "attn:d4",
        "fsdp:d4+" * LONG,
        "d4" * LONG,
        "m" * LONG + ":d4",
    ],
    ids=lambda text: f"{text[:12]}_{text[-4:]}".replace(" ", "_"),
)
def test_long_texts_take_linear_time(text: str) -> None:
    started = time.process_time()
    error = refused(text)
    assert time.process_time() - started < 10  # quadratic would be hours
    assert len(str(error)) < 5000


def test_hints_try_a_bounded_number_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    read = Grammar.spec
    monkeypatch.setattr(Grammar, "spec", lambda self: tried.append(self.text) or read(self))
    refused("megatron:x1y2z3w4v5u6s7r8")  # without a bound it would be 900
    assert _MAX_REPAIRS <= len(tried) < 2 * _MAX_REPAIRS


def test_no_more_than_some_faults_are_told() -> None:
    assert len(refused("fsdp:" + "x1" * 100).errors) == 32
    assert len(refused("megatron:(attn:" + "x1" * 100 + "|ffn:" + "x1" * 100).errors) <= 34


def test_long_texts_get_an_example_for_a_hint() -> None:
    assert offered(refused("fsdp:d4x2" + " " * 391).hint) == ["fsdp:d4t2", "fsdp:d4c2", "fsdp:d4"]
    assert offered(refused("fsdp:d4x2" + " " * 392).hint)[0] == "fsdp:d8"


@pytest.mark.parametrize("text", ["fsdp:" + " " * LONG + "d4", "fsdp:d4" + "\n" * LONG])
def test_long_blanks_are_fine(text: str) -> None:
    assert ModelAllocation.from_str(text).world_size == 4
    assert dimension_span(text, "t") == (0, len(text))


@pytest.mark.parametrize("char", ["\x00", "\x1b", "\n", "\u202e", "\ud800", "\U0010ffff"])
def test_control_characters_never_reach_the_terminal(char: str) -> None:
    for text in (f"{char}:d4", f"fsdp:d4{char}x", f"fsdp[{char}]:d4", f"to{char}rch:d4", char):
        error = refused(text)
        shown = str(error).replace("\n", "")
        assert shown.isprintable()
        shown.encode()


def test_wide_characters_are_underlined_by_two_columns() -> None:
    lines = str(refused("fsdp:d４")).splitlines()
    assert lines[1:3] == ["  fsdp:d４", "        ^^"]


def test_a_world_that_is_too_large_is_a_typing_error() -> None:
    assert ModelAllocation.from_str(f"fsdp:d{MAX_SIZE}").world_size == MAX_SIZE
    assert refused(f"fsdp:d{MAX_SIZE}t2").code == "AC106"
    assert refused(f"fsdp:d{MAX_SIZE + 1}").code == "AC106"
    assert refused(f"megatron:e{MAX_SIZE + 1}").code == "AC106"


@pytest.mark.parametrize(
    ("text", "dim", "shown"),
    [
        ("fsdp:d4t2", "t", "t2"),
        ("fsdp: d 4 t2", "d", "d 4"),
        ("fsdp[d9]:d4", "d", "d4"),
        ("megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)", "t", "t2"),
        ("megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)", "etp", "t4"),
        ("megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)", "e", "e2"),
        ("megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)", "p", "p2"),
        ("megatron:(attn:d4|ffn:t2e2)", "t", "megatron:(attn:d4|ffn:t2e2)"),
        ("fsdp:d4", "t", "fsdp:d4"),
        ("fsdp:d4", "", "fsdp:d4"),
    ],
)
def test_where_a_dimension_stands(text: str, dim: str, shown: str) -> None:
    start, end = dimension_span(text, dim)
    assert text[start:end] == shown


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sglang:4d4t", "write sglang:d4t4"),
        ("fsdp:4d", "write fsdp:d4"),
        ("megatron:(attn:4d2t|ffn:2e)", "write megatron:(attn:d4t2|ffn:e2)"),
        ("fsdp:d8,t2", "write fsdp:d8t2"),
        ("fsdp:d8 , t2", "write fsdp:d8t2"),
        ("fsdp:d8+d4", "write fsdp:d8 or fsdp:d4 (give each engine its own backend field)"),
    ],
)
def test_hints_offer_what_was_meant(text: str, hint: str) -> None:
    with pytest.raises(AllocationError) as refused:
        ModelAllocation.from_str(text)
    assert refused.value.hint == hint


def test_hints_begin_with_the_cure() -> None:
    with pytest.raises(AllocationError) as refused:
        ModelAllocation.from_str("fsdp:d*t*@8")
    assert [error.hint.find("belongs to patterns") for error in refused.value.errors] == [4, 4, 4]
    with pytest.raises(AllocationError, match="AC108: the ffn section is missing") as refused:
        ModelAllocation.from_str("megatron:attn:d2t4c2")  # a shell took `|ffn:e8` away
    assert "in a shell, put the whole string in quotes" in refused.value.hint
