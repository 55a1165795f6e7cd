"""Writes the parts of the documentation that come from the code: ``python docs/make_pages.py``.

A part stands between ``<!-- NAME: begin ... -->`` and ``<!-- NAME: end -->``; `PARTS` gives its
text. A test compares the pages with what this gives.
"""

from __future__ import annotations

import argparse
import importlib
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from areal_conf.cli.commands import COMMANDS
from areal_conf.config.areal_fields import commits_of, versions
from areal_conf.config.structured import EXPERIMENTS
from areal_conf.config.versions import FACTS
from areal_conf.errors import CODES
from areal_conf.model import read_model
from areal_conf.model.known import known_models
from areal_conf.model.parameters import model_parameters
from areal_conf.resolvers import RESOLVERS
from areal_conf.spec.backends import BACKENDS, DIMENSIONS

DOCS = Path(__file__).parent
CONF = DOCS.parent / "conf"
CLASSES = {
    "AC1": "Syntax: the string cannot be read",
    "AC2": "Meaning: the sizes do not go together",
    "AC30": "The experiment cannot run",
    "AC31": "What AReaL's trainer refuses at start",
    "AC32": "Configs that cannot be composed, and layouts that cannot be said",
    "AC33": "Files",
    "AC35": "Warnings of a plan",
    "AC36": "Warnings of a plan",
    "AC40": "The model does not fit the layout",
    "AC41": "The model does not fit the layout",
    "AC42": "The model config cannot be read",
    "AC45": "The model fits in another way than the layout suggests (warnings)",
    "AC50": "The deprecated allocation_mode",
    "AC51": "The deprecated allocation_mode",
    "AC52": "Migration",
    "AC53": "Migration",
    "AC6": "Layout patterns and sweeps",
    "AC7": "Memory of a GPU",
}
"""Headings of the page of codes, by how a code begins."""


def parts() -> dict[str, str]:
    """The text of every part, by name."""
    return {name: part() for name, part in PARTS.items()}


def filled(text: str, texts: dict[str, str]) -> str:
    """`text` with its parts as they are to be."""

    def part(found: re.Match[str]) -> str:
        start, name, end = found.groups()
        return f"{start}{texts[name]}{end}" if name in texts else found[0]

    pattern = r"(<!-- ([\w-]+): begin[^\n]*-->\n)(?:.*?\n)??(<!-- \2: end -->)"
    return re.sub(pattern, part, text, flags=re.S)


def pages() -> dict[Path, str]:
    """Every page that has a part, with the text it is to have."""
    texts = parts()
    found = {}
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if any(f"<!-- {name}: begin" in text for name in texts):
            found[page] = filled(text, texts)
    return found


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def backends() -> str:
    """The table of backends."""
    rows = []
    for row in BACKENDS.values():
        dims = " ".join(x for x in "dtpce" if x in row.dims)
        folding = "yes" if row.folding else "no"
        rows.append([f"`{row.name}`", row.role, dims, folding])
    return _table(["backend", "role", "dimensions", "`(attn:…\\|ffn:…)`"], rows)


def dimensions() -> str:
    """The table of dimensions."""
    rows = [[f"`{x.letter}`", x.name, f"`{x.field}`"] for x in DIMENSIONS.values()]
    return _table(["letter", "dimension", "in Python"], rows)


# -- the house -----------------------------------------------------------------------------------

FOLDERS = (
    "documents", "spec", "legacy", "config", "model", "estimate", "estimate.timing", "planning",
    "planning.rules", "suggest", "report", "app", "lint", "migrate", "areal",
    "sweeps.results", "sweeps", "cli",
)  # fmt: skip
"""Folders of the package, the ground first."""


def folders() -> str:
    """Every folder with what it knows, from its docstring."""
    rows = []
    for name in FOLDERS:
        doc = importlib.import_module(f"areal_conf.{name}").__doc__ or ""
        what, _, knows = doc.strip().partition("\n\n")
        rows.append(
            [f"`{name.replace('.', '/')}/`", " ".join(what.split()), " ".join(knows.split())]
        )
    return _table(["folder", "what it is", "what it knows, and must not"], rows)


# -- models -------------------------------------------------------------------------------------


def known() -> str:
    """The models that `--model` knows by name, with their size."""
    rows = []
    for name, config in known_models().items():
        facts = read_model(config)
        counted = model_parameters(facts)
        total = counted.total if counted else 0
        experts = f"{facts.experts}, {facts.experts_per_token} a token" if facts.experts else "-"
        size = f"{total / 1e9:.2f} B" if total else "-"
        rows.append(
            [f"`{name}`", size, str(facts.layers), f"{facts.heads} / {facts.kv_heads}", experts]
        )
    return _table(["model", "parameters", "layers", "heads / kv heads", "experts"], rows)


# -- error codes ---------------------------------------------------------------------------------


