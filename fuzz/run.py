"""Coverage-guided fuzzing with atheris.

    python fuzz/run.py                       every target, 10 seconds each
    python fuzz/run.py --seconds 3600 parser dialects
    python fuzz/run.py --keep WORK ...       inputs are kept in WORK/TARGET and taken up again

An input that fails is printed and kept as fuzz/found/TARGET-...: make it a file of
fuzz/corpus/TARGET, where tests/test_fuzz.py runs it ever after, and mend the fault. Exit status: 0
nothing found, 1 something was, 3 atheris is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LONGEST = 2_000
SLOWEST = 10


def main() -> int:
    """Run the targets that the command line names, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=10, help="for each target")
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
    """Fuzz one target for its time; whether nothing was found."""
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
            str(HERE / "corpus" / target),
            f"-max_total_time={args.seconds}",
            f"-max_len={LONGEST}",
            f"-timeout={SLOWEST}",
            "-rss_limit_mb=4096",
            f"-artifact_prefix={found}/{target}-",
            f"-dict={HERE / 'words.dict'}",
            "-print_final_stats=1",
            *options,
        ]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    lines = done.stderr.splitlines()
    stats = {line.split()[-1] for line in lines if "number_of_executed_units" in line}
    print(f"{target}: {', '.join(stats)} inputs in {args.seconds} s", flush=True)
    if done.returncode:
        print("\n".join(lines[-60:]), file=sys.stderr)
    return done.returncode == 0


def fuzz(target: str, options: list[str]) -> None:
    """Hand this process to atheris; it never returns."""
    import atheris

    with atheris.instrument_imports(include=["areal_conf", "targets"]):
        sys.path.insert(0, str(HERE))
        import targets

        for name in ("dialects", "layouts", "lint", "migrate", "model", "plan", "legacy_uses"):
            importlib.import_module(f"areal_conf.{name}")

    atheris.Setup([sys.argv[0], *options], lambda data: targets.run(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
