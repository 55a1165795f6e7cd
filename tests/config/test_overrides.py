"""Overrides as typed, held against Hydra's own override parser."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString
from hydra_app import unescaped
from hypothesis import given
from hypothesis import strategies as st

from areal_conf.config.overrides import _brackets, as_typed, for_hydra, quoted

MOE = "megatron:(attn:d4t2|ffn:e4)"


def parsed(override: str) -> Override:
    return OverridesParser.create().parse_overrides([override])[0]


def elements(override: str) -> list[object]:
    """The values that Hydra reads from an override: several where it sweeps."""
    value = parsed(override).value()
    values = value.list if isinstance(value, ChoiceSweep) else [value]
    return [x.text if isinstance(x, QuotedString) else x for x in values]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (f"actor.backend={MOE}", f"actor.backend='{MOE}'"),
        (f"actor.backend=fsdp:d8,{MOE}", f"actor.backend=fsdp:d8,'{MOE}'"),
        (f"actor.backend={MOE},{MOE}", f"actor.backend='{MOE}','{MOE}'"),
        (f"actor.backend=fsdp:d8 , {MOE} ", f"actor.backend=fsdp:d8 ,'{MOE}'"),
        (f"actor.backend= {MOE} ,\tfsdp:(x)", f"actor.backend='{MOE}','fsdp:(x)'"),
        ("actor.backend=\u3000(d4)", "actor.backend='\u3000(d4)'"),
        ("actor.backend=choice(b),[c", "actor.backend=choice(b),'[c'"),
        (f"+actor.backend={MOE}", f"+actor.backend='{MOE}'"),
        (f"++rl.actor.backend={MOE}", f"++rl.actor.backend='{MOE}'"),
        ("rollout.backend=sglang[rollout]:d2", "rollout.backend='sglang[rollout]:d2'"),
        ("actor.backend=(attn:d4|ffn:e4)", "actor.backend='(attn:d4|ffn:e4)'"),
        ("actor.backend=[actor]:d4", "actor.backend='[actor]:d4'"),
        ("actor.backend=megatron(attn:d4)", "actor.backend='megatron(attn:d4)'"),
        ("actor.backend=megatron:(attn:d4|ffn:e4", "actor.backend='megatron:(attn:d4|ffn:e4'"),
        (
            "actor.backend=megatron:(attn:d4,t2|ffn:e4),fsdp:d8",
            "actor.backend='megatron:(attn:d4,t2|ffn:e4)',fsdp:d8",
        ),
        ("actor.backend=fsdp=d8", "actor.backend='fsdp=d8'"),
        ("actor.backend=fsdp：d8", "actor.backend='fsdp：d8'"),
        ("actor.backend=sglang[${name}]:d4", "actor.backend='sglang[${name}]:d4'"),
        ("actor.backend=${a:${b},c}", "actor.backend='${a:${b},c}'"),
        (
            "allocation_mode=sglang[rollout]:d2+fsdp[actor]:d4",
            "allocation_mode='sglang[rollout]:d2+fsdp[actor]:d4'",
        ),
        (f"rl.allocation_mode=sglang:d4+{MOE}", f"rl.allocation_mode='sglang:d4+{MOE}'"),
        (f"+allocation_mode={MOE}", f"+allocation_mode='{MOE}'"),
        (f"allocation_mode@rl={MOE}", f"allocation_mode@rl='{MOE}'"),
        (f"x@rl.actor.backend={MOE}", f"x@rl.actor.backend='{MOE}'"),
    ],
)
def test_quotes_what_hydra_refuses(typed: str, wanted: str) -> None:
    assert as_typed([typed]) == [wanted]
    parsed(wanted)


@pytest.mark.parametrize(
    ("text", "in_quotes"),
    [
        ("fsdp:d8", "'fsdp:d8'"),
        ("it's", '"it\'s"'),
        ('say "x"', "'say \"x\"'"),
        ("""it's "x\"""", """'it\\'s "x"'"""),
        ("a\\", "'a\\\\'"),
        ("", "''"),
    ],
)
def test_quotes(text: str, in_quotes: str) -> None:
    assert quoted(text) == in_quotes
    assert unescaped(in_quotes) == text


@pytest.mark.parametrize(
    ("value", "pairs"),
    [
        ("(a[b](c))", {0: 8, 2: 4, 5: 7}),
        ("([)]", {0: 2}),
        ("{[}", {0: 2}),
        ("(}{)", {0: 3}),
        ("((", {}),
        ("')'(\")\"", {}),
        (r"\((\))", {2: 5}),
    ],
)
def test_brackets_that_belong_together(value: str, pairs: dict[int, int]) -> None:
    assert _brackets(value) == pairs


@pytest.mark.parametrize(
    "override",
    [
        "actor.backend=fsdp:d8",
        "actor.backend=fsdp:d8,fsdp:d4t2",
        "actor.backend=megatron:attn:d4|ffn:e4",
        "actor.backend=fsdp:d*t*@8",
        f"actor.backend='{MOE}'",
        f'actor.backend="{MOE}",fsdp:d8',
        r"actor.backend=megatron:\(attn:d4|ffn:e4\)",
        r"rollout.backend=sglang\[rollout\]:d2,fsdp\:d8",
        "actor.backend=choice(fsdp:d8,fsdp:d4)",
        f"actor.backend=choice('{MOE}',fsdp:d8)",
        "actor.backend=sort(choice(fsdp:d8,fsdp:d4), reverse=true)",
        "actor.backend=range(1,4)",
        "actor.backend=glob(*)",
        "actor.backend=shuffle (a,b)",
        "actor.backend=[fsdp:d8,fsdp:d4]",
        "actor.backend={a:b}",
        "actor.backend=${oc.env:BACKEND}",
        "actor.backend=${areal.canonical:'megatron:(attn:d2|ffn:e2)'}",
        "actor.backend=",
        "actor.backend=null",
        "actor.backend=8",
        "~actor.backend",
        "~actor.backend=fsdp:d8",
        "actor.path=a(b",
        "backend=a(b",
        "actor.backend.x=a(b",
        "hydra/launcher=basic",
        "no_equal_sign",
        "",
    ],
)
def test_leaves_alone(override: str) -> None:
    assert as_typed([override]) == [override]


@given(st.text(st.characters(codec="utf-8", exclude_characters=",\\")))
def test_one_element_of_any_characters_arrives_unchanged(text: str) -> None:
    spec = f"megatron:{text}".rstrip(" \t")
    assert elements(as_typed([f"a.backend={spec}"])[0]) == [spec]


_size = st.integers(1, 64).map(str)
_dims = st.lists(st.tuples(st.sampled_from("dtpce"), _size).map("".join), min_size=1).map("".join)
_name = st.sampled_from(["", "[actor]", "[rollout]"])
_backend = st.sampled_from(["sglang", "fsdp", "megatron", "archon"])
_spec = st.one_of(
    st.tuples(_backend, _name, st.just(":"), _dims).map("".join),
    st.tuples(
        _backend, _name, st.just(":(attn:"), _dims, st.just("|ffn:"), _dims, st.just(")")
    ).map("".join),
)


@given(st.lists(_spec, min_size=1, max_size=4), st.sampled_from(["", "+", "++"]))
@pytest.mark.slow
def test_specs_arrive_unchanged(specs: list[str], prefix: str) -> None:
    (override,) = as_typed([f"{prefix}actor.backend={','.join(specs)}"])
    assert elements(override) == specs
    assert as_typed([override]) == [override]


@given(st.text())
def test_any_text_is_taken(value: str) -> None:
    (override,) = as_typed([f"a.backend={value}"])
    assert as_typed([override]) == [override]


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_quoting_is_undone_by_hydra(text: str) -> None:
    assert parsed(f"a={quoted(text)}").value() == text


@given(st.lists(_spec, min_size=1, max_size=4))
@pytest.mark.slow
def test_a_sweeper_gets_what_is_written_for_hydra(specs: list[str]) -> None:
    value = ",".join(map(for_hydra, [*specs, "fsdp:d8"]))
    override = parsed(f"a.backend={value}")
    assert list(map(unescaped, override.sweep_string_iterator())) == [*specs, "fsdp:d8"]