def examples() -> dict[str, Any]:
    """The content of errors.yaml."""
    text = (DOCS / "reference" / "errors.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def errors() -> str:
    """Every code with cause, example and cure."""
    content = examples()
    lines = ["Some examples use these files:", ""]
    for name, text in content["files"].items():
        lines += [f'```json title="{name}"', text.rstrip(), "```", ""]
    heading = ""
    for code in CODES:
        start = next(start for start in CLASSES if code.startswith(start))
        if CLASSES[start] != heading:
            heading = CLASSES[start]
            lines += [f"## {heading}", ""]
        lines += _code(code, content["codes"][code])
    return "\n".join(lines)


def _code(code: str, entry: dict[str, Any]) -> Iterator[str]:
    yield f"### {code}: {CODES[code]} {{ #{code.lower()} }}"
    yield ""
    yield entry["cause"]
    yield ""
    for name, text in entry.get("files", {}).items():
        yield from (f'```{name.rpartition(".")[2]} title="{name}"', text.rstrip(), "```", "")
    if "python" in entry:
        yield from ("```python", entry["python"].rstrip(), "```", "")
    if "example" in entry:
        yield from ("```console", f"$ {entry['example']}", "```", "")
    yield f"**Cure.** {entry['cure']}"
    yield ""
    if "fixed" in entry:
        yield from ("```console", f"$ {entry['fixed']}", "```", "")


# -- command line --------------------------------------------------------------------------------


def commands() -> str:
    """The help of every command."""
    out = []
    for name, (module, doc) in COMMANDS.items():
        parser = argparse.ArgumentParser(
            prog=f"areal-conf {name}",
            add_help=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, width=96),
        )
        importlib.import_module(f"areal_conf.cli.{module}").add_arguments(parser)
        out += [f"## areal-conf {name}", "", f"{doc[0].upper()}{doc[1:]}.", ""]
        out += ["```text", _help(parser), "```", ""]
    return "\n".join(out)


def _help(parser: argparse.ArgumentParser) -> str:
    # Python 3.10 to 3.13 differ in how they wrap the usage and repeat metavars.
    usage = " ".join(parser.format_usage().split())
    usage = "\n".join(textwrap.wrap(usage, 96, subsequent_indent=" " * 7, break_on_hyphens=False))
    lines = [usage, ""]
    for action in parser._actions:
        value = "" if action.nargs == 0 else f" {action.metavar or _choices(action)}"
        label = (", ".join(action.option_strings) + value).strip()
        lines += textwrap.wrap(
            f"{label:24}  {action.help or ''}".rstrip(),
            96,
            initial_indent="  ",
            subsequent_indent=" " * 28,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _choices(action: argparse.Action) -> str:
    return f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()


# -- resolvers and groups ------------------------------------------------------------------------


def resolvers() -> str:
    """The table of resolvers: each docstring says what it gives."""
    rows = []
    for name, function in RESOLVERS.items():
        doc = " ".join((function.__doc__ or "").split("\n\n")[0].split())
        call, _, gives = doc.rpartition("``: ")
        call = call.removeprefix("``") or f"${{areal.{name}:SPEC}}"
        gives = gives.replace("``", "`")
        rows.append([f"`{call}`", f"{gives[0].upper()}{gives[1:]}"])
    return _table(["resolver", "gives"], rows)


def experiments() -> str:
    """The table of experiments."""
    order = ("rollout", "actor", "critic", "ref", "teacher")
    rows = []
    for name, cls in EXPERIMENTS.items():
        fields = cls.__dataclass_fields__
        engines = ", ".join(engine for engine in order if engine in fields)
        rows.append([f"`{name}`", (cls.__doc__ or "").rstrip("."), engines])
    return _table(["`areal/experiment`", "what it is", "engines"], rows)


def layouts() -> str:
    """The table of named layouts."""
    rows = []
    files = (CONF / "areal" / "layout").glob("*.yaml")
    for file in sorted(files, key=lambda f: (int(f.stem.partition("x")[0]), f.stem)):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        engines = {k: v["backend"] for k, v in content.items() if "backend" in v}
        cluster = content["cluster"]
        shape = f"{cluster['n_nodes']} x {cluster['n_gpus_per_node']}"
        shown = "<br>".join(f"{k}: `{v}`".replace("|", "\\|") for k, v in engines.items())
        rows.append([f"`{file.stem}`", shape, shown])
    return _table(["`areal/layout`", "nodes x GPUs", "backends"], rows)


# -- versions of AReaL ----------------------------------------------------------------------------


def areal_facts() -> str:
    """Every fact of AReaL by version."""
    rows = []
    for fact in FACTS:
        span = fact.since if fact.since == fact.until else f"{fact.since} to {fact.until}"
        rows.append([fact.subject, span, fact.what, f"`{fact.source}`", ", ".join(fact.codes)])
    return _table(["subject", "versions", "fact", "source", "codes"], rows)


def areal_commits() -> str:
    """The commits that facts and fields were read from."""
    rows = [[name, ", ".join(f"`{c[:12]}`" for c in commits_of(name))] for name in versions()]
    return _table(["version", "commit"], rows)


PARTS: dict[str, Callable[[], str]] = {
    "folders": folders,
    "known": known,
    "backends": backends,
    "dimensions": dimensions,
    "areal-facts": areal_facts,
    "areal-commits": areal_commits,
    "errors": errors,
    "commands": commands,
    "resolvers": resolvers,
    "experiments": experiments,
    "layouts": layouts,
}

if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
