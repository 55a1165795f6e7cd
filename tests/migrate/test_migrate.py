"""``areal-conf migrate``: files moved from `allocation_mode` to per-engine backends."""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from paths import CASES, ROOT

from areal_conf import files, plan
from areal_conf.cli.migrate import add_arguments, run
from areal_conf.errors import CODES
from areal_conf.legacy.dialects import DIALECTS
from areal_conf.migrate import config
from areal_conf.migrate.config import migrate_yaml
from areal_conf.migrate.files import migrate_file
from areal_conf.migrate.outcome import Migration
from areal_conf.migrate.usages import command_lines, python_uses

CASES = CASES / "migrate"
ENGINES = ("rollout", "actor", "critic", "ref", "teacher")

GRPO = """\
experiment_name: gsm8k-grpo

cluster:
  n_nodes: 1
  n_gpus_per_node: 8

allocation_mode: sglang:d4p1t1+d4p1t1

scheduler:
  type: null

rollout:
  experiment_name: ${experiment_name}
  max_concurrent_rollouts: 256

actor:
  # the model
  path: Qwen/Qwen2.5-1.5B-Instruct   # from the hub
  kl_ctl: 0.0

ref:
  path: ${actor.path}
  scheduling_strategy:
    type: colocation
    target: actor
"""
MIGRATED = (
    GRPO.replace("allocation_mode: sglang:d4p1t1+d4p1t1\n", "")
    .replace("rollout:\n", 'rollout:\n  backend: "sglang:d4p1t1"\n')
    .replace("\nactor:\n", '\nactor:\n  backend: "fsdp:d4p1t1"\n')
    .replace("\nref:\n", "\nref:\n  backend: ${actor.backend}\n")
)


def codes(migration: Migration) -> list[str]:
    return [found.error.code for found in migration.found]


def backends(text: str) -> dict[str, Any]:
    config = yaml.safe_load(text)
    return {e: config[e].get("backend") for e in ENGINES if config.get(e)}


def both(before: str) -> str:
    """`before` migrated, once: a second run finds nothing to do."""
    migration = migrate_yaml(before)
    assert migration.new is not None, migration.found
    assert migrate_yaml(migration.new) == Migration()
    return migration.new


def left_alone(before: str, code: str) -> Migration:
    migration = migrate_yaml(before)
    assert migration.new is None
    assert code in codes(migration)
    assert migration.undecided
    return migration


# -- one file -----------------------------------------------------------------------------------


def test_a_config_is_migrated() -> None:
    assert both(GRPO) == MIGRATED


@pytest.mark.parametrize("name", sorted(p.name for p in (CASES / "before").glob("*.yaml")) or [""])
def test_the_shared_cases(name: str) -> None:
    if not name:
        pytest.skip("no shared cases here")
    before = (CASES / "before" / name).read_text()
    after = (CASES / "after" / name).read_text()
    migrated = both(before)
    wanted = backends(after)
    assert backends(migrated) == {engine: wanted[engine] for engine in backends(before)}
    kept = [line for line in migrated.splitlines() if not line.startswith("  backend: ")]
    assert kept == [x for x in before.splitlines() if not x.startswith("allocation_mode")]


@pytest.mark.parametrize(
    ("mode", "rollout", "actor"),
    [
        ("sglang.d4p1t1+d4p1t1", "sglang:d4p1t1", "fsdp:d4p1t1"),
        ("d4m2p4+sglang.d80m2p1", "sglang:d80t2p1", "megatron:d4t2p4"),
        ("sglang:d1 + fsdp:d1", "sglang:d1", "fsdp:d1"),
        ("sglang:d4+d4p2t2c2/d2p2t2e4", "sglang:d4", "megatron:(attn:d4p2t2c2|ffn:d2p2t2e4)"),
    ],
)
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_sizes_stay_as_the_user_spelled_them(
    mode: str, rollout: str, actor: str, quote: str
) -> None:
    migrated = both(GRPO.replace("sglang:d4p1t1+d4p1t1", f"{quote}{mode}{quote}"))
    assert backends(migrated) == {
        "rollout": rollout,
        "actor": actor,
        "ref": "${actor.backend}",
    }


def test_a_ref_that_the_mode_names_gets_what_it_says() -> None:
    mode = "sglang[rollout]:d4+fsdp[actor]:d4|fsdp[ref]:d2t2"
    migrated = both(GRPO.replace("sglang:d4p1t1+d4p1t1", mode))
    assert backends(migrated)["ref"] == "fsdp:d2t2"


def test_no_backend_is_inherited_from_an_actor_without_one() -> None:
    migrated = both(GRPO.replace("+d4p1t1", ""))
    assert backends(migrated) == {"rollout": "sglang:d4p1t1", "actor": None, "ref": None}


