"""``areal-conf completion SHELL``: scripts by shtab, from the same parsers as the commands."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from areal_conf.cli.arguments import OK, named_path

SHELLS = ("bash", "zsh", "fish")

_WORDS = ("config_and_overrides", "words")
"""Positional arguments that take files and overrides."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    """Print the script; the shell reads it when it starts."""
    import shtab

    script = shtab.complete(whole_parser(), args.shell, preamble=_preamble(args.shell))
    print(script + _AFTER.get(args.shell, ""))
    return OK


def whole_parser() -> argparse.ArgumentParser:
    """One parser with every command below it."""
    from areal_conf.cli.commands import COMMANDS

    parser = argparse.ArgumentParser(prog="areal-conf")
    parser.add_argument("--version", action="version", version="")
    below = parser.add_subparsers(dest="command")
    for name, (module, doc) in COMMANDS.items():
        one = below.add_parser(name, help=doc)
        importlib.import_module(f"areal_conf.cli.{module}").add_arguments(one)
        for action in one._actions:
            completer = _completer(action)
            if completer is not None:
                action.complete = completer  # type: ignore[attr-defined]
    return parser


def _completer(action: argparse.Action) -> Any:
    """What shtab completes the values of an argument by, besides its choices."""
    import shtab

    if action.dest in _WORDS:
        return dict.fromkeys(("bash", "zsh"), _FUNCTION) | {"fish": f"({_FUNCTION})"}
    if action.type is not named_path or action.metavar in ("PACKAGE", "GPU"):
        return None
    return shtab.DIRECTORY if action.metavar == "D" else shtab.FILE


# -- overrides ----------------------------------------------------------------------------------


def override_words() -> dict[str, tuple[str, ...]]:
    """Keys that the schema knows and config groups, each with the values it is known to take."""
    from areal_conf.config.areal_defaults import LAUNCHERS, ROLES
    from areal_conf.config.structured import EXPERIMENTS
    from areal_conf.spec.backends import BACKENDS

    words: dict[str, tuple[str, ...]] = {}
    for engine, role in ROLES.items():
        names = (b.name for b in BACKENDS.values() if role in (None, b.role))
        words[f"{engine}.backend"] = tuple(f"{name}:" for name in names)
        words[f"{engine}.scheduling_strategy.type"] = ("separation", "colocation")
        words[f"{engine}.scheduling_strategy.target"] = tuple(n for n in ROLES if n != engine)
    words["cluster.n_nodes"] = words["cluster.n_gpus_per_node"] = ()
    words["scheduler.type"] = LAUNCHERS
    words["areal/experiment"] = tuple(EXPERIMENTS)
    layouts = Path(__file__).parents[1] / "conf" / "areal" / "layout"
    words["areal/layout"] = tuple(sorted(file.stem for file in layouts.glob("*.yaml")))
    return words


_FUNCTION = "_areal_conf_overrides"

_BASH = """\
# Bash splits words at "=": the key may be a word of its own.
_areal_conf_overrides() {{
  local word=$1 key= before=${{COMP_WORDS[COMP_CWORD-1]}}
  case $word in
    =) key=$before word= ;;
    *=*) compgen -W "{pairs}" -- "$word"; return ;;
    *) [ "$before" = "=" ] && key=${{COMP_WORDS[COMP_CWORD-2]}} ;;
  esac
  case $key in
    "") compgen -W "{keys}" -- "$word"; compgen -f -- "$word" ;;
{cases}
    *) compgen -f -- "$word" ;;
  esac
}}
"""

_ZSH = """\
_areal_conf_overrides() {{
  case $PREFIX in
    *=*) compadd -S '' -- {pairs} ;;
    *) compadd -S '' -- {keys}; _files ;;
  esac
}}
"""

_FISH = """\
function _areal_conf_overrides
  switch (commandline -ct)
    case '*=*'
      printf '%s\\n' {pairs}
    case '*'
      printf '%s\\n' {keys}
      __fish_complete_path (commandline -ct)
  end
end
"""

_AFTER = {
    "bash": """
# No blank behind a key, and behind a backend whose sizes follow.
_areal_conf() {
  _shtab_areal_conf
  case ${COMPREPLY[0]-} in
    *=|*:) compopt -o nospace 2>/dev/null || : ;;
  esac
}
complete -o bashdefault -F _areal_conf areal-conf"""
}


def _preamble(shell: str) -> str:
    """The shell's function that completes an override, or the name of a config."""
    words = override_words()
    pairs = " ".join(f"{key}={value}" for key, values in words.items() for value in values)
    keys = " ".join(f"{key}=" for key in words)
    if shell == "bash":
        cases = (
            f'    {key}) compgen -W "{" ".join(values)}" -- "$word" ;;'
            for key, values in words.items()
            if values
        )
        return _BASH.format(pairs=pairs, keys=keys, cases="\n".join(cases))
    return {"zsh": _ZSH, "fish": _FISH}[shell].format(pairs=pairs, keys=keys)
