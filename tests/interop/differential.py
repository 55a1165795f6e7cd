"""Random experiments, what AReaL does with each, and what the plan says: do the two agree?

    python -m tests.interop.differential --count 900 --seed 1        # the AReaL that is installed
    AREAL_SOURCE=../AReaL python -m tests.interop.differential ...   # a checkout
    ... --keep main                                                  # write the answers to data/

`trainer_side.py` runs AReaL. `verdict` compares: AReaL raises where the plan has an error, and what
it reserves is what the plan reserves, or the plan says that it is something else (AC359).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ANSWERS = HERE / "data" / "answers.jsonl"
"""A line an experiment: its config, and AReaL's answer by version."""

Config = dict[str, Any]
Answer = dict[str, Any]

_COMMAND = "python -m areal.infra.rpc.rpc_server"
_SHORT = '"@rpc"'
"""What is kept for it."""

TRAINING = (
    *("fsdp:d8", "fsdp:d4", "fsdp:d4t2", "fsdp:d16", "fsdp:d2", "fsdp:d6", "fsdp:d1"),
    *("megatron:d4p2", "megatron:d2t4", "megatron:d8", "megatron:d2p2t2", "archon:d4", "archon:d8"),
    *("megatron:d4t2", "megatron:(attn:d4t2|ffn:d2e4)", "fsdp:d8t2", "megatron:d2p2t4"),
)
SERVING = (
    *(
        "sglang:d8",
        "sglang:d4",
        "sglang:d4t2",
        "sglang:d2t4",
        "sglang:t8",
        "sglang:d2",
        "sglang:t4",
    ),
    *("vllm:d8", "vllm:d4t2", "vllm:d2t4", "vllm:t2", "sglang:d2t8", "sglang:t16", "sglang:d3t2"),
    *("vllm:d2p2t2", "sglang:d1t3", "sglang:d16", "vllm:t12"),
)


def experiments(seed: int, count: int) -> Iterator[Config]:
    """`count` experiments, always the same for a seed."""
    chance = random.Random(seed)
    for index in range(count):
        yield _experiment(chance, ("local", "slurm", "ray")[index % 3])


_NODES = {"local": (8, 16, 16, 32), "slurm": (8, 8, 8, 4), "ray": (8, 8, 8, 4)}


def _experiment(chance: random.Random, scheduler: str) -> Config:
    nodes = 1 if scheduler == "local" else chance.choice((1, 2, 2, 4))
    config: Config = {
        "cluster": {"n_nodes": nodes, "n_gpus_per_node": chance.choice(_NODES[scheduler])},
        "scheduler": {"type": scheduler},
        "actor": _engine(chance, _fitting(chance, scheduler, TRAINING)),
        "rollout": _engine(chance, _fitting(chance, scheduler, SERVING)),
    }
    for name in ("critic", "ref"):
        if chance.random() < 0.35:
            config[name] = _helper(chance, config, name)
    if chance.random() < 0.12:
        config["teacher"] = _teacher(chance, config)
    for change in _CHANGES:
        change(chance, config)
    return config


def _fitting(chance: random.Random, scheduler: str, specs: tuple[str, ...]) -> tuple[str, ...]:
    """Mostly what fits whole nodes of 8, where the scheduler gives no less."""
    if scheduler != "slurm" or chance.random() < 0.2:
        return specs
    return ("fsdp:d8", "fsdp:d16", "megatron:d4p2") if specs is TRAINING else SERVING[:5]


def _engine(chance: random.Random, specs: Iterable[str]) -> Config:
    engine: Config = {"backend": chance.choice(tuple(specs))}
    draw = chance.random()
    if draw < 0.03:
        return engine  # AReaL's default, which grants no GPU
    spec: Config = {"gpu": 1, "cmd": _COMMAND}
    if draw < 0.06:
        spec["gpu"] = chance.choice((0, 2))
    elif draw < 0.08:
        del spec["cmd"]
    elif draw < 0.09:
        spec["additional_bash_cmds"] = ["ulimit -n 4096"]
    engine["scheduling_spec"] = [spec] if draw < 0.99 else [spec, spec]
    return engine


