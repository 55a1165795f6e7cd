"""The values of the language: valid once they exist, and then never changed."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import areal_conf
from areal_conf import (
    AllocationError,
    ModelAllocation,
    ParallelStrategy,
    SchedulingStrategy,
    SchedulingStrategyType,
)
from areal_conf.spec import allocation as module
from areal_conf.spec.backends import BACKENDS, MAX_SIZE

ON_ACTOR = SchedulingStrategy("colocation", "actor")
EXPERTS = ("expert_parallel_size", "expert_tensor_parallel_size")
VALUES = [
    ParallelStrategy(),
    ParallelStrategy(4, 2, 2, 2, 2, 4),
    SchedulingStrategy(),
    ON_ACTOR,
    ModelAllocation.from_str("fsdp:d4t2"),
    ModelAllocation.from_str("megatron[a]:(attn:d4p2t2c2|ffn:d2p2t4e2)"),
    ModelAllocation.from_str("fsdp:d8", name="ref", scheduling_strategy=ON_ACTOR),
]


def test_readme_names() -> None:
    allocation = ModelAllocation.from_str("megatron[actor]:(attn:d4p2t2c2|ffn:d2p2t4e2)")
    assert allocation.backend == "megatron"
    assert allocation.name == "actor"
    assert allocation.world_size == allocation.gpus == 32
    assert allocation.role == "training"
    parallel = allocation.parallel
    assert parallel.data_parallel_size == parallel.dp_size == 4
    assert parallel.tensor_parallel_size == parallel.tp_size == 2
    assert parallel.pipeline_parallel_size == parallel.pp_size == 2
    assert parallel.context_parallel_size == parallel.cp_size == 2
    assert parallel.expert_parallel_size == parallel.ep_size == 2
    assert parallel.expert_tensor_parallel_size == parallel.etp_size == 4
    assert parallel.expert_data_parallel_size == parallel.edp_size == 2
    assert parallel.world_size == 32
    assert str(parallel) == "(attn:d4p2t2c2|ffn:d2p2t4e2)"
    assert allocation.scheduling_strategy == SchedulingStrategy("separation", None, True)


def test_inference_instances() -> None:
    served = ModelAllocation.from_str("vllm:d2t4p2")
    assert (served.role, served.instances, served.instance_size) == ("inference", 2, 8)
    trained = ModelAllocation.from_str("fsdp:d4t2")
    assert (trained.role, trained.instances, trained.instance_size) == ("training", None, None)


def test_colocated_reserves_nothing_but_keeps_its_ranks() -> None:
    guest = ModelAllocation.from_str("fsdp:d8", scheduling_strategy=ON_ACTOR)
    assert (guest.world_size, guest.gpus) == (8, 0)


def test_name_given_beside_the_string() -> None:
    assert ModelAllocation.from_str("fsdp:d4", "ref").name == "ref"
    assert ModelAllocation.from_str("fsdp[x]:d4", name="ref").name == "ref"
    assert str(ModelAllocation.from_str("fsdp:d4", name="ref")) == "fsdp[ref]:d4"
    assert ModelAllocation.from_str("fsdp:d4").name is None
    assert ModelAllocation.from_str("fsdp[x]:d4", scheduling_strategy=ON_ACTOR).name == "x"
    with pytest.raises(AllocationError, match="AC112"):
        ModelAllocation.from_str("fsdp:d4", name="no name")


def test_edp_is_d_where_there_is_no_expert_mesh() -> None:
    assert ParallelStrategy(2, 2, 2, 2).edp_size == 2
    assert ParallelStrategy(2, 2, 2, 2, 2).edp_size == 4
    assert ModelAllocation.from_str("megatron:(attn:d4t2|ffn:t2)").parallel.edp_size == 4


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_copies_are_equal(value: Any) -> None:
    for again in (
        copy.copy(value),
        copy.deepcopy(value),
        *(pickle.loads(pickle.dumps(value, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)),
    ):
        assert again == value
        assert hash(again) == hash(value)
        assert type(again) is type(value)
        assert repr(again) == repr(value)


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_values_never_change(value: Any) -> None:
    for name in (*(f.name for f in dataclasses.fields(value)), "anything"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(value, name, 1)
        with pytest.raises((AttributeError, TypeError)):
            delattr(value, name)


def test_hashable_and_comparable() -> None:
    assert len({ModelAllocation.from_str(s) for s in ("fsdp:d4t2", "fsdp:t2d4", "fsdp:d4")}) == 2
    assert ModelAllocation.from_str("fsdp:d4") != ModelAllocation.from_str("megatron:d4")
    assert ModelAllocation.from_str("fsdp:d4") != "fsdp:d4"
    assert ParallelStrategy.parallelism_eq(ParallelStrategy(2), ParallelStrategy(2))


def test_the_cache_gives_the_same_value_and_stays_small() -> None:
    assert ModelAllocation.from_str("fsdp:d4t2") is ModelAllocation.from_str("fsdp:d4t2")
    for d in range(1, ModelAllocation.CACHE_SIZE + 10):
        ModelAllocation.from_str(f"fsdp:d{d}")
        assert len(module._CACHE) <= ModelAllocation.CACHE_SIZE
    ModelAllocation.from_str("fsdp:d4" + " " * 10_000)
    assert max(map(len, module._CACHE)) <= 1000


@pytest.mark.parametrize(
    "value", [None, 8, 484, 10000.0, True, b"fsdp:d4", ["fsdp:d4"], {"d": 4}, object(), type]
)
def test_what_is_no_str_is_refused_by_type(value: Any) -> None:
    with pytest.raises(AllocationError) as caught:
        ModelAllocation.from_str(value)
    assert caught.value.code == "AC309"
    assert type(value).__name__ in caught.value.message
    assert caught.value.hint


def test_a_broken_repr_hides_nothing() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(AllocationError, match="Broken"):
        ModelAllocation.from_str(Broken())


def test_a_str_of_another_class_is_a_str() -> None:
    class Text(str):
        __slots__ = ()

    assert ModelAllocation.from_str(Text("fsdp:d3")) == ModelAllocation.from_str("fsdp:d3")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"data_parallel_size": 0}, "AC106"),
        ({"data_parallel_size": -4}, "AC106"),
        ({"tensor_parallel_size": MAX_SIZE + 1}, "AC106"),
        ({"tensor_parallel_size": 10**400}, "AC106"),
        ({"data_parallel_size": MAX_SIZE, "tensor_parallel_size": 2}, "AC106"),
        ({"data_parallel_size": "4"}, "AC309"),
        ({"data_parallel_size": 4.0}, "AC309"),
        ({"data_parallel_size": True}, "AC309"),
        ({"data_parallel_size": None}, "AC309"),
        ({"expert_parallel_size": 2}, "AC204"),
        ({"data_parallel_size": 4, "expert_tensor_parallel_size": 3}, "AC204"),
        ({"expert_parallel_size": 2, "expert_tensor_parallel_size": 2}, "AC204"),
        (dict.fromkeys(("data_parallel_size", *EXPERTS), 2), "AC204"),
    ],
)
def test_strategies_validate_themselves(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(AllocationError) as caught:
        ParallelStrategy(**arguments)
    assert caught.value.code == code
    assert caught.value.hint
    if code == "AC309":
        assert repr(arguments["data_parallel_size"]) in caught.value.message
    assert len(str(caught.value)) < 5000


def test_the_largest_strategy() -> None:
    assert ParallelStrategy(MAX_SIZE).world_size == MAX_SIZE
    assert ParallelStrategy(MAX_SIZE // 2, 2).world_size == MAX_SIZE


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((0,), "0"),
        ((MAX_SIZE + 1,), "1048577"),
        ((MAX_SIZE, 2), "2097152"),
        ((10**20,), ""),
        ((4, 1, 1, 1, 1, 3), "(attn:t4|ffn:t3)"),
        ((1, 1, 1, 1, 1, 2), "(attn:d1|ffn:t2)"),
        ((4, 1, 1, 1, 3, 2), "(attn:t4|ffn:t2e3)"),
        ((2, 1, 1, 1, 2, 2), "(attn:t2|ffn:t2e2)"),
    ],
)
def test_errors_of_strategies_show_what_they_are_about(sizes: tuple[int, ...], text: str) -> None:
    with pytest.raises(AllocationError) as caught:
        ParallelStrategy(*sizes)
    assert caught.value.text == text


def test_errors_of_strategies_name_the_size() -> None:
    with pytest.raises(AllocationError, match="pipeline_parallel_size is 0;"):
        ParallelStrategy(pipeline_parallel_size=0)
    with pytest.raises(AllocationError, match="world_size is 2097152;"):
        ParallelStrategy(MAX_SIZE, 2)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"backend": "torch"}, "AC102"),
        ({"backend": ""}, "AC101"),
        ({"backend": "fsdp[x]"}, "AC309"),
        ({"backend": " fsdp"}, "AC309"),
        ({"backend": None}, "AC309"),
        ({"backend": 8}, "AC309"),
        ({"backend": "fsdp", "name": ""}, "AC112"),
        ({"backend": "fsdp", "name": 8}, "AC309"),
        ({"backend": "fsdp", "name": "a]:d4x["}, "AC103"),
        ({"backend": "fsdp", "parallel": None}, "AC309"),
        ({"backend": "fsdp", "parallel": "d4"}, "AC309"),
        ({"backend": "fsdp", "scheduling_strategy": "colocation"}, "AC309"),
        ({"backend": "fsdp", "parallel": ParallelStrategy(1, 2)}, "AC104"),
        ({"backend": "sglang", "parallel": ParallelStrategy(4, 1, 1, 1, 4)}, "AC104"),
        ({"backend": "fsdp", "parallel": ParallelStrategy(4, 1, 1, 1, 1, 4)}, "AC205"),
        ({"backend": "archon", "parallel": ParallelStrategy(4, 1, 2, 1, 2)}, "AC204"),
    ],
)
def test_allocations_validate_themselves(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(AllocationError) as caught:
        ModelAllocation(**arguments)
    assert caught.value.code == code
    if code == "AC309":
        assert repr([*arguments.values()][-1]) in caught.value.message


@pytest.mark.parametrize(
    "arguments",
    [{"type": "together"}, {"type": None}, {"type": 1}, {"target": 3}, {"fork": "yes"}],
)
def test_scheduling_strategies_validate_themselves(arguments: dict[str, Any]) -> None:
    with pytest.raises(AllocationError) as caught:
        SchedulingStrategy(**arguments)
    assert caught.value.code == "AC309"
    assert repr(*arguments.values()) in caught.value.message


def test_an_unknown_scheduling_type_is_underlined() -> None:
    with pytest.raises(AllocationError) as caught:
        SchedulingStrategy("together")
    assert caught.value.text == "together"


def test_scheduling_strategy_takes_the_word_or_the_member() -> None:
    member = SchedulingStrategy(SchedulingStrategyType.colocation, "actor")
    assert member == ON_ACTOR
    assert ON_ACTOR.type is SchedulingStrategyType.colocation
    assert str(ON_ACTOR.type) == "colocation"
    assert SchedulingStrategy().fork is True


sizes = st.sampled_from([1, 1, 2, 3, 4, 8])


@given(st.sampled_from([*BACKENDS]), st.tuples(*[sizes] * 6), st.sampled_from([None, "actor"]))
@settings(max_examples=300)
def test_what_can_be_built_can_be_written_and_read(
    backend: str, six: tuple[int, ...], name: str | None
) -> None:
    try:
        allocation = ModelAllocation(backend, name, ParallelStrategy(*six))
    except AllocationError:
        return
    assert ModelAllocation.from_str(str(allocation)) == allocation


@given(st.sampled_from([*BACKENDS]), st.tuples(*[sizes] * 6))
@settings(max_examples=500)
def test_what_a_backend_takes_is_what_its_strings_can_say(
    backend: str, six: tuple[int, ...]
) -> None:
    try:
        parallel = ParallelStrategy(*six)
    except AllocationError:
        return
    try:
        read = ModelAllocation.from_str(f"{backend}:{parallel}").parallel == parallel
    except AllocationError:
        read = False
    assert BACKENDS[backend].takes(parallel.sizes) == read


def test_an_allocation_that_can_be_is_not_read_from_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "parse_spec", pytest.fail)
    ModelAllocation("megatron", "actor", ParallelStrategy(2, 2, 2, 1, 2, 2), ON_ACTOR)


def test_every_public_name_is_there_and_documented() -> None:
    for name in areal_conf.__all__:
        value = getattr(areal_conf, name)
        assert name.startswith("__") or value.__doc__
    assert set(areal_conf.__all__) <= set(dir(areal_conf))
    with pytest.raises(AttributeError):
        areal_conf.nothing  # noqa: B018


def test_the_language_imports_no_framework() -> None:
    import subprocess

    code = (
        "import sys; from areal_conf import ModelAllocation as M; M.from_str('fsdp:d4');"
        "print([m for m in ('hydra', 'omegaconf', 'pydantic', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
