"""Keeps what a config takes from the environment out of what is printed.

``${oc.env:TOKEN}`` may stand anywhere, behind other keys too. Values are read as they resolve, for
a backend may come from the environment; what is told of them is looked through here before anybody
sees it, and shows ``${oc.env:TOKEN}`` instead.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from areal_conf.config.areal_defaults import ROLES
from areal_conf.documents.isolation import is_environment_hidden
from areal_conf.errors import CODES, AllocationError, Diagnostic, clip
from areal_conf.legacy.allocation_mode import AllocationMode
from areal_conf.spec.allocation import SchedulingStrategyType, looks_like_spec
from areal_conf.spec.backends import BACKENDS

_ENV = re.compile(r"\$\{\s*oc\.env\s*:\s*([^,}\s]*)")
_LEAST = 4
"""Characters of a secret: shorter values (1, off, ddp) are none, and stand in every other word."""
_HEAD = 16
_WORDS = ("local", "ray", "slurm", "disk", "nccl", "awex")
_LIBRARIES = ("OMEGACONF_", "OC_", "HYDRA_")
"""How variables begin that the libraries themselves read."""

_PLAIN_WORDS = {*ROLES, *BACKENDS, *SchedulingStrategyType.__members__, *_WORDS, "backend"}
"""Values of configs that are no secrets."""


class Redactor:
    """Rewrites errors so that they show nothing of the environment variables that a config names.

    A value that is a backend string, or a word of the configs (``slurm``), is no secret.
    """

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg
        self._keys: frozenset[str] = frozenset()
        self._patterns: list[tuple[re.Pattern[str], str]] | None = None

    def findings(self, findings: Iterable[Diagnostic]) -> list[Diagnostic]:
        """`findings` with every text redacted."""
        return [Diagnostic.of(one.severity, self.error(one.error())) for one in findings]

    def error(self, error: AllocationError) -> AllocationError:
        """`error` and its companions, redacted; itself where there is nothing to hide."""
        if self._patterns is None:
            self._keys = frozenset(_keys(self._cfg))
            self._patterns = _all_patterns(_raw_strings(self._cfg), self._keys)
        return redacted(error, self._patterns)


def redacted(
    error: AllocationError, patterns: list[tuple[re.Pattern[str], str]]
) -> AllocationError:
    """`error` with everything that matches a pattern replaced; itself where nothing does."""
    if not patterns:
        return error
    others = tuple(redacted(other, patterns) for other in error.errors[1:])
    parts = [error.message, error.hint, error.text, error.path or ""]
    for pattern, shown in patterns:
        parts = [shown.join(pattern.split(part)) for part in parts]
    message, hint, text, path = parts
    same = (message, hint, text, path) == (error.message, error.hint, error.text, error.path or "")
    if same and others == error.errors[1:]:
        return error
    span = error.span if text == error.text else (0, len(text))
    return AllocationError(
        error.code, message, hint=hint, text=text, span=span, path=path or None, others=others
    )


def of_texts(error: AllocationError, texts: Iterable[str]) -> AllocationError:
    """`error` without the values of the environment variables that `texts` name."""
    return redacted(error, _all_patterns(texts))


@contextmanager
def environment_read() -> Iterator[set[str]]:
    """The names of the environment variables that are read meanwhile, by whatever resolver."""
    environ: Any = os.environ
    names: set[str] = set()
    encode = environ.encodekey

    def noted(key: Any) -> Any:
        if isinstance(key, str) and not key.startswith(_LIBRARIES):
            names.add(key)
        return encode(key)

    environ.encodekey = noted
    try:
        yield names
    finally:
        environ.encodekey = encode


def put_back(text: str, names: Iterable[str]) -> str:
    """`text` with interpolations in place of the values of the variables `names`."""
    values = {os.environ[name]: name for name in names if os.environ.get(name)}
    if not values:
        return text
    longest_first = sorted(values, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return pattern.sub(lambda found: f"${{oc.env:{values[found[0]]}}}", text)


def _all_patterns(
    texts: Iterable[str], keys: frozenset[str] = frozenset()
) -> list[tuple[re.Pattern[str], str]]:
    return [pattern for name in _named(texts) for pattern in _patterns(name, keys)]


def _named(texts: Iterable[str]) -> list[str]:
    """Names of the environment variables that `texts` ask for; longest values first."""
    if is_environment_hidden():  # no value of it is in anything, and its words are only words
        return []
    names: set[str] = set()
    for text in texts:
        for name in _ENV.findall(text):
            names.update(os.environ if "$" in name or not name else [name.strip("'\"")])
    return sorted(names & os.environ.keys(), key=lambda name: (-len(os.environ[name]), name))


def _raw_strings(cfg: Any) -> Iterator[str]:
    """Every interpolation of the whole config that `cfg` is of, as it is written."""
    if not hasattr(cfg, "_get_root"):
        return
    stack = [cfg._get_root()]
    while stack:
        value = stack.pop()._value()
        if isinstance(value, str):
            if "${" in value:
                yield value
        elif isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list):
            stack += value


def _keys(cfg: Any) -> Iterator[str]:
    """Every key of the whole config that `cfg` is of: it is no secret, whatever has its value."""
    stack = [cfg._get_root()] if hasattr(cfg, "_get_root") else []
    while stack:
        value = stack.pop()._value()
        if isinstance(value, dict):
            yield from (key for key in value if isinstance(key, str))
            stack += value.values()
        elif isinstance(value, list):
            stack += value


def _patterns(name: str, keys: frozenset[str]) -> Iterator[tuple[re.Pattern[str], str]]:
    """What finds the value of an environment variable, whole or cut, and what is shown for it."""
    value = os.environ[name]
    if not _is_secret(value) or value in keys or value in _words():
        return
    forms = (value, repr(value)[1:-1], clip(value, len(value)), *_decoded(value))
    for form in dict.fromkeys(forms):
        body = re.escape(form)
        if len(form) > 2 * _HEAD:
            head, tail = re.escape(form[:_HEAD]), re.escape(form[-_HEAD:])
            body = f"{body}|{head}.*?{tail}"
        yield re.compile(body, re.DOTALL), f"${{oc.env:{name}}}"


def _is_secret(value: str) -> bool:
    return len(value) >= _LEAST and value not in _PLAIN_WORDS and not is_layout(value)


@functools.lru_cache(maxsize=1)
def _words() -> frozenset[str]:
    """Words that messages are made of: hiding one spoils the message, and hides nothing."""
    return frozenset(re.findall("[a-z]+", " ".join(CODES.values())))


def _decoded(value: str) -> Iterator[str]:
    """How ``oc.decode`` would show a value that it reads as a list, a mapping or a number."""
    from omegaconf import OmegaConf

    if "${" in value:
        return
    try:
        decoded = OmegaConf.create({"it": "${oc.decode:${.text}}", "text": value}).it
    except Exception:  # it cannot be decoded: nothing is shown
        return
    plain = OmegaConf.to_container(decoded) if OmegaConf.is_config(decoded) else decoded
    yield from filter(_is_secret, (repr(plain), *_leaves(plain)))


def _leaves(value: Any) -> Iterator[str]:
    """The texts and numbers in `value`, as text."""
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def is_layout(value: str) -> bool:
    """Whether `value` says how something is parallelised: that is no secret."""
    if looks_like_spec(value):
        return True
    try:
        AllocationMode.from_str(value)
    except AllocationError:
        return False
    return True
