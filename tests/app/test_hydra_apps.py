"""Real Hydra apps, run as their users run them: nothing imported, or the drop-ins."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from hydra_app import AREAL_MAIN, BASE, CONFIG, HYDRA_MAIN, NEXT, App
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException, ValidationError

import areal_conf
from areal_conf import AllocationError, resolvers
from areal_conf.config import structured

MOE = "megatron:(attn:d4t2|ffn:e4)"
GOOD = ("rollout.backend=sglang:d2t4", "actor.backend=fsdp:d8")
CLOSED = "rollout: {backend: 'sglang:d8'}\nactor: {backend: 'fsdp:d8'}\n"
PLANNED = (*GOOD, "cluster.n_nodes=2", "cluster.n_gpus_per_node=8", "scheduler.type=local")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    """An app that imports nothing of the package."""
    return App.create(
        tmp_path_factory.mktemp("existing"),
        packaged="defaults:\n  - areal/experiment@rl: ppo\n  - _self_\n",
        resolved=CONFIG + "total: ${areal.gpus:}\nworld: ${areal.world_size:${actor.backend}}\n",
        listed="defaults:\n  - areal/experiment: ppo\n  - areal/layout: 1x8\n  - _self_\n",
        plain="x: 1\n",
    )


@pytest.fixture(scope="module")
def dropin(tmp_path_factory: pytest.TempPathFactory) -> App:
    """An app whose main is ``areal_conf.main``."""
    return App.create(tmp_path_factory.mktemp("dropin"), AREAL_MAIN, closed=CLOSED)


def job(output: str) -> Any:
    """The config that a job printed."""
    return yaml.safe_load(output.split("imported:")[0])


# -- an app that imports nothing -----------------------------------------------------------------


def test_override(app: App) -> None:
    out = app.output("actor.backend=fsdp:d8")
    cfg = job(out)
    assert cfg["actor"]["backend"] == "fsdp:d8"
    assert cfg["actor"]["path"] == "some/model"
    assert cfg["name"] == "mine"
    assert "imported: []" in out


def test_multirun(app: App) -> None:
    done = app.run("-m", "actor.backend=fsdp:d8,fsdp:d4t2", "hydra.verbose=false")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^  backend: (fsdp\S*)", done.stdout, re.M) == ["fsdp:d8", "fsdp:d4t2"]


def test_under_a_package(app: App) -> None:
    out = app.output("--config-name", "packaged", "+areal/layout@rl=2x8", "+n='${areal.gpus:rl}'")
    cfg = job(out)
    assert set(cfg) == {"rl", "n"}
    assert (cfg["rl"]["actor"]["backend"], cfg["n"]) == ("fsdp:d4t2", 16)


@pytest.mark.parametrize(
    "arguments", [("+areal/layout=2x8",), ("--config-name", "listed", "areal/layout=2x8")]
)
def test_layout(app: App, arguments: tuple[str, ...]) -> None:
    cfg = job(app.output(*arguments))
    assert cfg["rollout"]["backend"] == "sglang:d2t4"
    assert cfg["cluster"] == {"n_nodes": 2, "n_gpus_per_node": 8}


def test_resolvers(app: App) -> None:
    cfg = job(app.output("--config-name", "resolved", *GOOD))
    assert (cfg["total"], cfg["world"]) == (16, 8)


def test_an_error_of_a_resolver_carries_its_code(app: App) -> None:
    done = app.run("--config-name", "resolved", "actor.backend=fsdp:d4p2", GOOD[0])
    assert done.returncode == 1
    assert "AC104" in done.stderr
    assert "write fsdp:d8" in done.stderr


def test_cfg_job_prints_the_config_alone(app: App) -> None:
    cfg = yaml.safe_load(app.output("--cfg", "job", *GOOD))
    assert cfg["critic"]["scheduling_strategy"]["target"] == "actor"


def test_search_path_is_appended(app: App) -> None:
    out = app.output("--info", "searchpath")
    providers = re.findall(r"\| (\S+) +\| (\S+)", out)
    names = [name for name, _ in providers]
    assert names.index("main") < names.index("areal-conf")
    assert names[-1] == "schema"
    assert next(p for name, p in providers if name == "areal-conf") == "areal://experiments"


def test_an_app_that_uses_nothing_sees_nothing(app: App) -> None:
    out = app.output("--config-name", "plain")
    assert out == "x: 1\n\nimported: []\n"


def test_groups_are_listed_for_completion(app: App) -> None:
    out = app.output("--help")
    assert "areal/experiment: distill, dpo, grpo, ppo, rw, sft" in out
    assert re.search(r"areal/layout: .*2x8", out)


def test_discovery_is_fast() -> None:
    """By Hydra's own statistics, in CPU time: machines that run tests are busy."""
    code = (
        "import time, timeit; timeit.default_timer = time.process_time;"
        "from hydra.core.plugins import Plugins; s = Plugins.instance().get_stats();"
        "print(sum(t for m, t in s.modules_import_time.items() if 'areal' in m))"
    )
    spent = []
    for _ in range(10):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        spent.append(float(done.stdout))
        if min(spent) < 0.010:
            break
    assert min(spent) < 0.010


