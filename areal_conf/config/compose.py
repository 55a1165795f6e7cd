"""Composes a config as AReaL does: the file's directory is the config path.

AReaL, api/cli_args.py, ``parse_cli_args``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areal_conf.config.overrides import as_typed, meant, refused_override
from areal_conf.config.redaction import of_texts
from areal_conf.documents.yaml_text import (
    MANY,
    MAX_STEPS,
    BadYamlError,
    endless_interpolation,
    load,
)
from areal_conf.errors import AllocationError, clip
from areal_conf.files import MAX_BYTES, TooLargeError, read_limited

if TYPE_CHECKING:
    from omegaconf import DictConfig


_DEFAULT = Path(__file__).parent / "start" / "default.yaml"
"""What is planned where no config is named: the ppo experiment, to be filled by overrides."""


_NO_SUCH_KEY = re.compile(r"Could not override|append to your default list|is not in struct")
"""How Hydra and OmegaConf say that the config has no such key."""

_NOT_IN_SCHEMA = re.compile(r"In 'areal/[^']*': .*Key '[^']*' not in '([^']*)'")
"""What Hydra says where a group of ours comes after a schema that lacks its keys."""

_GRAMMAR = "https://hydra.cc/docs/advanced/override_grammar/basic"

_FEW_INTERPOLATIONS = 30
"""Fewer cannot multiply to more than a plan has time for."""

_MAX_FOLDERS = 1000
"""Folders of a config directory that are looked through for names of the environment."""


def compose_file(path: str | Path, overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the YAML file at `path` with `overrides`, taken as typed.

    Raises:
        OSError: the file is missing or cannot be read.
        AllocationError: AC320 where Hydra cannot compose it.
    """
    file = Path(path)
    if not stat.S_ISFIFO(file.stat().st_mode):
        with file.open("rb"):
            pass
    if file.suffix != ".yaml":
        raise AllocationError(
            "AC320",
            f"{clip(file.name, 120)} cannot be composed: Hydra reads files that end in .yaml",
            hint=f"rename it to {clip(file.stem, 120)}.yaml",
        )
    if file.is_fifo():
        message = f"{clip(file.name, 120)} cannot be composed: Hydra reads no pipes"
        raise AllocationError("AC320", message, hint="write it to a file, and name that")
    _refuse_bomb(file)
    return compose_named(str(file.parent.absolute()), file.name, overrides)


def _refuse_bomb(file: Path) -> None:
    """AC320 for a file too large to be a config, or whose aliases, merges or interpolations stand
    for more values than memory holds."""
    try:
        data = read_limited(file)
    except TooLargeError:
        message = f"{clip(file.name, 120)} is larger than {MAX_BYTES // 2**20} MiB"
        hint = "name the config itself, and let it hold no data"
        raise AllocationError("AC320", message, hint=hint) from None
    if (b"*" not in data or b"&" not in data) and data.count(b"${") < _FEW_INTERPOLATIONS:
        return
    try:
        path = endless_interpolation(load(data.decode("utf-8-sig")))
    except BadYamlError as fault:
        if MANY not in fault.message:
            return  # Hydra says what is wrong with it
        message = f"{clip(file.name, 120)} holds {fault.message}"
        hint = "write fewer aliases (*name) of mappings and lists that hold aliases"
        raise AllocationError("AC320", message, hint=hint) from None
    except UnicodeDecodeError:
        return
    if path is not None:
        raise AllocationError(
            "AC320",
            f"{clip(path, 120)} of {clip(file.name, 120)} takes more than {MAX_STEPS} "
            "interpolations to resolve",
            hint="let each value interpolate another one once",
        )


def named_app(file: Path) -> str | None:
    """``areal_plan.app`` of the YAML file itself, which is read before anything is composed."""
    try:
        data = read_limited(file) if file.is_file() else b""
        if b"areal_plan" not in data or b"app" not in data:
            return None
        top = load(data.decode("utf-8-sig"))
    except (OSError, TooLargeError, UnicodeDecodeError, BadYamlError):
        # whoever composes it says what is wrong
        return None
    own = top.get("areal_plan") if isinstance(top, dict) else None
    name = own.get("app") if isinstance(own, dict) else None
    return name if isinstance(name, str) and name else None


