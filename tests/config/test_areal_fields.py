"""The fields of AReaL's config classes by version, and keys that are slips."""

from __future__ import annotations

import pytest

from areal_conf.config.areal_fields import (
    FIRST_GENERATION,
    ROOTS,
    fields_of,
    near_key,
    near_keys,
    nearest_version,
    versions,
)


def test_every_version_has_an_experiment() -> None:
    assert versions()[0] == "0.3.0"
    assert versions()[-1] == "main"
    for version in versions():
        assert "cluster" in fields_of(ROOTS, version)


@pytest.mark.parametrize(
    ("version", "kinds", "field", "there"),
    [
        ("0.5.1", ("SFTConfig",), "model", True),
        ("0.5.2", ("SFTConfig",), "model", False),
        ("0.5.2", ("SFTConfig",), "actor", True),
        ("1.0.2", ("TrainEngineConfig",), "backend", False),
        ("1.0.3", ("TrainEngineConfig",), "backend", True),
        ("0.4.0", ("TrainEngineConfig",), "backend", True),
        ("1.0.2", ("TeacherConfig",), "allocation_mode", True),
        ("1.0.3", ("TeacherConfig",), "backend", True),
        ("1.0.4", ("TeacherConfig",), "backend", False),
        ("1.0.4", ("TeacherConfig",), "rollout", True),
        ("2.0.0", ("PPOActorConfig",), "enable_delta_weight_update", False),
        ("main", ("PPOActorConfig",), "enable_delta_weight_update", True),
        ("0.3.0", FIRST_GENERATION, "n_gpus_per_node", True),
        ("0.5.2", FIRST_GENERATION, "n_gpus_per_node", False),
    ],
)
def test_fields_come_and_go(version: str, kinds: tuple[str, ...], field: str, there: bool) -> None:
    assert (field in fields_of(kinds, version)) is there


def test_sections_within_sections() -> None:
    assert fields_of(("PPOConfig",), "1.0.4")["rollout"] == ("InferenceEngineConfig",)
    assert fields_of(("InferenceEngineConfig",), "main")["scheduling_spec"] == ("SchedulingSpec",)


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ((0, 1), "0.3.0"),
        ((0, 3), "0.3.0"),
        ((0, 4), "0.4.0"),
        ((0, 5, 9), "0.5.3"),
        ((1, 0, 4), "1.0.4"),
        ((1, 0, 5), "1.0.4"),
        ((2, 0), "2.0.0"),
        ((2, 0, 0), "2.0.0"),
        ((2, 0, 1), "main"),
        ((2**30,), "main"),
    ],
)
def test_the_nearest_version(version: tuple[int, ...], nearest: str) -> None:
    assert nearest_version(version) == nearest


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("backedn", "backend"),
        ("bakend", "backend"),
        ("Backend", "backend"),
        ("schedulling_strategy", "scheduling_strategy"),
        ("scheduling-strategy", "scheduling_strategy"),
        ("kl_ctrl", "kl_ctl"),
        ("_verson", "_version"),
        ("_target_", None),
        ("_partial_", None),
        ("my_own", None),
        ("backend_2", None),
        ("backend", None),
        ("ds_auto_tp", None),  # 0.3.0 had it
    ],
)
def test_slips_of_a_section(key: str, near: str | None) -> None:
    assert near_keys([key], ("PPOActorConfig",), "main").get(key) == near


def test_words_that_are_no_slips() -> None:
    known = ("valid_dataset", "type", "cpu", "rollout")
    assert [near_key(key, known) for key in ("eval_dataset", "tape", "tpu2", "eval_rollout")] == [
        None,
        "type",
        None,
        None,
    ]
