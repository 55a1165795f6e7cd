"""Which combinations a sweep means, and which of them can run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from hydra_app import BASE, unescaped
from omegaconf import DictConfig, OmegaConf

from areal_conf import ModelAllocation, joint_layouts, layouts
from areal_conf.planning.checks import check_only
from areal_conf.sweeps.axes import SweepError, read_axes
from areal_conf.sweeps.combinations import Job, LayoutSweep

CONFIG: dict[str, Any] = {
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    "scheduler": {"type": "local"},
    "rollout": {"backend": "sglang:d4"},
    "actor": {"backend": "fsdp:d4", "kl_ctl": 0.1, "lr": 0.1},
    "seed": 1,
}


class Loader:
    """Knows one config group, as a loader of configs does."""

    def get_group_options(self, group: str, results_filter: Any = None) -> list[str]:
        return ["small", "large"] if group == "size" else []


class Composer:
    """Composes a config from overrides, and counts how often."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.calls = 0

    def __call__(self, overrides: list[str]) -> DictConfig:
        self.calls += 1
        cfg = OmegaConf.create(self.config)
        for override in OverridesParser.create().parse_overrides(overrides):
            if override.key_or_group == "size":
                cfg.cluster.n_nodes = 1 if override.value() == "small" else 2
            elif not override.is_sweep_override():
                OmegaConf.update(cfg, override.key_or_group, override.value(), force_add=True)
        return cfg


def sweep(
    *arguments: str, config: dict[str, Any] | None = None, **options: Any
) -> tuple[LayoutSweep, Composer]:
    composer = Composer(CONFIG if config is None else config)
    loader: Any = Loader()
    axes = read_axes(arguments, loader)
    return LayoutSweep(axes, composer, **options), composer


def overrides(*arguments: str, config: dict[str, Any] | None = None, **options: Any) -> list[str]:
    made, _ = sweep(*arguments, config=config, **options)
    return [" ".join(map(plain, job.overrides)) for job in made.jobs()]


def plain(override: str) -> str:
    key, _, value = override.partition("=")
    return f"{key}={unescaped(value)}"


def refused(call: Callable[[], Any]) -> SweepError:
    with pytest.raises(SweepError) as raised:
        call()
    return raised.value


# -- ordinary sweeps ----------------------------------------------------------------------------


def test_product_in_the_order_of_hydras_basic_sweeper() -> None:
    found = overrides("actor.lr=1,2", "seed=range(0,2)", "actor.backend=fsdp:d4")
    assert found == [
        "actor.lr=1 seed=0 actor.backend=fsdp:d4",
        "actor.lr=1 seed=1 actor.backend=fsdp:d4",
        "actor.lr=2 seed=0 actor.backend=fsdp:d4",
        "actor.lr=2 seed=1 actor.backend=fsdp:d4",
    ]


def test_app_without_engines_is_swept_as_ever() -> None:
    assert overrides("+a=1,1", "b=choice(x,y)", config={"b": 0}) == [
        "+a=1 b=x",
        "+a=1 b=y",
        "+a=1 b=x",
        "+a=1 b=y",
    ]


def test_later_override_of_a_key_replaces_the_earlier() -> None:
    assert overrides("seed=1,2", "actor.lr=1", "seed=3") == ["seed=3 actor.lr=1"]


def test_intervals_are_refused() -> None:
    with pytest.raises(SweepError, match=r"seed: AC309: an interval"):
        sweep("seed=interval(0,1)")


@pytest.mark.parametrize("values", ["range(1,1)", "glob(x*)"])
def test_a_key_without_values_leaves_no_job(values: str) -> None:
    with pytest.raises(SweepError, match=r"seed: AC603: seed=.* has no value"):
        sweep("actor.lr=1,2", f"seed={values}")


@pytest.mark.slow
def test_patterns_that_mean_too_much_are_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areal_conf.sweeps.combinations.MAX_EXPANDED", 100)
    config = {
        **CONFIG,
        "cluster": {"n_nodes": 512, "n_gpus_per_node": 8},
        "scheduler": {"type": "ray"},
    }
    open_patterns = ("actor.backend=fsdp:d*", "rollout.backend=sglang:d*")
    made, _ = sweep(*open_patterns, config=config)
    error = refused(made.jobs)
    assert error.code == "AC606"
    assert error.message == "the patterns of the sweep mean more than 100 combinations"
    assert len(overrides(open_patterns[0], "rollout.backend=sglang:d*t*@8", config=config)) == 4
    assert len(overrides("seed=range(0,101)", config=config)) == 101


