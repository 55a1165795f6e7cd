"""The JSON Schema: its patterns against the parser, its sections against whole files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paths import CASES

from areal_conf import AllocationError, ModelAllocation
from areal_conf.cli.entry import main
from areal_conf.lint.json_schema import backend_pattern, schema
from areal_conf.spec.backends import BACKENDS

jsonschema = pytest.importorskip("jsonschema")

PATTERN = re.compile(backend_pattern())
VALIDATOR = jsonschema.Draft202012Validator(schema())

GOOD = [
    "fsdp:d8",
    "fsdp:d8p1t1",
    "fsdp: d4 t2",
    " fsdp [ actor ] : d 4\tt\n2 ",
    "sglang[rollout]:d2t4",
    "vllm:d2t4p2",
    "megatron:d2p2t4e4c2",
    "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)",
    "megatron:attn:d4p2t2c2|ffn:d2p2t4e2",
    "archon[a_1]: ( attn : d4 | ffn : e2 ) ",
    "fsdp:d1048576",
    "fsdp:e1c1p1",
]
MEANING = [  # no syntax error, but AC2xx
    "megatron:d2t2e8",
    "archon:d2t4e2",
    "fsdp:(attn:d2t4|ffn:d2e4)",
    "sglang:attn:d2|ffn:e2",
    "megatron:(attn:d4e2|ffn:e4)",
    "megatron:(attn:d4p2|ffn:p1e4)",
]
BAD = [
    "",
    "  ",
    "d4t2",
    "sglang.d4t2",
    "[actor]:d4",
    "SGLang:d4",
    "fsdp:",
    "fsdp:d",
    "fsdp:d0",
    "fsdp:d04",
    "fsdp:d1048577",
    "fsdp:d9999999",
    "fsdp:d10000000",
    "fsdp:d４",
    "fsdp:d4p2",
    "fsdp:d4p10",
    "sglang:d2c2",
    "fsdp:d2d4",
    "fsdp:p1p1",
    "fsdp:d4 4",
    "fs dp:d4",
    "fsdp:d4+d4",
    "sglang:d4+fsdp:d4",
    "fsdp[]:d4",
    "fsdp[1a]:d4",
    "fsdp[a:d4",
    "fsdp[é]:d4",
    "megatron:(attn:d2t4|ffn:d2e4",
    "megatron:attn:d2t4|ffn:d2e4)",
    "megatron:(ffn:d2e4|attn:d2t4)",
    "megatron:(attn:d2t2t2|ffn:e4)",
    "megatron:(attn:d2|ffn:e2e2)",
    "megatron:(attn:|ffn:e4)",
    "megatron:(attn:d4|ffn:)",
    r"megatron:(attn:d4\|ffn:e4)",
    "megatron:((attn:d4|ffn:e4))",
    "fsdp:d8\u00a0",
    "fsdp:d8\x0b",
]


def is_syntax(text: str) -> bool:
    """Whether the parser finds no AC1xx in `text` (a world size is no matter of syntax)."""
    try:
        ModelAllocation.from_str(text)
    except AllocationError as error:
        return not any(
            e.code.startswith("AC1") and not e.message.startswith("world size")
            for e in error.errors
        )
    return True


def agree(text: str) -> None:
    assert bool(PATTERN.search(text)) == is_syntax(text), text
    role = next((b.role for b in BACKENDS.values() if text.strip().startswith(b.name)), None)
    for other in ("inference", "training"):
        matches = bool(re.search(backend_pattern(other), text))  # type: ignore[arg-type]
        assert matches == (is_syntax(text) and other == role), text


@pytest.mark.parametrize("text", [*GOOD, *MEANING, *BAD])
def test_pattern_agrees_with_the_parser(text: str) -> None:
    agree(text)
    assert bool(PATTERN.search(text)) == (text not in BAD)


_words = [*BACKENDS, "attn", "ffn", ":", "|", "(", ")", "[", "]", "actor", "+", ",", ".", " ", "\n"]
_pieces = st.one_of(
    st.sampled_from(_words),
    st.from_regex(r"[dtpcem][ ]?[0-9]{1,2}", fullmatch=True),
    st.sampled_from(["d1", "t1", "p1", "e1", "c1", "d04", "d0", "d", "d1048576", "d1048577"]),
    st.characters(),
)


def _joined(parts: st.SearchStrategy[list[str]]) -> st.SearchStrategy[str]:
    return parts.map("".join)


_blank = st.sampled_from(["", "", "", " ", "\t", "\r\n "])
_dims = st.lists(
    st.tuples(_blank, st.sampled_from("dtpce"), _blank, st.integers(0, 12).map(str)).map("".join),
    min_size=0,
    max_size=6,
).map("".join)
_folded = st.builds(
    lambda a, b, left, right, blank: f"{left}attn{blank}:{a}|{blank}ffn:{b}{right}",
    _dims,
    _dims,
    st.sampled_from(["(", ""]),
    st.sampled_from([")", ""]),
    _blank,
)
_specs = st.builds(
    lambda word, name, dims, blank: f"{blank}{word}{name}{blank}:{dims}{blank}",
    st.sampled_from(list(BACKENDS)),
    st.sampled_from(["", "", "[actor]", " [ x ]", "[]", "[1]"]),
    st.one_of(_dims, _folded),
    _blank,
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(_specs, _joined(st.lists(_pieces, max_size=10)), st.text(max_size=12)))
@example("fsdp:d8\n")
@example("fsdp:d8\x85")
@pytest.mark.slow
def test_pattern_agrees_with_the_parser_on_any_text(text: str) -> None:
    agree(text)


@pytest.mark.parametrize("role", [None, "inference", "training"])
def test_pattern_is_portable(role: Any) -> None:
    pattern = backend_pattern(role)
    assert pattern.isascii()
    for python_only in ("(?P", "(?<", "(?i", "(?s", "(?>", r"\Z", r"\A", r"\w", r"\d", "++", "*+"):
        assert python_only not in pattern
    node = shutil.which("node")
    if node is None:
        pytest.skip("no JavaScript engine to try the pattern in")
    texts = [*GOOD, *MEANING, *BAD]
    script = "const [p, t] = JSON.parse(require('fs').readFileSync(0));"
    script += "const r = new RegExp(p, 'u'); console.log(JSON.stringify(t.map(x => r.test(x))))"
    done = subprocess.run(
        [node, "-e", script],
        input=json.dumps([pattern, texts]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [bool(re.search(pattern, text)) for text in texts]


FINE = [
    "{}",
    "rollout: {backend: 'sglang:d2t4'}\nactor: {backend: 'fsdp:d4t2', path: /models/x}",
    "critic: {backend: ''}\nref: {backend: null}\nactor: {backend: '???'}\nrollout: null",
    "ref: {backend: '${actor.backend}', scheduling_strategy: {type: colocation, target: actor}}",
    "actor: {backend: 'fsdp:d${cluster.n_gpus_per_node}'}\nref: ${actor}",
    "teacher: {backend: 'sglang:d1'}",
    "teacher: {backend: 'fsdp:d1'}",
    "teacher: {engine_type: train, train: {backend: 'fsdp:d1'}, rollout: {backend: ''}}",
    "judge_engine: {backend: 'sglang:d1'}\ndb: {backend: postgres}\nq: {backend: 8}\nx: [1]",
    "cluster: {n_nodes: null, n_gpus_per_node: 8}\nscheduler: {type: slurm}",
    "cluster: {n_nodes: '${oc.env:N}', n_gpus_per_node: '8'}\nscheduler: {type: null}",
    "allocation_mode: sglang.d4p1t1+d4p1t1",
    "areal_plan: {engines: {gen: {path: app.gen, role: inference}}, allow: [AC306]}",
    "areal_plan: {engines: {gen: {path: app.gen}}}\nactor: {backend: gloo}",
    "areal_plan: {allow: AC306}",
    "rollout: {backend: 'vllm:d8', api_url: http://host, gpu: 3}\nnew_key: {a: {b: [1, 2]}}",
]
FAULTY = [
    "[]",
    "rollout: {backend: 'fsdp:d8'}",
    "actor: {backend: 'sglang:d8'}",
    "actor: {backend: 'fsdp:d4p2'}",
    "actor: {backend: 8}",
    "actor: {backend: [fsdp:d8]}",
    "actor: fsdp:d8",
    "ref: {backend: d8}",
    "ref: {backend: 'fsdp:d8', scheduling_strategy: {type: shared}}",
    "ref: {scheduling_strategy: colocation}",
    "teacher: {backend: 'torch:d1'}",
    "teacher: {engine_type: serve}",
    "teacher: {engine_type: train, train: {backend: 'sglang:d1'}}",
    "judge_engine: {backend: 'sglang:d1m2'}",
    "cluster: {n_nodes: 0}",
    "cluster: {n_gpus_per_node: many}",
    "scheduler: {type: kubernetes}",
    "allocation_mode: 8",
    "areal_plan: {engines: {gen: {role: inference}}}",
    "areal_plan: {allow: [AC101]}",
]


@pytest.mark.parametrize("text", FINE)
def test_valid_files(text: str) -> None:
    VALIDATOR.validate(yaml.safe_load(text))


@pytest.mark.parametrize("text", FAULTY)
def test_faulty_files(text: str) -> None:
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


def test_shared_cases() -> None:
    files = sorted(CASES.rglob("*.yaml"))
    if not files:
        pytest.skip("no shared cases")
    for file in files:
        VALIDATOR.validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    for name, good in (("accepted", True), ("refused", False)):
        lines = (CASES / f"specs-{name}.tsv").read_text(encoding="utf-8").splitlines()
        for line in lines[1:]:
            spec, code, *_ = line.split("\t")
            assert bool(PATTERN.search(spec)) == (good or code.startswith("AC2")), spec


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(printed)
    assert printed == schema()
    assert main(["schema", "-o", str(tmp_path / "areal.schema.json")]) == 0
    assert json.loads((tmp_path / "areal.schema.json").read_text()) == printed
    assert main(["schema", "-o", str(tmp_path / "missing" / "x.json")]) == 2
