"""The table of backends, and the sizes that their meshes take."""

from __future__ import annotations

import pytest

from areal_conf.spec.backends import (
    BACKENDS,
    Sizes,
    broken_rules,
    legal_expert_sizes,
    legal_expert_tensor_sizes,
)


@pytest.mark.parametrize(
    ("backend", "sizes", "rules"),
    [
        ("megatron", Sizes(d=4, t=2, e=8), []),
        ("megatron", Sizes(d=3, e=2), ["p*e = 2 "]),
        ("megatron", Sizes(d=4, p=2, etp=2, e=4), ["p*etp*e = 16 "]),
        ("megatron", Sizes(d=4, p=4, etp=2, e=1), []),
        ("archon", Sizes(d=2, t=4, e=4), []),
        ("archon", Sizes(d=2, t=4, e=2), ["multiple of c*t: e 2, c*t 4"]),
        ("archon", Sizes(d=2, p=2, e=4), ["p*e = 8 ", "divide d*c*t: e 4, d*c*t 2"]),
        ("archon", Sizes(d=2, t=2, c=2, etp=2, e=1), []),
        ("archon", Sizes(d=1, t=2, c=4, etp=2, e=2), ["multiple of c: e 2, c 4"]),
        ("archon", Sizes(d=1, t=2, c=2, p=2, etp=2, e=4), ["p*etp*e = 16 ", "divide d*c: e 4"]),
        ("archon", Sizes(d=4, t=2, etp=4), ["etp must be 1 or t: etp 4, t 2"]),
    ],
)
def test_rules_of_meshes(backend: str, sizes: Sizes, rules: list[str]) -> None:
    broken = broken_rules(BACKENDS[backend], sizes)
    assert len(broken) == len(rules)
    assert all(rule in sentence for rule, sentence in zip(rules, broken, strict=True))


@pytest.mark.parametrize(
    ("backend", "sizes", "legal"),
    [
        ("megatron", Sizes(d=4, p=2), [1, 2, 4]),
        ("megatron", Sizes(d=4, t=2, etp=2), [1, 2, 4]),
        ("megatron", Sizes(d=4, etp=3), []),
        ("archon", Sizes(d=2, t=4), [1, 4, 8]),
        ("archon", Sizes(d=4, t=2, etp=4), []),
        ("fsdp", Sizes(d=4), [1]),
        ("fsdp", Sizes(d=4, etp=3), []),
    ],
)
def test_legal_expert_sizes(backend: str, sizes: Sizes, legal: list[int]) -> None:
    assert legal_expert_sizes(BACKENDS[backend], sizes) == legal


@pytest.mark.parametrize(
    ("backend", "t", "legal"),
    [("megatron", 2, (1, 2, 4, 8)), ("archon", 2, (1, 2)), ("archon", 1, (1,)), ("fsdp", 2, (1,))],
)
def test_legal_expert_tensor_sizes(backend: str, t: int, legal: tuple[int, ...]) -> None:
    assert legal_expert_tensor_sizes(BACKENDS[backend], t, 8) == legal
