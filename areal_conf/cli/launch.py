"""``areal-conf launch --launcher slurm SCRIPT CONFIG.yaml [OVERRIDE ...] [--dry-run]``"""

from __future__ import annotations

import argparse
import errno
import importlib.util
import itertools
import os
import shlex
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from areal_conf.cli.arguments import (
    OK,
    add_planning_arguments,
    composed_file,
    named_path,
    plan_options,
    report,
    split_words,
    usage_error,
)
from areal_conf.config.areal_defaults import LAUNCHERS
from areal_conf.errors import counted

if TYPE_CHECKING:
    from areal_conf.areal.job import Job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--launcher", choices=LAUNCHERS, required=True)
    parser.add_argument(
        "words",
        nargs="*",
        type=named_path,
        metavar="SCRIPT CONFIG.yaml [OVERRIDE ...]",
        help="the training script, its config, and overrides (words with '=')",
    )
    parser.add_argument(
        "--dir",
        type=named_path,
        metavar="D",
        help="the job's directory; default: outputs/DATE/TIME",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would run, and run nothing"
    )
    add_planning_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Launch one job and wait for it: 0 where every rank of the script succeeded."""
    from areal_conf.areal.job import prepare
    from areal_conf.areal.runner import StoppedError, run_job

    options = plan_options(args, args.launcher, strict=True)
    overrides, files = split_words(args.words)
    if len(files) != 2:
        usage_error(f"launch takes SCRIPT and CONFIG.yaml, got {len(files)}: {' '.join(files)}")
    script, config = files
    for file in files:
        with open(file, "rb"):
            pass
    job = prepare(
        composed_file(config, overrides, args.app),
        args.launcher,
        script,
        Path(args.dir or f"{datetime.now():outputs/%Y-%m-%d/%H-%M-%S}"),
        options,
    )
    report(job.plan)
    _refuse_files_on_the_way(job.directory)
    job.check_directory(Path(config))
    missing = missing_launcher(job.kind)
    if args.dry_run:
        print("\n".join(description(job)))
        if missing:
            print(f"areal-conf: {missing}", file=sys.stderr)
        return OK
    if missing:
        usage_error(f"launch: {missing}")
    if args.dir is None:
        job = replace(job, directory=_new_directory(job.directory))
    print(f"areal-conf: job directory {job.directory}", file=sys.stderr, flush=True)
    try:
        outcome = run_job(job, sys.stdout.buffer)
    except StoppedError as stop:
        print(f"areal-conf: {stop}", file=sys.stderr)
        return 128 + stop.signum
    if outcome.reason:
        print(f"areal-conf: {outcome.reason}", file=sys.stderr)
    return outcome.status


def missing_launcher(kind: str) -> str | None:
    """What to say where this Python has no AReaL, or one without launchers; nothing is imported."""
    found = importlib.util.find_spec("areal")
    places = (found.submodule_search_locations or ()) if found else ()
    if any(Path(place, "infra", "launcher", f"{kind}.py").is_file() for place in places):
        return None
    what = "AReaL is not installed" if found is None else f"AReaL has no launcher {kind} here"
    return f"{what} ({sys.executable}): run areal-conf with the Python that AReaL is installed in"


def _new_directory(wanted: Path) -> Path:
    """A directory of this launch alone: `wanted`, or with a number behind where that is taken."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        directory = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        return directory
    raise AssertionError("unreachable")


def _refuse_files_on_the_way(directory: Path) -> None:
    """Raise what making the job's directory would raise where a file stands there."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))


def description(job: Job) -> list[str]:
    """What a launch of `job` will do, as lines."""
    lines = [
        f"command:     {shlex.join(job.command)}",
        *(f"environment: {key}={shlex.quote(v)}" for key, v in job.environment.items()),
        f"directory:   {job.directory}",
        f"trial:       {job.value('experiment_name')}/{job.value('trial_name')}",
        f"mode:        {job.config.get('allocation_mode')}",
        f"nodes:       {_nodes(job)}",
    ]
    servers, actor = job.plan.engines.get("rollout"), job.plan.engines.get("actor")
    if servers and servers.gpus and servers.instances:
        size = counted(servers.instance_size or 0, "GPU")
        what = f"{servers.instances} of {servers.backend}, {size} each"
        lines.append(f"servers:     {what}")
    if actor and actor.active:
        lines.append(f"ranks:       {actor.world_size} of {actor.spec}, running {job.script}")
        lines.append("of ranks:    " + " ".join(_rank_variables(job)))
    return lines


def _nodes(job: Job) -> str:
    if job.kind == "local":
        return "1"
    cluster = job.plan.cluster
    if cluster is None:  # AC319 was allowed
        return "not known"
    servers = job.inference_nodes
    return f"{cluster.n_nodes}: {servers} for servers, {cluster.n_nodes - servers} for ranks"


def _rank_variables(job: Job) -> list[str]:
    """Variables that AReaL's launchers give to the ranks besides those of torchrun."""
    servers = job.plan.engines.get("rollout")
    count = servers.instances if servers and servers.gpus else 0
    addresses = f"<{count} address{'es' * (count > 1)}>" if count else ""
    return ["AREAL_SPMD_MODE=1", f"AREAL_LLM_SERVER_ADDRS={addresses}"]