# -- structured configs ----------------------------------------------------------------------------

ENGINES = {
    "ppo": {"rollout", "actor", "critic", "ref"},
    "grpo": {"rollout", "actor", "ref"},
    "sft": {"actor"},
    "rw": {"actor"},
    "dpo": {"actor", "ref"},
    "distill": {"rollout", "actor", "ref", "teacher"},
}


def composed(directory: Path, config: str, *overrides: str) -> DictConfig:
    (directory / "config.yaml").write_text(config, encoding="utf-8")
    with initialize_config_dir(str(directory), **BASE):
        return compose("config", list(overrides))


@pytest.mark.parametrize("name", structured.EXPERIMENTS)
def test_experiments(tmp_path: Path, name: str) -> None:
    cfg = composed(tmp_path, f"defaults:\n  - areal/experiment: {name}\n")
    others = {"cluster", "scheduler", "allocation_mode"}
    assert set(cfg) == ENGINES[name] | others
    assert cfg.cluster == {"n_nodes": None, "n_gpus_per_node": None}
    assert (cfg.scheduler.type, cfg.allocation_mode) == (None, "")
    for engine in ENGINES[name]:
        strategy = cfg[engine].scheduling_strategy
        guest = engine in ("critic", "ref")
        assert cfg[engine].backend == ""
        assert strategy.type == ("colocation" if guest else "separation")
        assert strategy.target == ("actor" if guest else None)
        assert strategy.fork is True


