"""Coverage-guided fuzzing with atheris.

    python fuzz/run.py                       every target, 10 seconds each
    python fuzz/run.py --seconds 3600 parser dialects
    python fuzz/run.py --keep WORK ...       inputs are kept in WORK/TARGET and taken up again
    python fuzz/run.py --runs 1000           a thousand inputs each, the same every time

The last form is what CI runs. Everything that libFuzzer and Python would draw by chance or by the
clock is fixed (seed, number of inputs, order of the corpus, hashes of strings), so that one commit
has one result; the digest that is printed stands for all inputs that reached something new.

An input that fails is printed and kept as fuzz/found/TARGET-...: make it a file of
fuzz/corpus/TARGET, where tests/test_fuzz.py runs it ever after, and mend the fault. Exit status: 0
nothing found, 1 something was, 3 atheris is not installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LONGEST = 2_000
SLOWEST = 60
"""Seconds of the clock for one input: a hang, however busy the machine is."""


def main() -> int:
    """Run the targets that the command line names, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=int, default=10, help="for each target")
    length.add_argument("--runs", type=int, help="inputs for each target, the same every time")
    parser.add_argument("--keep", type=Path, help="directory for the inputs that are found")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args, options = parser.parse_known_args()
    if importlib.util.find_spec("atheris") is None:
        print("fuzz: skipped, atheris is not installed (pip install atheris)", file=sys.stderr)
        return 3
    if args.one:
        fuzz(args.one, [*options, *args.targets])
    sys.path.insert(0, str(HERE))
    from targets import TARGETS

    failed = [name for name in args.targets or TARGETS if not passed(name, args, options)]
    print(f"fuzz: {'found faults in ' + ', '.join(failed) if failed else 'no fault found'}")
    return int(bool(failed))


def passed(target: str, args: argparse.Namespace, options: list[str]) -> bool:
    """Fuzz one target; whether nothing was found."""
    found = HERE / "found"
    found.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = args.keep / target if args.keep else Path(scratch)
        corpus.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            __file__,
            "--one",
            target,
            str(corpus),
            *(fixed(target, args.runs) if args.runs else free(target, args.seconds)),
            f"-max_len={LONGEST}",
            f"-timeout={SLOWEST}",
            "-rss_limit_mb=4096",
            f"-artifact_prefix={found}/{target}-",
            f"-dict={HERE / 'words.dict'}",
            "-print_final_stats=1",
            *options,
        ]
        env = {**os.environ, "PYTHONHASHSEED": "0"} if args.runs else None
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", env=env)
        kept = sorted(path.name for path in corpus.iterdir())  # named by their content
    lines = done.stderr.splitlines()
    stats = {line.split()[-1] for line in lines if "number_of_executed_units" in line}
    digest = hashlib.sha256("".join(kept).encode()).hexdigest()[:12]
    print(f"{target}: {', '.join(stats)} inputs, {len(kept)} new, digest {digest}", flush=True)
    if done.returncode:
        print("\n".join(lines[-60:]), file=sys.stderr)
    return done.returncode == 0


def free(target: str, seconds: int) -> list[str]:
    """Options of libFuzzer for a search that ends by the clock."""
    return [str(HERE / "corpus" / target), f"-max_total_time={seconds}"]


def fixed(target: str, runs: int) -> list[str]:
    """Options of libFuzzer for a search that goes the same way every time."""
    seeds = ",".join(str(path) for path in sorted((HERE / "corpus" / target).iterdir()))
    return [f"-seed_inputs={seeds}", f"-runs={runs}", "-seed=1", "-reload=0"]


def fuzz(target: str, options: list[str]) -> None:
    """Hand this process to atheris; it never returns."""
    import atheris

    number_instructions()
    with atheris.instrument_imports(include=["areal_conf", "targets"]):
        sys.path.insert(0, str(HERE))
        import targets

        for name in targets.modules():
            importlib.import_module(name)

    atheris.Setup([sys.argv[0], *options], lambda data: targets.run(target, data))
    atheris.Fuzz()


def number_instructions() -> None:
    """Have atheris number the branches of a function in an order that is always the same.

    It takes them from a set of its instructions, which hash by their address in memory.
    """
    from atheris.instrument_bytecode import Instruction

    numbers = itertools.count()
    create = Instruction.__init__

    def numbered(self: Instruction, *args: object, **kwargs: object) -> None:
        self.number = next(numbers)
        create(self, *args, **kwargs)

    Instruction.__init__ = numbered
    Instruction.__hash__ = lambda self: self.number


if __name__ == "__main__":
    sys.exit(main())
