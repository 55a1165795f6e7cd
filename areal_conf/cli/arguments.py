"""What commands share: options, how they are read, and where results go."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from areal_conf.errors import AllocationError, can_be_allowed

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.planning.result import Plan


def named_path(text: str) -> str:
    """A path of a command line: empty is none, or an unset variable would mean the directory."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return text


def strict_plan(cfg: Any, args: argparse.Namespace, launcher: str | None) -> Plan:
    """The plan of what is about to run: what AReaL refuses at start is an error.

    A legacy ``allocation_mode`` is carried over into `cfg`.
    """
    from areal_conf.app.preflight import prepared
    from areal_conf.planning.options import PlanOptions

    check_codes(args.allow)
    options = PlanOptions(
        launcher=launcher,
        model=model_argument(args.model),
        allow=args.allow,
        areal=args.areal,
        strict=True,
    )
    return prepared(cfg, options)


def report(made: Plan) -> None:
    """Print the plan's errors and warnings on stderr."""
    from rich.console import Console

    from areal_conf.report import terminal

    terminal.diagnostics(made, Console(stderr=True))


def add_judging_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say what a plan is held to."""
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        type=named_path,
        metavar="[ENGINE=]FILE",
        help="a Hugging Face config.json or its directory; auto: each engine's own local path",
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="CODE", help="count an error as a warning"
    )
    parser.add_argument(
        "--areal",
        type=_version,
        metavar="VERSION",
        help="the AReaL to judge by, such as 1.0.4 or main; default: the installed one, else 1.0.4",
    )


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that name a config and its overrides."""
    parser.add_argument(
        "config_and_overrides",
        nargs="*",
        type=named_path,
        metavar="CONFIG.yaml | OVERRIDE",
        help="one with '=' is an override; without a config, the ppo experiment is planned",
    )
    parser.add_argument(
        "--config-dir", type=named_path, metavar="D", help="directory of --config-name; default: ."
    )
    parser.add_argument(
        "--config-name", type=named_path, metavar="N", help="a config to compose as Hydra does"
    )


def composed(args: argparse.Namespace) -> DictConfig:
    """The config that the arguments name, composed with their overrides."""
    from areal_conf.config import compose

    words: Sequence[str] = args.config_and_overrides
    overrides = [w for w in words if "=" in w or w.startswith("~")]
    configs = [w for w in words if w not in overrides]
    if len(configs) + bool(args.config_name) > 1:
        usage_error(
            f"one config at a time: {', '.join(configs)} (an override is written KEY=VALUE)"
        )
    if args.config_dir is not None or args.config_name is not None:
        if configs or args.config_name is None:
            usage_error("--config-dir goes with --config-name, and with no other config")
        directory = str(Path(args.config_dir or ".").absolute())
        if not Path(directory).is_dir():
            usage_error(f"no directory {directory}")
        name = args.config_name
        if not (Path(directory) / f"{name.removesuffix('.yaml')}.yaml").is_file():
            usage_error(f"no config {name!r} in {directory}")
        return compose.compose_named(directory, name, overrides)
    if configs:
        return compose.compose_file(configs[0], overrides)
    return compose.compose_default(overrides)


def _version(text: str) -> str:
    """``--areal``: a version that rules can be held to."""
    from areal_conf.config.versions import areal_version

    try:
        areal_version(text)
    except AllocationError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None
    return text


def model_argument(values: Sequence[str]) -> Any:
    """The ``--model`` options as `plan` takes them."""
    from areal_conf.planning.rules.models import OTHERS

    models: dict[str, str] = {}
    for value in values:
        engine, equal, file = value.partition("=")
        if equal and engine.isidentifier() and not Path(value).exists():
            if not file:
                usage_error(f"--model {value}: the path is empty")
            models[engine] = file
        else:
            models[OTHERS] = value
    if set(models) == {OTHERS}:
        return models[OTHERS]
    return models or None


def usage_error(message: str) -> NoReturn:
    """Say what is wrong with the command line, and exit 2."""
    print(f"areal-conf: {message}", file=sys.stderr)
    raise SystemExit(2)


def check_codes(codes: Sequence[str]) -> None:
    """Exit 2 where a code of ``--allow`` cannot be allowed."""
    for code in codes:
        if not can_be_allowed(code):
            usage_error(f"--allow {code}: only AC3xx and AC4xx of what was read can be allowed")
