"""Jobs of any Hydra multirun, from the directories that Hydra made for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from areal_conf.errors import AllocationError
from areal_conf.spec.allocation import ModelAllocation, looks_like_spec
from areal_conf.sweeps.results.measured import read_measured

_UNKNOWN = "ended"
"""State of a job of which Hydra's directory tells nothing else."""


def read_runs(sweep: Path) -> dict[str, Any]:
    """A record of a sweep that kept none: overrides, and what the logs of each job say.

    How a job ended and what it returned is not known: Hydra does not write that down.
    """
    directories = sorted((path.parent for path in sweep.glob("*/.hydra")), key=_by_number)
    return {"jobs": [_job(directory) for directory in directories]}


def _by_number(directory: Path) -> tuple[bool, int, str]:
    name = directory.name
    return not name.isdecimal(), int(name) if name.isdecimal() else 0, name


def _job(directory: Path) -> dict[str, Any]:
    overrides = _overrides(directory / ".hydra" / "overrides.yaml")
    measured = read_measured(directory)
    state = "completed" if measured.timeperf else _UNKNOWN
    return {
        "job": int(directory.name) if directory.name.isdecimal() else None,
        "directory": directory.name,
        "overrides": overrides,
        "layouts": _layouts(overrides),
        "state": "out_of_memory" if measured.out_of_memory else state,
        "memory": measured.memory or None,
        "timeperf": measured.timeperf or None,
        "typical": measured.typical or None,
        "steps": measured.steps or None,
        "warnings": [],
    }


def _overrides(path: Path) -> list[str]:
    from omegaconf import ListConfig, OmegaConf

    try:
        found = OmegaConf.load(path)
    except Exception:  # of YAML, OmegaConf, or the disk
        return []
    return [str(one) for one in found] if isinstance(found, ListConfig) else []


def _layouts(overrides: list[str]) -> dict[str, str]:
    """The layouts that overrides give, by engine."""
    layouts = {}
    for override in overrides:
        key, _, value = override.partition("=")
        text = value.strip("'\"").replace("\\", "")
        if key.endswith(".backend") and looks_like_spec(text):
            try:
                layouts[key.split(".")[-2].lstrip("+")] = str(ModelAllocation.from_str(text))
            except AllocationError:
                continue
    return layouts
