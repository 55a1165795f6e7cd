"""What fuzzing holds the readers to: one function a target, called with any text.

A target returns where the text was read or refused as it should be, and fails an assertion or lets
an exception out where not. `fuzz/run.py` feeds them with coverage-guided inputs, tests/test_fuzz.py
with the corpus kept here and with every input that once found a fault.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from pkgutil import walk_packages

import areal_conf
from areal_conf import AllocationError, AllocationMode, ModelAllocation
from areal_conf.errors import CODES

_MAX_PRINTED = 5_000
_FEW_LAYOUTS = 200
_MANY_GPUS = 512
_NOT_FUZZED = ("__main__", "app", "areal", "cli", "resolvers", "sweeps")
"""Folders that start programs or Hydra apps, which no target calls."""


def modules() -> list[str]:
    """The modules whose branches the search counts: all that a target can reach."""
    names = [module.name for module in walk_packages(areal_conf.__path__, "areal_conf.")]
    return [name for name in names if name.split(".")[1] not in _NOT_FUZZED]


def parser(text: str) -> None:
    """A backend string is an allocation with one canonical form, or an error that helps."""
    try:
        allocation = ModelAllocation.from_str(text)
    except AllocationError as error:
        check_error(error, text, ("AC1", "AC2"))
        return
    check_allocation(allocation)


def dialects(text: str) -> None:
    """An `allocation_mode` says the same in the newest dialect, or is refused."""
    try:
        mode = AllocationMode.from_str(text)
    except AllocationError as error:
        check_error(error, text, ("AC1", "AC2", "AC5"))
        return
    assert mode.allocations
    for allocation in mode.allocations:
        check_allocation(ModelAllocation.from_str(str(allocation)))
    again = AllocationMode.from_str(mode.modern())
    assert again.engines() == mode.engines()
    assert again.groups() == mode.groups()
    assert pickle.loads(pickle.dumps(mode)) == mode
    for engine, spec in mode.spelled().items():
        assert ModelAllocation.from_str(spec).parallel == mode.engines()[engine].parallel


def patterns(text: str) -> None:
    """A layout pattern lists each valid layout once, of exactly its GPUs, or is refused."""
    from areal_conf.search_space import layouts
    from areal_conf.spec.parser import parse_pattern

    try:
        pattern = parse_pattern(text)
    except AllocationError as error:
        check_error(error, text, ("AC1", "AC2", "AC6"))
        return
    if (pattern.gpus or 0) > _MANY_GPUS:
        return
    try:
        found = list(islice(layouts(text, None if pattern.gpus else 16), _FEW_LAYOUTS))
    except AllocationError as error:
        check_error(error, text, ("AC1", "AC2", "AC6"))
        return
    assert len(set(found)) == len(found)
    for allocation in found:
        assert allocation.backend == pattern.backend.name
        assert pattern.gpus in (None, allocation.world_size)
        assert ModelAllocation.from_str(str(allocation)) == allocation


def overrides(text: str) -> None:
    """Overrides as typed stay what they are when typed again; quoting loses nothing."""
    from areal_conf.config.overrides import as_typed, for_hydra, quoted

    once = as_typed([text, f"actor.backend={text}", f"allocation_mode={text}"])
    assert as_typed(once) == once
    if len(text) < 200 and text.isprintable():
        from hydra.core.override_parser.overrides_parser import OverridesParser

        if "${" not in text:
            read = OverridesParser.create().parse_override(f"x={quoted(text)}")
            assert str(read.value()) == text, (read.value(), text)
        try:
            allocation = ModelAllocation.from_str(text)
        except AllocationError:
            return
        read = OverridesParser.create().parse_override(as_typed([f"actor.backend={text}"])[0])
        assert ModelAllocation.from_str(str(read.value())) == allocation
        assert for_hydra(text)


def migration(text: str) -> None:
    """A config is migrated to YAML that needs no second migration, or left alone with a reason."""
    import yaml

    from areal_conf.migrate.config import migrate_yaml
    from areal_conf.migrate.usages import command_lines, python_uses

    for use in (*command_lines(text), *python_uses(text)):
        check_error(use.error, None, ("AC5",))
    for target in ("controller", "spmd"):
        result = migrate_yaml(text, target)
        for found in result.found:
            assert found.line >= 1
            check_error(found.error, None, ("AC",))
        if result.new is None:
            continue
        assert result.new != text
        try:
            yaml.load(text.removeprefix("\ufeff"), Loader=yaml.CSafeLoader)
        except (yaml.YAMLError, ValueError, TypeError):
            continue  # no config before, and none after
        data = yaml.load(result.new.removeprefix("\ufeff"), Loader=yaml.CSafeLoader)
        assert isinstance(data, dict)
        if target == "controller":
            assert "allocation_mode" not in data
        again = migrate_yaml(result.new, target)
        assert again.new is None, again.new


def lint(text: str) -> None:
    """Any file can be linted; what is found has a place in it."""
    from areal_conf.lint.linter import lint_file

    # A file in memory: its path is the same every time, as libFuzzer looks at what is compared.
    with open(os.memfd_create("yaml"), "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.flush()
        lines = text.count("\n") + text.count("\r") + 2
        for found in lint_file(f"/dev/fd/{file.fileno()}"):
            assert 1 <= found.place.line <= lines + text.count("\u2028") + text.count("\x85")
            check_error(found.error, None, ("AC",))


def plans(text: str) -> None:
    """Any mapping can be planned; a plan is JSON, and says where each thing stands."""
    import yaml

    try:
        data = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, TypeError, OverflowError):
        return
    if not isinstance(data, dict) or text.count("*") > 20:
        return
    try:
        made = areal_conf.plan(data)
    except AllocationError as error:
        check_error(error, None, ("AC3",))
        return
    if made.total_gpus <= _MANY_GPUS:
        made.model_dump_json()
    for diagnostic in (*made.errors, *made.warnings):
        check_error(diagnostic.error(), None, ("AC",))


def models(text: str) -> None:
    """Any model config is read or refused, and holds any layout to its facts."""
    import json

    from areal_conf.model import check_model, read_model

    try:
        data = json.loads(text)
        facts = read_model(data)
    except AllocationError as error:
        check_error(error, None, ("AC309", "AC4"))
        return
    except (OSError, ValueError, RecursionError):  # a text is the path of a file that is not there
        return
    for spec in ("megatron:d2t2p2e2", "fsdp:d2t2c2", "sglang:t8", "archon:d4t2p2", "vllm:d1"):
        check_model(ModelAllocation.from_str(spec), facts)


def check_error(error: AllocationError, text: str | None, codes: tuple[str, ...]) -> None:
    """An error of `text` has a known code, a span inside the text, a hint, and fits a screen."""
    for one in error.errors:
        assert one.code in CODES
        assert one.code.startswith(codes), one.code
        assert one.message
        assert one.hint
        start, end = one.span
        assert 0 <= start <= end <= len(one.text)
        if text is not None:
            assert one.text == text
    printed = str(error)
    assert len(printed) < _MAX_PRINTED
    assert error.code in printed
    printed.encode("utf-8")
    assert str(pickle.loads(pickle.dumps(error))) == printed


def check_allocation(allocation: ModelAllocation) -> None:
    """An allocation has one canonical form, which means itself."""
    canonical = str(allocation)
    again = ModelAllocation.from_str(canonical)
    assert again == allocation
    assert hash(again) == hash(allocation)
    assert str(again) == canonical
    assert pickle.loads(pickle.dumps(allocation)) == allocation
    d, t, p, c, e, etp = allocation.parallel.sizes
    assert allocation.world_size == d * t * p * c
    assert allocation.world_size % (p * etp * e) == 0


TARGETS: dict[str, Callable[[str], None]] = {
    "parser": parser,
    "dialects": dialects,
    "patterns": patterns,
    "overrides": overrides,
    "migration": migration,
    "lint": lint,
    "plans": plans,
    "models": models,
}
"""Every target by its name, which is that of its folder in ``fuzz/corpus``."""

CORPUS = Path(__file__).parent / "corpus"


def run(target: str, data: bytes) -> None:
    """Call a target with the text that `data` stands for, whatever bytes they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TARGETS[target](data.decode("utf-8", "surrogateescape"))
