"""Configs, files and surroundings that nobody means well with, or that are merely strange."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from processes import commands

import areal_conf
from areal_conf import AllocationError, AllocationMode, ModelAllocation, plan, resolvers
from areal_conf.cli import entry

BASE: dict[str, Any] = {
    "scheduler": {"type": "local"},
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    "actor": {
        "backend": "fsdp:d4",
        "kl_ctl": 0.1,
        "path": "model",
        "scheduling_strategy": {"type": "separation", "target": None, "fork": True},
        "weight_update_mode": "disk",
        "_version": "v1",
        "use_lora": False,
        "scheduling_spec": [{"gpu": 1, "cpu": 4, "mem": 32}],
    },
    "rollout": {"backend": "sglang:d4", "api_url": None, "scheduling_spec": [{"gpu": 1}]},
    "critic": {"backend": ""},
    "ref": {"backend": "", "scheduling_strategy": {"type": "colocation", "target": "actor"}},
    "teacher": {"engine_type": "train", "train": {"backend": "fsdp:d1"}},
    "judge": {"backend": "sglang:d1"},
    "allocation_mode": "",
    "train_dataset": {"batch_size": 8},
    "experiment_name": "a",
    "trial_name": "b",
    "enable_offload": False,
    "areal_plan": {"allow": ["AC306"], "cluster": {"n_nodes": 1}},
}


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a config below its root."""
    if path:
        yield path
    items: Any = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        yield from paths(item, (*path, key))


