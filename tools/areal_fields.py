"""Writes areal_conf/config/areal_fields.json from a git repository of AReaL: fields by version.

    python tools/areal_fields.py PATH/TO/AReaL [--main COMMIT]

AReaL is read by `ast`, never imported. A version is a tag of the repository; the newest commit is
`main`. The result holds names and types of fields alone.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent / "areal_conf" / "config" / "areal_fields.json"

VERSIONS = (
    *("0.3.0", "0.3.1", "0.3.2", "0.3.3", "0.3.4", "0.4.0", "0.4.1", "0.5.0", "0.5.1"),
    *("0.5.2", "0.5.3", "1.0.0", "1.0.1", "1.0.2", "1.0.3", "1.0.4", "2.0.0", "main"),
)
"""In order. AReaL released its first generation as v0.3.0 and the second as v0.3.0-lite."""

TAGS = {
    "0.3.0": ("v0.3.0", "v0.3.0-lite"),
    "1.0.4": ("v1.0.4", "a0f3dca200074f920195e1ec34558538d9c7642d"),
}
"""Commits of a version that are not its tag alone; of a class, the last one counts. The wheel of
1.0.4 in the registry was built after its tag: its cli_args.py is that of the commit named here."""

FILES = (
    "areal/api/cli_args.py",
    "areal/experimental/api/cli_args.py",
    "realhf/api/cli_args.py",
    "realhf/experiments/common/common.py",
    "realhf/experiments/common/ppo_math_exp.py",
    "realhf/experiments/common/sft_exp.py",
    "realhf/experiments/async_exp/async_rl_exp.py",
    "realhf/experiments/async_exp/async_ppo_math_exp.py",
)

ROOTS = {
    "second": ("PPOConfig", "GRPOConfig", "SFTConfig", "RWConfig", "DPOConfig"),
    "first": ("PPOMATHConfig", "AsyncPPOMATHConfig", "SFTConfig"),
}
"""Classes of whole experiments, of today's AReaL and of the first generation (realhf)."""

_GENERIC = re.compile(r"^def (\w+)\[\w+\]", re.MULTILINE)
"""Type parameters of functions, which Pythons before 3.12 cannot parse."""

Class = dict[str, str]
"""Field to the class of its value, empty where that is no class of AReaL's config."""


def text_at(repository: Path, commit: str, path: str) -> str | None:
    command = ["git", "-C", str(repository), "show", f"{commit}:{path}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout if found.returncode == 0 else None


def classes_of(texts: list[str]) -> dict[str, Class]:
    """Each class with its own fields and those of the classes it is derived from."""
    nodes = {
        node.name: node
        for text in texts
        for node in ast.walk(ast.parse(_GENERIC.sub(r"def \1", text)))
        if isinstance(node, ast.ClassDef)
    }

    def fields(name: str) -> Class:
        node = nodes[name]
        found: Class = {}
        for base in reversed(node.bases):
            if isinstance(base, ast.Name) and base.id in nodes:
                found |= fields(base.id)
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                annotation = ast.unparse(line.annotation)
                if "ClassVar" not in annotation:
                    found[line.target.id] = next((n for n in names(annotation) if n in nodes), "")
        return found

    return {name: fields(name) for name in nodes}


def names(annotation: str) -> list[str]:
    """The names in an annotation, also of one written as a string."""
    tree = ast.parse(annotation.strip("'\""), mode="eval")
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def reachable(classes: dict[str, Class], roots: tuple[str, ...]) -> dict[str, Class]:
    found: dict[str, Class] = {}
    waiting = [root for root in roots if root in classes]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = classes[name]
            waiting += [kind for kind in classes[name].values() if kind]
    return found


def fields_of(repository: Path, commits: tuple[str, ...]) -> dict[str, Class]:
    """All classes of a version; those of the first generation have a name with ``realhf.``."""
    found: dict[str, Class] = {}
    for generation, prefix in (("second", "areal/"), ("first", "realhf/")):
        for commit in commits:
            paths = [path for path in FILES if path.startswith(prefix)]
            texts = [text for path in paths if (text := text_at(repository, commit, path))]
            classes = reachable(classes_of(texts), ROOTS[generation])
            if generation == "first":
                classes = {
                    f"realhf.{name}": {k: kind and f"realhf.{kind}" for k, kind in fields.items()}
                    for name, fields in classes.items()
                }
            found |= classes
    return found


def table(by_version: dict[str, dict[str, Class]]) -> dict[str, dict[str, list[list[str]]]]:
    """Class to field to the spans of versions, each [class of the value, first, last]."""
    spans: dict[str, dict[str, list[list[str]]]] = {}
    previous = ""
    for version, classes in by_version.items():
        for name, fields in classes.items():
            for field, kind in fields.items():
                found = spans.setdefault(name, {}).setdefault(field, [])
                if found and found[-1][0] == kind and found[-1][2] == previous:
                    found[-1][2] = version
                else:
                    found.append([kind, version, version])
        previous = version
    return {name: dict(sorted(spans[name].items())) for name in sorted(spans)}


def full_hash(repository: Path, commit: str) -> str:
    command = ["git", "-C", str(repository), "rev-parse", f"{commit}^{{commit}}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--main", default="HEAD", help="the commit of main (default: HEAD)")
    arguments = parser.parse_args()
    by_version, commits = {}, {}
    for version in VERSIONS:
        tags = (arguments.main,) if version == "main" else TAGS.get(version, (f"v{version}",))
        by_version[version] = fields_of(arguments.repository, tags)
        commits[version] = [full_hash(arguments.repository, tag) for tag in tags]
    OUTPUT.write_text(written(commits, table(by_version)), encoding="utf-8")
    print(f"{OUTPUT}: {len(VERSIONS)} versions", file=sys.stderr)


def written(commits: dict[str, list[str]], classes: dict[str, dict[str, list[list[str]]]]) -> str:
    """JSON with a class on each line, so that a change shows as one."""
    lines = ['{"source": "AReaL, files named in tools/areal_fields.py",', '"versions": {']
    lines.append(",\n".join(f"{json.dumps(v)}: {json.dumps(c)}" for v, c in commits.items()))
    lines += ["},", '"classes": {']
    lines.append(
        ",\n".join(
            f"{json.dumps(name)}: {json.dumps(fields, separators=(',', ':'))}"
            for name, fields in classes.items()
        )
    )
    return "\n".join([*lines, "}}"]) + "\n"


if __name__ == "__main__":
    main()
