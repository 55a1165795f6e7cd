"""The library's exception, its error codes, and how a fault is underlined.

`AllocationError` is the one exception of the language and of everything built on it. `CODES` is the
list of all error and warning codes; the documentation and the command line read it from here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, time
from enum import Enum
from numbers import Number
from pathlib import PurePath
from typing import Any, Literal

CODES: dict[str, str] = {
    "AC101": "no backend prefix",
    "AC102": "unknown backend",
    "AC103": "unknown dimension letter",
    "AC104": "dimension not valid for this backend",
    "AC105": "dimension given twice",
    "AC106": "size missing, zero, with a leading zero, not ASCII, or too large",
    "AC107": "parentheses or brackets not balanced",
    "AC108": "malformed attn or ffn section",
    "AC109": "empty string",
    "AC110": "more than one component in a per-engine backend",
    "AC111": "unexpected text",
    "AC112": "bad component name",
    "AC201": "p differs between attn and ffn",
    "AC202": "world sizes of attn and ffn differ",
    "AC203": "d of ffn cannot be derived",
    "AC204": "expert sizes do not divide the world size, or a mesh rule of the backend fails",
    "AC205": "this backend has no attn/ffn form",
    "AC206": "dimension over 1 not valid in this section",
    "AC301": "engine has no backend and none to inherit",
    "AC302": "backend of the wrong role",
    "AC303": "colocation target missing, unknown, itself, or initialised later than its guest",
    "AC304": "colocated engines differ in GPUs",
    "AC305": "colocation target is itself colocated",
    "AC306": "more GPUs than the cluster has",
    "AC307": "an instance or an engine does not fit whole nodes",
    "AC308": "SPMD: GPUs asked for are not exactly the cluster's",
    "AC309": "a value of the wrong type",
    "AC310": "offload is not enabled where engines take turns on the GPUs",
    "AC311": "this weight_update_mode does not work here",
    "AC312": "weight_update_mode awex with other backends than megatron and sglang",
    "AC313": "LoRA on a megatron actor with sglang rollout",
    "AC314": "return_routed_experts with vllm",
    "AC315": "actor._version differs from rollout._version",
    "AC316": "no scheduler for the single controller",
    "AC317": "what needs the single controller, or another scheduler",
    "AC318": "what the SPMD launchers do not start",
    "AC319": "the SPMD launchers read a key that the config lacks",
    "AC320": "the config cannot be composed",
    "AC321": "layout that another framework has no arguments for",
    "AC322": "a training script that cannot be launched",
    "AC323": "a name or path that the launcher's shell would read",
    "AC324": "a key or form that this version of AReaL does not read",
    "AC325": "workers that the scheduler cannot start as scheduling_spec says",
    "AC326": "a value of the environment that would have to be written out",
    "AC330": "not valid YAML",
    "AC331": "a key given twice",
    "AC350": "idle GPUs",
    "AC351": "an instance or a tensor group straddles nodes",
    "AC352": "critic or ref is not colocated and adds GPUs",
    "AC353": "batch size not divisible by d",
    "AC354": "colocated engines differ in workers",
    "AC355": "inference with p over 1 under SPMD",
    "AC356": "the scheduler ignores n_nodes",
    "AC357": "no GPU budget known",
    "AC358": "the name in brackets is not the engine's",
    "AC359": "scheduling_spec grants other GPUs than the backend string says",
    "AC360": "characters in experiment_name or trial_name that AReaL asks not to use",
    "AC361": "a node has fewer CPUs or less memory than scheduling_spec asks for",
    "AC362": "model not checked",
    "AC363": "scheduling_spec with a number of entries that schedulers refuse",
    "AC364": "a key that has no effect",
    "AC365": "a key that AReaL does not read, near one that it does",
    "AC401": "tensor parallelism does not divide the attention heads",
    "AC402": "tensor parallelism does not fit the key/value heads",
    "AC403": "more pipeline stages than layers",
    "AC404": "expert parallelism does not divide the experts",
    "AC405": "expert parallelism on a dense model",
    "AC406": "expert tensor parallelism does not divide the experts' intermediate size",
    "AC407": "context parallelism does not divide the attention heads of a tensor rank",
    "AC408": "context parallelism does not fit the key/value heads of a tensor rank",
    "AC409": "pipeline parallelism with tied embeddings",
    "AC410": "context parallelism with a vision-language model",
    "AC411": "context parallelism with linear attention",
    "AC412": "linear attention or state-space layers do not split (megatron)",
    "AC413": "tensor parallelism does not divide the inner size of an MLP",
    "AC414": "tensor parallelism does not divide the padded vocabulary",
    "AC415": "tensor parallelism cuts the blocks of quantised weights",
    "AC416": "tensor parallelism does not divide the heads of the vision tower",
    "AC417": "tensor parallelism does not divide linear attention or state-space layers (servers)",
    "AC418": "tensor parallelism does not fit the experts of a server",
    "AC419": "pipeline parallelism on a model without stages",
    "AC420": "tensor parallelism does not fit the attention groups of a server",
    "AC421": "model config is not a JSON object",
    "AC422": "field of the model config has a value of the wrong type or range",
    "AC423": "model config lacks a field",
    "AC451": "key/value heads are replicated",
    "AC452": "pipeline stages hold different numbers of layers",
    "AC453": "sequences are padded",
    "AC454": "context is longer than the model's positions",
    "AC455": "expert tensor parallelism on a dense model",
    "AC456": "model type unknown to the backend",
    "AC457": "experts' matrices split unevenly",
    "AC458": "the backend ignores a dimension for this model type",
    "AC459": "model type that is not known",
    "AC501": "allocation_mode: a word of the first generation, which holds no layout",
    "AC502": "allocation_mode: two components of one role, and nothing says which is which",
    "AC503": "allocation_mode: a component must have a name and has none",
    "AC504": "allocation_mode: a component name given twice",
    "AC505": "allocation_mode: colocated components differ in GPUs",
    "AC506": "allocation_mode: a pair of the key-value form that names no engine of today",
    "AC507": "allocation_mode: eval or cpu beside something other than inference servers",
    "AC508": "allocation_mode: more components than an experiment has engines",
    "AC510": "allocation_mode and a per-engine backend differ",
    "AC511": "allocation_mode and a per-engine backend are both set and mean the same",
    "AC512": "allocation_mode is deprecated",
    "AC513": "allocation_mode is ignored, since the single controller runs",
    "AC514": "allocation_mode names an engine that the config does not have",
    "AC515": "allocation_mode was read in another way when it was written",
    "AC520": "migrate: the file cannot be read, or is not UTF-8",
    "AC521": "migrate: no config can be read: bad YAML, a key given twice, several documents",
    "AC522": "migrate: allocation_mode is not one plain value of the top level",
    "AC523": "migrate: an engine that allocation_mode names has no section to write to",
    "AC524": "migrate: something else in the file reads allocation_mode",
    "AC525": "migrate: the file changed while it was being migrated",
    "AC526": "migrate: the file cannot be written, or has other names",
    "AC527": "migrate: the migrated file would not have the same plan",
    "AC528": "migrate: a command line that sets allocation_mode",
    "AC529": "migrate: Python code that uses allocation_mode",
    "AC530": "migrate: an engine that shared GPUs adds GPUs of its own",
    "AC601": "number of GPUs for a layout pattern not known",
    "AC602": "number of GPUs is no whole number from 1",
    "AC603": "no layout is valid, or none is left of a sweep",
    "AC604": "a combination of a sweep cannot run",
    "AC605": "two jobs of a sweep are the same, or have the same name",
    "AC606": "layout patterns that mean too many combinations",
    "AC607": "a cluster that cannot be asked what it has",
    "AC701": "a step does not fit the card",
    "AC702": "a step, or a request, may not fit the card",
    "AC703": "loading the weights does not fit the card",
    "AC704": "one full-length request does not fit the cache",
    "AC705": "max_tokens_per_mb is not set, or is under one sequence",
    "AC706": "gradient checkpointing is off, and decides whether a step fits",
    "AC707": "Archon's pipeline keeps parameters gathered and gradients unsharded",
    "AC708": "memory that is not estimated",
    "AC709": "far more rollouts at once than the caches hold",
    "AC710": "a card that is not known",
}
"""Every code and its meaning. Codes are stable: a code is never used again for something else."""

_NEVER_ALLOWED = ("AC320", "AC326", "AC330", "AC331")
"""Codes of configs that cannot be composed or read: where nothing was read, nothing can run."""


def can_be_allowed(code: str) -> bool:
    """Whether an error of this code can count as a warning (``--allow``)."""
    return code in CODES and code[:3] in ("AC3", "AC4") and code not in _NEVER_ALLOWED


_MAX_SHOWN = 60
_MAX_LINE = 160


def clip(text: str, limit: int = _MAX_SHOWN) -> str:
    """`text` made safe to print on one line: control characters escaped, the middle cut if long."""
    if len(text) > limit:
        text = f"{text[: limit // 2]}…{text[-(limit // 2) :]}"
    return "".join(map(_shown, text))


def counted(count: int, what: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _shown(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")


def _width(text: str) -> int:
    """Columns that `text` takes in a terminal (wide East Asian characters take two)."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def underline(text: str, span: tuple[int, int], limit: int = _MAX_LINE) -> tuple[str, str]:
    """`text` on one line, cut around `span` where it is long, and the marker line below it.

    A span of no characters (something is missing there) is marked by one caret.
    """
    start, end = span
    left, right = 0, len(text)
    if right > limit:
        left = max(0, min(start - limit // 3, right - limit))
        right = min(right, left + limit)
    end = min(end, right)
    head = "".join(map(_shown, text[left:start]))
    body = "".join(map(_shown, text[start:end]))
    tail = "".join(map(_shown, text[end:right]))
    if left:
        head = "…" + head
    if right < len(text):
        tail += "…"
    return head + body + tail, " " * _width(head) + "^" * max(1, _width(body))


Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Diagnostic:
    """One thing found: an error stops the run, a warning does not.

    What rules yield, plans hold and people read is this one form; an `AllocationError` is made of
    it where something is refused.

    Attributes:
        severity: error or warning.
        code: stable code, one of `CODES`.
        path: config path it is about; None where it is about the whole.
        message: what is wrong.
        hint: what to write instead.
        text: the string at fault, as it was read.
        span: the characters at fault in `text`.
    """

    severity: Severity
    code: str
    path: str | None
    message: str
    hint: str
    text: str
    span: tuple[int, int]

    @classmethod
    def of(cls, severity: Severity, error: AllocationError) -> Diagnostic:
        """What `error` says, without its companions."""
        return cls(
            severity, error.code, error.path, error.message, error.hint, error.text, error.span
        )

    @classmethod
    def all_of(cls, severity: Severity, error: AllocationError) -> list[Diagnostic]:
        """What `error` and its companions say."""
        return [cls.of(severity, one) for one in error.errors]

    def __iter__(self) -> Iterator[Any]:
        """Severity and exception: ``for severity, error in check_model(...)``."""
        yield self.severity
        yield self.error()

    def error(self) -> AllocationError:
        """The diagnostic as an exception."""
        return AllocationError(
            self.code,
            self.message,
            hint=self.hint,
            text=self.text,
            span=self.span,
            path=self.path,
        )

    def describe(self) -> str:
        """The diagnostic as text of a few lines, without its severity."""
        where = f"{clip(self.path)}: " if self.path else ""
        lines = [f"{where}{self.code}: {clip(self.message, 600)}"]
        if self.text:
            shown, marker = underline(self.text, self.span)
            lines += [f"  {shown}", f"  {marker}"]
        lines.append(f"hint: {clip(self.hint, 900)}")
        return "\n".join(lines)


class AllocationError(ValueError):
    """A backend string, a layout or a plan that cannot be used as it is.

    Attributes:
        code: stable code such as ``"AC104"``, one of `CODES`.
        message: what is wrong, in one sentence.
        text: the string that was read (a ``repr`` where the value was no string).
        span: ``(start, end)`` in `text`: the characters at fault. Empty where something is missing.
        path: config path of the value, such as ``"actor.backend"``; None where not known.
        hint: what to write instead; never empty.
        errors: everything wrong with the same input, this error first.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str,
        text: str = "",
        span: tuple[int, int] | None = None,
        path: str | None = None,
        others: tuple[AllocationError, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.text = text
        self.span = (0, len(text)) if span is None else span
        self.path = path
        self._others = others

    @property
    def errors(self) -> tuple[AllocationError, ...]:
        """All that is wrong with the input, this error first."""
        return (self, *self._others)

    def at(self, path: str) -> AllocationError:
        """The same error (and its companions), found at the config path `path`."""
        return AllocationError(
            self.code,
            self.message,
            hint=self.hint,
            text=self.text,
            span=self.span,
            path=path,
            others=tuple(error.at(path) for error in self._others),
        )

    def reworded(self, message: str, hint: str | None = None) -> AllocationError:
        """This error alone, told in other words."""
        return AllocationError(
            self.code,
            message,
            hint=self.hint if hint is None else hint,
            text=self.text,
            span=self.span,
            path=self.path,
        )

    def followed_by(self, others: list[AllocationError]) -> AllocationError:
        """This error, carrying `others` as further things wrong with the same input."""
        self._others = (*self._others, *others)
        return self

    def describe(self) -> str:
        """This error alone (without its companions), as text of a few lines."""
        return Diagnostic.of("error", self).describe()

    def __str__(self) -> str:
        more = len(self._others)
        tail = f"\n({more} more: {', '.join(e.code for e in self._others[:8])})" if more else ""
        return self.describe() + tail

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            type(self),
            self.code,
            self.message,
            self.hint,
            self.text,
            self.span,
            self.path,
            self._others,
        )


def _rebuild(
    kind: type[AllocationError],
    code: str,
    message: str,
    hint: str,
    text: str,
    span: tuple[int, int],
    path: str | None,
    others: tuple[AllocationError, ...],
) -> AllocationError:
    return kind(code, message, hint=hint, text=text, span=span, path=path, others=others)


def wrong_type(
    value: object, expected: str, *, hint: str, path: str | None = None
) -> AllocationError:
    """AC309: `value` is of the wrong type; the message names the type and the value."""
    shown = safe_repr(value)
    return AllocationError(
        "AC309",
        f"expected {expected}, got {type(value).__name__}: {clip(shown)}",
        hint=hint,
        text=clip(shown),
        path=path,
    )


def safe_repr(value: object) -> str:
    """``repr(value)``, or the type of what is no plain value: its fields may be secrets."""
    try:
        return repr(value) if _is_plain(value) else f"<{type(value).__name__}>"
    except Exception as error:  # a number that Python refuses to print, a list in itself
        return f"<{type(value).__name__} whose repr fails: {type(error).__name__}>"


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    plain = (str, bytes, Number, date, time, Enum, PurePath, type(None))
    return isinstance(value, plain) or hasattr(value, "_get_node")
