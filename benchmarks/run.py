"""What areal-conf costs, each number beside its peer in the same run.

    python benchmarks/run.py            prints the tables
    python benchmarks/run.py --write    writes them to docs/benchmarks.md
    python benchmarks/run.py --quick    few repetitions: does it run at all

The best of several passes counts, since a machine only ever adds to what code takes. Where AReaL is
installed its parser is the peer of ours; a virtual environment that has Hydra and not this package
is the peer of the start of an app.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import importlib.util
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import areal_conf
from areal_conf import ModelAllocation, allocation

ROOT = Path(__file__).parents[1]
SPECS = (
    "fsdp:d8",
    "sglang:d2t4",
    "megatron:d2p2t4e4",
    "megatron:(attn:d4p2t2c2|ffn:d2p2t4e2)",
)
APP = """
import sys, time
started = time.perf_counter()
import hydra

@hydra.main(config_path=None, version_base="1.3")
def main(cfg):
    print(time.perf_counter() - started)

main()
"""
SCAN = """
from hydra.core.plugins import Plugins
stats = Plugins.instance().get_stats()
print(sum(spent for name, spent in stats.modules_import_time.items() if "areal" in name))
"""


def best(function: Callable[[], object], repeats: int, passes: int) -> float:
    """Seconds that one call takes, in the best of `passes` passes of `repeats` calls."""
    fastest = float("inf")
    for _ in range(passes):
        started = time.perf_counter()
        for _ in range(repeats):
            function()
        fastest = min(fastest, (time.perf_counter() - started) / repeats)
    return fastest


# -- the tables ------------------------------------------------------------------------------------


def parsing(quick: bool) -> Iterator[str]:
    """Parsing one string, with the cache empty and full."""
    repeats, passes = (100, 3) if quick else (2000, 30)
    theirs = areal_parser()
    yield "## Parsing one backend string"
    yield ""
    yield "| string | first time | again (cached) | AReaL's `ModelAllocation.from_str` | ratio |"
    yield "| --- | --- | --- | --- | --- |"
    for spec in SPECS:
        cold = best(partial(allocation._parse, spec), repeats, passes)
        cached = best(partial(ModelAllocation.from_str, spec), repeats, passes)
        peer, ratio = "not installed", "-"
        if theirs is not None:
            areal = best(partial(theirs, spec), 1 if quick else 5, 2 if quick else 5)
            peer, ratio = f"{areal * 1e3:.1f} ms", f"{areal / cold:,.0f}"
        shown = spec.replace("|", "\\|")
        yield f"| `{shown}` | {cold * 1e6:.1f} us | {cached * 1e6:.2f} us | {peer} | {ratio} |"


def areal_parser() -> Callable[[str], object] | None:
    """AReaL's own parser, where it is installed."""
    if importlib.util.find_spec("areal") is None:
        return None
    from areal.api.alloc_mode import ModelAllocation as Theirs

    parse: Callable[[str], object] = Theirs.from_str
    return parse


def starting(quick: bool) -> Iterator[str]:
    """What the installed plugin adds to the start of an app that does not use it."""
    runs = 2 if quick else 15
    with tempfile.TemporaryDirectory() as directory:
        bare, installed = environments(Path(directory))
        without = min(seconds(bare, APP) for _ in range(runs))
        with_plugin = min(seconds(installed, APP) for _ in range(runs))
        scan = min(seconds(installed, SCAN) for _ in range(runs))
    yield "## Start of a Hydra app that does not use the package"
    yield ""
    yield "| import of Hydra to the first line of the task | seconds | ratio |"
    yield "| --- | --- | --- |"
    yield f"| Hydra alone | {without:.3f} | 1.00 |"
    yield f"| with areal-conf installed | {with_plugin:.3f} | {with_plugin / without:.2f} |"
    yield ""
    yield f"Hydra's own scan statistics: {scan * 1e3:.1f} ms for the plugin."


