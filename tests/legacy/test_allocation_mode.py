"""The deprecated `allocation_mode` in its four generations."""

from __future__ import annotations

import copy
import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import CASES

from areal_conf import (
    AllocationError,
    AllocationMode,
    AllocationType,
    ModelAllocation,
    SchedulingStrategyType,
)
from areal_conf.errors import CODES
from areal_conf.legacy.dialects import DIALECTS

MODES = {
    # first generation
    "d4p2m1": {"actor": "megatron:d4p2"},
    "m1d4p1": {"actor": "fsdp:d4"},
    "sglang.d80m2p1+d4m2p4": {"rollout": "sglang:d80t2", "actor": "megatron:d4p4t2"},
    "d4p1m1+vllm.d4m2p1": {"actor": "fsdp:d4", "rollout": "vllm:d4t2"},
    "d4p2t2c2/d2p2t2e4": {"actor": "megatron:(attn:d4p2t2c2|ffn:d2p2t2e4)"},
    "sglang.d4p2t2+d2p2t2c2/d2p2t2e2": {
        "rollout": "sglang:d4p2t2",
        "actor": "megatron:(attn:d2p2t2c2|ffn:d2p2t2e2)",
    },
    "sglang.d4m1p1+actor_train:d4p1m1,ref_inf:d4p1m1": {
        "rollout": "sglang:d4",
        "actor": "fsdp:d4",
        "ref": "fsdp:d4",
    },
    "sglang.d4m1p1+*:d2p2m1": {"rollout": "sglang:d4", "actor": "megatron:d2p2"},
    "trainDefault:d8p1m1": {"actor": "fsdp:d8"},
    # second
    "sglang.d4p1t1+d4p1t1": {"rollout": "sglang:d4", "actor": "fsdp:d4"},
    "d4p1t1+sglang.d4p1t1": {"actor": "fsdp:d4", "rollout": "sglang:d4"},
    "sglang.d4+fsdp.d4": {"rollout": "sglang:d4", "actor": "fsdp:d4"},
    "vllm.d4p1t2+d8p1t1": {"rollout": "vllm:d4t2", "actor": "fsdp:d8"},
    "sglang:d4p1t2+eval": {"rollout": "sglang:d4t2"},
    "cpu + sglang.d4": {"rollout": "sglang:d4"},
    # third
    "sglang:d4p1t1+d4p1t1": {"rollout": "sglang:d4", "actor": "fsdp:d4"},
    "d8p1t1": {"actor": "fsdp:d8"},
    "vllm:d4p1t2+d4p1t1c2": {"rollout": "vllm:d4t2", "actor": "fsdp:d4c2"},
    "attn:d4p2t2c2|ffn:d2p2t4e2": {"actor": "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)"},
    "( attn:d4p2t2c2 | ffn:d2p2t4e2 )": {"actor": "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)"},
    "vllm:d4+[actor]:d4": {"rollout": "vllm:d4", "actor": "fsdp:d4"},
    "vllm:d2p2+[actor]:d4": {"rollout": "vllm:d2p2", "actor": "fsdp:d4"},
    "[actor]:d2p2+vllm:d4": {"actor": "megatron:d2p2", "rollout": "vllm:d4"},
    "sglang[rollout]:d4+[actor]:d4|megatron[critic]:d4|[ref]:t2d2|[rew]:c4": {
        "rollout": "sglang:d4",
        "actor": "fsdp:d4",
        "critic": "megatron:d4",
        "ref": "fsdp:d2t2",
        "rew": "fsdp:c4",
    },
    # fourth
    "sglang:d4p1t1": {"rollout": "sglang:d4"},
    "sglang:d1 + fsdp:d1": {"rollout": "sglang:d1", "actor": "fsdp:d1"},
    "sglang:d6+archon:d2": {"rollout": "sglang:d6", "actor": "archon:d2"},
    "sglang[rollout]:d2+fsdp[actor]:d4|fsdp[critic]:d4": {
        "rollout": "sglang:d2",
        "actor": "fsdp:d4",
        "critic": "fsdp:d4",
    },
    "megatron[actor]:(attn:d2p8t4|ffn:d2p8e4)|sglang[rollout]:d16t4p1": {
        "actor": "megatron:d2p8t4e4",
        "rollout": "sglang:d16t4",
    },
    "fsdp:d4+fsdp[critic]:d4": {"actor": "fsdp:d4", "critic": "fsdp:d4"},
    "vllm[rollout1]:d2t2 + fsdp[actor1]:d4 + vllm[rollout2]:d4 + fsdp[actor2]:d4": {
        "rollout1": "vllm:d2t2",
        "actor1": "fsdp:d4",
        "rollout2": "vllm:d4",
        "actor2": "fsdp:d4",
    },
    # mixed, as people's files are
    "sglang.d4t4+megatron:(attn:d1p4t2c2|ffn:d1p4t1e4)": {
        "rollout": "sglang:d4t4",
        "actor": "megatron:p4t2c2e4",
    },
    "sglang:d80m2p1+d4m2p4": {"rollout": "sglang:d80t2", "actor": "megatron:d4p4t2"},
}


