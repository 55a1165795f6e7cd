"""Names of cards, amounts, and the cards of this machine."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from areal_conf import AllocationError, ModelAllocation
from areal_conf.estimate import CARDS, TrainingSettings, read_card, training_memory
from areal_conf.estimate.cards import card_of_device
from areal_conf.model import read_model


@pytest.mark.parametrize("name", CARDS)
def test_every_card_says_its_source(name: str) -> None:
    card = CARDS[name]
    assert card.name == name
    assert card.source
    assert None not in card
    assert read_card(name.lower()) == card


@pytest.mark.parametrize(
    ("text", "usable"),
    [("80", 80.0), ("79.1GiB", 79.1), ("79.1 gib", 79.1), (80, 80.0), (79.1, 79.1), ("40g", 40.0)],
)
def test_amounts(text: Any, usable: float) -> None:
    assert read_card(text).usable == usable


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100", "H100"),
        ("a100-80gb", "A100-80GB"),
        ("A100 40GB", "A100-40GB"),
        ("Ascend 910B", "Ascend910B"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert read_card(text).name == name


@pytest.mark.parametrize("text", ["", "A100", "Z9", "-5", "0", "1e9", "80GB80", "nan", "x" * 999])
def test_a_card_that_is_not_known(text: str) -> None:
    with pytest.raises(AllocationError) as caught:
        read_card(text)
    assert caught.value.code == "AC710"
    assert "GiB" in caught.value.hint


def test_an_ambiguous_name_gets_both() -> None:
    with pytest.raises(AllocationError, match="A100") as caught:
        read_card("A100")
    assert "A100-40GB or A100-80GB" in caught.value.hint


@pytest.mark.parametrize("value", [None, [], True, {"gpu": 80}])
def test_a_value_of_another_type(value: Any) -> None:
    with pytest.raises(AllocationError) as caught:
        read_card(value)
    assert caught.value.code == "AC309"


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
    ],
)
def test_device_names_of_drivers(device: str, name: str) -> None:
    card = card_of_device(device)
    assert card is not None
    assert card.name == name


def test_a_device_nobody_knows() -> None:
    assert card_of_device("Voodoo 2") is None


def test_auto_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(AllocationError, match="nvidia-ml-py") as caught:
        read_card("auto")
    assert caught.value.code == "AC710"


class NVMLError(Exception):
    """Stands for pynvml's."""


def library(cards: list[tuple[str, float]]) -> Any:
    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(cards),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(total=int(cards[card][1] * 2**30)),
        nvmlDeviceGetName=lambda card: cards[card][0],
    )


def test_auto_takes_the_smallest_card(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [("NVIDIA H100 80GB HBM3", 79.6), ("NVIDIA L4", 22.5)]
    monkeypatch.setitem(sys.modules, "pynvml", library(cards))
    card = read_card("auto")
    assert (card.name, card.usable) == ("L4", 22.5)


def test_auto_without_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library([]))
    with pytest.raises(AllocationError, match="no NVIDIA card"):
        read_card("auto")


def test_estimates_take_a_card_by_name() -> None:
    allocation, model = ModelAllocation.from_str("megatron:d2t4"), read_model("Qwen3-8B")
    settings = TrainingSettings(tokens=4096)
    named = training_memory(allocation, model, settings, "H100")
    assert named == training_memory(allocation, model, settings, CARDS["H100"])
    assert named == training_memory(allocation, model, settings, 79.1)
    assert named.gpu == 79.1
    assert training_memory(allocation, model, settings).verdict == "unknown"