@pytest.mark.parametrize("unset", ['""', "", "null", "~", "???", "''  # none yet", "&b ''"])
def test_an_unset_backend_is_set_where_it_stands(unset: str) -> None:
    before = GRPO.replace("  kl_ctl", f"  backend: {unset}\n  kl_ctl")
    migrated = both(before)
    assert backends(migrated)["actor"] == "fsdp:d4p1t1"
    assert migrated.count("backend:") == 3
    assert ("# none yet" in migrated) is ("#" in unset)
    assert ("&b" in migrated) is ("&b" in unset)


def test_a_backend_that_says_the_same_stays() -> None:
    before = GRPO.replace("  kl_ctl", "  backend: fsdp:d4\n  kl_ctl")
    assert backends(both(before))["actor"] == "fsdp:d4"
    assert "AC511" in codes(migrate_yaml(before))


def test_a_backend_that_says_something_else() -> None:
    (found,) = left_alone(GRPO.replace("  kl_ctl", "  backend: fsdp:d8\n  kl_ctl"), "AC510").found
    assert "fsdp:d4p1t1" in found.error.message
    assert "fsdp:d8" in found.error.message
    assert found.line == 19


def test_ref_and_critic_keep_their_own_backends() -> None:
    before = GRPO.replace("ref:\n", "ref:\n  backend: fsdp:d2\n")
    assert backends(both(before))["ref"] == "fsdp:d2"


@pytest.mark.parametrize("mode", ['""', "null", "", "''", "~"])
def test_an_empty_mode_is_left(mode: str) -> None:
    assert migrate_yaml(GRPO.replace("sglang:d4p1t1+d4p1t1", mode)) == Migration()


def test_the_comment_on_the_modes_line_stays() -> None:
    migrated = both(GRPO.replace("+d4p1t1\n", "+d4p1t1  # 8 GPUs\n"))
    assert migrated == MIGRATED.replace(
        "n_gpus_per_node: 8\n\n",
        "n_gpus_per_node: 8\n\n# 8 GPUs (of the former sglang:d4p1t1+d4p1t1)\n",
    )


SECTIONS = "actor:\n  x: 1\nrollout:\n  y: 2\n"


@pytest.mark.parametrize(
    ("lines", "comments"),
    [
        ("allocation_mode:  # where\n  sglang:d4+d4 # here\n", "# where\n# here ({})\n"),
        ("allocation_mode: >-  # folded\n  sglang:d4\n  +d4\n", "# folded ({})\n"),
        ("allocation_mode: # a\n  # b\n  &c 'sglang:d4+d4'#d\n", "# a\n# b\n#d ({})\n"),
        ("allocation_mode: sglang:d4+d4\n\n# of the next line\n", "\n# of the next line\n"),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_every_comment_of_the_mode_stays_and_says_what_it_was_about(
    lines: str, comments: str, last: bool
) -> None:
    before = SECTIONS + lines if last else lines + SECTIONS
    migrated = both(before)
    kept = re.sub(r"of the former sglang:d4 ?\+d4", "{}", migrated)
    assert comments in kept
    assert both(before.removesuffix("\n")) == migrated.removesuffix("\n")


@pytest.mark.parametrize(
    ("lines", "comment"),
    [
        ("allocation_mode: >  # folded\n  sglang.d4\n  +d4\n", "  # folded\n"),
        ("allocation_mode: |\n  sglang.d4+d4\n\n# of the next line\n", "\n\n# of the next line\n"),
    ],
)
def test_a_block_that_is_modernised_keeps_its_comment_and_the_lines_after_it(
    lines: str, comment: str
) -> None:
    migrated = migrate_yaml(lines + SECTIONS, "spmd").new
    assert migrated is not None
    assert migrated.startswith(f'allocation_mode: "sglang:d4+fsdp:d4"{comment}actor:')


def test_a_mode_on_two_lines_or_in_a_block() -> None:
    for mode in (
        "\n  sglang:d4p1t1\n  +d4p1t1",
        "|\n  sglang:d4p1t1+d4p1t1",
        ">-\n  sglang:d4p1t1+d4p1t1",
    ):
        assert both(GRPO.replace("sglang:d4p1t1+d4p1t1", mode)) == MIGRATED


def test_a_mode_on_the_last_line() -> None:
    line = "allocation_mode: sglang:d4p1t1+d4p1t1\n"
    before = GRPO.replace(line, "") + line
    assert both(before) == MIGRATED
    assert both(before.rstrip("\n")) == MIGRATED


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_line_ends_survive(ends: str) -> None:
    assert both(GRPO.replace("\n", ends)) == MIGRATED.replace("\n", ends)


def test_a_byte_order_mark_survives() -> None:
    assert both("\ufeff" + GRPO) == "\ufeff" + MIGRATED
    first = "\ufeffallocation_mode: fsdp:d8\nactor:\n  x: 1\n"
    assert both(first) == '\ufeffactor:\n  backend: "fsdp:d8"\n  x: 1\n'


def test_tabs_in_comments_and_wide_lines_survive() -> None:
    wide = "description: " + "word " * 400 + "\n"
    before = wide + GRPO.replace("# the model", "#\tthe\tmodel").replace("   # from", "\t# from")
    assert both(before) == wide + MIGRATED.replace("# the model", "#\tthe\tmodel").replace(
        "   # from", "\t# from"
    )


def test_characters_beyond_ascii_survive() -> None:
    note = "说明: '𝒳 é — ü'\n"
    assert both(note + GRPO) == note + MIGRATED


def test_anchors_aliases_and_merges() -> None:
    before = """\
allocation_mode: &mode sglang:d4+d4
rollout: &r   # servers
  x: 1
actor: &a
  path: p
critic:
  <<: *a
ref: *a
"""
    assert (
        both(before)
        == """\
rollout: &r   # servers
  backend: "sglang:d4"
  x: 1
actor: &a
  backend: "fsdp:d4"
  path: p
critic:
  backend: ${actor.backend}
  scheduling_strategy: {type: colocation, target: actor}
  <<: *a
ref: {<<: *a, scheduling_strategy: {type: colocation, target: actor}}
"""
    )


def test_a_backend_that_is_merged_in() -> None:
    before = "base: &b {backend: fsdp:d4}\nallocation_mode: fsdp:d4\nactor:\n  <<: *b\n"
    assert both(before) == "base: &b {backend: fsdp:d4}\nactor:\n  <<: *b\n"
    left_alone(before.replace("mode: fsdp:d4", "mode: fsdp:d8"), "AC510")


SHARED = """\
allocation_mode: sglang:d4+fsdp:d4
actor: &a
  path: x
rollout: &r
  n: 1
"""


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        ("judge:\n  <<: *a\n  name: j\n", "judge"),
        ("eval_rollout: *r\n", "eval_rollout"),
        ("ref: *r\n", None),  # which would serve, instead of inheriting from actor
        ("x: &x {<<: *a}\ny: {<<: [{k: 1}, *x]}\n", ""),
        ("mine: {deep: [*a]}\n", "mine.deep.-"),
        ("judge: {<<: *a, backend: 'sglang:d1'}\n", "fine"),
        ("other: &o {path: y}\nmine: *o\n", "fine"),
    ],
)
def test_an_alias_does_not_carry_a_backend_elsewhere(more: str, changed: str | None) -> None:
    migration = migrate_yaml(SHARED + more)
    if changed == "fine":
        assert migration.new is not None
        return
    assert migration.new is None
    assert codes(migration) == ["AC527"]
    if changed is not None:
        assert f"an alias would change {changed}" in migration.found[0].error.message


