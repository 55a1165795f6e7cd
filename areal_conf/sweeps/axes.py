"""The axes of a sweep: overrides, and the values of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.errors import CompactHydraException

from areal_conf.config.overrides import as_typed, for_hydra
from areal_conf.errors import AllocationError, clip
from areal_conf.spec.allocation import looks_like_spec

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override


class SweepError(AllocationError, CompactHydraException):
    """A sweep that is not started. Hydra prints it without a traceback and exits 1."""

    @classmethod
    def because(cls, error: AllocationError, path: str | None = None) -> SweepError:
        """The refusal of a sweep for `error`, found at the key `path`."""
        return cls(
            error.code,
            error.message,
            hint=error.hint,
            text=error.text,
            span=error.span,
            path=error.path or path,
            others=error.errors[1:],
        )


class Value(NamedTuple):
    """One value of a swept key.

    Attributes:
        text: as it stands behind ``=`` in an override.
        value: what it means.
        pattern: whether it is a layout pattern, to be expanded.
    """

    text: str
    value: Any
    pattern: bool = False


@dataclass
class Axis:
    """One key of the sweep and its values.

    Attributes:
        key: the key as an override has it, with ``+`` and package.
        path: where the value stands in the config; None where it takes a composition to know
            what it does (a config group, a mapping, a deletion).
        values: at least one.
    """

    key: str
    path: tuple[str, ...] | None
    values: list[Value]

    @property
    def varies(self) -> bool:
        """Whether jobs differ in it."""
        return len(self.values) > 1 or self.values[0].pattern

    @property
    def dotted(self) -> str:
        """The key without ``+``."""
        return self.key.lstrip("+")


Choice = tuple[Value, ...]


def read_axes(arguments: Sequence[str], loader: ConfigLoader) -> list[Axis]:
    """The keys of a sweep, in their order; a key given again replaces its values.

    Raises:
        HydraException: for what Hydra's grammar refuses.
        SweepError: AC309 for an interval, AC603 for a key without a value.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create(config_loader=loader)
    axes = {}
    overrides = parser.parse_overrides(as_typed(arguments))
    keys = [(o.key_or_group, o.is_delete()) for o in overrides]
    for override in overrides:
        key = override.get_key_element()
        values = list(_values(override))
        if not values:
            message = (
                f"{clip(override.input_line or key, 200)} has no value, so that no job is left"
            )
            hint = "write a range or glob that has at least one"
            raise SweepError("AC603", message, path=key, hint=hint)
        in_place = not _meets_another(override.key_or_group, keys)
        in_place = in_place and not _is_composed(override, values, loader)
        path = _path(override) if in_place else None
        axes[key] = Axis(key, path, values)
    return list(axes.values())


def _values(override: Override) -> Iterator[Value]:
    from hydra.core.override_parser.types import Override as Read
    from hydra.core.override_parser.types import Transformer

    if not override.is_sweep_override():
        yield _value(override.get_value_element_as_str(), override.value())
        return
    if not override.is_discrete_sweep():
        raise SweepError(
            "AC309",
            "an interval is no list of values, which areal_layouts sweeps over",
            text=clip(override.input_line or "", 200),
            path=override.get_key_element(),
            hint="write range(1,4) or choice(1,2,3)",
        )
    for element in override.sweep_iterator():
        yield _value(Transformer.str(element), Read._convert_value(element))


def _value(text: str, value: Any) -> Value:
    if not isinstance(value, str) or not looks_like_spec(value):
        return Value(text, value)
    return Value(for_hydra(value), value, "*" in value or "@" in value)


def _meets_another(key: str, keys: Sequence[tuple[str, bool]]) -> bool:
    """Whether an override is of a section above `key`, of a key below it, or deletes it: what they
    leave depends on their order. Each of `keys` comes with whether it is deleted."""
    return any(
        (key != other and (f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")))
        or (key == other and deleted)
        for other, deleted in keys
    )


def _is_composed(override: Override, values: list[Value], loader: ConfigLoader) -> bool:
    key = override.key_or_group
    if override.is_delete() or override.package is not None or "/" in key:
        return True
    if any(isinstance(value.value, dict) for value in values):
        return True
    return "." not in key and bool(loader.get_group_options(key))


def _path(override: Override) -> tuple[str, ...]:
    return tuple(override.key_or_group.split("."))
