"""How fast the GPUs of a layout compute and talk: data sheets, and what was fitted to real runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from areal_conf.estimate.cards import CARDS, Card

if TYPE_CHECKING:
    from areal_conf.spec.backends import Sizes


@dataclass(frozen=True)
class Fitted:
    """Constants that no source says, fitted by `benchmarks/fit_speed.py` (which prints them).

    Attributes:
        matmul: share of the peak that a very wide matmul reaches.
        narrow: width a GPU at which a matmul reaches half of that.
        memory: share of the memory bandwidth that element-wise passes reach.
        link: share of the bandwidth between GPUs of a node that collectives reach.
        network: share of the bandwidth between nodes that collectives reach.
        crowd: how much slower that exchange gets for each data rank.
        send: share of the bandwidth between nodes that a send to the next stage reaches.
        launch: seconds that the host takes to start the kernels of one layer's forward.
        replay: seconds that preparing the recomputation of one layer costs.
    """

    matmul: float = 0.81
    narrow: float = 810.0
    memory: float = 0.59
    link: float = 1.0
    network: float = 0.19
    crowd: float = 0.018
    send: float = 0.19
    launch: float = 1.4e-3
    replay: float = 1.2e-3


FITTED = Fitted()

_FEW_ROWS = 64.0
"""Rows at which a matmul reaches half its speed: half of the 128 rows that one tile computes."""

FLASH_SHARE = 0.65
"""Share of the peak of FlashAttention-2, forward and backward, causal (arXiv 2307.08691)."""

FLASH1_SLOWER = 2.0
"""FlashAttention 1 beside 2 ("around 2x speedup", arXiv 2307.08691)."""


@dataclass(frozen=True)
class Speed:
    """What a GPU and its cluster can do, from data sheets.

    Attributes:
        flops: peak bf16 FLOP/s without sparsity.
        memory: bytes/s of the GPU's memory.
        link: bytes/s to the other GPUs of the node, one direction.
        network: bytes/s to other nodes for each GPU, one direction.
        gpus_per_node: GPUs of one node.
    """

    flops: float
    memory: float
    link: float
    network: float
    gpus_per_node: int = 8


_DEFAULT = CARDS["A100-80GB"]
_A100_NETWORK = 25e9
"""Bytes/s: one card of 200 Gb/s for each GPU (NVIDIA DGX A100 datasheet)."""
_HOPPER_NETWORK = 50e9
"""Bytes/s: one card of 400 Gb/s for each GPU (NVIDIA DGX H100 datasheet)."""
_HOPPER_FLOPS = 900e12


def speed_of(card: Card, gpus_per_node: int = 8) -> Speed:
    """The speed of a card in a usual cluster; of an A100 where only its memory is known."""
    flops = card.flops or _DEFAULT.flops or 0.0
    link = card.link_bandwidth or _DEFAULT.link_bandwidth or 0.0
    return Speed(
        flops=flops,
        memory=card.memory_bandwidth or _DEFAULT.memory_bandwidth or 0.0,
        link=link / 2,  # data sheets add both directions
        network=_HOPPER_NETWORK if flops > _HOPPER_FLOPS else _A100_NETWORK,
        gpus_per_node=gpus_per_node,
    )


@dataclass(frozen=True)
class Machine:
    """How fast the GPUs of one layout compute and talk.

    Ranks are dealt as in Megatron: t fastest, then c, d and p (order "tp-cp-ep-dp-pp").
    """

    speed: Speed
    fitted: Fitted
    sizes: Sizes

    def matmul(self, rows: float, inner: float, outer: float, narrow: float) -> float:
        """Seconds of (rows x inner) @ (inner x outer); `narrow` is the size that was divided."""
        slower = 1 + _FEW_ROWS / rows + self.fitted.narrow / narrow
        return 2 * rows * inner * outer * slower / (self.speed.flops * self.fitted.matmul)

    def passes(self, moved: float) -> float:
        """Seconds of reading and writing `moved` bytes."""
        return moved / (self.speed.memory * self.fitted.memory)

    def members(self, ranks: int, stride: int) -> int:
        """How many ranks of a group share a node, where they are `stride` ranks apart."""
        return max(1, min(ranks, self.speed.gpus_per_node // stride))

    def bandwidth(self, ranks: int, stride: int, share: float) -> float:
        """Bytes/s for each rank of a ring over a group, `share` of the network's."""
        inside = self.members(ranks, stride)
        link = self.speed.link * self.fitted.link
        if inside == ranks:
            return link
        # A ring enters a node once, over the network cards of all its members there.
        return min(link, self.speed.network * share * inside)

    def collective(self, moved: float, ranks: int, stride: int) -> float:
        """Seconds of gathering or reducing `moved` bytes over a group inside a layer."""
        if ranks == 1:
            return 0.0
        return (ranks - 1) / ranks * moved / self.bandwidth(ranks, stride, self.fitted.network)

    def all_to_all(self, moved: float, ranks: int, stride: int) -> float:
        """Seconds of sending `moved` bytes of each rank to all ranks of a group alike."""
        if ranks == 1:
            return 0.0
        inside = self.members(ranks, stride)
        link = self.speed.link * self.fitted.link
        far = moved * (ranks - inside) / ranks / (self.speed.network * self.fitted.network)
        return max(moved * (inside - 1) / ranks / link, far)