def test_jobs_of_one_config_are_not_composed_again() -> None:
    made, composer = sweep("actor.lr=1,2,3", "rollout.backend=sglang:d4,sglang:t4")
    assert len(made.jobs()) == 6
    assert composer.calls == 1


def test_composed_once_for_each_choice_of_groups() -> None:
    made, composer = sweep("seed=1,2,3", "size=small,large", "rollout.backend=sglang:d4,sglang:d8")
    made.jobs()
    assert composer.calls == 2


def test_fresh_jobs_hold_every_value_that_composing_may_refuse() -> None:
    made, _ = sweep("actor.lr=1,2,x", "actor.mode=a,b", "rollout.backend=sglang:d*t*")
    fresh = [" ".join(map(plain, job.overrides)) for job in made.jobs() if job.fresh]
    assert [job.split()[:2] for job in fresh] == [
        ["actor.lr=1", "actor.mode=a"],
        ["actor.lr=1", "actor.mode=b"],
        ["actor.lr=x", "actor.mode=a"],
    ]


# -- pruning ------------------------------------------------------------------------------------


def test_what_cannot_run_is_pruned_and_counted() -> None:
    made, _ = sweep("rollout.backend=sglang:d4,sglang:d8,sglang:d16,sglang:d2p2x", "seed=1,2")
    jobs = made.jobs()
    assert [plain(job.overrides[0]) for job in jobs] == ["rollout.backend=sglang:d4"] * 2
    lines = list(made.report.lines())
    assert lines[0] == "8 combinations, 6 pruned, 2 to run"
    assert lines[1].startswith("AC103, 2 pruned, such as rollout.backend=sglang:d2p2x seed=1: ")
    assert lines[2].startswith("AC306, 4 pruned, such as rollout.backend=sglang:d8 seed=1: ")
    assert "rollout 8 + actor 4 = 12 > 1 x 8" in lines[2]


def test_pruning_agrees_with_the_plan_of_each_job() -> None:
    servers = [f"sglang:d{d}t{t}" for d in (1, 2, 4) for t in (1, 2, 3, 4)]
    trainers = ["fsdp:d4", "fsdp:d2t2", "megatron:d2e4", "sglang:d4", "", "fsdp:d8"]
    config = {
        **CONFIG,
        "critic": {"backend": None, "scheduling_strategy": "${ref.scheduling_strategy}"},
        "ref": {
            "backend": "${actor.backend}",
            "scheduling_strategy": {"type": "colocation", "target": "actor"},
        },
    }
    wanted = []
    for kl in (0, 0.1):
        for server in servers:
            for trainer in trainers:
                cfg = OmegaConf.create(config)
                cfg.actor.kl_ctl, cfg.rollout.backend, cfg.actor.backend = kl, server, trainer
                if not any(one.severity == "error" for one in check_only(cfg)):
                    wanted.append(f"{kl} {server} {trainer}")
    made, _ = sweep(
        "actor.kl_ctl=0,0.1",
        f"rollout.backend={','.join(servers)}",
        f"actor.backend={','.join(trainers[:4])},'',{trainers[5]}",
        config=config,
    )
    jobs = [" ".join(plain(o).partition("=")[2] for o in job.overrides) for job in made.jobs()]
    assert jobs == wanted
    assert wanted


def real(conf: Path, *arguments: str) -> tuple[LayoutSweep, list[Job]]:
    """A sweep that Hydra itself composes."""
    with initialize_config_dir(str(conf), **BASE):
        loader = GlobalHydra.instance().config_loader()

        def composed(overrides: list[str]) -> DictConfig:
            return loader.load_configuration("config", overrides, RunMode.MULTIRUN)

        made = LayoutSweep(read_axes(arguments, loader), composed)
        return made, made.jobs()


