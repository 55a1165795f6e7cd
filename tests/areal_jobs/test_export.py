"""`to_areal` and ``areal-conf export``: a composed config as AReaL takes it."""

from __future__ import annotations

import copy
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from areal_conf import AllocationError, ModelAllocation, to_areal
from areal_conf.areal.export import spelled_for_areal
from areal_conf.areal.loader import config_and_overrides, load_expr_config
from areal_conf.cli.entry import main
from areal_conf.config.compose import compose_default


def experiment(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "experiment_name": "e",
        "trial_name": "t",
        "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
        "scheduler": {"type": "local"},
        "recover": {"mode": "disabled"},
        "sglang": {"random_seed": 1},
        "rollout": {"backend": "sglang:d8"},
        "actor": {"backend": "fsdp:d8", "path": "m"},
    }
    return base | changes


ON_ACTOR = {"type": "colocation", "target": "actor"}
SHARED = {"allocation_mode": "sglang:d4t2|fsdp[actor]:d8", "rollout": {}, "actor": {}}


def test_inheritance_is_written_out() -> None:
    cfg = OmegaConf.create(
        experiment(
            critic={"backend": "", "scheduling_strategy": ON_ACTOR},
            ref={"path": "${actor.path}", "scheduling_strategy": ON_ACTOR},
        )
    )
    before = copy.deepcopy(cfg)
    out = to_areal(cfg)
    assert cfg == before
    assert out.critic.backend == out.ref.backend == "fsdp:d8"
    assert OmegaConf.to_container(out.ref, resolve=False)["path"] == "${actor.path}"


def test_nothing_of_the_users_is_lost() -> None:
    cfg = OmegaConf.create(
        experiment(
            mine={"deep": [{"a": 1}], "key": "${oc.env:AREAL_CONF_NO_SUCH}"},
            broken="${nowhere}",
        )
    )
    expected = OmegaConf.to_container(cfg, resolve=False)
    assert OmegaConf.to_container(to_areal(cfg), resolve=False) == expected


def test_this_packages_own_section_is_left_out() -> None:
    out = to_areal(experiment(areal_plan={"allow": ["AC306"]}))
    assert "areal_plan" not in out


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("fsdp:d8p1t1", "fsdp:d8p1t1"),
        ("fsdp [actor] : d8", "fsdp[actor]:d8"),
        ("megatron:attn:d4t2|ffn:e8", "megatron:d4t2e8"),
        ("megatron[actor]:(attn:d4t2|ffn:t2e2)", "megatron:(attn:d4t2|ffn:d2t2e2)"),
        ("megatron:(attn:d4t2|ffn:t2e2)", "megatron:(attn:d4t2|ffn:t2e2)"),
        ("sglang:d8c1", "sglang:d8"),
    ],
)
def test_strings_are_spelled_as_areal_reads_them(spec: str, expected: str) -> None:
    written = spelled_for_areal(ModelAllocation.from_str(spec), spec)
    assert written == expected
    assert ModelAllocation.from_str(written).parallel == ModelAllocation.from_str(spec).parallel


@pytest.mark.parametrize(
    ("engines", "mode"),
    [
        ({}, "sglang:d8+fsdp:d8"),
        ({"rollout": None}, "fsdp:d8"),
        ({"actor": {"backend": "megatron:attn:d4t2|ffn:t2e2"}, "rollout": None},
         "megatron:(attn:d4t2|ffn:d2t2e2)"),
        (SHARED, "sglang:d4t2|fsdp[actor]:d8"),
        ({"ref": {"backend": ""}}, "sglang:d8+fsdp:d8"),
    ],
)  # fmt: skip
def test_spmd_gets_an_allocation_mode(engines: dict[str, Any], mode: str) -> None:
    assert to_areal(experiment(**engines), launcher="local").allocation_mode == mode


def test_a_legacy_mode_becomes_backends_and_a_modern_mode() -> None:
    cfg = experiment(allocation_mode="sglang.d8p1t1+d8p1t1", rollout={}, actor={})
    out = to_areal(cfg, launcher="slurm")
    assert out.allocation_mode == "sglang:d8+fsdp:d8"
    assert (out.rollout.backend, out.actor.backend) == ("sglang:d8p1t1", "fsdp:d8p1t1")


def test_a_plan_with_errors_is_refused() -> None:
    with pytest.raises(AllocationError) as caught:
        to_areal(experiment(actor={"backend": "fsdp:d4p2"}, scheduler={"type": None}))
    assert [e.code for e in caught.value.errors] == ["AC104", "AC316"]