@pytest.mark.parametrize("ref", ["*a", "{<<: *a}", "{<<: *a, name: ref}"])
def test_a_ref_that_is_the_actors_section_inherits_as_before(ref: str) -> None:
    migration = migrate_yaml(f"{SHARED}ref: {ref}\n", apart=True)
    assert codes(migration) == ["AC530"]
    assert plan(OmegaConf.create(migration.new or "")).total_gpus == 12
    migration = migrate_yaml(f"{SHARED}ref: {ref}\n")
    assert codes(migration) == []
    assert plan(OmegaConf.create(migration.new or "")).total_gpus == 8


def test_a_strategy_that_is_merged_in_counts() -> None:
    base = "base: &b {scheduling_strategy: {type: colocation, target: actor}}\n"
    assert codes(migrate_yaml(f"{base}{SHARED}ref: {{<<: *b}}\n")) == []


def test_flow_style() -> None:
    before = "allocation_mode: sglang:d4+d4\nrollout: {x: 1}\nactor: {}\nref: {\n  y: 2,\n}\n"
    assert both(before) == (
        'rollout: {backend: "sglang:d4", x: 1}\nactor: {backend: "fsdp:d4"}\n'
        'ref: {backend: "${actor.backend}", '
        "scheduling_strategy: {type: colocation, target: actor}, \n  y: 2,\n}\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{allocation_mode: d8, actor: {x: 1}}", '{actor: {backend: "fsdp:d8", x: 1}}'),
        ("{actor: {x: 1}, allocation_mode: d8}\n", '{actor: {backend: "fsdp:d8", x: 1}}\n'),
        ('{"actor":{"x":1},"allocation_mode":"d8"}', '{"actor":{backend: "fsdp:d8", "x":1}}'),
    ],
)
def test_a_root_in_braces(before: str, after: str) -> None:
    assert both(before) == after


def test_the_place_of_a_teacher() -> None:
    mode = "sglang[rollout]:d2+fsdp[actor]:d2+sglang[teacher]:d2"
    common = f"allocation_mode: {mode}\nrollout:\n  x: 1\nactor:\n  x: 1\nteacher:\n"
    assert 'teacher:\n  backend: "sglang:d2"\n' in both(common + "  x: 1\n")
    newer = both(common + "  engine_type: rollout\n  rollout:\n    x: 1\n")
    assert '  rollout:\n    backend: "sglang:d2"\n' in newer
    left_alone(common + "  engine_type: rollout\n", "AC523")


