"""``areal-conf migrate`` proves itself: a file keeps its plan, or is left alone."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from areal_conf import plan
from areal_conf.cli.entry import main
from areal_conf.config.compose import compose_file
from areal_conf.documents import roots
from areal_conf.migrate import proof
from areal_conf.migrate.config import migrate_yaml
from areal_conf.migrate.files import migrate_file
from areal_conf.migrate.outcome import Migration
from areal_conf.migrate.scripts import edited_script
from areal_conf.migrate.usages import command_lines
from areal_conf.planning.result import Plan

MODE = "allocation_mode: sglang.d4p1t1+d4p1t1\n"
BOX = "cluster: {n_nodes: 1, n_gpus_per_node: 8}\n"
HALVES = MODE + BOX + "rollout:\n  x: 1\nactor:\n  x: 1\n"


def codes(migration: Migration) -> list[str]:
    return [found.error.code for found in migration.found]


def layouts(made: Plan) -> dict[str, object]:
    return {
        name: (engine.active, engine.spec, engine.world_size)
        for name, engine in made.engines.items()
    }


def planned(text: str, launcher: str | None = None, scheduler: str | None = None) -> Plan:
    cfg: Any = OmegaConf.create(text)
    if scheduler:
        OmegaConf.update(cfg, "scheduler.type", scheduler, force_add=True)
    return plan(cfg, launcher=launcher)


def proven(text: str) -> str:
    """The migrated text, whose plan is the one it had under a launcher."""
    migration = migrate_yaml(text)
    assert migration.new is not None, migration.found
    before, after = planned(text, "local"), planned(migration.new, scheduler="local")
    assert layouts(after) == layouts(before)
    assert after.total_gpus == before.total_gpus
    assert not {e.code for e in after.errors} - {e.code for e in before.errors}
    return migration.new


# -- B19: it runs on the cluster it ran on --------------------------------------------------------


@pytest.mark.parametrize(
    "more", ["ref:\n  x: 1\n", "critic: {x: 1}\n", "ref: {}\ncritic:\n  x: 1\n"]
)
def test_the_migrated_file_runs_on_the_cluster_the_old_one_ran_on(more: str) -> None:
    new = proven(HALVES + more)
    assert planned(new, scheduler="local").ok
    assert "{type: colocation, target: actor}" in new
    apart = migrate_yaml(HALVES + more, apart=True)
    assert "colocation" not in (apart.new or "")
    assert "AC530" in codes(apart)


@pytest.mark.parametrize(
    "strategy",
    [
        "scheduling_strategy:\n    type: separation\n    target: null\n",
        "scheduling_strategy:\n    type: separation\n",
        "scheduling_strategy: {type: separation}\n",
        "scheduling_strategy: null\n",
        "scheduling_strategy: ''\n",
        "scheduling_strategy:\n",
        "scheduling_strategy: {fork: true}\n",
    ],
)
def test_a_strategy_that_was_not_read_is_changed(strategy: str) -> None:
    new = proven(f"{HALVES}ref:\n  {strategy}  x: 1\n")
    data = yaml.safe_load(new)["ref"]["scheduling_strategy"]
    assert (data["type"], data["target"]) == ("colocation", "actor")


def test_an_interpolated_strategy_is_left_alone() -> None:
    text = f"{HALVES}s: {{type: separation}}\nref:\n  scheduling_strategy: ${{s}}\n"
    migration = migrate_yaml(text)
    assert migration.new is None
    assert "--no-colocation" in migration.found[0].error.hint
    assert migrate_yaml(text, apart=True).new is not None


TEACHER = "sglang[rollout]:d4+fsdp[actor]:d4|fsdp[teacher]:d4"


@pytest.mark.parametrize(
    "teacher",
    [
        "teacher: {engine_type: train, train: {x: 1}}\n",
        "teacher:\n  engine_type: train\n  train:\n    x: 1\n",
        "teacher: {engine_type: train, train: {backend: 'fsdp:d4'}}\n",
        "teacher:\n  train:\n    scheduling_strategy: {type: separation}\n  engine_type: train\n",
    ],
)
def test_a_teacher_that_trained_on_the_actors_gpus(teacher: str) -> None:
    text = HALVES.replace("sglang.d4p1t1+d4p1t1", TEACHER) + teacher
    data = yaml.safe_load(proven(text))["teacher"]["train"]
    assert data["scheduling_strategy"] == {"type": "colocation", "target": "actor"}


def test_servers_and_trainer_that_shared_gpus_need_offload() -> None:
    text = HALVES.replace("sglang.d4p1t1+d4p1t1", "sglang[rollout]:d4|fsdp[actor]:d4")
    assert codes(migrate_yaml(text)) == ["AC527"]
    offload = text + "enable_offload: true\n"
    offload = offload.replace("actor:\n", "actor:\n  weight_update_mode: disk\n")
    assert "target: actor" in proven(offload)


# -- B14, B15, B17, B18 ---------------------------------------------------------------------------


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_a_bare_backend_is_a_label(quote: str) -> None:
    label = f"  backend: {quote}fsdp{quote}\n"
    text = f"{MODE}{BOX}rollout:\n  backend: sglang\nactor:\n{label}ref:\n{label}"
    assert planned(text, "local").engines["actor"].world_size == 4
    data = yaml.safe_load(proven(text))
    assert data["actor"]["backend"] == "fsdp:d4p1t1"
    assert data["rollout"]["backend"] == "sglang:d4p1t1"
    assert data["ref"]["backend"] == "${actor.backend}"
    wrong = text.replace(label, "  backend: megatron\n", 1)
    assert codes(migrate_yaml(wrong)) == ["AC510"]


HALF = [
    "teacher: {allocation_mode: d1p1t4}\n",
    "teacher:\n  path: x\n  allocation_mode: d1p1t4\n",
    "t: &t {allocation_mode: d4}\nteacher: {<<: *t}\n",
    "list: [{allocation_mode: d4}]\n",
]


@pytest.mark.parametrize("more", HALF)
def test_no_file_is_migrated_by_half(more: str) -> None:
    for target in ("controller", "spmd"):
        migration = migrate_yaml(HALVES + more, target)  # type: ignore[arg-type]
        assert migration.new is None
        assert codes(migration) == ["AC522"]


MERGES = {
    "second level": "base: &a {backend: 'megatron:d2t2'}\nmid: &b {<<: *a}\ncritic: {<<: *b}\n",
    "second level, block": "base: &a\n  backend: 'megatron:d2t2'\nmid: &b\n  <<: *a\n"
    "critic:\n  <<: *b\n  x: 1\n",
    "second merge": "a: &a {y: 1}\nb: &b {backend: 'megatron:d2t2'}\ncritic: {<<: *a, <<: *b}\n",
    "list": "a: &a {backend: 'fsdp:d4'}\nb: &b {backend: 'megatron:d2t2'}\n"
    "critic: {<<: [*a, *b]}\n",
    "list, the other way": "a: &a {backend: 'fsdp:d4'}\nb: &b {backend: 'megatron:d2t2'}\n"
    "critic: {<<: [*b, *a]}\n",
    "inline": "critic: {<<: {backend: 'megatron:d2t2'}}\n",
    "list with a mapping": "critic: {<<: [{backend: 'megatron:d2t2'}]}\n",
    "own over merged": "a: &a {backend: 'fsdp:d4'}\ncritic: {<<: *a, backend: 'megatron:d2t2'}\n",
    "null over merged": "a: &a {backend: 'megatron:d2t2'}\ncritic: {<<: *a, backend: null}\n",
    "merge of the actor": "critic: {<<: *actor}\n",
    "alias of the actor": "critic: *actor\n",
    "merge of a merge of the actor": "m: {n: &n {<<: *actor}}\ncritic: {<<: *n}\n",
    "alias elsewhere": "eval_rollout: {<<: *rollout}\n",
    "alias in a list": "all: [*rollout, *actor]\n",
    "null with a tag": "critic: {backend: !!null }\n",
    "text with a tag": "critic: {backend: !!str }\n",
    "anchor on an unset backend": "critic: {backend: &nothing null}\nnote: *nothing\n",
    "merge at the root": "x: &x {critic: {backend: 'megatron:d2t2'}}\n<<: *x\n",
    "strategy through a merge": "s: &s {scheduling_strategy: {type: colocation, target: actor}}\n"
    "critic: {<<: *s}\nref: {<<: *s}\n",
    "anchored strategy": "critic: {scheduling_strategy: &s {type: separation}}\nother: *s\n",
    "merge key in quotes": "a: &a {backend: 'megatron:d2t2'}\ncritic: {'<<': *a}\n",
}


@pytest.mark.parametrize("more", MERGES.values(), ids=MERGES)
@pytest.mark.parametrize("target", ["controller", "spmd"])
@pytest.mark.parametrize("unset", ["x: 1", "backend: null", "backend: !!null", "backend: ''"])
def test_merges_of_every_shape(more: str, target: str, unset: str) -> None:
    text = MODE + BOX + f"rollout: &rollout\n  {unset}\nactor: &actor\n  {unset}\n" + more
    migration = migrate_yaml(text, target)  # type: ignore[arg-type]
    if migration.new is None:
        assert set(codes(migration)) <= {"AC510", "AC521", "AC523", "AC524", "AC527"}
        return
    before = planned(text, "local")
    after = planned(migration.new, "local" if target == "spmd" else None)
    assert (
        {k: v[:2] for k, v in layouts(after).items()}
        == {  # type: ignore[index]
            k: v[:2]
            for k, v in layouts(before).items()  # type: ignore[index]
        }
    )
    assert after.total_gpus == before.total_gpus
    old, new = OmegaConf.create(text), OmegaConf.create(migration.new)
    names = ("rollout", "actor", "critic", "ref", "teacher", "allocation_mode")
    assert {k: v for k, v in old.items() if k not in names} == {
        k: v for k, v in new.items() if k not in names
    }


def test_a_second_merge_level_keeps_its_backend() -> None:
    text = HALVES.replace("+d4p1t1", "+megatron:d2t2") + MERGES["second level"]
    assert "${actor.backend}" not in proven(text)


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"config.yaml": "defaults: [exp: a, _self_]\n"}, "exp/a.yaml"),
        ({"config.yaml": "defaults: [exp/deep: a, _self_]\n"}, "exp/deep/a.yaml"),
        ({"main.yml": "x: 1\ndefaults:\n- exp: ???\n"}, "exp/a.yaml"),
        ({"config.yaml": "defaults: [a@exp, _self_]\n"}, "a.yaml"),
        ({}, "a.yaml"),
    ],
)
def test_a_config_that_lands_in_a_package(files: dict[str, str], name: str, tmp_path: Path) -> None:
    text = HALVES + "ref: {scheduling_strategy: {type: colocation, target: actor}}\n"
    header = "" if files else "# @package exp\n"
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for other, content in files.items():
        (tmp_path / other).write_text(content)
    roots.forget()
    path.write_text(header + text)
    migration = migrate_file(path)
    assert migration.new is not None, migration.found
    assert "${..actor.backend}" in migration.new
    wrapped: Any = OmegaConf.create({"a": {"b": yaml.safe_load(migration.new)}})
    assert wrapped.a.b.ref.backend == "fsdp:d4p1t1"
    assert "${actor.backend}" in (migrate_yaml(text).new or "")


def test_a_composed_config_is_proven_as_it_is_composed(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("critic: {backend: 'megatron:d2t2'}\nactor: {x: 1}\n")
    path = tmp_path / "config.yaml"
    path.write_text("defaults: [base, _self_]\n" + HALVES + "critic: {backend: null}\n")
    migration = migrate_file(path)
    before = plan(compose_file(path), launcher="local")
    if migration.new is not None:
        path.write_text(migration.new)
        assert layouts(plan(compose_file(path))) == layouts(before)
    else:
        assert migration.found[0].error.code == "AC527"


def test_the_environment_and_the_app_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HALVES.replace("n_nodes: 1", "n_nodes: '${oc.env:NODES}'")
    results = []
    for value in ("1", "2", "none"):
        monkeypatch.setenv("NODES", value)
        results.append(migrate_yaml(text))
    assert results[0].new is not None
    assert results[0] == results[1] == results[2]


def test_what_is_not_proven_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise proof.UnprovenError("actor would have another backend")

    monkeypatch.setattr(proof, "prove", refuse)
    assert codes(migrate_yaml(HALVES)) == ["AC527"]


# -- generated migrations -----------------------------------------------------------------------

NUMBER = int(os.environ.get("AREAL_CONF_MIGRATIONS", "300"))
MODES = [
    "sglang.d4p1t1+d4p1t1",
    "sglang:d4+fsdp:d4",
    "d8p1t1",
    "fsdp:d8",
    "vllm:d2t2+megatron:d2p2",
]
MODES += [
    "sglang[rollout]:d4+fsdp[actor]:d4|fsdp[critic]:d4",
    "sglang:d4+d2t2",
    "m1d4p1",
    "sglang:d8",
]
MODES += [
    "sglang[rollout]:d2+fsdp[actor]:d4+fsdp[ref]:d2",
    "sglang.d4m1p1+actor_train:d4p1m1,ref_inf:d4p1m1",
]
MODES += [
    "sglang[rollout]:d4|fsdp[actor]:d4",
    "sglang:d4+megatron:(attn:d2t2|ffn:d1t1e4)",
    "sglang:d4+eval",
]
BACKENDS = [
    "",
    "null",
    "'???'",
    "fsdp",
    "'fsdp:d4'",
    "'megatron:d2t2'",
    "!!null ''",
    "&k null",
    "'sglang:d4'",
]
BACKENDS += ["'${actor.backend}'", "8", "'fsdp:d4p1t1'"]
STRATEGIES = ["{type: colocation, target: actor}", "{type: separation}", "null", "{}", "${nowhere}"]


def generated(rng: random.Random) -> str:
    """A config as people wrote them, and as they did not."""
    parts = [f"allocation_mode: {rng.choice(MODES)}\n"]
    if rng.random() < 0.7:
        parts.append(f"cluster: {{n_nodes: {rng.choice([1, 2])}, n_gpus_per_node: 8}}\n")
    if rng.random() < 0.5:
        parts.append(rng.choice(["scheduler: {type: null}\n", "scheduler:\n  type: local\n"]))
    if rng.random() < 0.4:
        backend = rng.choice(BACKENDS)
        parts.insert(0, f"base: &base {{backend: {backend}, lr: 1}}\nmid: &mid {{<<: *base}}\n")
    if rng.random() < 0.2:
        parts.append("enable_offload: true\n")
    merged = ["<<: *base", "<<: *mid", "<<: [*mid, {y: 1}]"] if "&base" in parts[0] else []
    for name in ("rollout", "actor", "critic", "ref", "teacher", "judge"):
        if name in ("rollout", "actor") or rng.random() < 0.4:
            parts.append(section(name, rng, merged))
    return "".join(parts)


def section(name: str, rng: random.Random, merged: list[str]) -> str:
    lines = ["path: p"]
    if rng.random() < 0.4:
        lines.append(f"backend: {rng.choice(BACKENDS)}")
    if rng.random() < 0.3:
        lines.append(f"scheduling_strategy: {rng.choice(STRATEGIES)}")
    if merged and rng.random() < 0.4:
        lines.append(rng.choice(merged))
    if name == "actor" and rng.random() < 0.4:
        lines.append(rng.choice(["kl_ctl: 0.0", "kl_ctl: 0.1", "weight_update_mode: disk"]))
    rng.shuffle(lines)
    anchor = rng.choice(["", f" &{name}"])
    if rng.random() < 0.3:
        return f"{name}:{anchor} {{{', '.join(lines)}}}\n"
    more = f"copy_of_{name}: {{<<: *{name}}}\n" if anchor and rng.random() < 0.1 else ""
    return f"{name}:{anchor}\n" + "".join(f"  {line}\n" for line in lines) + more


@pytest.mark.slow
def test_generated_migrations() -> None:
    """The plan of a migrated file is the one it had; 10,000 with AREAL_CONF_MIGRATIONS=10000."""
    rng = random.Random(int(os.environ.get("AREAL_CONF_SEED", "13")))
    migrated = left = 0
    for _ in range(NUMBER):
        text = generated(rng)
        target = rng.choice(["controller", "controller", "spmd"])
        apart = rng.random() < 0.2
        migration = migrate_yaml(text, target, apart=apart)  # type: ignore[arg-type]
        if migration.new is None:
            left += 1
            assert migration.found, text
            continue
        migrated += 1
        kind = migration.scheduler or ("slurm" if migration.several_nodes else "local")
        before = planned(text, kind)
        after = planned(migration.new, *((kind,) if target == "spmd" else (None, kind)))
        assert layouts(before) == layouts(after), (text, migration.new)
        assert apart or before.total_gpus == after.total_gpus, (text, migration.new)
        assert migrate_yaml(migration.new, target).new is None, migration.new  # type: ignore[arg-type]
    assert migrated > NUMBER // 4
    print(f"{migrated} migrated, {left} left alone")


# -- files that are not ours to change ------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(HALVES)
    return path


@pytest.mark.parametrize("mode", [0o444, 0o555, 0o400])
def test_a_read_only_file_is_refused(
    config: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    config.chmod(mode)
    inode = config.stat().st_ino
    assert main(["migrate", "--write", "config.yaml"]) == 1
    assert "AC526: cannot be written: the file is read-only" in capsys.readouterr().err
    assert (config.read_text(), config.stat().st_ino) == (HALVES, inode)
    assert [path.name for path in config.parent.iterdir()] == ["config.yaml"]


def test_hard_links_are_told(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.link(config, config.parent / "other.txt")
    assert main(["migrate", "--write", "config.yaml"]) == 0
    assert "the file has 1 other name (hard links), which keep the old text" in (
        capsys.readouterr().err
    )
    assert (config.parent / "other.txt").read_text() == HALVES


def test_huge_files_and_devices(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("rows.txt", "rows.yaml"):
        with open(config.parent / name, "wb") as file:
            file.truncate(3 * 2**30)
    (config.parent / "full.yaml").symlink_to("/dev/full")
    (config.parent / "full").symlink_to("/dev/zero")
    os.mkfifo(config.parent / "pipe.yaml")
    start = time.process_time()
    assert main(["migrate", "--check", "."]) == 1
    assert time.process_time() - start < 5
    out, err = capsys.readouterr()
    assert out == "would change config.yaml\n"
    assert "rows.txt:1: AC520: it is larger than 16 MiB, and was not read" in err
    assert "rows.yaml:1: left alone: AC520" in err
    assert "2 not read" in err
    assert main(["migrate", "full.yaml"]) == 0
    assert "AC520: cannot be read: it is a device" in capsys.readouterr().err


@pytest.mark.slow
def test_names_that_are_not_utf8(config: Path) -> None:
    name = os.fsdecode(b"caf\xe9 '\xff.yaml")
    config.rename(config.parent / name)
    for arguments in ([name], ["--check", "."], ["--write", "."]):
        command = [sys.executable, "-m", "areal_conf", "migrate", *arguments]
        done = subprocess.run(command, cwd=config.parent, capture_output=True, check=False)
        assert b"Traceback" not in done.stderr, done.stderr
    assert "allocation_mode" not in (config.parent / name).read_text()


LONG = 40_000
LINEAR = {
    "opened": "python t.py allocation_mode=" + "${" * LONG,
    "opened, with words": "python t.py allocation_mode=d8" + "${a" * LONG,
    "quotes": "t " + "'allocation_mode=\"" * LONG,
    "brackets": "t allocation_mode=" + "(" * LONG,
    "bars": "t allocation_mode=" + "|a[" * LONG,
    "commas": "t allocation_mode=" + ",d8" * LONG,
    "blanks": "allocation_mode: d8" + " " * LONG + '"',
    "launchers": "python -m areal.launcher.local allocation_mode=d8 " * (LONG // 50),
    "heredocs": "cat <<" * LONG + " allocation_mode=d8",
    "configs": "t --config " * (LONG // 10) + " allocation_mode=d8",
    "continued": "allocation_mode=d8 \\\n" * 300,
}


@pytest.mark.parametrize("line", LINEAR.values(), ids=LINEAR)
def test_long_lines_take_linear_time(line: str, tmp_path: Path) -> None:
    start = time.process_time()
    list(command_lines(line + "\n"))
    edited_script(line + "\n", "controller", tmp_path / "a.sh")
    quoted = line.replace("'", "").replace('"', "").replace("\n", " ").replace("\\", "")
    migrate_yaml(f"{MODE}note: '{quoted}'\nactor: {{x: 1}}\n")
    assert time.process_time() - start < 3


BOMBS = {
    "merge of itself": "a: &a {<<: *a, x: 1}\n",
    "list of itself": "a: &a [*a]\n",
    "merges that double": "b0: &b0 {x: 1}\n"
    + "".join(f"b{i}: &b{i} {{<<: [*b{i - 1}, *b{i - 1}]}}\n" for i in range(1, 40)),
    "interpolations that double": "".join(
        f"k{i}: '${{k{i + 1}}}${{k{i + 1}}}'\n" for i in range(40)
    )
    + "k40: x\n",
}


@pytest.mark.parametrize("more", BOMBS.values(), ids=BOMBS)
def test_bombs_are_left_alone(more: str) -> None:
    start = time.process_time()
    migration = migrate_yaml(HALVES + more)
    assert migration.new is None
    assert set(codes(migration)) <= {"AC521", "AC527"}
    assert time.process_time() - start < 5


@pytest.mark.parametrize("more", ["x: {0: a, 0: b}\n", "x: {1: a, '1': b}\n"])
def test_keys_that_hydra_takes(more: str) -> None:
    assert more in proven(HALVES + more)


# -- scripts ------------------------------------------------------------------------------------

SIMPLE = {
    "python t.py --config config.yaml allocation_mode=sglang:d4+d4": (
        "python t.py --config config.yaml rollout.backend=sglang:d4 actor.backend=fsdp:d4"
    ),
    "A=1 python -m areal.launcher.ray t.py --config=config.yaml \\\n 'allocation_mode=d8' x=$X": (
        "A=1 python t.py --config=config.yaml \\\n actor.backend=fsdp:d8 ++scheduler.type=ray x=$X"
    ),
    "python t.py --config none.yaml +allocation_mode=d8 && echo done": (
        "python t.py --config none.yaml ++actor.backend=fsdp:d8 && echo done"
    ),
    "python t.py --config old.yaml allocation_mode=d8": (
        "python t.py --config old.yaml ++actor.backend=fsdp:d8"
    ),
    "t.py -m allocation_mode=sglang:d4+d4,sglang:d2t2+d4": (
        "t.py -m rollout.backend=sglang:d4,sglang:d2t2 actor.backend=fsdp:d4"
    ),
    't.py allocation_mode="megatron:(attn:d4|ffn:e2)"  # why': (
        "t.py 'actor.backend=\"megatron:(attn:d4|ffn:e2)\"'  # why"
    ),
}


@pytest.mark.parametrize(("command", "expected"), SIMPLE.items())
def test_simple_commands_are_edited(command: str, expected: str, config: Path) -> None:
    (config.parent / "old.yaml").write_text("allocation_mode: ''\nactor: {x: 1}\n")
    script = config.parent / "run.sh"
    script.write_bytes(f"#!/bin/sh\r\n{command}\n".encode())
    script.chmod(0o755)
    assert main(["migrate", "--check", "run.sh"]) == 1
    assert main(["migrate", "--write", "run.sh"]) == 0
    assert script.read_bytes() == f"#!/bin/sh\r\n{expected}\n".encode()
    assert script.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "command",
    [
        "ARGS='--x allocation_mode=d8 y'",
        "echo allocation_mode=d8",
        "# t.py allocation_mode=d8",
        "t.py allocation_mode=$MODE",
        "t.py allocation_mode=$(mode)",
        "t.py allocation_mode=d8 $(more)",
        "t.py allocation_mode=d8 allocation_mode=d4",
        "cat <<EOF\nt.py allocation_mode=d8\nEOF",
        "t.py allocation_mode=manual",
        "t.py -m allocation_mode=sglang:d4+d4,sglang:d2+d2",
        "bash -c 't.py allocation_mode=d8'",
    ],
)
def test_other_commands_are_reported(
    command: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = config.parent / "run.sh"
    script.write_text(f"#!/bin/sh\n{command}\n")
    assert main(["migrate", "--write", "run.sh"]) == 0
    assert script.read_text() == f"#!/bin/sh\n{command}\n"
    assert "AC528" in capsys.readouterr().err or command.startswith("#")


def test_programs_without_a_suffix(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, first in (
        ("a", "#!/usr/bin/env python3"),
        ("b", "#!/bin/bash -e"),
        ("c", "#!/bin/awk"),
    ):
        (config.parent / name).write_text(f"{first}\nallocation_mode=d8\nx(allocation_mode='d8')\n")
    assert main(["migrate", "."]) == 0
    err = capsys.readouterr().err
    assert [f"{name}:3: AC529" in err for name in "abc"] == [True, False, False]


def test_a_sweep_over_engines_that_vary_together_is_one_command_each() -> None:
    (use,) = command_lines("t.py -m allocation_mode=sglang:d4+d4,sglang:d2+d2 x=1")
    for words in ("rollout.backend=sglang:d4 actor.backend=fsdp:d4", "rollout.backend=sglang:d2 "):
        assert words in use.error.hint


def test_hints_of_commands_can_be_pasted(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command as it is edited or reported plans what the launcher ran."""
    config.write_text(HALVES + "ref:\n  x: 1\n")
    script = config.parent / "run.sh"
    mode = "sglang:d2t2+fsdp:d2t2"
    script.write_text(
        f"python -m areal.launcher.local t.py --config config.yaml allocation_mode={mode}\n"
    )
    assert main(["migrate", "--write", "."]) == 0
    words = shlex.split(script.read_text())
    overrides = [word for word in words if "=" in word]
    capsys.readouterr()
    assert main(["plan", "config.yaml", *overrides]) == 0
    assert capsys.readouterr().out.count("d2t2") == 3


def test_the_printed_command_can_be_pasted(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = config.rename(config.parent / "my config's.yaml")
    assert main(["migrate", "--write", odd.name]) == 0
    line = capsys.readouterr().out.splitlines()[-1].partition("run it with: ")[2]
    words = shlex.split(line)
    assert words[3] == odd.name
    assert main(["plan", *words[3:]]) == 0