def test_what_says_nothing_is_no_value_of_areals_fields() -> None:
    out = to_areal(
        compose_default(
            ["rollout.backend=sglang:d8", "actor.backend=fsdp:d8", "scheduler.type=local"]
        )
    )
    assert "n_nodes" not in out.cluster
    assert out.allocation_mode == ""
    assert out.critic.backend == "fsdp:d8"


def test_values_that_only_this_process_can_resolve_are_put_in() -> None:
    cfg = OmegaConf.create(
        {
            "names": {"trial": "t"},
            "rl": experiment(
                trial_name="${names.trial}",
                count="${areal.world_size:${.actor.backend}}",
                again="${rl.actor.path}",
                home="${oc.env:HOME,none}",
            ),
        }
    )
    out = to_areal(cfg, root="rl")
    plain = OmegaConf.to_container(out, resolve=False)
    assert isinstance(plain, dict)
    assert (plain["trial_name"], plain["count"], plain["again"]) == ("t", 8, "m")
    assert plain["home"] == "${oc.env:HOME,none}"


def test_what_is_put_in_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2hunter2")
    teacher = {"backend": "fsdp:d8", "token": "${oc.env:TOKEN}", "key": "${.token}"}
    inherited = "${areal.inherit:${oc.env:TOKEN},x}"
    cluster = {"n_nodes": 1, "n_gpus_per_node": 24}
    out = to_areal(OmegaConf.create(experiment(teacher=teacher, key=inherited, cluster=cluster)))
    assert "hunter2" not in OmegaConf.to_yaml(out)
    assert out.key == out.teacher.train.key == out.teacher.train.token == "hunter2hunter2"

    outer = {"token": "${oc.env:TOKEN}", "rl": experiment(key="Bearer ${token}")}
    plain = OmegaConf.to_container(to_areal(OmegaConf.create(outer), root="rl"))
    assert plain["key"] == "Bearer ${oc.env:TOKEN}"


def test_a_teacher_is_nested_as_areal_1_0_4_has_it() -> None:
    teacher = {"backend": "fsdp:d8", "path": "big", "rl_loss_weight": 0.5}
    cfg = experiment(teacher=teacher, cluster={"n_nodes": 3, "n_gpus_per_node": 8})
    out = to_areal(cfg).teacher
    assert out == {
        "engine_type": "train",
        "train": {"backend": "fsdp:d8", "path": "big"},
        "rl_loss_weight": 0.5,
    }
    assert to_areal(cfg, areal="1.0.3").teacher == teacher


def variables(container: str, **env_vars: str) -> dict[str, Any]:
    """An actor whose ranks get `env_vars`."""
    spec = {"container_type": container, "env_vars": env_vars}
    return {"actor": {"backend": "fsdp:d8", "scheduling_spec": [spec]}}


@pytest.mark.parametrize(
    ("changes", "launcher", "code"),
    [
        ({"rollout": {"backend": "sglang:d4"}, "actor": {"backend": "fsdp:d12"}}, "ray", "AC307"),
        ({"rollout": {"backend": "vllm:t16"}, "vllm": {"seed": 1}, "actor": {"backend": "fsdp:d16"},
          "cluster": {"n_nodes": 4, "n_gpus_per_node": 8}}, "slurm", "AC307"),
        ({"rollout": {"backend": "sglang:d8t3"}, "actor": {"backend": "fsdp:d8"},
          "cluster": {"n_nodes": 4, "n_gpus_per_node": 8}}, "slurm", "AC307"),
        ({"rollout": {"backend": "sglang:d4p2"}}, "slurm", "AC355"),
        ({"sglang": {}}, "local", "AC319"),
        ({"cluster": {"n_gpus_per_node": 8}}, "ray", "AC319"),
        ({"judge": {"backend": "sglang:d1"}}, "local", "AC318"),
        ({"actor": None, "rollout": {"backend": "sglang:d16"}}, "ray", "AC318"),
        (SHARED, "slurm", "AC318"),
        ({"actor": {"backend": "fsdp:d8",
                    "scheduling_spec": [{"env_vars": {"CUDA_VISIBLE_DEVICES": "0"}}]}},
         "slurm", "AC318"),
        (variables(IB="mlx5_0,mlx5_1", container="none"), "slurm", "AC318"),
        (variables(OPTS="-a -b", container="apptainer"), "slurm", "AC318"),
        (variables(OPTS="a;b", container="none"), "slurm", "AC318"),
    ],
)  # fmt: skip
def test_what_a_launcher_trips_over_is_refused(
    changes: dict[str, Any], launcher: str, code: str
) -> None:
    with pytest.raises(AllocationError) as caught:
        to_areal(experiment(**changes), launcher=launcher)
    assert code in [e.code for e in caught.value.errors]


