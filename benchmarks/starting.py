"""What an installed plugin adds to the start of a Hydra app that does not use it.

The ratio of two processes is noisy. `valgrind --tool=cachegrind` counts the same number of
instructions every time: 1.9 % more with the plugin under Hydra 1.3.8. Two thirds of them are what
Hydra does with two more entries of its search path; the rest is five small modules and the
resolvers.
"""

from __future__ import annotations

import compileall
import os
import resource
import shutil
import subprocess
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from measure import Effort, Row

ROOT = Path(__file__).parents[1]
TITLE = "Start of a Hydra app that does not use the package"
APP = """
import hydra

@hydra.main(config_path=None, version_base="1.3")
def main(cfg):
    memory = open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]
    print(int(memory) / 1024)

main()
"""
SCAN = """
import sys
from hydra.core.plugins import Plugins
stats = Plugins.instance().get_stats()
assert "pydantic" not in sys.modules
print(sum(spent for name, spent in stats.modules_import_time.items() if "areal" in name))
"""
ALONE = "Hydra without it"


def rows(effort: Effort) -> Iterator[Row]:
    """The whole process, in an environment with the package and in one without, in turn."""
    with tempfile.TemporaryDirectory() as directory:
        bare, installed = environments(Path(directory))
        pythons = {"here": installed, "peer": bare}
        spent: dict[str, list[float]] = {"here": [], "peer": []}
        memory: dict[str, list[float]] = {"here": [], "peer": []}
        for python in pythons.values():
            run(python, APP, directory)
        for number in range(3 * effort.pairs):
            for side in ("here", "peer") if number % 2 else ("peer", "here"):
                cpu, printed = run(pythons[side], APP, directory)
                spent[side].append(cpu)
                memory[side].append(printed)
        scans = [run(installed, SCAN, directory)[1] for _ in range(effort.pairs)]
    yield Row("the process", spent["here"], ALONE, spent["peer"])
    yield Row("its memory", memory["here"], ALONE, memory["peer"], unit="MiB")
    what = "import of the plugin, by Hydra's own scan statistics"
    share = spent["peer"][: len(scans)]
    yield Row(what, scans, f"the process of {ALONE}", share, most=0.010)


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


def run(python: Path, code: str, directory: str) -> tuple[float, float]:
    """Seconds of the processor that `code` takes in a process of its own, and what it prints."""
    app = Path(directory, "app.py")
    app.write_text(code, encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [python, app], cwd=directory, env=env, capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, float(done.stdout.split()[-1])