@pytest.mark.parametrize("gone", ["~critic", "critic=null", "~critic.backend"])
def test_what_is_deleted_stays_so(gone: str, tmp_path: Path) -> None:
    config = {**CONFIG, "critic": {"backend": ""}}
    config |= {"cluster": {"n_nodes": 2, "n_gpus_per_node": 6}, "scheduler": {"type": None}}
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
    made, jobs = real(tmp_path, "critic.backend=fsdp:d8,fsdp:d6", gone)
    assert len(jobs) == 2  # 4 + 4 + 4 GPUs where critic has no backend of its own
    assert not made.report.pruned


def test_labels_are_no_backends() -> None:
    assert len(overrides("+note=fsdp:d8,fsdp:d8t1")) == 2
    assert overrides("+note=fsdp:d*,x") == ["+note=fsdp:d*", "+note=x"]
    config = {**CONFIG, "layout": "", "actor": {"backend": "${layout}"}}
    assert overrides("layout=fsdp:d*t*@2,fsdp:d2t1", config=config) == [
        "layout=fsdp:d2",
        "layout=fsdp:t2",
    ]


def test_codes_that_the_config_allows_are_no_reason_to_prune() -> None:
    config = {**CONFIG, "areal_plan": {"allow": ["AC306"]}}
    assert overrides("rollout.backend=sglang:d8", config=config) == ["rollout.backend=sglang:d8"]


def test_one_bad_combination_refuses_the_sweep_where_asked() -> None:
    made, _ = sweep("rollout.backend=sglang:d4,sglang:d8")
    error = refused(lambda: made.jobs("error"))
    assert (error.code, [e.code for e in error.errors]) == ("AC604", ["AC604", "AC306"])
    assert "1 of 2 combinations" in error.message
    assert "on_invalid=prune" in error.hint


def test_nothing_left() -> None:
    made, _ = sweep("rollout.backend=sglang:d8,sglang:d16")
    error = refused(made.jobs)
    assert (error.code, [e.code for e in error.errors]) == ("AC603", ["AC603", "AC306"])
    assert "AC306 2" in error.message


def test_the_same_job_twice_is_pruned() -> None:
    made, _ = sweep("actor.backend=fsdp:d4,fsdp:d4t1,fsdp:d*@4,fsdp:d2t2")
    assert [plain(*job.overrides) for job in made.jobs()] == [
        "actor.backend=fsdp:d4",
        "actor.backend=fsdp:d2t2",
    ]
    assert made.report.pruned["AC605"][0] == 2