def _helper(chance: random.Random, config: Config, name: str) -> Config:
    host = chance.choice(("actor",) * 8 + ("critic", "rollout"))
    if chance.random() < 0.4:
        return _engine(chance, TRAINING)
    same = config.get(host, config["actor"])["backend"]
    engine = _engine(chance, (same,) * 9 + TRAINING if host != "rollout" else TRAINING)
    engine["scheduling_strategy"] = _guest(chance, host)
    return engine


def _guest(chance: random.Random, host: str) -> Config:
    strategy: Config = {"type": "colocation", "target": host}
    if chance.random() < 0.15:
        strategy["fork"] = False
    return strategy


def _teacher(chance: random.Random, config: Config) -> Config:
    draw = chance.random()
    if draw < 0.45:
        return {"engine_type": "rollout", "rollout": _engine(chance, SERVING)}
    if draw < 0.8:
        return {"engine_type": "train", "train": _helper(chance, config, "teacher")}
    return {"backend": chance.choice(TRAINING)} if draw < 0.9 else {"path": "model"}


def _colocated_rollout(chance: random.Random, config: Config) -> None:
    if chance.random() < 0.15:
        config["rollout"]["scheduling_strategy"] = _guest(chance, "actor")
        if chance.random() < 0.8:
            config["enable_offload"] = True
            config["actor"]["weight_update_mode"] = chance.choice(("disk", "disk", "awex", "xccl"))
        if chance.random() < 0.8:
            ranks = chance.choice((4, 8))
            config["actor"]["backend"] = f"megatron:d{ranks}"
            each = chance.choice((1, 1, 2))
            config["rollout"]["backend"] = f"sglang:d{ranks // each}t{each}"


def _awex(chance: random.Random, config: Config) -> None:
    if chance.random() < 0.08:
        config["actor"]["weight_update_mode"] = "awex"
        if chance.random() < 0.7:
            config["actor"]["backend"], config["rollout"]["backend"] = "megatron:d8", "sglang:d8"


def _second_controllers(chance: random.Random, config: Config) -> None:
    draw = chance.random()
    if draw < 0.15:
        config["actor"]["_version"] = config["rollout"]["_version"] = "v2"
        for name in ("critic", "ref"):
            if name in config and chance.random() < 0.7:
                config[name]["_version"] = "v2"
    elif draw < 0.17:
        config["actor"]["_version"] = "v2"


def _rare(chance: random.Random, config: Config) -> None:
    for path, value, often in (
        ("rollout.api_url", "http://host:1/v1", 0.05),
        ("actor.offload", True, 0.03),
        ("critic.offload", True, 0.03),
        ("enable_offload", True, 0.1),
        ("actor.use_lora", True, 0.05),
        ("rollout.return_routed_experts", True, 0.03),
        ("actor.kl_ctl", 0.0, 0.15),
    ):
        if chance.random() < often:
            *heads, last = path.split(".")
            section = config[heads[0]] if heads and heads[0] in config else config
            if section is not config or not heads:
                section[last] = value


def _round_robin(chance: random.Random, config: Config) -> None:
    """Keys that one version alone has, seldom: the other version refuses the config."""
    if config["scheduler"]["type"] == "ray" and chance.random() < 0.25:
        for spec in config["rollout"].get("scheduling_spec", ()):
            spec["ray_placement_strategy"] = chance.choice(("deferred", "deferred", "separate"))


_CHANGES = (_colocated_rollout, _awex, _second_controllers, _rare, _round_robin)


# -- both sides -----------------------------------------------------------------------------------


