"""Drop-ins for ``hydra.main`` and ``hydra.compose`` that plan before the task runs."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hydra.errors import ConfigCompositionException

from areal_conf.app.hydra_lines import warned_at_the_caller
from areal_conf.app.preflight import (
    is_first_rank,
    plan_or_refuse,
    prepared_here,
    refuse,
    report_of,
    warnings_of,
)
from areal_conf.config.overrides import as_typed, meant, refused_override
from areal_conf.planning.options import PlanOptions

if TYPE_CHECKING:
    from omegaconf import DictConfig


log = logging.getLogger("areal_conf.app")

_UNSPECIFIED: Any = object()
Task = Callable[[Any], Any]


def main(
    config_path: str | None = _UNSPECIFIED,
    config_name: str | None = None,
    version_base: str | None = _UNSPECIFIED,
    *,
    root: str = "",
    **options: Any,
) -> Callable[[Task], Callable[..., Any]]:
    """``hydra.main`` with the plan checked before the task function runs.

    Backend overrides are taken as typed (parentheses, brackets, in sweeps too), a legacy
    ``allocation_mode`` is carried over into the config, and a plan with errors prints them on
    stderr and exits 1. In a sweep every bad job is reported and the good ones run. Under torchrun
    only rank 0 prints, and a WORLD_SIZE other than the actor's is an error.

    The arguments are those of ``hydra.main`` of the Hydra that is installed, and `root`: the
    package that holds the experiment where it is not the config's root (``"rl"`` for
    ``areal/experiment@rl: ppo``).
    """
    import hydra

    given = {"config_path": config_path, "version_base": version_base}
    given = {key: value for key, value in given.items() if value is not _UNSPECIFIED}

    def decorate(task: Task) -> Callable[..., Any]:
        @functools.wraps(task)
        def checked(cfg: DictConfig) -> Any:
            return task(_checked(cfg, root))

        with warned_at_the_caller():
            app = hydra.main(config_name=config_name, **given, **options)(checked)

        @functools.wraps(task)
        def entry(cfg_passthrough: DictConfig | None = None) -> Any:
            return _run(app) if cfg_passthrough is None else app(cfg_passthrough)

        return entry

    return decorate


def _run(app: Callable[[], Any]) -> Any:
    """Run a Hydra app with the backends of its command line as typed.

    Where Hydra knows no such key, the one that was meant is named below Hydra's own error.
    """
    argv = sys.argv
    sys.argv = [argv[0], *(a if a.startswith("-") else as_typed([a])[0] for a in argv[1:])]
    try:
        return app()
    except SystemExit as stop:  # Hydra has printed what is wrong, and stops
        key, refused = meant(stop.__context__), refused_override(stop.__context__)
        if key and is_first_rank():
            print(f"Did you mean {key}?", file=sys.stderr)
        if refused and refused.quoted and is_first_rank():
            print(f"Quote the value: {refused.quoted}", file=sys.stderr)
        raise
    finally:
        sys.argv = argv


def compose(
    config_name: str | None = None,
    overrides: Sequence[str] | None = None,
    return_hydra_config: bool = False,
    *,
    root: str = "",
    **options: Any,
) -> DictConfig:
    """``hydra.compose`` with overrides as typed, a legacy mode carried over, and the plan checked.

    The arguments are those of ``hydra.compose``, and `root` as in `main`.

    Raises:
        AllocationError: with everything that is wrong with the plan in `errors`.
    """
    import hydra

    try:
        with warned_at_the_caller():
            words = as_typed(overrides or ())
            cfg = hydra.compose(config_name, words, return_hydra_config, **options)
    except ConfigCompositionException as refused:
        if key := meant(refused):
            message = f"{refused}\nDid you mean {key}?"
            raise ConfigCompositionException(message) from refused.__cause__
        raise
    prepared_here(cfg, PlanOptions(root)).raise_for_errors()
    return cfg


# -- refusing -----------------------------------------------------------------------------------


def _checked(cfg: DictConfig, root: str) -> DictConfig:
    """`cfg` with its legacy mode carried over; raises where its plan has errors."""
    made = plan_or_refuse(cfg, PlanOptions(root))
    if made.errors:
        refuse(report_of(made), made)
    for line in warnings_of(made):
        print(f"warning: {line}", file=sys.stderr, flush=True)
    return cfg