@pytest.mark.parametrize(("mode", "engines"), MODES.items(), ids=MODES)
def test_what_a_mode_says_for_each_engine(mode: str, engines: dict[str, str]) -> None:
    read = AllocationMode.from_str(mode)
    assert {name: str(a) for name, a in read.engines().items()} == engines
    for name, spec in read.spelled().items():
        assert ModelAllocation.from_str(spec).parallel == read[name].parallel
    again = AllocationMode.from_str(read.modern())
    assert {name: str(a) for name, a in again.engines().items()} == engines
    assert again.dialect == 4
    assert again.groups() == read.groups()


def test_the_shared_cases_hold() -> None:
    cases = CASES / "modes.tsv"
    if not cases.exists():
        pytest.skip("no shared cases here")
    for line in cases.read_text().splitlines():
        if not line.startswith("#"):
            mode, expected = line.split("\t")
            engines = AllocationMode.from_str(mode).engines()
            assert {f"{k}={v}" for k, v in engines.items()} == set(expected.split()), mode


@pytest.mark.parametrize("row", DIALECTS, ids=lambda row: f"dialect{row.number}")
def test_each_example_is_of_its_own_generation(row: object) -> None:
    number, example = row.number, row.example  # type: ignore[attr-defined]
    assert AllocationMode.from_str(example).dialect == number


def test_sizes_stay_as_the_user_spelled_them() -> None:
    def spelled(mode: str) -> dict[str, str]:
        return AllocationMode.from_str(mode).spelled()

    assert spelled("sglang.d4p1t1+d4p1t1") == {"rollout": "sglang:d4p1t1", "actor": "fsdp:d4p1t1"}
    assert spelled("d4p2t2c2/d2p2t2e4") == {"actor": "megatron:(attn:d4p2t2c2|ffn:d2p2t2e4)"}
    assert spelled("m1d4p2") == {"actor": "megatron:t1d4p2"}
    assert spelled(" sglang : d1 +\n fsdp[actor]:d1 ") == {
        "rollout": "sglang:d1",
        "actor": "fsdp:d1",
    }
    assert spelled("megatron:attn:d4|ffn:e2") == {"actor": "megatron:attn:d4|ffn:e2"}


@pytest.mark.parametrize(
    ("mode", "modern"),
    [
        ("sglang.d4p1m1+d4p1m1", "sglang:d4p1t1+fsdp:d4p1t1"),
        ("sglang:d4 | fsdp[actor]:d4", "sglang:d4|fsdp[actor]:d4"),
        ("actor_train:d4p1m1,ref_inf:d4p1m1", "fsdp[actor]:d4p1t1|fsdp[ref]:d4p1t1"),
        ("sglang:d4 + cpu", "sglang:d4"),
        ("d4p2/d1e4", "megatron:(attn:d4p2|ffn:d1e4)"),
    ],
)
def test_modern_form(mode: str, modern: str) -> None:
    assert AllocationMode.from_str(mode).modern() == modern


