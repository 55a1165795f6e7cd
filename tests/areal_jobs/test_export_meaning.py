"""What an exported config resolves to is what its source does, and no secret is in it."""

from __future__ import annotations

import os
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from areal_conf import AllocationError, resolvers, to_areal

resolvers.register()

EXPORTS = int(os.environ.get("EXPORTS", "60"))
"""Configs that are made: ``EXPORTS=4000 pytest tests/areal_jobs/test_export_meaning.py``."""

SECRETS = {
    "S_TEXT": "hunter2-hunter2",
    "S_NUMBER": "8675309123",
    "S_LIST": "[tok-1234567, tok-7654321]",
    "S_MAP": "{user: anna-q7x, key: k-55-zz-81}",
    "S_MODE": "zq9",
    "S_SPEC": "fsdp:d8",
}
HIDDEN = ("hunter2", "8675309123", "tok-1", "tok-7", "anna-q7x", "k-55-zz-81", "zq9")
VALUES = [
    "${oc.env:S_TEXT}",
    "Bearer ${oc.env:S_TEXT}",
    "${oc.env:${env_name}}",
    "${oc.env:NOT_SET,plain}",
    "${oc.decode:${oc.env:S_NUMBER}}",
    "${oc.decode:${oc.env:S_LIST}}",
    "${oc.decode:${oc.env:S_MAP}}",
    "${oc.create:${oc.decode:${oc.env:S_MAP}}}",
    "${oc.select:secrets.text}",
    "${oc.select:nowhere,7}",
    "${oc.select:secrets.mapping}",
    "${oc.dict.values:secrets.mapping}",
    "${secrets.number}",
    "${secrets.mapping}",
    "${secrets}",
    "${outer}",
    "${outer.port}",
    "${outer.deep}",
    "http://h:${outer.port}/${oc.env:S_MODE}",
    "${areal.inherit:${oc.env:S_TEXT},x}",
    "${areal.inherit:'',${outer.port}}",
    "${areal.inherit:${oc.decode:${oc.env:S_NUMBER}},x}",
    "${areal.tp:${oc.env:S_SPEC}}",
    "${areal.canonical:${oc.env:S_SPEC}}",
    "${areal.world_size:fsdp:d4t2}",
    "${areal.parse:fsdp:d4t2}",
    "${areal.layouts:fsdp:d*t*@2}",
    "\\${not_one}",
    "plain",
    5,
    None,
    1.5,
    ["${outer.port}", {"x": "${oc.env:S_TEXT}"}],
    {"a": "${outer.port}", "b": ["${secrets.text}", "${.[0]}"]},
]
CLUSTER = {"n_nodes": 4, "n_gpus_per_node": 8}


UNRESOLVED = "cannot be resolved"


def base() -> dict[str, Any]:
    return {
        "cluster": CLUSTER,
        "scheduler": {"type": "local"},
        "actor": {"backend": "fsdp:d8", "path": "m"},
    }


OUTSIDE = {
    "env_name": "S_TEXT",
    "secrets": {
        "text": "${oc.env:S_TEXT}",
        "number": "${oc.decode:${oc.env:S_NUMBER}}",
        "mapping": "${oc.decode:${oc.env:S_MAP}}",
    },
    "outer": {"port": 29500, "deep": {"again": "${outer.port}", "same": "${.again}"}},
}


def resolved(config: Any, path: tuple[Any, ...]) -> Any:
    """The value at a path as plain data; a word where it cannot be resolved."""
    try:
        for key in path:
            config = config[key]
        if OmegaConf.is_config(config):
            return OmegaConf.to_container(config, resolve=True)
    except Exception:
        return UNRESOLVED
    return config


def judged(cfg: Any, exported: Any, root: str) -> None:
    """Every value of the export is that of its source, and none of it is a secret."""
    text = OmegaConf.to_yaml(exported)
    assert not [secret for secret in HIDDEN if secret in text], text
    for name in list(exported):
        if name in ("actor", "allocation_mode", "teacher"):
            continue
        wanted = resolved(cfg, (*filter(None, root.split(".")), name))
        if wanted == UNRESOLVED:
            continue
        assert resolved(exported, (name,)) == wanted, name
        assert type(resolved(exported, (name,))) is type(wanted)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("root", ["", "rl"])