def is_stored(name: str) -> bool:
    """Whether Hydra's ConfigStore has a config of this name."""
    from hydra.core.config_store import ConfigStore

    return f"{name.removesuffix('.yaml')}.yaml" in ConfigStore.instance().repo


def compose_default(overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the package's ppo experiment with `overrides`, taken as typed.

    Raises:
        AllocationError: AC320 where Hydra cannot compose it.
    """
    return compose_named(str(_DEFAULT.parent), _DEFAULT.name, overrides)


def compose_named(config_dir: str, config_name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the config `config_name` of the directory `config_dir`.

    Raises:
        OSError: there is no such directory.
        AllocationError: AC320 where Hydra cannot compose it.
    """
    os.listdir(config_dir)
    # Hydra adds the suffix where there is none, and takes q.yaml for the file of that very name.
    stem = config_name.removesuffix(".yaml")
    name = config_name if stem.endswith(".yaml") else stem
    with _hydra(config_dir):
        try:
            from hydra import compose

            return compose(config_name=name, overrides=as_typed(overrides))
        except Exception as error:
            refusal = _cannot_compose(error, config_name)
            raise of_texts(refusal, chain(overrides, _texts_below(config_dir))) from None


@contextmanager
def _hydra(config_dir: str) -> Iterator[None]:
    """Hydra on `config_dir`; an app that is running it already keeps its own."""
    from hydra import errors, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    holder = GlobalHydra.instance()
    outer = holder.hydra
    holder.hydra = None
    # Hydra 1.4 has one behaviour, and deprecates the parameter that chose it.
    chooses = not hasattr(errors, "Hydra15MigrationWarning")
    base: dict[str, Any] = {"version_base": "1.3"} if chooses else {}
    try:
        with initialize_config_dir(config_dir, job_name="areal-conf", **base):
            yield
    finally:
        holder.hydra = outer


def _texts_below(directory: str) -> Iterator[str]:
    """What stands in the YAML files of a config directory, where a defaults list may name a
    variable of the environment."""
    for folder, _, names in islice(os.walk(directory), _MAX_FOLDERS):
        for file in (Path(folder, name) for name in names if name.endswith(".yaml")):
            with suppress(OSError):
                if file.is_file() and file.stat().st_size <= MAX_BYTES:
                    yield file.read_text(errors="replace")


def _cannot_compose(error: Exception, config: str) -> AllocationError:
    from omegaconf.errors import ValidationError

    if refusal := refused_override(error):
        message = f"{clip(config, 120)} cannot be composed: Hydra cannot read an override"
        hint = refusal.quoted or f"see {_GRAMMAR}"
        if refusal.quoted:
            hint = f"quote the value: {clip(refusal.quoted, 300)}"
        text, span = refusal.override, refusal.span
        return AllocationError("AC320", message, hint=hint, text=text, span=span)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = error.__cause__
    detail = clip(" ".join(lines), 800)
    if cause is not None and str(cause) not in str(error):
        detail += f" ({clip(str(cause).splitlines()[0] if str(cause) else '', 200)})"
    hint = "fix the key named above"
    if key := meant(error):
        hint = f"did you mean {clip(key, 120)}? A new key needs a leading '+'"
    elif schema := _NOT_IN_SCHEMA.search(detail):
        hint = (
            "in the defaults list, put areal/experiment and areal/layout before the schema "
            f"({schema[1]}), which refuses keys that it does not have"
        )
    elif _NO_SUCH_KEY.search(detail) and not isinstance(cause, ValidationError):
        hint += "; a new key needs a leading '+'"
    return AllocationError("AC320", f"{clip(config, 120)} cannot be composed: {detail}", hint=hint)