@pytest.mark.parametrize("package", ["", "rl", "a.b"])
@pytest.mark.parametrize("name", structured.EXPERIMENTS)
def test_every_resolver_and_default_under_a_package(
    tmp_path: Path, name: str, package: str
) -> None:
    at = f"@{package}" if package else ""
    prefix = f"{package}." if package else ""
    backends = [f"{prefix}actor.backend=fsdp:d4t2"]
    if "rollout" in ENGINES[name]:
        backends.append(f"{prefix}rollout.backend=sglang:d2t4")
    if "teacher" in ENGINES[name]:
        backends.append(f"{prefix}teacher.backend=fsdp:d8")
    sizes = [f"{prefix}cluster.n_nodes=3", f"{prefix}cluster.n_gpus_per_node=8"]
    text = f"defaults:\n  - areal/experiment{at}: {name}\n  - _self_\n"
    text += f"gpus: ${{areal.gpus:{package}}}\nnodes: ${{areal.nodes:{package}}}\n"
    cfg = composed(tmp_path, text, *backends, *sizes)
    wanted = 8 * len(backends)
    assert (cfg.gpus, cfg.nodes) == (wanted, wanted // 8)
    made = areal_conf.plan(cfg, root=package)
    assert set(made.engines) == ENGINES[name]
    assert [d.code for d in made.errors] == []


def test_experiments_are_open_and_their_fields_typed(tmp_path: Path) -> None:
    text = (
        CONFIG + "new: {deep: [1]}\nrollout: {sglang: {dp_size: 1}, scheduling_strategy: {x: 1}}\n"
    )
    cfg = composed(tmp_path, text, "+actor.optimizer.lr=1e-3", "+cluster.name=c", "++own.x=1")
    assert cfg.actor.optimizer.lr == 1e-3
    assert cfg.rollout.sglang.dp_size == 1
    cfg.cluster.n_nodes = 2
    assert cfg.cluster.n_nodes == 2
    with pytest.raises(ValidationError):
        cfg.cluster.n_nodes = "two"
    with pytest.raises(ValidationError):
        cfg.actor.scheduling_strategy.fork = "perhaps"
    cfg.actor.backend = None
    assert cfg.actor.backend is None


@pytest.mark.parametrize(
    "layout", sorted(p.stem for p in Path(areal_conf.__file__).parent.glob("conf/areal/layout/*"))
)
def test_every_layout_is_a_plan_without_errors(tmp_path: Path, layout: str) -> None:
    name = "sft" if layout.endswith("_sft") else "ppo"
    text = f"defaults:\n  - areal/experiment: {name}\n  - areal/layout: {layout}\n"
    made = areal_conf.plan(composed(tmp_path, text))
    assert made.errors == []
    assert made.cluster is not None
    assert made.total_gpus == made.cluster.gpus


# -- resolvers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("areal.backend:'fsdp:d4'", "fsdp"),
        ("areal.backend:fsdp:d4", "fsdp"),
        ("areal.dp:${s}", 4),
        ("areal.tp:${s}", 2),
        ("areal.pp:${s}", 2),
        ("areal.cp:${s}", 2),
        ("areal.ep:${s}", 2),
        ("areal.etp:${s}", 4),
        ("areal.edp:${s}", 2),
        ("areal.world_size:${s}", 32),
        ("areal.instances:'sglang:d2t4p2'", 2),
        ("areal.instance_size:'sglang:d2t4p2'", 8),
        ("areal.canonical:'fsdp: t2 d4 p1'", "fsdp:d4t2"),
        ("areal.inherit:'',fsdp:d4", "fsdp:d4"),
        ("areal.inherit:null,fsdp:d4", "fsdp:d4"),
        ("areal.inherit:${u},fsdp:d4", "fsdp:d4"),
        ("areal.inherit:fsdp:d2,fsdp:d4", "fsdp:d2"),
        ("areal.legacy:d8,actor", "fsdp:d8"),
        ("areal.legacy:???,actor", None),
    ],
)
def test_resolver(expression: str, value: Any) -> None:
    resolvers.register()
    resolvers.register()
    spec = "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)"
    cfg = OmegaConf.create({"s": spec, "u": "", "x": f"${{{expression}}}"})
    assert cfg.x == value
    assert OmegaConf.to_container(cfg, resolve=True)["x"] == value  # type: ignore[index,call-overload]