def answers(configs: Iterable[Config], source: str | None = None) -> list[Answer]:
    """What AReaL does with each config: ``raised``, or ``gpus`` (and ``shared``: dealt out twice).

    Args:
        configs: the experiments.
        source: a checkout of AReaL; None: the one that is installed.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled"}
    environment.pop("AREAL_SOURCE", None)
    if source:
        environment["AREAL_SOURCE"] = str(Path(source).resolve())
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = [*inside, sys.executable, "-W", "ignore", str(HERE / "trainer_side.py")]
    lines = "".join(json.dumps(config) + "\n" for config in configs)
    done = subprocess.run(
        command, input=lines, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def ours(config: Config, version: str) -> Answer:
    """What the plan says of it, in the same form, with the codes of errors and warnings."""
    from areal_conf import plan

    names = {"experiment_name": "e", "trial_name": "t"}
    found = plan({**names, **config}, areal=version, strict=True)
    stopped = [one for one in found.warnings if one.code == "AC324"]  # by ``areal-conf run``
    return {
        "errors": sorted({one.code for one in (*found.errors, *stopped)}),
        "warnings": sorted({one.code for one in found.warnings}),
        "gpus": found.total_gpus,
        "awex": config["actor"].get("weight_update_mode") == "awex" and not found.errors,
    }


def verdict(config: Config, answer: Answer, plan: Answer) -> str:
    """Empty where the two agree, else how they differ."""
    if "broken" in answer:
        return "broken: " + answer["broken"].splitlines()[-1]
    if "raised" in answer:
        return "" if plan["errors"] else f"AReaL raises: {answer['raised'][:150]}"
    if answer.get("shared"):
        fits = plan["gpus"] <= config["cluster"]["n_gpus_per_node"]
        if plan["errors"] or (plan["awex"] and fits):
            return ""  # awex takes turns on GPUs that are dealt out twice
        return "GPUs are dealt out twice"
    if plan["errors"]:
        return f"refused by the plan alone: {' '.join(plan['errors'])}"
    if answer["gpus"] != plan["gpus"] and "AC359" not in plan["warnings"]:
        return f"reserves {answer['gpus']}, not {plan['gpus']}"
    return ""


def kept() -> Iterator[dict[str, Any]]:
    """The experiments whose answers are kept."""
    for line in ANSWERS.read_text(encoding="utf-8").splitlines():
        yield json.loads(line.replace(_SHORT, json.dumps(_COMMAND)))


def keep(configs: list[Config], found: list[Answer], version: str) -> None:
    """Write the answers of `version` beside those of the others for the same experiments."""
    old = {}
    if ANSWERS.exists():
        old = {json.dumps(row["config"]): row for row in kept()}
    rows = []
    for config, answer in zip(configs, found, strict=True):
        row = old.get(json.dumps(config), {"config": config})
        if "raised" in answer:
            answer = {"raised": answer["raised"][:120]}
        rows.append({**row, version: answer})
    ANSWERS.parent.mkdir(exist_ok=True)
    lines = (
        json.dumps(row, separators=(",", ":")).replace(json.dumps(_COMMAND), _SHORT) for row in rows
    )
    ANSWERS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=900)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--version", help="the version to judge by; 1.0.4, or main for a checkout")
    parser.add_argument("--keep", action="store_true", help="write the answers to data/")
    parser.add_argument("--show", type=int, default=1, help="examples of each difference")
    parser.add_argument("--kept", action="store_true", help="take the answers of data/")
    arguments = parser.parse_args()
    source = os.environ.get("AREAL_SOURCE")
    version = arguments.version or ("main" if source else "1.0.4")
    if arguments.kept:
        rows = [row for row in kept() if version in row]
        report(
            [row["config"] for row in rows], [row[version] for row in rows], version, arguments.show
        )
        return
    configs = list(experiments(arguments.seed, arguments.count))
    found = answers(configs, source)
    if arguments.keep:
        keep(configs, found, version)
    report(configs, found, version, arguments.show)


def report(configs: list[Config], found: list[Answer], version: str, show: int) -> None:
    """Print how many agree by scheduler, and every difference with an example."""
    agree: Counter[str] = Counter()
    count: Counter[str] = Counter()
    kinds: Counter[tuple[str, str]] = Counter()
    for config, answer in zip(configs, found, strict=True):
        kind = config["scheduler"]["type"]
        difference = verdict(config, answer, ours(config, version))
        count[kind] += 1
        agree[kind] += not difference
        if difference:
            kinds[kind, difference] += 1
            if kinds[kind, difference] <= show:
                print(kind, difference, json.dumps(config), "\n", file=sys.stderr)
    for (kind, difference), number in kinds.most_common():
        print(f"{number:4} {kind:6} {difference}")
    for kind in sorted(count):
        print(f"{kind}: {agree[kind]} of {count[kind]}, {agree[kind] / count[kind]:.1%}")


if __name__ == "__main__":
    main()
