"""Peak of one training step under FSDP2, traced without memory: real classes, fake tensors.

    python fsdp_memory.py JSON

prints the peak in GiB. The model is wrapped as AReaL wraps it (engine/fsdp_utils/__init__.py,
apply_fsdp2): each decoder layer, the embedding where it is not tied, then the root.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM


class Attention(torch.autograd.Function):
    """Keeps what flash attention keeps: q, k, v, the output and one fp32 a head and token."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any) -> Any:
        out = torch.empty_like(query)
        statistics = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        ctx.save_for_backward(query, key, value, out, statistics)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        query, key, value, _, _ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def attention(module: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
    return Attention.apply(query, key, value).transpose(1, 2).contiguous(), None


class Loss(torch.autograd.Function):
    """The loss of one slice: keeps the slice, and gives a gradient of its size and type."""

    @staticmethod
    def forward(ctx: Any, logits: Any) -> Any:
        ctx.save_for_backward(logits)
        return torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return torch.empty_like(ctx.saved_tensors[0])


def wrapped(case: dict[str, Any], mesh: DeviceMesh) -> nn.Module:
    config = AutoConfig.for_model(**case["config"])
    dtype = getattr(torch, case["storage"])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="estimate", dtype=dtype)
    if case["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=True)
    for module in list(model.modules()):
        layer = module.__class__.__name__ in model._no_split_modules
        if layer or (isinstance(module, nn.Embedding) and not config.tie_word_embeddings):
            fully_shard(module, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def step(model: nn.Module, optimizer: Any, tokens: int) -> None:
    logits = model(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=False).logits[0]
    losses = [Loss.apply(logits[at : at + 1024]) for at in range(0, tokens, 1024)]
    torch.cat(losses).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def main(case: dict[str, Any]) -> float:
    store = FakeStore()
    dist.init_process_group("fake", rank=0, world_size=case["ranks"], store=store)
    AttentionInterface.register("estimate", attention)
    mesh = init_device_mesh("cpu", (case["ranks"],))
    with FakeTensorMode():
        model = wrapped(case, mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=False)
        tracker = FSDPMemTracker(model, optimizer)
        with tracker:
            step(model, optimizer, case["tokens"])  # makes the states of the optimizer
            tracker.reset_mod_stats()
            step(model, optimizer, case["tokens"])
        peak = tracker.get_tracker_snapshot("peak")
    return max(sum(of.values()) for of in totals(peak)) / 2**30


def totals(snapshot: dict[Any, dict[Any, int]]) -> list[dict[str, int]]:
    """By device: bytes of each kind, without the sum that the tracker adds."""
    return [
        {str(kind): size for kind, size in kinds.items() if "TOTAL" not in str(kind).upper()}
        for kinds in snapshot.values()
    ]


if __name__ == "__main__":
    print(main(json.loads(sys.argv[1])))