def test_parse_resolver_gives_a_mapping() -> None:
    resolvers.register()
    cfg = OmegaConf.create({"x": "${areal.parse:'megatron[a]:d2t4e2'}", "d": "${x.d}"})
    assert cfg.d == 2
    assert cfg.x == {
        "backend": "megatron",
        "name": "a",
        **{"d": 2, "t": 4, "p": 1, "c": 1, "e": 2, "etp": 1, "edp": 4},
        "world_size": 8,
        "canonical": "megatron[a]:d2t4e2",
    }


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("areal.backend:fsdp:d4p2", "AC104"),
        ("areal.backend:8", "AC309"),
        ("areal.instances:fsdp:d4", "AC302"),
        ("areal.instance_size:fsdp:d4", "AC302"),
        ("areal.gpus:nowhere", "AC309"),
        ("areal.gpus:5", "AC309"),
        ("areal.legacy:d8,[actor]", "AC309"),
        ("areal.legacy:d8,5", "AC309"),
        ("areal.dp:", r"AC309: areal.dp does not take 0 arguments\nhint: write \${areal.dp:SPEC}"),
        ("areal.legacy:d8", r"AC309: .* 1 argument\nhint: write \${areal.legacy:MODE,ENGINE}"),
        ("areal.gpus:a,b", r"AC309: .* 2 arguments\nhint: write \${areal.gpus:ROOT}"),
    ],
)
def test_resolver_errors_carry_their_code(expression: str, code: str) -> None:
    resolvers.register()
    cfg = OmegaConf.create({"x": f"${{{expression}}}"})
    with pytest.raises(OmegaConfBaseException, match=code):
        cfg.x  # noqa: B018


def test_numbers_may_stand_inside_the_config_they_count(tmp_path: Path) -> None:
    text = CONFIG + "total: ${areal.gpus:}\nlaunch: {nodes: '${areal.nodes:}'}\n"
    cfg = composed(tmp_path, text, *PLANNED)
    assert (cfg.total, cfg.launch.nodes) == (16, 2)
    cfg = composed(tmp_path, text + "cluster: {n_nodes: '${areal.nodes:}'}\n", *GOOD)
    with pytest.raises(OmegaConfBaseException):
        cfg.total  # noqa: B018


# -- areal_conf.main and areal_conf.compose --------------------------------------------------------


def test_main_takes_backends_as_typed(dropin: App) -> None:
    out = dropin.output("rollout.backend=sglang[rollout]:d8", f"actor.backend={MOE}")
    assert out == f"task: sglang[rollout]:d8 {MOE}\n"


def test_main_refuses_without_a_traceback(dropin: App) -> None:
    done = dropin.run("rollout.backend=sglang:d4", "actor.backend=fsdp:d4p2")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "actor.backend: AC104" in done.stderr
    assert "  fsdp:d4p2\n         ^^\n" in done.stderr
    assert "HYDRA_FULL_ERROR" not in done.stderr.split("AC104")[0]


def test_main_names_the_key_that_was_meant(dropin: App) -> None:
    done = dropin.run("--config-name=closed", "actor.bakend=fsdp:d8")
    assert done.returncode == 1
    assert "Could not override 'actor.bakend'" in done.stderr
    assert done.stderr.endswith("Did you mean actor.backend?\n")
    assert "Did you mean" not in dropin.run("--config-name=closed", "other=1").stderr


def test_main_in_a_sweep_reports_each_bad_job_and_runs_the_good_ones(dropin: App) -> None:
    done = dropin.run("-m", GOOD[0], f"actor.backend=fsdp:d0,fsdp:d8,{MOE},fsdp:d4p2")
    assert done.returncode == 1
    assert re.findall("task: .*", done.stdout) == [
        "task: sglang:d2t4 fsdp:d8",
        f"task: sglang:d2t4 {MOE}",
    ]
    assert done.stderr.index("AC106") < done.stderr.index("AC104")
    assert NEXT or "Traceback" not in done.stderr


@pytest.mark.parametrize("rank", ["0", "1"])
def test_main_under_torchrun(dropin: App, rank: str) -> None:
    assert "task" in dropin.output(*GOOD, RANK=rank, WORLD_SIZE="8")
    for arguments, size in (((*GOOD,), "4"), ((GOOD[0], "actor.backend=fsdp:p2"), "2")):
        done = dropin.run(*arguments, RANK=rank, WORLD_SIZE=size)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert ("AC" in done.stderr) == (rank == "0")
        assert done.stdout == ""