def test_values_that_reach_the_ranks_whole() -> None:
    """A comma only ends a value of `srun --export`, and quotes hold the rest together."""
    for changes in (
        variables(IB="mlx5_0,mlx5_1", container="apptainer"),
        variables(OPTS="'-a -b'", container="none"),
        variables(HOME="$HOME/x", PATH="/bin:/usr/bin", container="none"),
    ):
        to_areal(experiment(**changes), launcher="slurm")
    to_areal(experiment(**variables(IB="a,b", container="none")), launcher="ray")


def test_arguments_as_areal_reads_them() -> None:
    argv = ["train.py", "--config", "f.yaml", "a=1", "+b=2"]
    assert config_and_overrides(argv) == ("f.yaml", ["a=1", "+b=2"])
    assert config_and_overrides(["--conf=f.yaml", "a=1"]) == ("f.yaml", ["a=1"])
    with pytest.raises(AllocationError):
        config_and_overrides(["--config"])


# -- the loader, with AReaL's own one left out (tests/interop has it) ------------------------------


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AReaL whose loader gives back what stands in the file."""
    cli_args = ModuleType("cli_args")
    cli_args.load_expr_config = (  # type: ignore[attr-defined]
        lambda argv, cls: (cls(yaml.safe_load(Path(argv[1]).read_text())), argv[1])
    )
    api = ModuleType("areal.api")
    api.cli_args = cli_args  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "areal", ModuleType("areal"))
    monkeypatch.setitem(sys.modules, "areal.api", api)


@pytest.mark.usefixtures("loader")
def test_the_loader_gets_what_areal_reads(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["cluster.n_nodes=3", "actor.backend=megatron:(attn:d8|ffn:e8)"]
    loaded, file = load_expr_config(["train.py", "--config", str(config), *words], dict)
    assert file == str(config)
    assert loaded["critic"]["backend"] == loaded["actor"]["backend"] == "megatron:(attn:d8|ffn:e8)"
    assert loaded["scheduler"]["type"] is None
    monkeypatch.setenv("AREAL_SPMD_MODE", "1")
    words = ["scheduler.type=local", "+allocation_mode=sglang:d8+fsdp:d8"]
    loaded, _ = load_expr_config(["--config", str(config), *words], dict)
    assert loaded["allocation_mode"] == "sglang:d8+fsdp:d8"


@pytest.mark.usefixtures("loader")
def test_the_loader_refuses(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["--config", str(config), "actor.backend=fsdp:d4p2"]
    with pytest.raises(AllocationError, match="AC104"):
        load_expr_config(argv, dict)
    with pytest.raises(AllocationError, match="no --config"):
        load_expr_config(argv[2:], dict)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(SystemExit) as caught:
        load_expr_config(argv, dict)
    assert caught.value.code == 1


# -- command line -------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump(experiment(scheduler={"type": None}, critic={"backend": ""})))
    return file


def test_export_prints_what_areal_reads(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(config), "scheduler.type=local", "cluster.n_nodes=3"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["critic"]["backend"] == "fsdp:d8"
    written = config.parent / "out.yaml"
    assert main(["export", str(config), "--launcher", "local", "-o", str(written)]) == 0
    assert yaml.safe_load(written.read_text())["allocation_mode"] == "sglang:d8+fsdp:d8"


def test_export_of_an_invalid_config_prints_nothing(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(config)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "AC316" in err


SCRIPT = "import sys; print(sys.argv[1:]); sys.exit(7)"


def areal_conf_run(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    script = config.parent / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "areal_conf", "run", "--", sys.executable, str(script)]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_run_becomes_the_command(config: Path) -> None:
    done = areal_conf_run(
        config,
        "--config",
        str(config),
        "scheduler.type=local",
        "cluster.n_nodes=3",
        "actor.backend=megatron:(attn:d8|ffn:e8)",
    )
    assert done.returncode == 7, done.stderr
    assert "actor.backend='megatron:(attn:d8|ffn:e8)'" in done.stdout
    assert "critic.backend: unset, taken from actor" in done.stderr


@pytest.mark.slow
def test_run_refuses_before_the_command_starts(config: Path) -> None:
    done = areal_conf_run(config, "--config", str(config), "scheduler.type=local")
    assert (done.returncode, done.stdout) == (1, "")
    assert "AC306" in done.stderr
    assert areal_conf_run(config, "--config", "none.yaml").returncode == 2
    assert areal_conf_run(config, "a=1").returncode == 2


@pytest.mark.parametrize("command", ["", "'' s.py --config c.yaml", "python s.py --config"])
def test_run_of_no_command_is_wrong_usage(
    command: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "--", *shlex.split(command)])
    assert caught.value.code == 2
    assert main(["plan", "actor.backend=fsdp:d8", "rollout.backend=sglang:d8"]) == 0
    with pytest.raises(SystemExit):
        main(["plan", "--areal", "newest"])