def test_old_defaults_are_told() -> None:
    assert codes(migrate_yaml("allocation_mode: d4t2e2p1\nactor:\n  x: 1\n")) == ["AC515"]


# -- the SPMD target ----------------------------------------------------------------------------


def test_the_spmd_target_keeps_the_mode_in_its_newest_form() -> None:
    migrated = migrate_yaml(GRPO, "spmd").new
    assert migrated is not None
    line = "allocation_mode: sglang:d4p1t1+fsdp:d4p1t1\n"
    assert migrated == MIGRATED.replace("\n\nscheduler", f"\n{line}\nscheduler")
    again = migrate_yaml(migrated, "spmd")
    assert again.new is None
    assert set(codes(again)) == {"AC511"}


def test_the_spmd_target_keeps_quotes() -> None:
    before = GRPO.replace("sglang:d4p1t1+d4p1t1", "'sglang.d4p1m1+d4p1m1'  # old")
    migrated = migrate_yaml(before, "spmd").new
    assert migrated is not None
    assert "allocation_mode: 'sglang:d4p1t1+fsdp:d4p1t1'  # old\n" in migrated
    flow = migrate_yaml("{allocation_mode: '[actor]:d8', actor: {}}", "spmd").new
    assert flow == "{allocation_mode: 'fsdp[actor]:d8', actor: {backend: \"fsdp:d8\"}}"


def test_a_reader_of_the_mode_does_not_matter_where_the_mode_stays() -> None:
    before = GRPO + "trial_name: t-${allocation_mode}\n"
    left_alone(before, "AC524")
    assert migrate_yaml(before, "spmd").new is not None


# -- what cannot be decided ---------------------------------------------------------------------

LEFT_ALONE = {
    "interpolation": (GRPO.replace("sglang:d4p1t1+d4p1t1", "${oc.env:MODE}"), "AC522"),
    "list": (GRPO.replace("sglang:d4p1t1+d4p1t1", "[sglang:d4, fsdp:d4]"), "AC522"),
    "mapping": (GRPO.replace("sglang:d4p1t1+d4p1t1", "{a: 1}"), "AC522"),
    "nested teacher": ("teacher:\n  allocation_mode: sglang:d4\nactor:\n  x: 1\n", "AC522"),
    "defaults list": ("defaults:\n  - allocation_mode: eight\nactor:\n  x: 1\n", "AC522"),
    "read elsewhere": (GRPO + "trial_name: ${allocation_mode}\n", "AC524"),
    "alias": (GRPO.replace(": sglang", ": &m sglang") + "copy: *m\n", "AC524"),
    "word": (GRPO.replace("sglang:d4p1t1+d4p1t1", "heuristic"), "AC501"),
    "two halves": (GRPO.replace("sglang:d4p1t1", "fsdp:d4"), "AC502"),
    "bad sizes": (GRPO.replace("+d4p1t1", "+fsdp:d4p2"), "AC104"),
    "no section": (GRPO.replace("actor:", "learner:", 1), "AC523"),
    "null section": ("allocation_mode: fsdp:d8\nactor:\n", "AC523"),
    "section is an alias": ("a: &a {x: 1}\nallocation_mode: fsdp:d8\nactor: *a\n", "AC523"),
    "section is elsewhere": ("allocation_mode: fsdp:d8\nactor: ${x}\n", "AC523"),
    "mode given twice": (GRPO + "allocation_mode: fsdp:d8\n", "AC521"),
    "section given twice": (GRPO + "actor:\n  x: 1\n", "AC521"),
    "several documents": (GRPO + "---\nactor:\n  x: 1\n", "AC521"),
    "no YAML": (GRPO + "actor: [1\n", "AC521"),
    "nested too deeply": (GRPO + "x: " + "[" * 5000 + "]" * 5000 + "\n", "AC521"),
    "control character": (GRPO + "x: \x07\n", "AC521"),
    "odd key": ("? allocation_mode\n: fsdp:d8\nactor:\n  x: 1\n", "AC522"),
    "comment in braces": ("{allocation_mode: d8, # c\nactor: {x: 1}}", "AC522"),
    "anchor on a line of its own": ("allocation_mode: d8\nactor:\n  &a\n  x: 1\n", ""),
}


