"""How the jobs of a sweep are launched: by need, named, and in the order of the sweep."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf
from test_sweeps import Composer, Loader, plain

from areal_conf.sweeps.axes import SweepError
from areal_conf.sweeps.run import FirstProcess, SweepRun

SLURM = {"nodes": 1, "gpus_per_node": None, "tasks_per_node": 1, "partition": "gpu"}
CLUSTER = {
    "cluster": {"n_nodes": 2, "n_gpus_per_node": 8},
    "scheduler": {"type": None},
    "actor": {"backend": "fsdp:d8"},
}


class Context:
    """Composes configs as Hydra's loader does for a sweep."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.composer = Composer(config)
        self.config_loader: Any = self
        self.get_group_options = Loader().get_group_options

    def load_sweep_config(self, master: DictConfig, overrides: list[str]) -> DictConfig:
        return OmegaConf.merge(self.composer(overrides), {"hydra": master.hydra})  # type: ignore[return-value]


class Launched:
    """Stands in for the launchers: notes what each was given, and returns the layouts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: str = "nothing") -> None:
        self.calls: list[tuple[DictConfig, Any, list[list[str]], int]] = []
        self.fails = fails
        monkeypatch.setattr(SweepRun, "_launcher", lambda run, *given: self.launcher(*given))

    def launcher(self, config: DictConfig, task: Any) -> Any:
        def launch(jobs: list[list[str]], initial_job_idx: int) -> list[JobReturn]:
            self.calls.append((config.hydra.launcher, task, jobs, initial_job_idx))
            return [self.returned(job) for job in jobs]

        return SimpleNamespace(launch=launch)

    def returned(self, job: list[str]) -> JobReturn:
        text = " ".join(map(plain, job))
        if self.fails in text:
            return JobReturn(job, status=JobStatus.FAILED, _return_value=ValueError("broken"))
        return JobReturn(job, status=JobStatus.COMPLETED, _return_value=text)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[list[str]]]:
    def run(
        *arguments: str,
        launcher: dict[str, Any],
        config: dict[str, Any] | None = None,
        subdir: str = "${hydra.job.num}",
        **options: Any,
    ) -> list[list[str]]:
        sweep = {"dir": str(tmp_path / "sweep"), "subdir": subdir}
        master = OmegaConf.create({"hydra": {"launcher": launcher, "sweep": sweep}})
        context: Any = Context(CLUSTER if config is None else config)
        made = SweepRun(master, context, lambda cfg: None, **options)
        return [[job.return_value for job in batch] for batch in made.run(arguments)]

    return run


LAYOUTS = "actor.backend=fsdp:d16,fsdp:d4,fsdp:t16,fsdp:d8,fsdp:d2t2"


def test_jobs_are_grouped_by_need(
    run: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    (results,) = run(LAYOUTS, launcher=SLURM)
    assert results == [f"actor.backend={x}" for x in LAYOUTS.partition("=")[2].split(",")]
    calls = sorted(launched.calls, key=lambda call: call[3])
    found = [
        (c.nodes, c.gpus_per_node, c.tasks_per_node, c.partition, len(jobs), first)
        for c, _, jobs, first in calls
    ]
    assert found == [(2, 8, 1, "gpu", 2, 0), (1, 4, 1, "gpu", 2, 2), (1, 8, 1, "gpu", 1, 4)]
    assert not any(isinstance(task, FirstProcess) for _, task, _, _ in calls)


def test_a_single_controller_runs_once_on_several_nodes(
    run: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    config = {**CLUSTER, "scheduler": {"type": "ray"}}
    run("actor.backend=fsdp:d16,fsdp:d8", launcher=SLURM, config=config)
    calls = sorted(launched.calls, key=lambda call: call[3])
    assert [isinstance(task, FirstProcess) for _, task, _, _ in calls] == [True, False]


def test_ray_jobs_are_grouped_by_gpus(
    run: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    launcher = {"ray": {"init": {"address": None}, "remote": {}}}
    run("actor.backend=fsdp:d4,fsdp:d8,fsdp:t4", launcher=launcher)
    assert [c.ray.remote.num_gpus for c, _, _, _ in launched.calls] == [4, 8]


def test_spmd_starts_a_task_for_each_gpu(
    run: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    config = {**CLUSTER, "allocation_mode": "fsdp:d16", "actor": {"backend": ""}}
    run("allocation_mode=fsdp:d16", launcher=SLURM, config=config)
    ((launcher, task, _, _),) = launched.calls
    assert (launcher.nodes, launcher.gpus_per_node, launcher.tasks_per_node) == (2, 8, 8)
    assert not isinstance(task, FirstProcess)


def test_jobs_that_share_a_directory_are_told(
    run: Callable[..., list[list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    Launched(monkeypatch)
    run(LAYOUTS, launcher=SLURM)
    run("actor.backend=fsdp:d8", launcher=SLURM, subdir="same")
    assert "subdir" not in caplog.text
    run(LAYOUTS, launcher=SLURM, subdir="same")
    assert "hydra.sweep.subdir: all 5 jobs write into same" in caplog.text


def test_batches_keep_their_order(
    run: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    batches = run(LAYOUTS, launcher=SLURM, max_batch_size=2)
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert [first for _, _, _, first in launched.calls] == [0, 1, 2, 3, 4]


def test_other_launchers_get_all_jobs_at_once(
    run: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    run(LAYOUTS, launcher={"n_jobs": 2})
    ((launcher, _, jobs, first),) = launched.calls
    assert (launcher, len(jobs), first) == ({"n_jobs": 2}, 5, 0)


def test_apps_without_engines_keep_what_their_launcher_says(
    run: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = Launched(monkeypatch)
    run("a=1,2", launcher={**SLURM, "gpus_per_node": 3}, config={"a": 1})
    ((launcher, _, jobs, _),) = launched.calls
    assert (launcher.gpus_per_node, len(jobs)) == (3, 2)


def test_what_was_pruned_is_told_before_the_start(
    run: Callable[..., list[list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    Launched(monkeypatch)
    with caplog.at_level(logging.INFO):
        run("actor.backend=fsdp:d8,fsdp:d32,fsdp:d64", launcher={})
    assert caplog.messages == [
        "3 combinations, 2 pruned, 1 to run",
        "AC306, 2 pruned, such as actor.backend=fsdp:d32: "
        "more GPUs than the cluster has: actor 32 > 2 x 8",
    ]


def test_a_failing_job_is_reported_with_its_layout(
    run: Callable[..., list[list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    Launched(monkeypatch, fails="fsdp:d2t2")
    with pytest.raises(ValueError, match="broken"):
        run(LAYOUTS, launcher=SLURM)
    assert "job 4 failed: actor.backend=fsdp:d2t2: ValueError('broken')" in caplog.messages


def test_needs_ask_for_the_gpus_of_a_node(
    run: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Launched(monkeypatch)
    config = {"actor": {"backend": ""}}
    with pytest.raises(SweepError) as raised:
        run("actor.backend=fsdp:d4,fsdp:d8", launcher=SLURM, config=config)
    assert raised.value.code == "AC357"


def test_first_process_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    task = FirstProcess(lambda cfg: cfg)
    assert task(3) == 3
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert task(3) == 3
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert task(3) is None