def test_the_surface_of_areals_removed_class() -> None:
    mode = AllocationMode.from_str("sglang:d4t2p1+megatron:d2p2t1")
    assert [a.backend for a in mode.allocations] == ["sglang", "megatron"]
    assert mode.gen_backend == "sglang"
    assert mode.train_backend == "megatron"
    assert mode.gen is not None
    assert mode.gen.dp_size == 4
    assert mode.train is not None
    assert mode.train.pp_size == 2
    assert mode.gen_instance_size == 2
    assert mode.world_size == 12
    assert mode.type_ is AllocationType.DECOUPLED_TRAIN
    assert mode["actor"] is mode.allocations[1]
    with pytest.raises(KeyError, match="nobody"):
        mode["nobody"]


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("d8p1t1", AllocationType.COLOCATE),
        ("sglang:d4", AllocationType.LLM_SERVER_ONLY),
        ("sglang:d4+eval", AllocationType.DECOUPLED_EVAL),
        ("sglang:d4+fsdp:d4", AllocationType.DECOUPLED_TRAIN),
        ("sglang:d4|fsdp[actor]:d4", AllocationType.COLOCATE),
    ],
)
def test_type(mode: str, kind: AllocationType) -> None:
    assert AllocationMode.from_str(mode).type_ is kind


def test_what_is_not_there_and_what_is_ambiguous() -> None:
    training = AllocationMode.from_str("fsdp:d8")
    assert training.gen is None
    assert training.gen_backend is None
    with pytest.raises(AttributeError, match="no inference"):
        _ = training.gen_instance_size
    servers = AllocationMode.from_str("sglang:d8")
    assert servers.train is None
    assert servers.train_backend is None
    three = AllocationMode.from_str("sglang[rollout]:d2+fsdp[actor]:d4+fsdp[critic]:d4")
    with pytest.raises(AttributeError, match="ambiguous"):
        _ = three.train
    with pytest.raises(AttributeError, match="here are 3"):
        _ = three.type_


def test_colocation() -> None:
    mode = AllocationMode.from_str("sglang[rollout]:d2+fsdp[actor]:d4|fsdp[critic]:d4")
    critic = mode["critic"].scheduling_strategy
    assert critic.type is SchedulingStrategyType.colocation
    assert critic.target == "actor"
    assert mode["actor"].scheduling_strategy.type is SchedulingStrategyType.separation
    assert mode.world_size == 6
    assert mode.groups() == (("rollout",), ("actor", "critic"))
    assert AllocationMode.from_str("sglang:d4|fsdp[actor]:d4").groups() == (("rollout", "actor"),)
    assert AllocationMode.from_str("cpu+sglang:d4").world_size == 4
    apart = AllocationMode.from_str("actor_train:d4p1m1+ref_inf:d2p1m1")
    assert apart.groups() == (("actor",), ("ref",))


def test_modes_are_values() -> None:
    mode = AllocationMode.from_str("sglang.d4p1t1+d4p1t1")
    assert mode == AllocationMode.from_str("sglang:d4+fsdp:d4")
    assert hash(mode) == hash(AllocationMode.from_str("sglang:d4+fsdp:d4"))
    assert mode != AllocationMode.from_str("sglang:d4+eval")
    assert pickle.loads(pickle.dumps(mode)) == copy.deepcopy(mode) == mode
    with pytest.raises(AttributeError):
        mode.dialect = 4  # type: ignore[misc]
    assert AllocationMode(mode.allocations) == mode
    named = AllocationMode((ModelAllocation.from_str("fsdp[actor]:t2d4"),))
    assert named.spelled() == {"actor": "fsdp:d4t2"}
    with pytest.raises(AllocationError, match=r"AC309: .*'fsdp:d4'"):
        AllocationMode(("fsdp:d4",))  # type: ignore[arg-type]