@pytest.mark.parametrize("value", VALUES, ids=str)
def test_each_value(value: Any, root: str) -> None:
    inside = {**base(), "value": value, "list": [1, value], "deep": {"er": {"value": value}}}
    cfg = OmegaConf.create({**OUTSIDE, "rl": inside} if root else {**OUTSIDE, **inside})
    try:
        exported = to_areal(cfg, root=root)
    except AllocationError as error:
        refusal = error
    else:
        judged(cfg, exported, root)
        return
    assert refusal.code == "AC326"
    assert not [secret for secret in HIDDEN if secret in str(refusal)]
    assert root or "areal." in str(value)


names = st.sampled_from(["a", "b", "c", "d"])
leaves = st.sampled_from(VALUES) | st.sampled_from(
    ["${a}", "${b}", "${rl.a}", "${.c}", "${..d}", "${oc.select:a,1}", "${areal.inherit:${b},${c}}"]
)
sections = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@given(
    inside=st.dictionaries(names, sections, max_size=4),
    teacher=st.dictionaries(st.sampled_from(["path", "key", "token"]), leaves, max_size=3),
    root=st.sampled_from(["", "rl"]),
    refers=st.booleans(),
)
@settings(
    max_examples=EXPORTS,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
def test_every_export(
    inside: dict[str, Any], teacher: dict[str, Any], root: str, refers: bool
) -> None:
    experiment = {**base(), **inside}
    if teacher:
        experiment["teacher"] = {"backend": "fsdp:d8", **teacher}
        prefix = "rl." if root else ""
        if refers:
            experiment["of_teacher"] = [f"${{{prefix}teacher.{key}}}" for key in teacher]
    cfg = OmegaConf.create({**OUTSIDE, "rl": experiment} if root else {**OUTSIDE, **experiment})
    try:
        exported = to_areal(cfg, root=root)
    except AllocationError as error:
        refusal = error
    else:
        refusal = None
    if refusal is not None:
        assert refusal.code == "AC326", refusal
        assert not [secret for secret in HIDDEN if secret in str(refusal)]
        return
    judged(cfg, exported, root)
    for key in teacher:
        path = (*filter(None, root.split(".")), "teacher", key)
        outer = ("teacher", key) if key in exported.teacher else ("teacher", "train", key)
        if resolved(cfg, path) != UNRESOLVED:
            assert resolved(exported, outer) == resolved(cfg, path)


def test_a_section_from_outside_of_the_package() -> None:
    cfg = OmegaConf.create({**OUTSIDE, "rl": {**base(), "server": "${outer}"}})
    exported = to_areal(cfg, root="rl")
    assert yaml.safe_load(OmegaConf.to_yaml(exported))["server"] == {
        "port": 29500,
        "deep": {"again": 29500, "same": 29500},
    }


def test_a_resolver_that_reads_the_environment_itself() -> None:
    OmegaConf.clear_resolver("reads_it")
    register: Any = OmegaConf.register_new_resolver
    if "annotation_validation" in (OmegaConf.register_resolver.__kwdefaults__ or {}):
        register = OmegaConf.register_resolver
    register("reads_it", lambda: f"x{os.environ['S_TEXT'][::-1]}", use_cache=True)
    cfg = OmegaConf.create({**base(), "key": "${reads_it:}"})
    assert cfg.key  # it is cached
    with pytest.raises(AllocationError) as caught:
        to_areal(cfg)
    assert caught.value.code == "AC326"
    assert "2retnuh" not in str(caught.value)
    register("reads_it", lambda: f"x{os.environ['S_TEXT']}", replace=True)
    assert to_areal(cfg)._get_node("key")._value() == "x${oc.env:S_TEXT}"
