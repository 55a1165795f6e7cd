"""``areal-conf init``: a first config to start from."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from areal_conf.cli.arguments import INVALID, OK, named_path, report, usage_error
from areal_conf.config.areal_defaults import LAUNCHERS

if TYPE_CHECKING:
    from areal_conf.areal.starter_text import Start

KINDS = ("ppo", "grpo", "sft", "rw", "dpo", "distill", "app")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "kind", choices=KINDS, help="an experiment of AReaL; app: lines for a Hydra app"
    )
    parser.add_argument(
        "--model", required=True, type=named_path, help="name, Hub id or config.json of the model"
    )
    parser.add_argument("--gpu", required=True, help="card, such as H100, or its memory in GiB")
    parser.add_argument("--gpus", required=True, type=int, metavar="N", help="GPUs in all")
    parser.add_argument(
        "--gpus-per-node", type=int, default=8, metavar="N", help="GPUs of a node (default: 8)"
    )
    parser.add_argument(
        "--cluster", choices=LAUNCHERS, help="scheduler (default: local on one node, else slurm)"
    )
    parser.add_argument(
        "-o",
        dest="output",
        type=named_path,
        metavar="FILE",
        help="where to write it (default: KIND.yaml; - is stdout)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the config, and say how to go on."""
    from areal_conf.areal.starter import plan_of, start
    from areal_conf.areal.starter_text import starter_config

    n_nodes, per_node = _nodes(args.gpus, args.gpus_per_node)
    scheduler = args.cluster or ("local" if n_nodes == 1 else "slurm")
    kind = "grpo" if args.kind == "app" else args.kind
    begun = start(kind, args.model, args.gpu, n_nodes, per_node, scheduler)
    plan = plan_of(begun)
    if not plan.ok:
        report(plan)
        return INVALID
    text = _app(begun) if args.kind == "app" else starter_config(begun)
    output = args.output or f"{args.kind}.yaml"
    if output == "-":
        print(text, end="")
    else:
        _write(output, text)
        _say_what_next(args.kind, output, begun)
    return OK


def _nodes(gpus: int, per_node: int) -> tuple[int, int]:
    if gpus < 1 or per_node < 1:
        usage_error("--gpus and --gpus-per-node are at least 1")
    if gpus <= per_node:
        return 1, gpus
    if gpus % per_node:
        usage_error(f"{gpus} GPUs do not fill nodes of {per_node}: set --gpus-per-node")
    return gpus // per_node, per_node


def _app(begun: Start) -> str:
    from areal_conf.areal.starter_text import APP

    return Template(APP).substitute(
        kind=begun.kind,
        n_nodes=begun.n_nodes,
        per_node=begun.n_gpus_per_node,
        scheduler=begun.scheduler,
        plan_model=begun.plan_model,
        gpu=begun.gpu,
        **{f"{name}_backend": spec for name, spec in begun.backends.items()},
    )


def _write(path: str, text: str) -> None:
    """Write a new file; a file that is there is the user's."""
    from areal_conf.files import write_atomically

    if os.path.lexists(path):
        usage_error(f"{path} exists already: use -o with another name, or remove it")
    write_atomically(Path(path), text)


def _say_what_next(kind: str, output: str, begun: Start) -> None:
    name = shlex.quote(output)
    options = f"--model {shlex.quote(begun.plan_model)} --gpu {shlex.quote(begun.gpu)}"
    lines = [f"wrote {output}. Go on with:", f"  areal-conf plan {name} {options}"]
    if kind == "app":
        lines.append("  python YOUR_APP.py hydra/callbacks=areal_plan")
    else:
        lines.append(f"  areal-conf run -- python YOUR_SCRIPT.py --config {name}")
    print("\n".join(lines), file=sys.stderr)