def test_both_ways_out_of_ac523_can_be_pasted() -> None:
    mode = "allocation_mode: sglang[rollout]:d4+megatron[actor]:(attn:d4|ffn:e2)"
    migration = left_alone(
        f"{mode}|megatron[teacher]:d4\nteacher: {{engine_type: train}}\n", "AC523"
    )
    written = re.compile(
        r"write the line (.*?)( below teacher)?, or (.*) on the command line, and "
    )
    ways = [
        found.group(1, 3) for one in migration.found if (found := written.match(one.error.hint))
    ]
    lines = [yaml.safe_load(line) for line, _ in ways]
    overrides = [OverridesParser.create().parse_override(*shlex.split(way)) for _, way in ways]
    assert lines == [
        {"rollout": {"backend": "sglang:d4"}},
        {"actor": {"backend": "megatron:(attn:d4|ffn:e2)"}},
        {"train": {"backend": "megatron:d4"}},
    ]
    assert [(one.key_or_group, one.value()) for one in overrides] == [
        ("rollout.backend", "sglang:d4"),
        ("actor.backend", "megatron:attn:d4|ffn:e2"),
        ("teacher.train.backend", "megatron:d4"),
    ]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda new: new + "more: 1\n",
        lambda new: new.replace("sglang:d4p1t1", "sglang:d2p1t1"),
        lambda new: new + "allocation_mode: fsdp:d8\n",
        lambda new: new.replace("actor:", "actor: ["),
    ],
)
def test_a_result_that_would_not_mean_the_same_is_never_handed_out(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[str], str]
) -> None:
    apply = config.apply
    monkeypatch.setattr(config, "apply", lambda text, edits: spoil(apply(text, edits)))
    left_alone(GRPO, "AC527")