def test_notes() -> None:
    (note,) = AllocationMode.from_str("d4t2e2p1").notes
    assert "defaulted to t (2)" in note
    assert "megatron:(attn:d4t2|ffn:t2e2)" in note
    assert AllocationMode.from_str("d4t2p1").notes == ()
    assert AllocationMode.from_str("d4t1e2").notes == ()
    assert AllocationMode.from_str("megatron:d4t2e2").notes == ()
    assert AllocationMode.from_str("attn:d4t2|ffn:e2").notes == ()
    (note,) = AllocationMode.from_str("actor_train:d4p1m1,rew_inf:d4p1m1").notes
    assert "rew_inf" in note


REFUSED = {
    "": ("AC109", ""),
    " \n": ("AC109", " \n"),
    "\u3000": ("AC111", "\u3000"),
    "manual": ("AC501", "manual"),
    "sglang.d4p1m1+heuristic": ("AC501", "heuristic"),
    "search": ("AC501", "search"),
    "pipe_data": ("AC501", "pipe_data"),
    " pipe_model ": ("AC501", "pipe_model"),
    "fsdp:d8p1t1+d8p1t1": ("AC502", "d8p1t1"),
    "sglang:d4+vllm:d4": ("AC502", "vllm:d4"),
    "fsdp[actor]:d4+fsdp:d4": ("AC502", "fsdp:d4"),
    "sglang:d4+d4+d4": ("AC503", "sglang:d4"),
    "sglang[rollout]:d4+fsdp[actor]:d4+d4": ("AC503", "d4"),
    "fsdp:d4|fsdp:d4": ("AC503", "fsdp:d4"),
    "sglang[actor]:d2+fsdp[actor]:d4": ("AC504", "fsdp[actor]:d4"),
    "sglang:d2+fsdp[actor]:d4|fsdp[critic]:d2": ("AC503", "sglang:d2"),
    "fsdp:d4|fsdp[critic]:d2": ("AC505", "fsdp[critic]:d2"),
    "actor_train:d4p1m1,ref_inf:d2p1m1": ("AC505", "d2p1m1"),
    "actor_train:d4p1m1,actor_inf:d2p2m1": ("AC506", "actor_inf"),
    "actor_train:d4p1m1,actor_train:d4p1m1": ("AC506", "actor_train"),
    "actor_train:d4p1m1,foo:d4p1m1": ("AC506", "foo"),
    "foo:d4p1m1,ref_inf:d4p1m1": ("AC506", "foo"),
    "actor_train:d4p1m1,d4p1m1": ("AC506", "d4p1m1"),
    "actor_train:d4p1m1,d4p1m1,ref_inf:d4p1m1": ("AC506", "d4p1m1"),
    "actor_gen:d4m2p1,*:d2p2m2": ("AC506", "actor_gen"),
    "eval": ("AC507", "eval"),
    "d4+eval": ("AC507", "eval"),
    "sglang:d4+eval+cpu": ("AC507", "cpu"),
    "+".join(f"fsdp[a{i}]:d1" for i in range(65)): ("AC508", "fsdp[a64]:d1"),
    # faults of one component, at their place in the whole
    "sglang:d4+": ("AC109", ""),
    "sglang:d4++d4": ("AC109", ""),
    "sglang:d4|": ("AC109", ""),
    "sglang:d4+\u3000": ("AC111", "\u3000"),
    "sglang:d4+eval\u3000": ("AC102", "eval"),
    "actor_train:d4p1m1, ": ("AC109", " "),
    "mock.d4p1m1+d4p1m1": ("AC102", "mock"),
    "sglang:d4+d4x2": ("AC103", "x2"),
    "fsdp:d4m2": ("AC103", "m2"),
    "sglang:d4 + fsdp:d4p2": ("AC104", "p2"),
    "sglang:d4m2t2+d8": ("AC105", "t2"),
    "d4p1t1m1": ("AC105", "m1"),
    "sglang.d4+d04": ("AC106", "04"),
    "megatron:(attn:d4p2|ffn:d4+sglang:d4": ("AC107", "("),
    "d4p2/": ("AC108", "/"),
    "megatron:(attn:d4|fn:e4)": ("AC108", "fn"),
    "( attn:d0|ffn:e4 )": ("AC106", "0"),
    "attn:d0|ffn:e4": ("AC106", "0"),
    "d4p0c2/d2p2e4": ("AC106", "0"),
    "d4p2/d0": ("AC106", "0"),
    "[actor]:d0": ("AC106", "0"),
    "[1x]:d4": ("AC112", "1x"),
    "[a+b]:d4": ("AC101", "["),
    "d4p2/d2/e4": ("AC111", "/"),
    "d4+d4p2/d2p2e2": ("AC502", "d4p2/d2p2e2"),
    "sglang:d4,fsdp:d4": ("AC111", ","),
    "sglang[rollout]:d2+fsdp[actor]:d4\\|fsdp[critic]:d4": ("AC111", "\\"),
    "sglang[1x]:d2+d4": ("AC112", "1x"),
    "sglang.d4p2t2+d2p2t1c4/d2p4t1e2": ("AC201", "p4"),
    "d2p2t1c4/d2p2t1e2": ("AC202", "d2p2t1e2"),
    "sglang:d4+attn:d4p1|ffn:e3": ("AC203", "e3"),
    "sglang:d4+archon:d2t4e2": ("AC204", "e2"),
}


