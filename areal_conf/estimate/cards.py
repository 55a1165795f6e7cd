"""The table of accelerator cards, and how people name one."""

from __future__ import annotations

import re
from typing import NamedTuple

from areal_conf.errors import AllocationError, clip, wrong_type

_GB = 1e9
_TERA = 1e12


class Card(NamedTuple):
    """One accelerator.

    Attributes:
        name: as `--gpu` takes it.
        usable: GiB that a process can have, as ``torch.cuda.mem_get_info`` says of an idle card.
        flops: peak bf16 FLOP/s of dense matrices.
        memory_bandwidth: bytes/s of its memory.
        link_bandwidth: bytes/s to the other cards of its node, both directions together.
        source: its data sheet; empty where nothing but the memory is known.
    """

    name: str
    usable: float
    flops: float | None = None
    memory_bandwidth: float | None = None
    link_bandwidth: float | None = None
    source: str = ""


Gpu = float | str | Card | None
"""What functions take as a card: GiB, a name of `CARDS`, one of them, or none."""


def _card(
    name: str, usable: float, tera: float, memory: float, link: float, source: str
) -> tuple[str, Card]:
    return name, Card(name, usable, tera * _TERA, memory * _GB, link * _GB, source)


_AMPERE = "NVIDIA A100 Tensor Core GPU datasheet (SXM)"
_HOPPER = "NVIDIA H100 Tensor Core GPU datasheet (SXM)"

CARDS: dict[str, Card] = dict(
    (
        _card("A100-40GB", 39.4, 312, 1555, 600, _AMPERE),
        _card("A100-80GB", 79.1, 312, 2039, 600, _AMPERE),
        _card("A800", 79.1, 312, 2039, 400, "NVIDIA A800 80GB datasheet"),
        _card("A10", 22.0, 125, 600, 64, "NVIDIA A10 datasheet"),
        _card("A40", 44.3, 149.7, 696, 112, "NVIDIA A40 datasheet"),
        _card("H100", 79.1, 989, 3350, 900, _HOPPER),
        _card("H800", 79.1, 989, 3350, 400, "NVIDIA H800 datasheet (SXM)"),
        _card("H20", 95.0, 148, 4000, 900, "NVIDIA H20 datasheet"),
        _card("H200", 139.7, 989, 4800, 900, "NVIDIA H200 Tensor Core GPU datasheet (SXM)"),
        _card("B200", 178.3, 2250, 8000, 1800, "NVIDIA DGX B200 datasheet, of one GPU"),
        _card("GB200", 184.0, 2500, 8000, 1800, "NVIDIA GB200 NVL72 datasheet, of one GPU"),
        _card("L4", 22.0, 121, 300, 64, "NVIDIA L4 datasheet"),
        _card("L20", 44.4, 119.5, 864, 64, "NVIDIA L20 datasheet"),
        _card("L40S", 44.4, 362, 864, 64, "NVIDIA L40S datasheet"),
        _card("RTX3090", 23.6, 71, 936, 64, "NVIDIA Ampere GA102 architecture whitepaper"),
        _card("RTX4090", 23.6, 165, 1008, 64, "NVIDIA Ada GPU architecture whitepaper"),
        _card("RTX5090", 31.4, 209.5, 1792, 128, "NVIDIA RTX Blackwell architecture whitepaper"),
        _card("MI300X", 191.7, 1307, 5300, 896, "AMD Instinct MI300X data sheet"),
        _card("MI325X", 255.7, 1307, 6000, 896, "AMD Instinct MI325X data sheet"),
        _card("Ascend910B", 61.2, 376, 1600, 392, "Huawei Atlas 800T A2 (Ascend 910B) datasheet"),
    )
)
"""Cards by name. Usable memory is what idle cards report; data sheets count in units of 10**9."""

_OTHER_NAMES = {
    "a10080": "A100-80GB",
    "a10040": "A100-40GB",
    "h10080gb": "H100",
    "h100sxm": "H100",
    "h100pcie": "H100",
    "h20141gb": "H200",
    "910b": "Ascend910B",
    "4090": "RTX4090",
    "3090": "RTX3090",
    "5090": "RTX5090",
}