@pytest.mark.parametrize(("before", "code"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_cannot_be_decided_is_left_alone(before: str, code: str) -> None:
    if not code:  # decided after all
        assert backends(both(before))["actor"] == "fsdp:d8"
        return
    for found in left_alone(before, code).found:
        assert found.error.hint
        assert found.line <= before.count("\n") + 1
    assert migrate_yaml(before, "spmd").new != before


def test_all_that_is_missing_is_told() -> None:
    assert codes(migrate_yaml("allocation_mode: sglang:d4+d4\n")) == ["AC523", "AC523"]


@pytest.mark.parametrize(
    "text",
    [
        "# allocation_mode: sglang:d4+d4\nactor:\n  x: 1\n",
        "actor:\n  x: 1  # allocation_mode: d8\n",
        'note: "set allocation_mode: sglang:d4+d4"\nactor:\n  x: 1\n',
        "note: |\n  allocation_mode: sglang:d4+d4\nactor:\n  x: 1\n",
        "my_allocation_mode: d8\nallocation_mode_note: x\n",
        "- allocation_mode\n",
        "",
    ],
)
def test_the_word_elsewhere_says_nothing(text: str) -> None:
    assert migrate_yaml(text) == Migration()


def test_no_file_is_migrated_by_half() -> None:
    """AReaL 1.0.0 to 1.0.2 had a mode of the teacher's own."""
    migration = left_alone(GRPO + "teacher:\n  allocation_mode: d1p1t4\n", "AC522")
    assert codes(migration) == ["AC522"]


# -- GPUs that are added ------------------------------------------------------------------------


def test_an_engine_that_shared_gpus_and_adds_its_own_now() -> None:
    before = GRPO.split("  scheduling_strategy")[0].replace("kl_ctl: 0.0", "kl_ctl: 0.1")
    migration = migrate_yaml(before, apart=True)
    assert migration.new is not None
    assert codes(migration) == ["AC530"]
    assert "adds 4 GPUs" in migration.found[0].error.message
    assert not migration.undecided
    assert codes(migrate_yaml(before.replace("kl_ctl: 0.1", "kl_ctl: 0.0"), apart=True)) == []
    assert codes(migrate_yaml(before, "spmd", apart=True)) == []
    shared = migrate_yaml(before)
    assert codes(shared) == []
    assert "  scheduling_strategy: {type: colocation, target: actor}\n" in (shared.new or "")


def test_a_colocation_that_the_sections_do_not_repeat() -> None:
    mode = "fsdp[actor]:d4|sglang[rollout]:d4"
    migration = migrate_yaml(GRPO.replace("sglang:d4p1t1+d4p1t1", mode), apart=True)
    (found,) = migration.found
    assert "rollout shared the GPUs of actor" in found.error.message
    line = "scheduling_strategy: {type: colocation, target: actor}"
    assert f"add below rollout: the line {line}" in found.error.hint


# -- why the text is edited and not written anew ------------------------------------------------


def test_a_yaml_writer_would_not_keep_these_files() -> None:
    ruamel = pytest.importorskip("ruamel.yaml")
    more = "lists:   {a: 1}\nbig:\n    - a\n\n\n# c\ndescription: " + "word " * 40 + "\n"
    writer = ruamel.YAML()
    out = io.StringIO()
    writer.dump(writer.load(more + GRPO), out)
    assert out.getvalue() != more + GRPO
    assert both(more + GRPO) == more + MIGRATED


def test_a_yaml_writer_would_not_keep_the_shared_cases() -> None:
    ruamel = pytest.importorskip("ruamel.yaml")
    names = sorted((CASES / "before").glob("*.yaml"))
    if not names:
        pytest.skip("no shared cases here")
    changed = 0
    for path in names[:6]:
        writer = ruamel.YAML()
        writer.preserve_quotes = True
        out = io.StringIO()
        writer.dump(writer.load(path.read_text()), out)
        changed += out.getvalue() != path.read_text()
    assert changed


KEYS = ["allocation_mode: ", "actor:", "rollout:", "ref:", "  x: 1", "  backend: ", "\n", "\n"]
SIGNS = ["{", "}", "[", "]", "#", "'", '"', " ", ": ", "&a ", "*a", "- ", "|", "---", "\t"]
WORDS = st.sampled_from([*KEYS, *SIGNS, "fsdp:d8", "sglang:d4+d4"])


@settings(deadline=None)
@given(st.lists(WORDS, max_size=24).map("".join))
def test_any_text_is_migrated_or_left_alone(text: str) -> None:
    for target in ("controller", "spmd"):
        migration = migrate_yaml(text, target)  # type: ignore[arg-type]
        for found in migration.found:
            assert found.error.code in CODES
        if migration.new is not None and target == "controller":
            assert "allocation_mode" not in yaml.safe_load(migration.new)


# -- the command --------------------------------------------------------------------------------


def migrate(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([str(a) for a in arguments]))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "grpo.yaml").write_text(GRPO)
    (tmp_path / "configs" / "other.yaml").write_text("x: 1\n")
    return tmp_path


def test_diff_is_the_default_and_exits_0(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "bad.yaml").write_text("allocation_mode: manual\n")
    assert migrate(tree) == 0
    out, err = capsys.readouterr()
    assert "-allocation_mode: sglang:d4p1t1+d4p1t1\n" in out
    assert '+  backend: "sglang:d4p1t1"\n' in out
    path = tree / "configs" / "grpo.yaml"
    assert f"python3 SCRIPT --config {path} scheduler.type=local" in out
    assert f"{tree / 'bad.yaml'}:1: left alone: AC501" in err
    assert path.read_text() == GRPO


def test_the_diff_is_a_patch(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "configs" / "grpo.yaml"
    path.write_bytes(GRPO.rstrip("\n").replace("\n", "\r\n").encode())
    migrate(tree)
    patch = capsys.readouterr().out
    done = subprocess.run(
        ["git", "apply", "--unsafe-paths", "-p1", "--directory=/"],
        input=patch.encode(),
        cwd=tree,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"git cannot apply here: {done.stderr.decode()[:80]}")
    assert path.read_bytes() == MIGRATED.rstrip("\n").replace("\n", "\r\n").encode()


def test_write(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "configs" / "grpo.yaml"
    path.chmod(0o640)
    assert migrate("--write", tree) == 0
    assert path.read_text() == MIGRATED
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert f"migrated {path}" in capsys.readouterr().out
    assert migrate("--write", tree) == 0
    assert capsys.readouterr().out == ""
    assert sorted(p.name for p in path.parent.iterdir()) == ["grpo.yaml", "other.yaml"]


def test_write_exits_1_where_a_file_is_left_alone(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tree / "bad.yaml"
    bad.write_text("allocation_mode: manual\n")
    assert migrate(tree, "--write") == 1
    assert (tree / "configs" / "grpo.yaml").read_text() == MIGRATED
    assert bad.read_text() == "allocation_mode: manual\n"
    assert "AC501" in capsys.readouterr().err


def test_check(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "configs" / "grpo.yaml"
    assert migrate("--check", tree) == 1
    assert path.read_text() == GRPO
    assert f"would change {path}" in capsys.readouterr().out
    migrate("--write", tree)
    assert migrate("--check", tree) == 0
    (tree / "bad.yaml").write_text("allocation_mode: manual\n")
    assert migrate("--check", tree) == 1


def test_several_nodes_are_run_by_slurm(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "two.yaml").write_text(GRPO.replace("n_nodes: 1", "n_nodes: 2"))
    migrate("--write", tree / "two.yaml")
    assert "two.yaml scheduler.type=slurm" in capsys.readouterr().out


def test_the_spmd_target_on_the_command_line(tree: Path) -> None:
    assert migrate("--write", "--target", "spmd", tree) == 0
    text = (tree / "configs" / "grpo.yaml").read_text()
    assert "allocation_mode: sglang:d4p1t1+fsdp:d4p1t1\n" in text


def test_a_missing_file_is_told_before_anything_is_written(tree: Path) -> None:
    with pytest.raises(FileNotFoundError):
        migrate("--write", tree, tree / "none.yaml")
    assert (tree / "configs" / "grpo.yaml").read_text() == GRPO


def test_a_symlink_stays_one_and_its_file_is_migrated_once(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tree / "configs" / "grpo.yaml"
    link = tree / "link.yaml"
    link.symlink_to(Path("configs") / "grpo.yaml")
    (tree / "broken.yaml").symlink_to("nowhere")
    (tree / "loop").symlink_to(tree)
    assert migrate("--write", tree) == 0
    assert capsys.readouterr().out.count("migrated ") == 1
    assert link.is_symlink()
    assert path.read_text() == MIGRATED


def test_each_name_of_a_file_is_migrated(tree: Path) -> None:
    """Writing a file anew parts it from its hard links."""
    path = tree / "configs" / "grpo.yaml"
    os.link(path, tree / "other.yaml")
    assert migrate("--write", tree) == 0
    assert path.read_text() == (tree / "other.yaml").read_text() == MIGRATED


def test_hidden_and_vendored_folders_are_not_searched(tree: Path) -> None:
    for folder in (".hydra", "node_modules", "env"):
        (tree / folder).mkdir()
        (tree / folder / "grpo.yaml").write_text(GRPO)
    (tree / "env" / "pyvenv.cfg").write_text("")
    migrate("--write", tree)
    for folder in (".hydra", "node_modules", "env"):
        assert (tree / folder / "grpo.yaml").read_text() == GRPO
    migrate("--write", tree / ".hydra")
    assert (tree / ".hydra" / "grpo.yaml").read_text() == MIGRATED


def test_a_file_that_is_not_utf8(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "latin.yaml"
    data = b"# caf\xe9\n" + GRPO.encode()
    path.write_bytes(data)
    (tree / "binary.yaml").write_bytes(b"\xff\x00\x01")
    assert migrate("--write", tree) == 1
    assert path.read_bytes() == data
    assert f"{path}:1: left alone: AC520" in capsys.readouterr().err


def test_utf16(tree: Path) -> None:
    path = tree / "wide.yaml"
    path.write_bytes(b"\xff\xfe" + GRPO.encode("utf-16-le"))
    assert migrate("--write", path) == 0
    assert path.read_bytes() == b"\xff\xfe" + MIGRATED.encode("utf-16-le")


@pytest.mark.slow
def test_a_large_file(tree: Path) -> None:
    more = "".join(f"  key_{i}: value {i}  # comment\n  list_{i}: [1, 2]\n" for i in range(7000))
    path = tree / "large.yaml"
    path.write_text(f"{GRPO}large:\n{more}")
    assert path.stat().st_size > 3 * 10**5
    start = time.process_time()
    assert migrate("--write", path) == 0
    assert time.process_time() - start < 10
    assert path.read_text() == f"{MIGRATED}large:\n{more}"


def test_a_file_that_changes_while_it_is_migrated(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tree / "configs" / "grpo.yaml"
    result = migrate_file(path)
    path.write_text(GRPO + "more: 1\n")
    result.write()
    assert [found.error.code for found in result.found] == ["AC525"]
    assert path.read_text() == GRPO + "more: 1\n"
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_full_disk_leaves_the_old_file(
    step: str, tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, step, fail)
    assert migrate("--write", tree) == 1
    path = tree / "configs" / "grpo.yaml"
    assert path.read_text() == GRPO
    assert len(list(path.parent.iterdir())) == 2
    assert "AC526: cannot be written: No space left on device" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_directory(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tree / "configs"
    folder.chmod(0o555)
    try:
        assert migrate("--write", tree) == 1
    finally:
        folder.chmod(0o755)
    assert (folder / "grpo.yaml").read_text() == GRPO
    assert "AC526" in capsys.readouterr().err


def test_the_bar_is_shown_on_a_terminal_only(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(201):
        (tree / f"{i}.yaml").write_text("x: 1\n")
    migrate(tree)
    assert "migrating" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    migrate(tree)
    assert "migrating" in capsys.readouterr().err


# -- what is only reported ----------------------------------------------------------------------

SCRIPT = """\
#!/bin/bash
python3 -m areal.launcher.slurm train.py --config grpo.yaml \\
    experiment_name=x \\
    allocation_mode=sglang.d12p1t1+d4p1t1 \\
    cluster.n_nodes=2
"""


def test_lines_of_documents_are_reported_with_the_line_to_write(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tree / "train.md"
    path.write_text(SCRIPT)
    assert migrate("--write", path) == 0
    assert path.read_text() == SCRIPT
    err = capsys.readouterr().err
    assert f"{path}:2: AC528" in err
    assert "write python3 train.py --config grpo.yaml \\" in err
    assert f"{path}:4: AC528" in err
    assert (
        "write rollout.backend=sglang:d12p1t1 actor.backend=fsdp:d4p1t1 ++scheduler.type=slurm"
        in err
    )


BOTH = "rollout.backend=sglang:d4 actor.backend=fsdp:d4"
FOLDED = "(attn:d1p4t2c2|ffn:d1p4t1e4)"
COMMANDS = {
    "allocation_mode=d8": "actor.backend=fsdp:d8",
    "run `allocation_mode=sglang:d4+d4`.": f"run `{BOTH}`.",
    "t '+allocation_mode=sglang:d4 + d4' a=b": (
        "t ++rollout.backend=sglang:d4 ++actor.backend=fsdp:d4 a=b"
    ),
    't allocation_mode="sglang:d4|fsdp[actor]:d4"': f"t {BOTH}",
    f"t allocation_mode=sglang:d4t4+megatron:{FOLDED} x=1": (
        f"t rollout.backend=sglang:d4t4 'actor.backend=\"megatron:{FOLDED}\"' x=1"
    ),
}


@pytest.mark.parametrize(("line", "expected"), COMMANDS.items(), ids=COMMANDS)
def test_command_lines(line: str, expected: str) -> None:
    (use,) = command_lines(f"first\n{line}\n")
    assert use.line == 2
    assert use.error.hint == f"write {expected}"


@pytest.mark.parametrize("value", ["$MODE", "${MODE:-d4}", "{mode}", "\"'${M}'\"", "manual"])
def test_a_value_that_cannot_be_read_is_told_too(value: str) -> None:
    (use,) = command_lines(f"train allocation_mode={value} x=1")
    assert "backend=" in use.error.hint


@pytest.mark.parametrize(
    "line", ["if allocation_mode == x", "allocation_mode: The mode", "my_allocation_mode=d4", ""]
)
def test_lines_that_set_nothing(line: str) -> None:
    assert list(command_lines(line)) == []


def test_markdown_with_a_config_in_it() -> None:
    (use,) = command_lines("```yaml\nallocation_mode: sglang:d4+d4  # 8 GPUs\n```\n")
    assert use.line == 2
    assert 'rollout.backend: "sglang:d4", actor.backend: "fsdp:d4"' in use.error.hint


def test_commands_inside_a_yaml_file(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "job.yaml"
    path.write_text("run: |\n  train allocation_mode=d8\n")
    assert migrate("--check", path) == 0
    assert f"{path}:2: AC528" in capsys.readouterr().err


PYTHON = """\
from areal.api.alloc_mode import (
    ModelAllocation,
    AllocationMode,
)
mode = AllocationMode.from_str(config.allocation_mode)
args = ["allocation_mode=sglang:d1+fsdp:d1", f"allocation_mode={mode}"]
# config.allocation_mode
"""


@pytest.mark.parametrize("broken", ["", "print 'old'\n"])
def test_python_uses_are_reported(broken: str) -> None:
    uses = list(python_uses(PYTHON.replace("(\n", "(") + broken if broken else PYTHON))
    assert {use.error.code for use in uses} == {"AC529"}
    lines = [use.line for use in uses]
    if not broken:
        assert lines == [3, 5, 6, 6]
        assert "rollout.backend=sglang:d1 actor.backend=fsdp:d1" in uses[2].error.hint
    assert len(uses) >= 2


def test_our_own_class_is_no_use_of_theirs() -> None:
    assert list(python_uses("from areal_conf import AllocationMode\n")) == []


def test_python_files_of_a_tree(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "train.py"
    path.write_text(PYTHON)
    migrate("--write", tree)
    assert path.read_text() == PYTHON
    err = capsys.readouterr().err
    assert f"{path}:3: AC529: imports AllocationMode" in err
    assert f"{path}:5: AC529: reads allocation_mode" in err


# -- the guide ----------------------------------------------------------------------------------

GUIDE = ROOT / "docs" / "guides" / "migrate.md"
TABLES = ROOT / "docs" / "reference" / "allocation-mode.md"


def dialects_table() -> str:
    lines = ["| | AReaL | looks like | marks |", "| --- | --- | --- | --- |"]
    for row in DIALECTS:
        marks = [f"`{old}` is {new}" for old, new in row.letters.items()]
        marks += [f"`{sign}` for `:`" for sign in row.separators]
        marks += ["`dims/dims` is attn/ffn"] * row.slash
        for what, words in (("keys", row.keys), ("words", row.words), ("halves", row.halves)):
            if words:
                marks.append(f"{what} " + ", ".join(f"`{word}`" for word in words))
        marks += ["training backend left out"] * row.backend_optional
        example = row.example.replace("|", "\\|")
        lines.append(f"| {row.number} | {row.versions} | `{example}` | {'; '.join(marks)} |")
    return "\n".join(lines).replace("|  |", "| |") + "\n"


def codes_table() -> str:
    rows = [f"| {code} | {CODES[code]} |" for code in CODES if code.startswith("AC5")]
    return "\n".join(["| code | meaning |", "| --- | --- |", *rows]) + "\n"


@pytest.mark.parametrize(("name", "table"), [("dialects", dialects_table), ("codes", codes_table)])
def test_the_tables_are_those_of_the_code(name: str, table: Callable[[], str]) -> None:
    found = re.search(
        rf"<!-- {name}: begin[^\n]*-->\n(.*?)<!-- {name}: end -->", TABLES.read_text(), re.DOTALL
    )
    assert found
    assert found[1] == table()


def test_the_snippets_of_the_guide_run() -> None:
    for snippet in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(snippet, {})