@pytest.mark.parametrize(("mode", "expected"), REFUSED.items(), ids=lambda x: str(x)[:40])
def test_refused(mode: str, expected: tuple[str, str]) -> None:
    with pytest.raises(AllocationError) as caught:
        AllocationMode.from_str(mode)
    error = caught.value
    code, at_fault = expected
    assert error.code == code
    assert error.text == mode
    start, end = error.span
    assert mode[start:end] == at_fault
    assert error.hint
    assert error.code in str(error)


NAMED = {
    "fsdp:d8p1t1+d8p1t1": "fsdp[actor]:d8p1t1+fsdp[critic]:d8p1t1",
    "sglang:d4+vllm:d4": "sglang[rollout]:d4+vllm[teacher]:d4",
    "fsdp[actor]:d4+fsdp:d4": "fsdp[actor]:d4+fsdp[critic]:d4",
    "d4+d4p2/d2p2e2": "fsdp[actor]:d4+megatron[critic]:(attn:d4p2|ffn:d2p2e2)",
    "sglang:d4+d4+d4": "sglang[rollout]:d4+fsdp[actor]:d4+fsdp[critic]:d4",
    "sglang[rollout]:d4+fsdp[actor]:d4+d4": "sglang[rollout]:d4+fsdp[actor]:d4+fsdp[critic]:d4",
    "fsdp:d4|fsdp:d4": "fsdp[actor]:d4|fsdp[critic]:d4",
    "sglang[actor]:d2+fsdp[actor]:d4": "sglang[actor]:d2+fsdp[critic]:d4",
    "+".join(["d1"] * 8): "fsdp[actor]:d1+fsdp[critic]:d1+fsdp[ref]:d1+fsdp[teacher]:d1+"
    "fsdp[engine4]:d1+fsdp[engine5]:d1+fsdp[engine6]:d1+fsdp[engine7]:d1",
    "+".join(["d1"] * 9): "sglang[rollout]:d2+fsdp[actor]:d4|fsdp[critic]:d4",  # an example
}


@pytest.mark.parametrize(("mode", "named"), NAMED.items(), ids=NAMED)
def test_the_names_that_a_hint_offers_are_right(mode: str, named: str) -> None:
    with pytest.raises(AllocationError) as caught:
        AllocationMode.from_str(mode)
    assert caught.value.hint == f"name the components: {named}"
    assert AllocationMode.from_str(named).dialect == 4


@pytest.mark.parametrize(
    ("mode", "why"),
    [("fsdp:d4|fsdp:d4", "colocated components"), ("d4+d4+d4", "three or more components")],
)
def test_why_a_component_needs_a_name(mode: str, why: str) -> None:
    with pytest.raises(AllocationError, match=f"{why} must have names"):
        AllocationMode.from_str(mode)


def test_the_hint_of_a_component_says_which_one() -> None:
    with pytest.raises(AllocationError) as caught:
        AllocationMode.from_str("sglang:d4 + fsdp:d4p2")
    assert caught.value.hint.startswith("for fsdp:d4p2: write fsdp:d8, ")