def test_model() -> None:
    config = {"num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 4}
    found = overrides("rollout.backend=sglang:d*t*@4", model=config)
    assert found == ["rollout.backend=sglang:d4", "rollout.backend=sglang:d2t2"]
    found = overrides("rollout.backend=sglang:d4,sglang:t4", model={"rollout": config})
    assert found == ["rollout.backend=sglang:d4"]


# -- patterns -----------------------------------------------------------------------------------


def pairs(*arguments: str, config: dict[str, Any] | None = None) -> list[tuple[str, ...]]:
    made, _ = sweep(*arguments, config=config)
    return [tuple(plain(o).partition("=")[2] for o in job.overrides) for job in made.jobs()]


def test_patterns_fill_the_cluster_together() -> None:
    found = pairs("rollout.backend=sglang:d*t*", "actor.backend=fsdp:d*")
    wanted = joint_layouts({"rollout": "sglang:d*t*", "actor": "fsdp:d*"}, 8)
    assert found == [tuple(map(str, each.values())) for each in wanted]


def test_a_pattern_takes_what_fixed_engines_leave() -> None:
    assert pairs("rollout.backend=sglang:d*t*") == [
        ("sglang:d4",),
        ("sglang:d2t2",),
        ("sglang:t4",),
    ]


def test_patterns_expand_anew_for_each_combination_of_the_others() -> None:
    found = overrides("cluster.n_gpus_per_node=5,6", "rollout.backend=sglang:d*t*", "seed=1,2")
    assert found == [
        "cluster.n_gpus_per_node=5 rollout.backend=sglang:d1 seed=1",
        "cluster.n_gpus_per_node=5 rollout.backend=sglang:d1 seed=2",
        "cluster.n_gpus_per_node=6 rollout.backend=sglang:d2 seed=1",
        "cluster.n_gpus_per_node=6 rollout.backend=sglang:t2 seed=1",
        "cluster.n_gpus_per_node=6 rollout.backend=sglang:d2 seed=2",
        "cluster.n_gpus_per_node=6 rollout.backend=sglang:t2 seed=2",
    ]


def test_patterns_among_other_values() -> None:
    first = [("fsdp:d2", "sglang:d2"), ("fsdp:d2", "sglang:d6")]
    first += [(str(x), "sglang:d2") for x in layouts("fsdp:d*t*@6")]
    both = joint_layouts({"actor": "fsdp:d*t*", "rollout": "sglang:d*"}, 8)
    rest = [(str(x["actor"]), str(x["rollout"])) for x in both]
    found = pairs("actor.backend=fsdp:d2,fsdp:d*t*", "rollout.backend=sglang:d2,sglang:d*")
    assert found == [*first, *(pair for pair in rest if pair not in first)]


def test_patterns_with_a_number_keep_it() -> None:
    found = pairs("actor.backend=fsdp:d*@2", "rollout.backend=sglang:d*")
    assert found == [("fsdp:d2", "sglang:d6")]
    assert pairs("actor.backend=fsdp:d*@2", "rollout.backend=sglang:t*@2") == [
        ("fsdp:d2", "sglang:t2")
    ]


def test_quoted_and_escaped_patterns() -> None:
    typed = "actor.backend=megatron:(attn:d*|ffn:t*)@2,'megatron:(attn:t*|ffn:d*t*)@2'"
    assert pairs(typed) == [
        ("megatron:d2",),
        ("megatron:(attn:d2|ffn:t2)",),
        ("megatron:t2",),
        ("megatron:(attn:t2|ffn:t2)",),
    ]
    assert pairs(r"rollout.backend=sglang\[rollout\]:d*") == [("sglang[rollout]:d4",)]


COLOCATED = {"scheduling_strategy": {"type": "colocation", "target": "actor"}}


def test_engines_that_inherit_count_too() -> None:
    config = {**CONFIG, "critic": {"backend": ""}}
    assert pairs("actor.backend=fsdp:d*t*", config=config) == [("fsdp:d2",), ("fsdp:t2",)]
    config = {**CONFIG, "critic": {"backend": "${actor.backend}"}}
    assert pairs("actor.backend=fsdp:d*", "rollout.backend=sglang:d*", config=config) == [
        ("fsdp:d1", "sglang:d6"),
        ("fsdp:d2", "sglang:d4"),
        ("fsdp:d3", "sglang:d2"),
    ]


def test_engines_whose_size_is_computed_count_too() -> None:
    critic = "megatron:d${areal.world_size:${actor.backend}}"
    config = {**CONFIG, "critic": {"backend": critic}}
    assert pairs("actor.backend=fsdp:d*t*", config=config) == [("fsdp:d2",), ("fsdp:t2",)]
    config = {**CONFIG, "ref": {"backend": critic, **COLOCATED}}
    assert pairs("actor.backend=fsdp:d*", config=config) == [("fsdp:d4",)]


def test_an_engine_of_many_patterns_follows_the_right_one() -> None:
    config = {
        **CONFIG,
        "cluster": {"n_nodes": 1, "n_gpus_per_node": 10},
        "critic": {"backend": "fsdp:d2"},
        "ref": {"backend": "${actor.backend}", **COLOCATED},
    }
    found = pairs("rollout.backend=sglang:d*", "actor.backend=fsdp:d*", config=config)
    assert found == [(f"sglang:d{n}", f"fsdp:d{8 - n}") for n in range(1, 8)]


def test_colocated_engines_have_the_gpus_of_their_host() -> None:
    config = {**CONFIG, "ref": {"backend": "fsdp:d4", **COLOCATED}}
    assert pairs("ref.backend=fsdp:d*t*", config=config) == [
        ("fsdp:d4",),
        ("fsdp:d2t2",),
        ("fsdp:t4",),
    ]
    found = pairs("ref.backend=fsdp:d*", "actor.backend=fsdp:t*", config=config)
    assert found == [("fsdp:d4", "fsdp:t4")]


def test_local_scheduler_fills_its_one_node() -> None:
    config = {**CONFIG, "cluster": {"n_nodes": 2, "n_gpus_per_node": 8}}
    assert pairs("rollout.backend=sglang:d*", config=config) == [("sglang:d4",)]
    config["scheduler"] = {"type": None}
    assert pairs("rollout.backend=sglang:d*", config=config) == [("sglang:d12",)]


def test_nothing_left_for_a_pattern() -> None:
    made, _ = sweep("actor.backend=fsdp:d8,fsdp:d4", "rollout.backend=sglang:d*")
    assert len(made.jobs()) == 1
    assert made.report.pruned["AC603"][0] == 1
    assert "no layout fills" in made.report.pruned["AC603"][1].message


def test_unknown_cluster() -> None:
    config = {**CONFIG, "cluster": {"n_gpus_per_node": 8}, "scheduler": {"type": "ray"}}
    made, _ = sweep("rollout.backend=sglang:d*", config=config)
    error = refused(made.jobs)
    assert (error.code, error.path) == ("AC601", "rollout.backend")
    assert "sglang:d*@8" in error.hint


IDLE_REF = {
    **CONFIG,
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 12},
    "actor": {"backend": "fsdp:d4", "kl_ctl": 0.0},
    "ref": {"backend": ""},
}


