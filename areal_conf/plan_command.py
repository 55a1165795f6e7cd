"""``areal-conf plan [CONFIG.yaml] [OVERRIDE ...]``"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from areal_conf.arguments import named_path
from areal_conf.errors import AllocationError, can_be_allowed

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.plan import Plan


_FORMATS = {".json": "json", ".svg": "svg"}
"""Formats by the suffix of the file that is written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_config_arguments(parser)
    parser.add_argument(
        "--launcher",
        choices=("local", "ray", "slurm"),
        help="plan for AReaL's SPMD launcher of that kind",
    )
    add_judging_arguments(parser)
    parser.add_argument(
        "--format",
        choices=("table", "json", "svg"),
        help="table, json, or a picture; default: as the name after -o ends, else table",
    )
    parser.add_argument(
        "-o", "--output", type=named_path, metavar="FILE", help="write there instead of to stdout"
    )


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


def run(args: argparse.Namespace) -> int:
    """Print the plan; 1 where it has errors."""
    check_codes(args.allow)
    form = args.format or _FORMATS.get(Path(args.output or "").suffix, "table")
    try:
        made = _planned(args)
    except AllocationError as error:
        if form != "json":
            raise
        from areal_conf.plan import refused

        made = refused(error)
    _print(made, form, args.output)
    return 0 if made.ok else 1


def _planned(args: argparse.Namespace) -> Plan:
    from areal_conf.plan import plan

    return plan(
        composed(args),
        launcher=args.launcher,
        model=model_argument(args.model),
        allow=args.allow,
        areal=args.areal,
    )


def composed(args: argparse.Namespace) -> DictConfig:
    """The config that the arguments name, composed with their overrides."""
    from areal_conf import composing

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
        return composing.compose_named(directory, name, overrides)
    if configs:
        return composing.compose_file(configs[0], overrides)
    return composing.compose_default(overrides)


def _version(text: str) -> str:
    """``--areal``: a version that rules can be held to."""
    from areal_conf.versions import areal_version

    try:
        areal_version(text)
    except AllocationError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None
    return text


def model_argument(values: Sequence[str]) -> Any:
    """The ``--model`` options as `plan` takes them."""
    from areal_conf.model_checks import OTHERS

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


def _print(made: Plan, form: str, output: str | None) -> None:
    if output is not None:
        from areal_conf.files import write_atomically

        write_atomically(Path(output), _text(made, form))
    elif form == "table":
        from rich.console import Console

        from areal_conf import render

        render.plan_text(made, Console())
    else:
        sys.stdout.write(_text(made, form))
    if form != "json":
        from rich.console import Console

        from areal_conf import render

        render.diagnostics(made, Console(stderr=True))


def _text(made: Plan, form: str) -> str:
    if form == "json":
        return made.model_dump_json(indent=2) + "\n"
    if form == "svg":
        from areal_conf import svg

        return str(svg.render(made))
    from io import StringIO

    from rich.console import Console

    from areal_conf import render

    page = StringIO()
    render.plan_text(made, Console(file=page, width=120))
    return page.getvalue()