def with_value(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The base config with another value in one place."""
    config = copy.deepcopy(BASE)
    section: Any = config
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    return config


class Evil:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class EvilMapping(dict[str, Any]):
    """A mapping that gives nothing out."""

    def get(self, key: str, default: Any = None) -> Any:
        raise RuntimeError("no get")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no iter")


def _nested(depth: int) -> dict[str, Any]:
    top: dict[str, Any] = {}
    inner = top
    for _ in range(depth):
        inner["a"] = {}
        inner = inner["a"]
    return top


VALUES = {
    "huge": 10**400,
    "huger": -(10**5000),
    "nan": float("nan"),
    "inf": float("inf"),
    "date": datetime.date(2020, 1, 1),
    "bytes": b"x",
    "list": [1, [2]],
    "empty list": [],
    "other keys": {2: 2, None: 1, True: 3, 1.5: 4},
    "minus": -1,
    "true": True,
    "long": "x" * 100_000,
    "nul": "\x00",
    "surrogate": "\ud800",
    "lines": "a\nb",
    "shell": "$(touch pwned); `id` && rm -rf '\"",
    "broken interpolation": "${a",
    "evil": Evil(),
    "evil mapping": EvilMapping(a=1),
    "deep": _nested(3000),
    "tuple": (1, 2),
    "set": {1},
    "function": print,
    "class": int,
    "long number": "fsdp:d" + "9" * 5000,
}


@pytest.mark.parametrize("name", VALUES)
def test_any_value_in_any_place_is_planned_or_refused(name: str) -> None:
    for path in paths(BASE):
        for launcher in (None, "slurm"):
            config = with_value(path, VALUES[name])
            refused: list[AllocationError] = []
            try:
                made = plan(config, launcher=launcher)
                json.loads(made.model_dump_json())
                refused += [d.error() for d in (*made.errors, *made.warnings)]
            except AllocationError as error:
                refused.append(error)
            assert all(len(str(error)) < 5000 for error in refused)


def test_a_dataclass_whose_fields_fail_is_refused() -> None:
    @dataclasses.dataclass
    class Actor:
        backend: str = "fsdp:d8"

        def __getattribute__(self, name: str) -> Any:
            if name == "backend":
                raise RuntimeError("not now")
            return super().__getattribute__(name)

    made = plan({"actor": Actor()})
    assert ("AC309", "actor.backend") in [(e.code, e.path) for e in made.errors]


def test_mappings_that_fail_are_refused() -> None:
    with pytest.raises(AllocationError, match="AC309"):
        plan(EvilMapping(actor={}))


# -- secrets --------------------------------------------------------------------------------------

TOKENS = {
    "short": "hunter2hunter2",
    "long": "-".join(f"tok{i:03}" for i in range(40)),
    "quotes": 'it\'s "a" tok\\en',
    "number": "987654321",
}
FORMS = ("${oc.env:TOKEN}", "${oc.decode:${oc.env:TOKEN}}", "${secret}", "fsdp:${oc.env:TOKEN}")
LISTS = {
    "list": "[hunter2hunter2,two]",
    "mapping": '{"user": "me", "password": "hunter2hunter2"}',
    "long list": f"[hunter2hunter2,{','.join(f'tok{i:03}' for i in range(40))}]",
    "number": "0987654321",
}


@contextlib.contextmanager
def changed(config: Any, path: tuple[Any, ...], value: Any) -> Iterator[None]:
    """The config with another value in one place, for a while."""
    section = config
    for key in path[:-1]:
        section = section[key]
    before = copy.deepcopy(section._get_node(path[-1]))
    section[path[-1]] = value
    yield
    section[path[-1]] = before


def _shown(config: Any, launcher: str | None) -> str:
    from io import StringIO

    from rich.console import Console

    from areal_conf.report import terminal

    try:
        made = plan(config, launcher=launcher)
    except AllocationError as error:
        return "".join(map(str, error.errors)) + repr(error)
    page = StringIO()
    terminal.diagnostics(made, Console(file=page, width=300))
    errors = "".join(str(d.error()) for d in (*made.errors, *made.warnings))
    return made.model_dump_json() + errors + page.getvalue()


@pytest.mark.parametrize("token", TOKENS)
def test_what_the_environment_holds_is_never_printed(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolvers.register()
    monkeypatch.setenv("TOKEN", TOKENS[token])
    head, tail = TOKENS[token][:12], TOKENS[token][-12:]
    config = OmegaConf.create({**BASE, "secret": "${oc.env:TOKEN}"})
    for path in paths(BASE):
        for form in FORMS:
            with changed(config, path, form):
                shown = _shown(config, "slurm" if form == FORMS[0] else None)
            assert head not in shown, (path, form)
            assert tail not in shown, (path, form)
    assert config == OmegaConf.create({**BASE, "secret": "${oc.env:TOKEN}"})


def test_a_backend_from_the_environment_is_explained_as_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAYOUT", "fsdp:d4p2")
    config = OmegaConf.create({"actor": {"backend": "${oc.env:LAYOUT}"}})
    error = plan(config).errors[0]
    assert (error.code, error.text, error.span) == ("AC104", "fsdp:d4p2", (7, 9))


@pytest.mark.parametrize("token", LISTS)
def test_what_is_decoded_from_the_environment_is_never_printed(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", LISTS[token])
    config = OmegaConf.create(BASE)
    for path in paths(BASE):
        with changed(config, path, "${oc.decode:${oc.env:TOKEN}}"):
            shown = _shown(config, None)
        assert "hunter2" not in shown, path
        assert "987654321" not in shown, path


@pytest.mark.parametrize(
    "asked",
    [
        "${areal.dp:${oc.env:TOKEN}}",
        "${areal.dp:x${oc.env:TOKEN}}",
        "${areal.parse:${secret}}",
        "${areal.layouts:${oc.env:TOKEN}}",
        "${areal.layouts:${oc.env:TOKEN},8}",
        "${areal.legacy:${oc.env:TOKEN},actor}",
        "${areal.legacy:d8+${oc.env:TOKEN},actor}",
        "${areal.instances:fsdp:d${oc.env:TOKEN}}",
    ],
)
def test_resolvers_do_not_repeat_a_secret(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolvers.register()
    monkeypatch.setenv("TOKEN", "hunter2hunter2")
    config = OmegaConf.create({"n": asked, "secret": "${oc.env:TOKEN}"})
    with pytest.raises(Exception, match="AC1") as refused:
        _ = config.n
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("group", ["c", "engines/mine"])
def test_a_secret_that_names_a_missing_config_is_not_printed(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2hunter2")
    leak = tmp_path / f"{group}.yaml"
    leak.parent.mkdir(exist_ok=True)
    (tmp_path / "db").mkdir()
    (tmp_path / "c.yaml").write_text("defaults: [engines: mine]\n")
    leak.write_text('defaults: [{/db: "${oc.env:TOKEN}"}, _self_]\nactor: {backend: "fsdp:d8"}\n')
    assert entry.main(["plan", str(tmp_path / "c.yaml")]) == 1
    shown = capsys.readouterr().err
    assert "AC320" in shown
    assert "db/${oc.env:TOKEN}" in shown
    assert "hunter2" not in shown


def test_an_object_in_the_place_of_a_section_shows_its_type_alone() -> None:
    class Settings:
        def __repr__(self) -> str:
            return "Settings(password='hunter2hunter2')"

    for actor in (Settings(), [Settings()], {"backend": Settings()}, {"backend": {1: Settings()}}):
        (error,) = plan({"actor": actor}).errors
        assert error.code == "AC309"
        assert "hunter2" not in error.message + error.text
    assert "got Settings" in plan({"actor": Settings()}).errors[0].message


# -- size -----------------------------------------------------------------------------------------


def test_ten_thousand_engines_are_planned_in_linear_time() -> None:
    def seconds(count: int, spec: str) -> float:
        config = {f"judge_{i}": {"backend": spec} for i in range(count)}
        start = time.process_time()
        made = plan({"actor": {"backend": "fsdp:d8"}, **config})
        assert len(made.engines) == count + 1
        return time.process_time() - start

    for spec in ("sglang:d1", "sglang:d4x"):
        small = max(seconds(1000, spec), 0.05)
        assert seconds(10_000, spec) < 25 * small


def test_files_that_blow_up_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)
    )
    hostile = {
        "bomb": f"{bomb}actor: {{backend: fsdp:d8}}\nallocation_mode: d8\n",
        "deep": "a: " + "[" * 5_000 + "]" * 5_000 + "\nallocation_mode: d8\n",
        "cycle": "actor: &a\n  backend: fsdp:d4p2\n  self: *a\nallocation_mode: d8\n",
        "keys": "1: x\nnull: y\ntrue: z\n2020-01-01: w\nactor: {backend: fsdp:d8}\n",
        "nul": "actor: {backend: 'fsdp:d8'}\n\x00",
        "python": "actor: !!python/object/apply:os.system ['touch pwned']\nallocation_mode: d8\n",
    }
    for name, text in hostile.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        for command in ("check", "migrate", "plan"):
            status = entry.main([command, str(file)])
            assert status in (0, 1), (name, command, capsys.readouterr().err)
    assert not (tmp_path / "pwned").exists()


def test_model_files_that_are_none(tmp_path: Path) -> None:
    contents = {
        "empty": b"",
        "text": b"not json",
        "list": b"[]",
        "deep": b"[" * 200_000,
        "deep object": b'{"a":' * 100_000,
        "nan": b'{"num_attention_heads": NaN, "num_hidden_layers": Infinity}',
        "bytes": b"\xff\xfe\x00",
        "huge number": b'{"num_attention_heads": 1' + b"0" * 10_000 + b"}",
        "large": b'{"a": "' + b"x" * 20_000_000 + b'"}',
        "strings": b'{"num_attention_heads": "8"}',
    }
    for name, content in contents.items():
        file = tmp_path / f"{name}.json"
        file.write_bytes(content)
        with pytest.raises(AllocationError, match="AC4"):
            plan({"actor": {"backend": "fsdp:d4t2"}}, model=str(file)).raise_for_errors()


# -- the command line -----------------------------------------------------------------------------


FINE = ("plan", "actor.backend=fsdp:d4", "rollout.backend=sglang:d4")


@pytest.mark.parametrize(
    "python",
    [
        ("-O",),
        ("-OO",),
        ("-W", "error"),
        ("-X", "utf8=0"),
        ("-I",) if not os.environ.get("PYTHONPATH") else (),
    ],
    ids=str,
)
def test_python_may_be_started_in_any_way(python: tuple[str, ...]) -> None:
    bad, good = commands(
        ("plan", "actor.backend=fsdp:d4p2", "rollout.backend=sglang:d4"),
        ("explain", "megatron:(attn:d2t2|ffn:e4)"),
        python=python,
    )
    assert bad.status == 1
    assert "AC104" in bad.err
    assert (good.status, good.err) == (0, "")


def test_nothing_depends_on_the_order_of_hashes(tmp_path: Path) -> None:
    wrong = ("actor.backend=fsdp:d4p2x", "rollout.backend=sglang:d4m2")
    (tmp_path / "f.yaml").write_text(
        "allocation_mode: sglang:d4+fsdp:d2\nactor: {backend: fsdp:d4p2, zz: 1}\nrolout: {x: 1}\n"
    )
    lines = (
        ("plan", *wrong, "--format=json"),
        ("plan", "areal/layout=2x8"),
        ("layouts", "megatron:(attn:d*t*|ffn:e*)@8"),
        ("explain", "megatron:(attn:d2t2|ffn:e4t2)"),
        ("engine-args", "megatron:(attn:d2t2|ffn:e4)"),
        ("check", "f.yaml"),
        ("migrate", "f.yaml"),
        ("schema",),
    )
    told = [commands(*lines, cwd=tmp_path, env={"PYTHONHASHSEED": seed}) for seed in "012"]
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_any_terminal_will_do(locale: str) -> None:
    done = commands(
        FINE,
        ("explain", "fsdp：ｄ４"),
        columns=("1", "20", "1000"),
        env={"LC_ALL": locale, "NO_COLOR": "1", "PYTHONUTF8": "0"},
    )
    assert len(done) == 6
    for fine in done[::2]:
        assert fine.status == 0, fine.err
        assert "\x1b" not in fine.out + fine.err
    for refused in done[1::2]:
        assert refused.status == 1
        assert "AC" in refused.err


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_end_without_a_traceback(closed: str, tmp_path: Path) -> None:
    script = f'"$@" {closed}'
    command = [sys.executable, "-m", "areal_conf", "plan", "actor.backend=fsdp:d4p2"]
    done = subprocess.run(
        ["bash", "-c", script, "-", *command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stdout + done.stderr


def test_no_file_becomes_a_stream_that_was_closed(tmp_path: Path) -> None:
    """Every child process would write to it."""
    code = "from areal_conf.cli import entry; entry.main(['--version']); f = open('f', 'w'); "
    code += "print(f.fileno(), file=f)"
    script = '"$@" 0<&- 1>&- 2>&-'
    subprocess.run(
        ["bash", "-c", script, "-", sys.executable, "-c", code], cwd=tmp_path, timeout=60
    )
    assert int((tmp_path / "f").read_text()) > 2


def test_names_of_the_shell_and_strange_paths_are_only_names(tmp_path: Path) -> None:
    folder = tmp_path / "a b\n$(touch pwned)';\"x"
    folder.mkdir()
    file = folder / "we ird=[x],{y}.yaml"
    text = "allocation_mode: sglang:d4+fsdp:d4\nactor: {path: x}\nrollout: {x: 1}\n"
    file.write_text(text)
    words = (("check",), ("migrate",), ("migrate", "--write"))
    for done in commands(*((*command, str(folder)) for command in words), cwd=tmp_path):
        assert done.status in (0, 1), done.err
    assert "allocation_mode" not in file.read_text()
    assert [p.name for p in tmp_path.iterdir()] == [folder.name]


def test_a_home_that_cannot_be_written() -> None:
    nowhere = "/proc/nowhere"
    (done,) = commands(FINE, env={"HOME": nowhere, "XDG_CACHE_HOME": nowhere}, cwd=Path("/"))
    assert done.status == 0, done.err


# -- threads and processes ------------------------------------------------------------------------

PUBLIC: list[Any] = [
    ModelAllocation.from_str("megatron[actor]:(attn:d2t2|ffn:t2e2)"),
    ModelAllocation.from_str("sglang:d2t4").parallel,
    areal_conf.SchedulingStrategy("colocation", "actor"),
    AllocationMode.from_str("sglang[rollout]:d4+fsdp[actor]:d4|fsdp[critic]:d4"),
    areal_conf.AllocationType.COLOCATE,
]


def _echo(value: Any) -> tuple[Any, str]:
    return value, str(ModelAllocation.from_str("fsdp:t2d4"))


def test_every_public_value_can_be_pickled() -> None:
    made = plan({"actor": {"backend": "fsdp:d4p2"}, "rollout": {"backend": "sglang:d4"}})
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        for value in PUBLIC:
            again = pickle.loads(pickle.dumps(value, protocol))
            assert again == value
            assert copy.deepcopy(value) == value
    again = pickle.loads(pickle.dumps(made))
    assert again.model_dump_json() == made.model_dump_json()
    with pytest.raises(AllocationError) as refused:
        made.raise_for_errors()
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_values_go_to_other_processes_and_come_back(method: str) -> None:
    with multiprocessing.get_context(method).Pool(1) as pool:
        for value, text in pool.map(_echo, PUBLIC):
            assert value in PUBLIC
            assert text == "fsdp:d4t2"


def test_sixteen_threads_read_the_same() -> None:
    resolvers.register()
    good = [f"megatron:d{d}t{t}e{e}" for d in (2, 4, 8) for t in (1, 2, 4) for e in (1, 2)]
    bad = ["fsdp:d4p2", "torch:d8", "sglang:(d4", "d4"]
    ModelAllocation.from_str("fsdp:d8")
    from areal_conf.spec import allocation

    def work(seed: int) -> list[str]:
        out = []
        for i in range(50):
            spec = [*good, *bad][(seed * 7 + i) % len([*good, *bad])]
            if i % 17 == 0:
                allocation._CACHE.clear()
                resolvers.register()
            try:
                out.append(f"{spec} {ModelAllocation.from_str(spec)}")
            except AllocationError as error:
                out.append(f"{spec} {error.code}")
            config = OmegaConf.create(
                {"actor": {"backend": good[i % len(good)]}, "n": "${areal.gpus:}"}
            )
            out.append(f"{config.actor.backend} {config.n}")
            made = plan({"actor": {"backend": spec}})
            out.append(f"{spec} {[d.code for d in made.errors]} {made.total_gpus}")
        return out

    with ThreadPoolExecutor(16) as pool:
        told = {line for lines in pool.map(work, range(16)) for line in lines}
    assert len({line.split()[0] for line in told} ^ {*good, *bad}) == 0
    assert len(told) == 3 * len(good) + 2 * len(bad)