def test_a_pattern_of_an_engine_that_does_not_run() -> None:
    made, _ = sweep("ref.backend=fsdp:d*", config=IDLE_REF)
    error = refused(made.jobs)
    assert error.code == "AC603"
    idle = error.errors[1]
    assert idle.code == "AC601"
    assert "ref does not run" in idle.message
    assert "kl_ctl" in idle.message
    assert "n_nodes" not in idle.hint
    made, _ = sweep("ref.backend=fsdp:d*", "actor.kl_ctl=0.0,0.1,0.2", config=IDLE_REF)
    assert [job.overrides[1] for job in made.jobs()] == ["actor.kl_ctl=0.1", "actor.kl_ctl=0.2"]


def test_a_pattern_of_an_external_server() -> None:
    outside = {"backend": "sglang:d4", "api_url": "http://x", "_version": "v2"}
    made, _ = sweep("rollout.backend=sglang:d*", config={**CONFIG, "rollout": outside})
    error = refused(made.jobs)
    assert error.code == "AC601"
    assert "n_nodes" not in error.hint


WARNED = {"num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": 4}


def test_warnings_of_layouts_are_told_or_a_reason_to_prune() -> None:
    arguments = (
        "rollout.backend=sglang:d1,sglang:d2,sglang:t4",
        "actor.backend=fsdp:d1,fsdp:d3,fsdp:d4",
    )
    config = {**CONFIG, "train_dataset": {"batch_size": 4}}
    made, _ = sweep(*arguments, config=config)
    assert len(made.jobs()) == 9
    assert made.report.warned["AC353"][0] == 3
    assert any("AC353, 3 warned of" in line for line in made.report.lines())
    made, _ = sweep(*arguments, config=config)
    assert len(made.jobs(on_warning="prune")) == 6
    assert made.report.pruned["AC353"][0] == 3


def test_warnings_of_models_are_told() -> None:
    config = {
        **CONFIG,
        "cluster": {"n_nodes": 4, "n_gpus_per_node": 8},
        "scheduler": {"type": None},
    }
    made, _ = sweep("rollout.backend=sglang:t4,sglang:t16", config=config, model=WARNED)
    assert len(made.jobs()) == 2
    (code,) = (code for code in made.report.warned if code.startswith("AC4"))
    assert "sglang:t16" in str(made.report.warned[code][1].path)
    made, _ = sweep("rollout.backend=sglang:t4,sglang:t16", config=config, model=WARNED)
    (job,) = made.jobs(on_warning="prune")
    assert plain(*job.overrides) == "rollout.backend=sglang:t4"


