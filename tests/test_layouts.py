"""Layout patterns: every valid layout, once, in a stable order, held against brute force."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from areal_conf import AllocationError, ModelAllocation, joint_layouts, layouts
from areal_conf.model import ModelFacts, fits
from areal_conf.resolvers import register
from areal_conf.search_space import Space, nothing_valid
from areal_conf.spec.backends import BACKENDS, Sizes

ALL = {name: f"{name}:{''.join(f'{x}*' for x in row.dims)}" for name, row in BACKENDS.items()}
FOLDED = {x: f"{x}:attn:d*t*p*c*|ffn:t*e*" for x in ("megatron", "archon")}


def specs(pattern: str, gpus: int | None = None, model: ModelFacts | None = None) -> list[str]:
    return [str(allocation) for allocation in layouts(pattern, gpus, model)]


# -- brute force: the rules of the language, said once more and tried on every tuple ---------------


def worlds(gpus: int) -> Iterator[tuple[int, int, int, int]]:
    for d, t, p in itertools.product(range(1, gpus + 1), repeat=3):
        if d * t * p <= gpus and gpus % (d * t * p) == 0:
            yield d, t, p, gpus // (d * t * p)


def valid(backend: str, s: Sizes) -> bool:
    if any(getattr(s, x) > 1 and x not in BACKENDS[backend].dims for x in "dtpce"):
        return False
    if s.world % (s.p * s.etp * s.e):
        return False
    if backend != "archon":
        return True
    if s.etp not in (1, s.t):
        return False
    inner, outer = (s.c * s.t, s.d * s.c * s.t) if s.etp == 1 else (s.c, s.d * s.c)
    return s.e == 1 or (s.e % inner == 0 and outer % s.e == 0)


def brute(backend: str, gpus: int, folded: bool = False) -> set[Sizes]:
    ranks = range(1, gpus + 1)
    return {
        sizes
        for d, t, p, c in worlds(gpus)
        for e, etp in itertools.product(ranks, ranks if folded else (1,))
        if valid(backend, sizes := Sizes(d, t, p, c, e, etp))
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.slow
def test_all_layouts_up_to_64_gpus(backend: str) -> None:
    for gpus in range(1, 65):
        found = [a.parallel.sizes for a in layouts(f"{ALL[backend]}@{gpus}")]
        assert len(found) == len(set(found))
        assert set(found) == brute(backend, gpus)


@pytest.mark.parametrize("backend", FOLDED)
@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 6, 8, 12, 16, 24])
def test_all_layouts_with_expert_tensor_parallelism(backend: str, gpus: int) -> None:
    found = [a.parallel.sizes for a in layouts(f"{FOLDED[backend]}@{gpus}")]
    assert len(found) == len(set(found))
    assert set(found) == brute(backend, gpus, folded=True)


@pytest.mark.parametrize("pattern", [*ALL.values(), *FOLDED.values()])
def test_every_layout_is_what_its_own_string_says(pattern: str) -> None:
    for allocation in layouts(pattern, 48):
        assert ModelAllocation.from_str(str(allocation)) == allocation


size = st.one_of(st.just("*"), st.sampled_from([1, 2, 3, 4, 8]).map(str))


@given(
    st.sampled_from(sorted(BACKENDS)),
    st.dictionaries(st.sampled_from("dtpce"), size, min_size=1),
    st.integers(1, 48),
    st.randoms(use_true_random=False),
)
def test_any_plain_pattern(backend: str, sizes: dict[str, str], gpus: int, random: object) -> None:
    sizes = {x: size for x, size in sizes.items() if x in BACKENDS[backend].dims}
    if not sizes:
        return
    letters = list(sizes)
    random.shuffle(letters)  # type: ignore[attr-defined]
    pattern = f"{backend}:{''.join(x + sizes[x] for x in letters)}@{gpus}"
    wanted = [
        found
        for found in brute(backend, gpus)
        if all(sizes.get(x, "1") in ("*", str(getattr(found, x))) for x in "dtpce")
    ]
    order = sorted(wanted, key=lambda s: (-s.d, s.p, s.t, s.c, s.etp, s.e))
    if "*" in sizes.values() or not is_wrong(pattern):
        assert [a.parallel.sizes for a in layouts(pattern)] == order


@given(
    st.sampled_from(sorted(FOLDED)),
    st.dictionaries(st.sampled_from("dtpc"), size, min_size=1),
    st.dictionaries(st.sampled_from("dtpe"), size, min_size=1),
    st.integers(1, 24),
    st.booleans(),
)
@pytest.mark.slow
def test_any_folded_pattern(
    backend: str, attn: dict[str, str], ffn: dict[str, str], gpus: int, parentheses: bool
) -> None:
    sections = "|".join(
        f"{name}:{''.join(x + n for x, n in dims.items())}"
        for name, dims in (("attn", attn), ("ffn", ffn))
    )
    pattern = f"{backend}:({sections})@{gpus}" if parentheses else f"{backend}:{sections}@{gpus}"
    if is_wrong(pattern):
        return
    wanted = [
        s
        for s in brute(backend, gpus, folded=True)
        if all(attn.get(x, "1") in ("*", str(getattr(s, x))) for x in "dtpc")
        and ffn.get("t", "1") in ("*", str(s.etp))
        and ffn.get("e", "1") in ("*", str(s.e))
        and ffn.get("p", "*") in ("*", str(s.p))
        and ffn.get("d", "*") in ("*", str(gpus // (s.p * s.etp * s.e)))
    ]
    order = sorted(wanted, key=lambda s: (-s.d, s.p, s.t, s.c, s.etp, s.e))
    assert [a.parallel.sizes for a in layouts(pattern)] == order


def is_wrong(pattern: str) -> bool:
    """Whether it is, whatever the open sizes are: p differs, or nothing is open at all."""
    return code_of(pattern) in ("AC201", "AC202", "AC203", "AC204")


def code_of(pattern: str) -> str | None:
    try:
        layouts(pattern, 8)
    except AllocationError as error:
        return error.code
    return None


# -- the pattern --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("fsdp:d*t*@8", ["fsdp:d8", "fsdp:d4t2", "fsdp:d2t4", "fsdp:t8"]),
        (" fsdp : t * d * @ 4 ", ["fsdp:d4", "fsdp:d2t2", "fsdp:t4"]),
        ("sglang[rollout]:d*t*@2", ["sglang[rollout]:d2", "sglang[rollout]:t2"]),
        ("fsdp:d*p1@2", ["fsdp:d2"]),
        ("fsdp:d3t*@8", []),
        ("fsdp:d8", ["fsdp:d8"]),
        ("megatron:d2p2e*", ["megatron:d2p2", "megatron:d2p2e2"]),
        ("megatron:d2p2e*@8", []),
        (
            "megatron:attn:d*p2|ffn:p*e*@4",
            ["megatron:d2p2", "megatron:d2p2e2"],
        ),
        ("megatron:(attn:d*p*|ffn:p2)@4", ["megatron:d2p2"]),
        ("megatron:(attn:d*|ffn:p1)@2", ["megatron:d2"]),
        ("megatron:(attn:d*t*|ffn:d1t2)@4", ["megatron:(attn:d2t2|ffn:t2)"][:0]),
        (
            "megatron:(attn:d*t*|ffn:d2t2)@4",
            [
                "megatron:(attn:d4|ffn:d2t2)",
                "megatron:(attn:d2t2|ffn:d2t2)",
                "megatron:(attn:t4|ffn:d2t2)",
            ],
        ),
        ("archon:d2t4e*", ["archon:d2t4", "archon:d2t4e4", "archon:d2t4e8"]),
    ],
)
def test_patterns(pattern: str, wanted: list[str]) -> None:
    assert specs(pattern) == wanted


@pytest.mark.parametrize(
    ("pattern", "code", "span"),
    [
        ("fsdp:d*p*@8", "AC104", (7, 9)),
        ("sglang:d*e*@8", "AC104", (9, 11)),
        ("fsdp:d*t*", "AC601", (9, 9)),
        ("fsdp:d*@", "AC602", (8, 8)),
        ("fsdp:d*@0", "AC602", (8, 9)),
        ("fsdp:d*@-8", "AC602", (8, 10)),
        ("fsdp:d*@2097152", "AC602", (8, 15)),
        ("fsdp:d*@８", "AC602", (8, 9)),
        ("fsdp:d**@8", "AC111", (7, 8)),
        ("fsdp:*", "AC111", (5, 6)),
        ("fsdp:d*d2@8", "AC105", (7, 9)),
        ("d*t*@8", "AC101", (0, 6)),
        ("fsd:d*@8", "AC102", (0, 3)),
        ("", "AC109", (0, 0)),
        ("megatron:(attn:d*|ffn:e*@8", "AC107", (9, 10)),
        ("megatron:(attn:d*|ffn:e*@8)", "AC107", (9, 10)),
        ("fsdp:attn:d*|ffn:e*@8", "AC205", (5, 21)),
        ("megatron:attn:d*e*|ffn:t*@8", "AC206", (16, 18)),
        ("megatron:attn:d*p2|ffn:p4@8", "AC201", (23, 25)),
        ("megatron:attn:d*|ffn:p2@8", "AC201", (21, 23)),
        ("megatron:d2e4", "AC204", (11, 13)),
        ("fsdp:d1048576t2c*@8", "AC106", (5, 19)),
    ],
)
def test_what_is_wrong_is_said_at_the_call(pattern: str, code: str, span: tuple[int, int]) -> None:
    with pytest.raises(AllocationError) as raised:
        layouts(pattern)
    assert (raised.value.code, raised.value.span) == (code, span)
    assert raised.value.hint


def test_hints_are_patterns() -> None:
    with pytest.raises(AllocationError, match=r"write fsdp:d\*@8, fsdp:d\*t\*@8"):
        layouts("fsdp:d*p*@8")


@pytest.mark.parametrize(("gpus", "code"), [(0, "AC602"), (-1, "AC602"), (2**21, "AC602")])
def test_number_of_gpus_beside_the_pattern(gpus: int, code: str) -> None:
    assert specs("fsdp:d*", 4) == ["fsdp:d4"]
    assert specs("fsdp:d*@8", 4) == ["fsdp:d8"]
    assert specs("fsdp:d8", 4) == []
    with pytest.raises(AllocationError) as raised:
        layouts("fsdp:d*", gpus)
    assert raised.value.code == code


@pytest.mark.parametrize("value", [8, None, b"fsdp:d*@8", ["fsdp:d*@8"]])
def test_a_pattern_is_a_str(value: object) -> None:
    with pytest.raises(AllocationError) as raised:
        layouts(value)  # type: ignore[arg-type]
    assert raised.value.code == "AC309"
    assert raised.value.text == repr(value)


@pytest.mark.parametrize("value", ["8", True, 8.0])
def test_a_number_of_gpus_is_an_int(value: object) -> None:
    with pytest.raises(AllocationError) as raised:
        layouts("fsdp:d*", value)  # type: ignore[arg-type]
    assert raised.value.code == "AC309"


@given(st.text("fsdpmegatron:d*t*e2@8()|attn:ffn: 1"))
def test_nothing_but_an_allocation_error_leaves(text: str) -> None:
    if code_of(text) is None:
        found = layouts(text, 8)
        assert all(isinstance(x, ModelAllocation) for x in itertools.islice(found, 3))


def test_lazy() -> None:
    found = layouts("megatron:attn:d*t*p*c*|ffn:t*e*@1048576")
    assert str(next(found)) == "megatron:d1048576"


# -- with a model -------------------------------------------------------------------------------

QWEN = ModelFacts(heads=28, kv_heads=4, layers=28, source="Qwen2.5-7B")
MOE = ModelFacts(heads=32, kv_heads=4, layers=48, experts=128, expert_intermediate=768)


@pytest.mark.parametrize("model", [QWEN, MOE])
@pytest.mark.parametrize("pattern", [*ALL.values(), *FOLDED.values()])
def test_what_the_model_does_not_fit_is_left_out(pattern: str, model: ModelFacts) -> None:
    for gpus in (8, 12, 16, 56):
        every = layouts(pattern, gpus)
        wanted = [str(a) for a in every if fits(a.parallel.sizes, a.backend, model)]
        assert specs(pattern, gpus, model) == wanted


# -- jointly ------------------------------------------------------------------------------------


def joint(patterns: dict[str, str], total: int | None, **options: object) -> list[list[str]]:
    found = joint_layouts(patterns, total, **options)  # type: ignore[arg-type]
    return [[str(x) for x in each.values()] for each in found]


def test_every_split_fills_the_cluster_exactly() -> None:
    assert joint({"rollout": "sglang:d*t*", "actor": "fsdp:d*"}, 4) == [
        ["sglang:d1", "fsdp:d3"],
        ["sglang:d2", "fsdp:d2"],
        ["sglang:t2", "fsdp:d2"],
        ["sglang:d3", "fsdp:d1"],
        ["sglang:t3", "fsdp:d1"],
    ]


@pytest.mark.parametrize("total", [1, 2, 5, 8, 12])
def test_three_engines_against_brute_force(total: int) -> None:
    patterns = {"rollout": "sglang:d*t2", "actor": "megatron:d*p*e*", "critic": "fsdp:d*c*"}
    wanted = {
        (*a, *b, *c)
        for n, m in itertools.product(range(1, total), repeat=2)
        if total - n - m > 0
        for a, b, c in itertools.product(
            [(x,) for x in specs(patterns["rollout"], n)],
            [(x,) for x in specs(patterns["actor"], m)],
            [(x,) for x in specs(patterns["critic"], total - n - m)],
        )
    }
    found = [tuple(each) for each in joint(patterns, total)]
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_patterns_with_a_count_take_theirs_first() -> None:
    patterns = {"rollout": "sglang:d*t2@4", "actor": "fsdp:d*", "ref": "fsdp:d2"}
    assert joint(patterns, 8) == [["sglang:d2t2", "fsdp:d2", "fsdp:d2"]]
    assert joint(patterns, 6) == []
    assert joint({"rollout": "sglang:d*@4", "actor": "fsdp:d2"}, None) == [["sglang:d4", "fsdp:d2"]]
    assert joint({}, 8) == [[]]


def test_guests_have_the_gpus_of_their_host() -> None:
    patterns = {"ref": "fsdp:d*", "rollout": "sglang:d*", "actor": "fsdp:d*"}
    assert joint(patterns, 4, guests={"ref": "actor"}) == [
        ["fsdp:d1", "sglang:d3", "fsdp:d1"],
        ["fsdp:d2", "sglang:d2", "fsdp:d2"],
        ["fsdp:d3", "sglang:d1", "fsdp:d3"],
    ]
    patterns = {"ref": "fsdp:d*", "actor": "fsdp:d*@4"}
    assert joint(patterns, None, guests={"ref": "actor"}) == [["fsdp:d4", "fsdp:d4"]]


def test_a_guest_of_a_guest_is_none() -> None:
    patterns = {"ref": "fsdp:d*", "critic": "fsdp:d*", "actor": "fsdp:d1"}
    guests = {"ref": "critic", "critic": "actor"}
    assert joint(patterns, 3, guests=guests) == [["fsdp:d2", "fsdp:d1", "fsdp:d1"]]


def test_gpus_that_count_twice() -> None:
    patterns = {"actor": "fsdp:d*", "rollout": "sglang:d2"}
    assert joint(patterns, 8, weights={"actor": 2}) == [["fsdp:d3", "sglang:d2"]]
    assert joint(patterns, 8, weights={"rollout": 2}) == [["fsdp:d4", "sglang:d2"]]
    assert joint(patterns, 7, weights={"actor": 2}) == []


@pytest.mark.parametrize(
    ("pattern", "gpus", "why", "hint"),
    [
        (
            "fsdp:d3t*@8",
            None,
            "the fixed sizes' product 3",
            "give 6 or 9 GPUs, or leave more sizes open",
        ),
        (
            "fsdp:d3t*",
            2,
            "the fixed sizes' product 3",
            "give 3 GPUs, or leave more sizes open",
        ),
        (
            " megatron:d2p2e*@8",
            None,
            "megatron:d2p2e*@8 has no valid layout",
            "leave more sizes open: megatron:d*t*p*c*e*@8",
        ),
    ],
)
def test_why_nothing_is_valid(pattern: str, gpus: int | None, why: str, hint: str) -> None:
    error = nothing_valid(pattern, gpus)
    assert why in error.message
    assert (error.code, error.text, error.hint) == ("AC603", pattern, hint)


def test_why_nothing_fits_the_model() -> None:
    error = nothing_valid("sglang:t*@3", model=QWEN)
    assert error.message == "no layout of 3 GPUs fits the model Qwen2.5-7B"
    nameless = nothing_valid("sglang:t*@3", model=replace(QWEN, source=""))
    assert nameless.message == "no layout of 3 GPUs fits the model"
    assert "product 2" in nothing_valid("sglang:d2t*@3", model=QWEN).message


def test_joint_needs_a_total() -> None:
    with pytest.raises(AllocationError) as raised:
        joint_layouts({"actor": "fsdp:d*"})
    assert raised.value.code == "AC601"


def test_joint_models() -> None:
    patterns = {"rollout": "sglang:t*", "actor": "fsdp:d*"}
    found = joint(patterns, 9, models={"rollout": QWEN})
    assert [rollout for rollout, _ in found] == ["sglang:d1", "sglang:t2", "sglang:t4"]


def test_joint_is_lazy() -> None:
    patterns = {"rollout": "sglang:d*t*p*", "actor": "megatron:d*t*p*c*e*", "critic": "fsdp:d*"}
    first = next(joint_layouts(patterns, 100_000))
    assert [str(x) for x in first.values()] == ["sglang:d1", "megatron:d1", "fsdp:d99998"]


def test_joint_makes_each_layout_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of three engines meet the same layouts again and again: 4,000 a second otherwise."""
    calls: list[int] = []
    of_one = Space.layouts

    def counted(self: Space, gpus: int) -> Iterator[ModelAllocation]:
        calls.append(gpus)
        return of_one(self, gpus)

    monkeypatch.setattr(Space, "layouts", counted)
    patterns = {"rollout": "sglang:d*t*", "actor": "fsdp:d*t*", "critic": "megatron:d*"}
    assert sum(1 for _ in joint_layouts(patterns, 64)) > 5_000
    assert len(calls) <= 2 * 3 * 64


def test_a_guest_of_a_host_with_gpus_of_its_own() -> None:
    patterns = {"actor": "fsdp:d*t*@4", "ref": "fsdp:d*", "rollout": "sglang:d*"}
    found = joint(patterns, 6, guests={"ref": "actor"})
    assert found == [
        ["fsdp:d4", "fsdp:d4", "sglang:d2"],
        ["fsdp:d2t2", "fsdp:d4", "sglang:d2"],
        ["fsdp:t4", "fsdp:d4", "sglang:d2"],
    ]


def test_resolver() -> None:
    register()
    cfg = OmegaConf.create(
        {"a": "${areal.layouts:fsdp:d*t*@4}", "b": "${areal.layouts:'fsdp:d*',2}"}
    )
    assert cfg.a == ["fsdp:d4", "fsdp:d2t2", "fsdp:t4"]
    assert cfg.b == ["fsdp:d2"]