def environments(directory: Path) -> tuple[Path, Path]:
    """Two Pythons: one with Hydra alone, one with a byte-compiled copy of the package too."""
    pythons = []
    for name in ("bare", "installed"):
        venv.create(directory / name, with_pip=False)
        site = next((directory / name).glob("lib/python*/site-packages"))
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        pythons.append(directory / name / "bin" / "python")
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("areal_conf", "hydra_plugins/areal_conf"):
        shutil.copytree(ROOT / package, site / package, ignore=ignored)
    compileall.compile_dir(site, quiet=1)
    return pythons[0], pythons[1]


def seconds(python: Path, code: str) -> float:
    """What `code`, run in a process of its own, prints last."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as directory:
        app = Path(directory, "app.py")
        app.write_text(code, encoding="utf-8")
        done = subprocess.run(
            [python, app], cwd=directory, env=env, capture_output=True, text=True, check=True
        )
    return float(done.stdout.split()[-1])


def composing(quick: bool) -> Iterator[str]:
    """A config in which ten values come from resolvers, against the same values written out."""
    from omegaconf import OmegaConf

    from areal_conf import resolvers

    resolvers.register()
    names = ("dp", "tp", "pp", "cp", "ep", "etp", "edp", "world_size", "backend", "canonical")
    asked = {name: f"${{areal.{name}:${{actor.backend}}}}" for name in names}
    cfg = OmegaConf.create({"actor": {"backend": SPECS[-1]}, "x": asked})
    plain = OmegaConf.create(OmegaConf.to_container(cfg, resolve=True))
    selected = dict.fromkeys(names, "${oc.select:nothing,${actor.backend}}")
    builtin = OmegaConf.create({"actor": {"backend": "x"}, "x": selected})
    repeats, passes = (5, 2) if quick else (100, 20)
    yield "## Resolving a config"
    yield ""
    yield "| ten values | milliseconds | ratio |"
    yield "| --- | --- | --- |"
    written = 0.0
    for what, config in (
        ("written out", plain),
        ("from a resolver of OmegaConf's own (`oc.select`)", builtin),
        ("from `areal.*` resolvers", cfg),
    ):
        spent = best(partial(OmegaConf.to_container, config, resolve=True), repeats, passes)
        written = written or spent
        yield f"| {what} | {spent * 1e3:.2f} | {spent / written:.1f} |"


def planning(quick: bool) -> Iterator[str]:
    """Plans of growing clusters, half to generate and half to train, devices included."""
    first = None
    yield "## Planning an experiment"
    yield ""
    yield "| GPUs | milliseconds | ratio to the first |"
    yield "| --- | --- | --- |"
    for gpus in (8, 64, 512, 4096, 16384):
        cfg = {
            "rollout": {"backend": f"sglang:d{gpus // 8}t4"},
            "actor": {"backend": f"fsdp:d{gpus // 2}"},
            "cluster": {"n_nodes": gpus // 8, "n_gpus_per_node": 8},
            "scheduler": {"type": "local" if gpus == 8 else "slurm"},
        }
        repeats, passes = (1, 2) if quick else (3, 5)
        spent = best(lambda cfg=cfg: areal_conf.plan(cfg).model_dump(), repeats, passes)
        first = first or spent
        yield f"| {gpus} | {spent * 1e3:.1f} | {spent / first:.1f} |"


def page(quick: bool) -> Iterator[str]:
    """The whole page, line by line."""
    yield "# Benchmarks"
    yield ""
    yield "Written by `python benchmarks/run.py --write`. The best of several passes counts."
    yield ""
    yield f"{datetime.date.today().isoformat()}, {machine()}."
    for table in (parsing, starting, composing, planning):
        yield ""
        yield from table(quick)


def machine() -> str:
    """Processor, cores and Python, in one phrase."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description="What areal-conf costs.")
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    args = parser.parse_args()
    lines = []
    for line in page(args.quick):
        print(line, flush=True)
        lines.append(line)
    if args.write:
        (ROOT / "docs" / "benchmarks.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