@pytest.mark.parametrize(
    ("pattern", "code"), [("fsdp:d*p*", "AC104"), ("fsdp:d*@0", "AC602"), ("fsdp:d**", "AC111")]
)
def test_wrong_patterns(pattern: str, code: str) -> None:
    made, _ = sweep(f"actor.backend={pattern}")
    error = refused(made.jobs)
    assert (error.code, error.path, error.text) == (code, "actor.backend", pattern)


def test_a_package_that_holds_the_experiment() -> None:
    found = overrides("rl.rollout.backend=sglang:d*", config={"rl": CONFIG}, root="rl")
    assert found == ["rl.rollout.backend=sglang:d4"]


# -- names --------------------------------------------------------------------------------------


def named(**names: str) -> dict[str, Any]:
    return {**CONFIG, **names}


def test_every_job_of_areal_has_its_own_trial_name() -> None:
    config = named(experiment_name="e", trial_name="t")
    assert overrides("seed=1,2", config=config) == [
        "seed=1 trial_name=t_0",
        "seed=2 trial_name=t_1",
    ]
    assert overrides("trial_name=run", "seed=1,2", config=config) == [
        "trial_name=run_0 seed=1",
        "trial_name=run_1 seed=2",
    ]
    config = named(trial_name="${oc.env:USER,me}")
    assert overrides("seed=1", config=config) == ["seed=1 trial_name=${oc.env:USER,me}_0"]
    assert overrides("seed=1", config=named(trial_name="")) == ["seed=1 trial_name=trial_0"]


AWKWARD = (
    "2.0", "7", "1e2", "null", "true", "1_0", "-.5", "inf", "nan", "0", "a b ", " a", "it's", "a\\",
    "a,b", "(x)", "[1]", "{a:1}", "x=y", "$", "~", "\N{SNOWMAN}", "a: b", "\"", "'", "\\'", "#1",
)  # fmt: skip


@pytest.mark.parametrize("trial", AWKWARD)
def test_names_come_back_as_text_and_each_once(trial: str) -> None:
    config = named(experiment_name="e", trial_name=trial)
    found = overrides("lr=range(0,12)", config={**config, "lr": 0})
    parser = OverridesParser.create()
    made, _ = sweep("lr=range(0,12)", config={**config, "lr": 0})
    values = [parser.parse_override(job.overrides[-1]).value() for job in made.jobs()]
    assert values == [f"{trial}_{number}" for number in range(12)]
    assert len(found) == 12


def test_names_that_are_numbers_of_a_config_are_kept() -> None:
    config = named(experiment_name="e", trial_name="t")
    for given, name in ((0, "0_0"), (2.0, "2.0_0"), ("???", "trial_0")):
        made, _ = sweep("seed=1", config={**config, "trial_name": given})
        assert OverridesParser.create().parse_override(made.jobs()[0].overrides[-1]).value() == name


def test_names_that_are_swept_are_left_alone_where_they_differ() -> None:
    config = named(experiment_name="e", trial_name="t")
    assert overrides("trial_name=a,b", config=config) == ["trial_name=a", "trial_name=b"]
    assert len(overrides("trial_name=a,b", "experiment_name=x,y", config=config)) == 4


def test_two_jobs_of_one_name_are_refused() -> None:
    made, _ = sweep("trial_name=a,b", "seed=1,2", config=named(experiment_name="e", trial_name="t"))
    error = refused(made.jobs)
    assert (error.code, error.path) == ("AC605", "trial_name")
    made, _ = sweep("trial_name=1,'1'", config=named(experiment_name="e", trial_name="t"))
    assert refused(made.jobs).code == "AC605"
    assert "leave trial_name out" in error.hint


# -- estimates ----------------------------------------------------------------------------------

QWEN = {
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "vocab_size": 152064,
}
TRAINING: dict[str, Any] = {
    "cluster": {"n_nodes": 1, "n_gpus_per_node": 8},
    "scheduler": {"type": "local"},
    "actor": {
        "backend": "fsdp:d8",
        "mb_spec": {"max_tokens_per_mb": 8192},
        "gradient_checkpointing": True,
        "optimizer": {"type": "adam"},
    },
}
LAYOUTS = "actor.backend=fsdp:d8,fsdp:d4t2,fsdp:d2t4,megatron:d8,megatron:d4t2,megatron:d2t4"