def test_main_takes_what_hydra_main_takes() -> None:
    import inspect

    import hydra

    ours = inspect.signature(areal_conf.main).parameters
    theirs = inspect.signature(hydra.main).parameters
    positional = [name for name in ours if name in theirs]
    assert positional == [*theirs][: len(positional)]
    assert len(positional) == 3
    assert ours["options"].kind is inspect.Parameter.VAR_KEYWORD
    config = OmegaConf.create({"actor": {"backend": "fsdp:d8"}})
    assert areal_conf.main(**BASE)(lambda cfg: cfg.actor.backend)(config) == "fsdp:d8"


@pytest.mark.filterwarnings("ignore::areal_conf.legacy.AllocationModeDeprecationWarning")
@pytest.mark.parametrize("part", ["", "actor"])
def test_main_carries_allocation_mode_over_into_a_read_only_config(part: str) -> None:
    config = OmegaConf.create({"allocation_mode": "d8", "actor": {"backend": ""}})
    protected = OmegaConf.select(config, part) if part else config
    OmegaConf.set_readonly(protected, True)
    assert areal_conf.main(**BASE)(lambda cfg: cfg.actor.backend)(config) == "fsdp:d8"
    assert OmegaConf.is_readonly(protected)


@pytest.mark.parametrize("size", ["²", "9" * 5000, "eight", ""])
def test_a_world_size_that_is_no_number_says_nothing(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", size)
    config = OmegaConf.create({"actor": {"backend": "fsdp:d8"}})
    assert areal_conf.main(**BASE)(lambda cfg: cfg.actor.backend)(config) == "fsdp:d8"


def test_a_world_size_can_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    config = OmegaConf.create({"actor": {"backend": "fsdp:d8"}})
    task = areal_conf.main(**BASE)(lambda cfg: cfg.actor.backend)
    with pytest.raises(SystemExit):
        task(config)
    config.areal_plan = {"allow": ["AC308"]}
    assert task(config) == "fsdp:d8"


def test_main_refuses_a_root_that_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    root: Any = None
    with pytest.raises(SystemExit):
        areal_conf.main(**BASE, root=root)(lambda cfg: None)(OmegaConf.create({"actor": {}}))
    assert "AC309: expected text for root, got NoneType" in capsys.readouterr().err


def test_main_carries_allocation_mode_over(dropin: App) -> None:
    lenient = App(dropin.directory, warnings="default")
    done = lenient.run("allocation_mode=sglang[rollout]:d4+fsdp[actor]:d4")
    assert (done.returncode, done.stdout) == (0, "task: sglang:d4 fsdp:d4\n")
    assert done.stderr.count("allocation_mode is deprecated") == 1


def test_main_tells_what_is_odd_about_a_plan_that_starts(dropin: App) -> None:
    lenient = App(dropin.directory, warnings="default")
    cluster = ["++cluster.n_nodes=1", "++cluster.n_gpus_per_node=8", "scheduler.type=slurm"]
    done = lenient.run(*GOOD, *cluster)
    assert (done.returncode, done.stdout) == (0, "task: sglang:d2t4 fsdp:d8\n")
    assert "warning: cluster.n_nodes: AC356: scheduler slurm ignores n_nodes (1)" in done.stderr


def test_main_with_the_experiment_under_a_package(tmp_path: Path) -> None:
    code = AREAL_MAIN.replace('version_base="1.3"', 'version_base="1.3", root="rl"')
    packaged = "defaults:\n  - areal/experiment@rl: ppo\n"
    app = App.create(tmp_path / "x", code.replace("cfg.", "cfg.rl."), config=packaged)
    good = [f"rl.{x}" for x in GOOD]
    assert app.output(*good) == "task: sglang:d2t4 fsdp:d8\n"
    done = app.run(good[0], "rl.actor.backend=fsdp:d0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "rl.actor.backend: AC106" in done.stderr


def test_compose_checks_and_raises(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    with initialize_config_dir(str(tmp_path), **BASE):
        cfg = areal_conf.compose("config", [GOOD[0], f"actor.backend={MOE}"])
        assert cfg.actor.backend == MOE
        with pytest.raises(AllocationError) as caught:
            areal_conf.compose("config", ["rollout.backend=fsdp:d4", "actor.backend=fsdp:d0"])
    assert {e.code for e in caught.value.errors} >= {"AC302", "AC106"}


def test_compose_names_the_key_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "closed.yaml").write_text(CLOSED, encoding="utf-8")
    with initialize_config_dir(str(tmp_path), **BASE):
        with pytest.raises(ConfigCompositionException, match=r"Did you mean actor\.backend\?"):
            areal_conf.compose("closed", ["actor.bakend=fsdp:d8"])
        with pytest.raises(ConfigCompositionException, match=r"\+other=1$"):
            areal_conf.compose("closed", ["other=1"])


# -- the callback ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> App:
    """An app that stays with ``hydra.main`` and names the callback in its defaults list."""
    config = CONFIG.replace(
        "  - _self_\n", "  - _self_\n  - override hydra/callbacks: areal_plan\n"
    )
    code = HYDRA_MAIN.replace("print(OmegaConf", 'print("task:", cfg.actor.backend) #')
    return App.create(tmp_path_factory.mktemp("guarded"), code, config=config)


def test_callback_writes_the_plan_beside_hydras_own_files(guarded: App) -> None:
    done = guarded.run(*PLANNED, "hydra.run.dir=out")
    assert done.returncode == 0, done.stderr
    assert "task: fsdp:d8" in done.stdout
    out = guarded.directory / "out"
    assert {".hydra", "allocation.json", "allocation.svg", "app.log"} <= {
        p.name for p in out.iterdir()
    }
    assert json.loads((out / "allocation.json").read_text())["total_gpus"] == 16
    assert (out / "allocation.svg").read_text(encoding="utf-8").startswith("<")


def test_callback_really_stops(guarded: App) -> None:
    done = guarded.run(GOOD[0], "actor.backend=fsdp:d4p2")
    assert done.returncode == 1
    assert "task:" not in done.stdout
    assert "Traceback" not in done.stderr
    assert "AC104" in done.stderr


@pytest.mark.parametrize("option", ["model=nowhere.json", "root=null", "root=5"])
@pytest.mark.parametrize("sweep", [[], ["-m"]])
def test_callback_that_cannot_check_stops_too(guarded: App, option: str, sweep: list[str]) -> None:
    done = guarded.run(*sweep, *GOOD, f"hydra.callbacks.areal_plan.{option}")
    assert done.returncode == 1
    assert "task:" not in done.stdout
    assert "Traceback" not in done.stderr


def test_callback_from_the_command_line(app: App) -> None:
    done = app.run(GOOD[0], "actor.backend=fsdp:d4p2", "hydra/callbacks=areal_plan")
    assert done.returncode == 1
    assert "AC104" in done.stderr
    assert "backend:" not in done.stdout


def test_callback_stops_a_sweep_at_the_first_bad_job(guarded: App) -> None:
    done = guarded.run("-m", GOOD[0], "actor.backend=fsdp:d8,fsdp:d4p2,fsdp:d4")
    assert done.returncode == 1
    assert re.findall("task: .*", done.stdout) == ["task: fsdp:d8"]
    assert "AC104" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "named", ["+areal_plan.model=tiny.json", "hydra.callbacks.areal_plan.model=tiny.json"]
)
def test_a_relative_model_is_found_where_the_job_changes_the_directory(
    named: str, tmp_path: Path
) -> None:
    app = App.create(tmp_path / "app", HYDRA_MAIN)
    (app.directory / "tiny.json").write_text('{"num_attention_heads": 6, "num_hidden_layers": 4}')
    words = (
        "hydra/callbacks=areal_plan",
        named,
        "hydra.job.chdir=true",
        "rollout.backend=sglang:d1",
    )
    assert "backend: megatron:t3" in app.run(*words, "actor.backend=megatron:t3").stdout
    refused = app.run(*words, "actor.backend=megatron:t4")
    assert refused.returncode == 1
    assert "AC401" in refused.stderr
