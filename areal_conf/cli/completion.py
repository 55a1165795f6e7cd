"""``areal-conf completion SHELL``"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple


class Option(NamedTuple):
    """One option of a command: its spellings, the values it takes, what it is for."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    takes_value: bool
    help: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("shell", choices=tuple(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print the script; the shell reads it when it starts."""
    print(SHELLS[args.shell](commands()), end="")
    return 0


def commands() -> dict[str, list[Option]]:
    """Every command and what its parser takes."""
    from areal_conf.cli.commands import COMMANDS

    found = {}
    for name, (module, _) in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=name)
        importlib.import_module(f"areal_conf.cli.{module}").add_arguments(parser)
        found[name] = [_option(action) for action in parser._actions]
    return found


def _option(action: argparse.Action) -> Option:
    values = tuple(str(choice) for choice in action.choices or ())
    return Option(tuple(action.option_strings), values, action.nargs != 0, action.help or "")


# -- bash and zsh -------------------------------------------------------------------------------

_BASH = """\
_areal_conf() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} words= files=yes
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}" files=
  else
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
      *) case "${{COMP_WORDS[1]}}" in
{options}
      esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  local IFS=$'\n'
  [ -z "$files" ] || COMPREPLY+=($(compgen -f -- "$cur"))
}}
complete -o filenames -F _areal_conf areal-conf
"""


def _bash(found: Mapping[str, list[Option]]) -> str:
    values = []
    options = []
    for command, all_of_it in found.items():
        words: list[str] = []
        for option in all_of_it:
            words += option.names or option.values
            if option.names and option.values:
                patterns = "|".join(f'"{command} {name}"' for name in option.names)
                values.append(f'      {patterns}) words="{" ".join(option.values)}" files= ;;')
        options.append(f'        {command}) words="{" ".join(words)}" ;;')
    return _BASH.format(
        commands=" ".join(found), values="\n".join(values), options="\n".join(options)
    )


def _zsh(found: Mapping[str, list[Option]]) -> str:
    return "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n" + _bash(found)


# -- fish ---------------------------------------------------------------------------------------


def _fish(found: Mapping[str, list[Option]]) -> str:
    return "".join(f"{line}\n" for line in _fish_lines(found))


def _fish_lines(found: Mapping[str, list[Option]]) -> Iterator[str]:
    from areal_conf.cli.commands import COMMANDS

    for command, options in found.items():
        doc = COMMANDS[command][1]
        start = "complete -c areal-conf -n "
        yield f"{start}__fish_use_subcommand -f -a {command} -d {_fish_quoted(doc)}"
        start += f"'__fish_seen_subcommand_from {command}'"
        for option in options:
            values = f" -a '{' '.join(option.values)}'" if option.values else ""
            if not option.names:
                if values:
                    yield f"{start}{values}"
                continue
            spelled = "".join(
                f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}"
                for name in option.names
            )
            exclusive = " -x" if values else " -r" if option.takes_value else ""
            described = f" -d {_fish_quoted(option.help)}" if option.help else ""
            yield f"{start}{spelled}{exclusive}{values}{described}"


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SHELLS: dict[str, Callable[[Mapping[str, list[Option]]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
"""The script of each shell."""
