"""What commands share: options, how they are read, exit statuses, and where results go.

Results go to stdout or the file of ``-o``, diagnostics to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from areal_conf.errors import AllocationError, can_be_allowed

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from areal_conf.planning.options import PlanOptions
    from areal_conf.planning.result import Plan

OK, INVALID, USAGE = 0, 1, 2
"""Exit statuses: fine (warnings too); the config is invalid; the command line is, or a file that it
names is missing or cannot be read."""


def named_path(text: str) -> str:
    """A path on a command line. Rejects "": an unset shell variable must not mean "."."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return text


def plan_options(
    args: argparse.Namespace, launcher: str | None = None, *, strict: bool = False
) -> PlanOptions:
    """The options of `add_planning_arguments`; exits 2 where one of them cannot be used."""
    from areal_conf.planning.options import PlanOptions

    check_codes(args.allow)
    return PlanOptions(
        root=args.root or "",
        launcher=launcher,
        model=model_argument(args.model),
        allow=args.allow,
        areal=args.areal,
        strict=strict,
        gpu=args.gpu,
    )


def strict_plan(cfg: Any, args: argparse.Namespace, launcher: str | None) -> Plan:
    """The plan of what is about to run: what AReaL refuses at start is an error.

    A legacy ``allocation_mode`` is carried over into `cfg`.
    """
    from areal_conf.app.preflight import prepared

    return prepared(cfg, plan_options(args, launcher, strict=True))


def report(made: Plan) -> None:
    """Print the plan's errors and warnings on stderr."""
    from rich.console import Console

    from areal_conf.report import terminal

    terminal.diagnostics(made, Console(stderr=True))


def add_planning_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every command that plans; `plan_options` reads them."""
    parser.add_argument(
        "--root",
        type=named_path,
        metavar="PACKAGE",
        help="the package that holds the experiment; default: the only one that does",
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--areal",
        type=version,
        metavar="VERSION",
        help="the AReaL to judge by, such as 1.0.4 or main; default: the installed one, else 1.0.4",
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="CODE", help="count an error as a warning"
    )
    parser.add_argument(
        "--app",
        type=named_path,
        metavar="MODULE",
        help="a module or .py file that fills Hydra's ConfigStore, imported first",
    )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """What layouts are held to, and what memory is estimated for."""
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        type=named_path,
        metavar="[ENGINE=]MODEL",
        help="a Hugging Face config.json, its directory, or a known name such as Qwen3-8B; "
        "auto: each engine's own local path",
    )
    parser.add_argument(
        "--gpu",
        type=named_path,
        metavar="GPU",
        help="the card to estimate memory for: a name such as H100, its GiB, or auto",
    )


def add_launcher_argument(parser: argparse.ArgumentParser, purpose: str) -> None:
    """``--launcher``, for what is one of `purpose`."""
    from areal_conf.config.areal_defaults import LAUNCHERS

    parser.add_argument("--launcher", choices=tuple(LAUNCHERS), help=purpose)


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """``-o FILE``; `write_result` honours it."""
    parser.add_argument(
        "-o", "--output", type=named_path, metavar="FILE", help="write there instead of to stdout"
    )


def write_result(text: str, output: str | None) -> None:
    """Write a result to the file that ``-o`` names, else to stdout."""
    if output is None:
        sys.stdout.write(text)
        return
    from areal_conf.files import write_atomically

    write_atomically(Path(output), text)


def add_config_arguments(
    parser: argparse.ArgumentParser, default: str = "the ppo experiment is planned"
) -> None:
    """Arguments that name a config and its overrides; `default` says what happens without one."""
    parser.add_argument(
        "config_and_overrides",
        nargs="*",
        type=named_path,
        metavar="CONFIG.yaml | OVERRIDE",
        help=f"one with '=' is an override; without a config, {default}",
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

    overrides, configs = split_words(args.config_and_overrides)
    if len(configs) + bool(args.config_name) > 1:
        usage_error(
            f"one config at a time: {', '.join(configs)} (an override is written KEY=VALUE)"
        )
    if args.config_dir is None and args.config_name is None:
        if configs:
            return composed_file(configs[0], overrides, args.app)
        import_app(args.app)
        return compose.compose_default(overrides)
    if configs or args.config_name is None:
        usage_error("--config-dir goes with --config-name, and with no other config")
    directory = Path(args.config_dir or ".").absolute()
    if not directory.is_dir():
        usage_error(f"no directory {directory}")
    file = directory / f"{args.config_name.removesuffix('.yaml')}.yaml"
    import_app(args.app or compose.named_app(file))
    if not file.is_file() and not compose.is_stored(args.config_name):
        usage_error(f"no config {args.config_name!r} in {directory}")
    return compose.compose_named(str(directory), args.config_name, overrides)


def composed_file(file: str, overrides: Sequence[str], app: str | None) -> DictConfig:
    """The config of a file, composed after the app's module was imported: `app`, else the one that
    ``areal_plan.app`` of the file names."""
    from areal_conf.config import compose

    import_app(app or compose.named_app(Path(file)))
    return compose.compose_file(file, overrides)


def import_app(name: str | None) -> None:
    """Import the module of ``--app``; exits 2 where that fails."""
    from areal_conf.config.app_module import AppImportError, import_module

    if name is None:
        return
    try:
        import_module(name)
    except AppImportError as error:
        usage_error(f"--app {name}: {error}")


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The overrides among the words of a command line, and the files."""
    overrides = [word for word in words if "=" in word or word.startswith("~")]
    return overrides, [word for word in words if word not in overrides]


def version(text: str) -> str:
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
    raise SystemExit(USAGE)


def check_codes(codes: Sequence[str]) -> None:
    """Exit 2 where a code of ``--allow`` cannot be allowed."""
    for code in codes:
        if not can_be_allowed(code):
            usage_error(f"--allow {code}: only AC3xx and AC4xx of what was read can be allowed")