def estimated(*arguments: str, gpu: Any = "H100", **options: Any) -> tuple[LayoutSweep, list[str]]:
    made, _ = sweep(*arguments, config=TRAINING, model=QWEN, gpu=gpu)
    return made, [plain(*job.overrides).partition("=")[2] for job in made.jobs(**options)]


def test_layouts_that_do_not_fit_the_card_are_pruned() -> None:
    made, found = estimated("actor.backend=fsdp:d1,fsdp:d8", gpu=24)
    assert found == ["fsdp:d8"]
    assert made.report.pruned["AC701"][0] == 1
    error = made.report.pruned["AC701"][1]
    assert "actor does not fit" in error.message
    assert "actor.backend=fsdp:d1" in str(error.path)


def test_the_emptiest_gpu_comes_first_by_memory() -> None:
    made, found = estimated(LAYOUTS, order="memory")
    most = [job.estimate.most for job in made.jobs(order="memory") if job.estimate]
    assert most == sorted(x for x in most if x is not None)
    assert set(found) == set(LAYOUTS.partition("=")[2].split(","))


def test_by_time_backends_take_turns() -> None:
    made, found = estimated(LAYOUTS, order="time")
    assert [layout.partition(":")[0] for layout in found] == ["fsdp", "megatron"] * 3
    jobs = {plain(*job.overrides).partition("=")[2]: job.estimate for job in made.jobs()}
    for backend in ("fsdp", "megatron"):
        own = [jobs[x] for x in found if x.startswith(backend)]
        keys = [(x.verdict == "may", x.time) for x in own if x is not None]
        assert keys == sorted(keys)


def test_the_best_run_and_are_named_in_their_order() -> None:
    config = {**TRAINING, "experiment_name": "e", "trial_name": "t"}
    made, _ = sweep(LAYOUTS, config=config, model=QWEN, gpu="H100")
    jobs = made.jobs(order="memory", best=2)
    assert [job.overrides[1] for job in jobs] == ["trial_name=t_0", "trial_name=t_1"]
    assert "the best 2 of 6 to run" in next(made.report.lines())
    assert len(made.jobs(best=100)) == 6


def test_the_card_of_the_config_counts() -> None:
    config = {**TRAINING, "areal_plan": {"gpu": 24}}
    made, _ = sweep("actor.backend=fsdp:d1,fsdp:d8", config=config, model=QWEN)
    assert len(made.jobs()) == 1


def test_nothing_to_order_by() -> None:
    made, _ = sweep("actor.backend=fsdp:d8,fsdp:d4t2", config=TRAINING)
    error = refused(lambda: made.jobs(order="time"))
    assert error.code == "AC708"
    assert "hydra.sweeper.gpu=H100" in error.hint


def test_settings_of_memory_that_are_swept_count() -> None:
    config = {**TRAINING, "actor": {**TRAINING["actor"], "backend": "fsdp:d8"}}
    made, _ = sweep(
        "actor.mb_spec.max_tokens_per_mb=1024,65536", config=config, model=QWEN, gpu="H100"
    )
    small, large = (job.estimate for job in made.jobs())
    assert small is not None
    assert large is not None
    assert small.most is not None
    assert large.most is not None
    assert small.most < large.most


# -- size ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ten_thousand_combinations() -> None:
    sizes = (1, 2, 4, 8, 16)
    servers = [f"sglang:d{d}t{t}p{p}" for d in sizes for t in sizes for p in sizes[:4]]
    trainers = [f"fsdp:d{d}t{t}c{c}" for d in sizes for t in sizes for c in sizes[:4]]
    made, composer = sweep(
        f"rollout.backend={','.join(servers)}", f"actor.backend={','.join(trainers)}"
    )
    jobs: list[Job] = made.jobs()
    assert made.report.total == 10_000
    assert composer.calls == 1
    for job in jobs:
        sizes_of = [ModelAllocation.from_str(plain(o).partition("=")[2]) for o in job.overrides]
        assert sum(x.world_size for x in sizes_of) <= 8


def test_loader_is_asked_as_hydra_defines_it() -> None:
    assert hasattr(ConfigLoader, "get_group_options")