_AMOUNT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?(?:gib|g)?", re.ASCII | re.IGNORECASE)
_LARGEST = 100_000.0


def read_card(gpu: object) -> Card:
    """The card that `gpu` names.

    Args:
        gpu: a name of `CARDS` in any case, GiB (``80``, ``"79.1GiB"``), ``"auto"`` for the cards of
            this machine, or a `Card`.

    Raises:
        AllocationError: AC710 for a name that is not in the table, an amount that is none, or
            ``auto`` where the cards of this machine cannot be read; AC309 for another type.
    """
    if isinstance(gpu, Card):
        return gpu
    if isinstance(gpu, (int, float)) and not isinstance(gpu, bool):
        return _of_amount(float(gpu), str(gpu))
    if not isinstance(gpu, str):
        raise wrong_type(gpu, "a card or its GiB", hint=_HINT)
    text = gpu.strip()
    if text.lower() == "auto":
        return _card_here()
    if (amount := _AMOUNT.fullmatch(text)) and text not in _OTHER_NAMES:
        return _of_amount(float(amount[1]), text)
    return _of_name(text)


def usable_memory(gpu: Gpu) -> float | None:
    """GiB of a card: given as such, as a card, or by name; None for none."""
    if gpu is None or type(gpu) is float:
        return gpu
    return read_card(gpu).usable


_HINT = "name a card, such as H100, or its GiB: --gpu 79.1"


def _of_amount(amount: float, text: str) -> Card:
    if not 0 < amount <= _LARGEST:
        raise AllocationError(
            "AC710", f"a card of {clip(text, 40)} GiB", text=clip(text, 40), hint=_HINT
        )
    return Card(f"{amount:g}GiB", amount)


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _of_name(text: str) -> Card:
    key = _key(text)
    keys = {_key(name): name for name in CARDS} | _OTHER_NAMES
    if key in keys:
        return CARDS[keys[key]]
    near = [name for name in CARDS if key and _key(name).startswith(key)]
    which = " or ".join(near) if near else ", ".join(CARDS)
    raise AllocationError(
        "AC710",
        f"unknown card {clip(text, 40)!r}",
        text=clip(text, 40),
        hint=f"name {which}, or the card's GiB: --gpu 79.1",
    )


def card_of_device(name: str) -> Card | None:
    """The card of the table that a driver's device name speaks of; None where it is none of them.

    Args:
        name: such as ``NVIDIA H100 80GB HBM3`` or ``NVIDIA A100-SXM4-40GB``.
    """
    key = _key(name)
    if "a100" in key:
        return CARDS["A100-40GB" if "40gb" in key else "A100-80GB"]
    found = [known for known in CARDS if _key(known) in key]
    return CARDS[max(found, key=len)] if found else None


def _card_here() -> Card:
    """The smallest card of this machine, by NVIDIA's management library."""
    try:
        import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise _not_here("nvidia-ml-py is not installed", "pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
        try:
            cards = [
                pynvml.nvmlDeviceGetHandleByIndex(index)
                for index in range(pynvml.nvmlDeviceGetCount())
            ]
            found = [
                (pynvml.nvmlDeviceGetMemoryInfo(card).total, pynvml.nvmlDeviceGetName(card))
                for card in cards
            ]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise _not_here(clip(str(error), 120), "check nvidia-smi on this machine") from None
    if not found:
        raise _not_here("there is no NVIDIA card", "name the card of the cluster")
    total, name = min(found)
    name = name.decode() if isinstance(name, bytes) else str(name)
    known = card_of_device(name) or Card(name, 0)
    return known._replace(usable=round(total / 2**30, 1))


def _not_here(why: str, cure: str) -> AllocationError:
    return AllocationError(
        "AC710",
        f"the cards of this machine cannot be read: {why}",
        text="auto",
        hint=f"{cure}, or {_HINT}",
    )
