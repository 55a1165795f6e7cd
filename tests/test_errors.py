"""`AllocationError`: what people and programs read in it."""

from __future__ import annotations

import copy
import pickle

import pytest

from areal_conf import AllocationError, ModelAllocation
from areal_conf.errors import CODES, clip, underline, wrong_type


def caught(text: str) -> AllocationError:
    with pytest.raises(AllocationError) as info:
        ModelAllocation.from_str(text)
    return info.value


def test_as_people_read_it() -> None:
    assert str(caught("fsdp:d4p2").at("actor.backend")) == (
        "actor.backend: AC104: fsdp has no pipeline dimension (p)\n"
        "  fsdp:d4p2\n"
        "         ^^\n"
        "hint: write fsdp:d8, fsdp:d4t2 or fsdp:d4c2 "
        "(backends with p: megatron, archon; fsdp has d t c)"
    )


def test_an_error_about_no_text() -> None:
    error = AllocationError("AC301", "no backend", hint="write one")
    assert (error.text, error.span, error.path) == ("", (0, 0), None)
    assert str(error) == "AC301: no backend\nhint: write one"


def test_as_programs_read_it() -> None:
    error = caught("fsdp:d4p2")
    assert isinstance(error, ValueError)
    assert (error.code, error.text, error.span, error.path) == ("AC104", "fsdp:d4p2", (7, 9), None)
    assert error.message == "fsdp has no pipeline dimension (p)"
    assert error.args == (error.message,)
    assert error.errors == (error,)


def test_others_are_counted_and_follow() -> None:
    error = caught("fsdp:d2t2d4t8")
    assert [one.span for one in error.errors] == [(9, 11), (11, 13)]
    assert str(error).endswith("\n(1 more: AC105)")
    assert str(caught("fsdp:d2t2d4t8x2")).endswith("\n(2 more: AC105, AC103)")
    assert all(one.errors == (one,) for one in error.errors[1:])
    placed = error.at("actor.backend")
    assert [one.path for one in placed.errors] == ["actor.backend"] * 2
    assert error.path is None


@pytest.mark.parametrize("text", ["fsdp:d4p2", "fsdp:d2t2d4t8", "", "\ud800"])
def test_copies_tell_the_same(text: str) -> None:
    error = caught(text).at("actor.backend")
    for again in (
        copy.copy(error),
        copy.deepcopy(error),
        *(pickle.loads(pickle.dumps(error, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)),
    ):
        assert str(again) == str(error)
        assert repr(again) == repr(error)
        assert [vars(e)["code"] for e in again.errors] == [e.code for e in error.errors]
        assert (again.span, again.path, again.hint) == (error.span, error.path, error.hint)
    assert hash(error) == hash(error)
    assert isinstance(error.errors, tuple)


def test_codes_are_in_order() -> None:
    assert list(CODES) == sorted(CODES)
    assert all(len(code) == 5 and meaning for code, meaning in CODES.items())


def test_long_texts_are_cut_around_the_span() -> None:
    text = "fsdp:" + " " * 5000 + "d4p2" + " " * 5000
    error = caught(text)
    shown, marker = str(error).splitlines()[1:3]
    assert shown.strip().startswith("…")
    assert shown.strip().endswith("…")
    assert shown[marker.index("^") : marker.rindex("^") + 1] == "p2"
    assert len(str(error)) < 1000


@pytest.mark.parametrize(
    ("text", "span", "shown", "marker"),
    [
        ("abc", (1, 2), "abc", " ^"),
        ("abc", (3, 3), "abc", "   ^"),
        ("", (0, 0), "", "^"),
        ("a\tb", (1, 2), "a\\tb", " ^^"),
        ("ａb", (1, 2), "ａb", "  ^"),
        ("e\u0301b", (2, 3), "e\u0301b", " ^"),
        ("a" * 200, (0, 200), "a" * 160 + "…", "^" * 160),
        ("a" * 200 + "b", (200, 201), "…" + "a" * 159 + "b", " " * 160 + "^"),
        ("a" * 159 + "b", (159, 160), "a" * 159 + "b", " " * 159 + "^"),
        ("a" * 199 + "b" * 201, (199, 200), f"…{'a' * 53}{'b' * 107}…", " " * 54 + "^"),
    ],
)
def test_underline(text: str, span: tuple[int, int], shown: str, marker: str) -> None:
    assert underline(text, span) == (shown, marker)


def test_clip() -> None:
    assert clip("fsdp:d4") == "fsdp:d4"
    assert clip("x" * 10, 10) == "x" * 10
    assert clip("\x1b[31m\ud800") == "\\x1b[31m\\ud800"
    assert clip("x" * 1000, 10) == "xxxxx…xxxxx"


def test_wrong_type_names_type_and_value() -> None:
    error = wrong_type(484, "a backend string", hint="quote it", path="actor.backend")
    assert error.code == "AC309"
    assert error.message == "expected a backend string, got int: 484"
    assert (error.text, error.path) == ("484", "actor.backend")
    assert len(str(wrong_type(["x" * 10**6], "a str", hint="h"))) < 5000


def test_long_parts_are_cut() -> None:
    text = str(AllocationError("AC309", "m" * 700, hint="h" * 1000))
    assert text == f"AC309: {'m' * 300}…{'m' * 300}\nhint: {'h' * 450}…{'h' * 450}"
    error = AllocationError(
        "AC309", "m" * 10**5, hint="h" * 10**5, text="t" * 10**5, path="p" * 9999
    )
    assert len(str(error)) < 5000
