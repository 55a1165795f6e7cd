"""The table of facts by version."""

from __future__ import annotations

import re

import pytest

from areal_conf.config.areal_fields import commits_of, fields_of, versions
from areal_conf.config.versions import FACTS, areal_version, facts_of
from areal_conf.errors import CODES


def test_every_fact_names_versions_and_codes_that_there_are() -> None:
    names = versions()
    for fact in FACTS:
        assert names.index(fact.since) <= names.index(fact.until)
        assert set(fact.codes) <= set(CODES)
        assert fact.source


@pytest.mark.parametrize("version", versions())
def test_every_version_can_be_named_and_has_commits_and_facts(version: str) -> None:
    assert areal_version(version)
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in commits_of(version))
    subjects = [fact.subject for fact in facts_of(version)]
    assert {"layout", "who starts workers", "SFT and RW"} <= set(subjects)
    assert subjects.count("layout") == 1


@pytest.mark.parametrize(
    ("subject", "kind", "field"),
    [("SFT and RW", "SFTConfig", "model"), ("who starts workers", "SchedulerConfig", "type")],
)
def test_facts_follow_the_fields(subject: str, kind: str, field: str) -> None:
    first, second = [fact for fact in FACTS if fact.subject == subject]
    had = [field in fields_of((kind,), version) for version in versions()]
    change = had.index(not had[0])
    assert versions()[change] == second.since
    assert versions()[change - 1] == first.until