def test_the_first_slash_divides() -> None:
    with pytest.raises(AllocationError) as caught:
        AllocationMode.from_str("d4p2/d2/e4")
    assert caught.value.span == (7, 8)


def test_too_many_components_are_told_once() -> None:
    with pytest.raises(AllocationError) as caught:
        AllocationMode.from_str("+".join(f"fsdp[a{i}]:d1" for i in range(70)))
    assert [error.code for error in caught.value.errors] == ["AC508"]


def test_all_faults_are_told_syntax_first() -> None:
    with pytest.raises(AllocationError) as caught:
        AllocationMode.from_str("sglang:d0+fsdp:d4p2+archon:d2t4e2")
    assert [error.code for error in caught.value.errors] == ["AC106", "AC104", "AC204"]
    with pytest.raises(AllocationError) as caught:
        AllocationMode.from_str("archon:d2t4e2+fsdp:d0")
    assert [error.code for error in caught.value.errors] == ["AC106", "AC204"]


@pytest.mark.parametrize("value", [8, None, ["d4"], b"d4", object()])
def test_anything_but_a_str(value: object) -> None:
    with pytest.raises(AllocationError, match="AC309"):
        AllocationMode.from_str(value)  # type: ignore[arg-type]


def reads_or_raises(text: str) -> None:
    caught: AllocationError | None = None
    try:
        mode = AllocationMode.from_str(text)
    except AllocationError as error:
        caught = error
    if caught is None:
        assert AllocationMode.from_str(mode.modern()).engines() == mode.engines()
        return
    for one in caught.errors:
        assert one.code in CODES
        assert one.hint
        assert 0 <= one.span[0] <= one.span[1] <= len(text)
    assert len(str(caught)) < 5000


@settings(deadline=None)
@given(st.text())
def test_any_text_reads_or_raises(text: str) -> None:
    reads_or_raises(text)


WORDS = (
    "sglang vllm fsdp megatron archon attn ffn eval manual actor_train ref_inf "
    "d4 d2 p1 t2 m2 e2 sglang:d4 fsdp:d4 d4p1t1 [actor] [ref]"
)
PIECES = st.sampled_from([*"dptcem+|/.:,()[]* \n1", *WORDS.split()])


@settings(deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_anything_of_these_pieces_reads_or_raises(text: str) -> None:
    reads_or_raises(text)


SIZES = st.sampled_from([1, 2, 4, 8])


@settings(deadline=None)
@given(d=SIZES, p=SIZES, t=SIZES, generation=st.sampled_from([1, 2, 3, 4]))
def test_one_layout_is_the_same_in_every_generation(
    d: int, p: int, t: int, generation: int
) -> None:
    trainer = "megatron" if p > 1 else "fsdp"
    spelled = {
        1: f"sglang.d{d}m{t}p1+d{d}m{t}p{p}",
        2: f"sglang.d{d}p1t{t}+d{d}p{p}t{t}",
        3: f"sglang:d{d}p1t{t}+d{d}p{p}t{t}",
        4: f"sglang:d{d}p1t{t}+{trainer}:d{d}p{p}t{t}",
    }
    mode = AllocationMode.from_str(spelled[generation])
    assert mode == AllocationMode.from_str(spelled[4])
    assert mode.dialect == generation


@pytest.mark.parametrize(
    "text",
    [
        "+" * 10**6,
        "sglang:d1+" * 10**5,
        "|" * 10**6,
        "(" * 10**5,
        "d1|" * 10**5,
        "a," * 10**5,
        "[" * 10**6,
        "[]" * 10**5,
        " " * 10**6 + "d4" + " " * 10**6,
        "sglang.d4 " + " " * 10**6 + "+d4",
        "sglang" + " " * 10**6 + "x",
        "actor_train:d1," * 10**5,
        "d4" + "/" * 10**6,
        "m" * 10**5,
        "sglang" * 10**5 + ":d4",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_long_strings_take_linear_time(text: str) -> None:
    start = time.process_time()
    reads_or_raises(text)
    assert time.process_time() - start < 5
