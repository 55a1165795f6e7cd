"""A layout held to a model: what is wrong, where in the string, and what to write instead.

`check_model` tells all that the rules find; `fits` answers only yes or no and is what the
enumeration of layouts uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from areal_conf.errors import AllocationError, Diagnostic
from areal_conf.model.facts import ModelFacts
from areal_conf.model.rule import NO_SETTINGS, Rule, Settings
from areal_conf.model.rules import errors_of, rules_of, tests_of
from areal_conf.spec.allocation import ModelAllocation, trusted_allocation
from areal_conf.spec.backends import BACKENDS, Sizes, broken_rules, divisors, legal_expert_sizes
from areal_conf.spec.parser import dimension_span


def fits(sizes: Sizes, backend: str, facts: ModelFacts, settings: Settings = NO_SETTINGS) -> bool:
    """Whether `check_model` finds no error; nothing is formatted, for use in enumerations."""
    for index, breaks in tests_of(backend, facts):
        if sizes[index] > 1 and breaks(sizes, facts, settings):
            return False
    return True


def check_model(
    allocation: ModelAllocation,
    facts: ModelFacts,
    *,
    path: str | None = None,
    settings: Settings = NO_SETTINGS,
    text: str | None = None,
) -> list[Diagnostic]:
    """Every rule of the backend that the layout breaks for this model, errors first.

    Args:
        allocation: the layout.
        facts: the model.
        path: config path of the backend string.
        settings: what else of the engine's config the rules ask for.
        text: the backend string as written; default is the canonical form of `allocation`.

    Returns:
        Errors (AC401 ...) and warnings (AC451 ...). Each names the dimension at fault in `text`,
        and its hint whole specs of as many GPUs that the model takes.
    """
    text = str(allocation) if text is None else text
    case = _Case(allocation, facts, settings, text, path)
    sizes = allocation.parallel.sizes
    rules = rules_of(allocation.backend, facts)
    broken = [rule for rule in rules if rule.broken(sizes, facts, settings)]
    wrong = {rule.dim for rule in broken if rule.severity == "error"}
    return [
        Diagnostic.of(rule.severity, case.error(rule))
        for rule in broken
        if rule.severity == "error" or not rule.dim or rule.dim not in wrong
    ]


_MOST_SPECS = 3
"""Specs that a hint names."""


class _Case(NamedTuple):
    """One layout, one model: what a finding about them is built from."""

    allocation: ModelAllocation
    facts: ModelFacts
    settings: Settings
    text: str
    path: str | None

    def error(self, rule: Rule) -> AllocationError:
        """What breaking `rule` means here."""
        sizes = self.allocation.parallel.sizes
        words = {"s": sizes, "m": self.facts, "x": self.settings}
        advice = rule.advice.format(**words)
        specs = list(self.specs(rule)) if rule.dim else []
        return AllocationError(
            rule.code,
            rule.message.format(**words),
            text=self.text,
            span=dimension_span(self.text, rule.dim),
            path=self.path,
            hint=_hint(rule, specs, advice),
        )

    def specs(self, rule: Rule) -> Iterator[str]:
        """The nearest specs of as many GPUs that break neither `rule` nor any that stops."""
        sizes = self.allocation.parallel.sizes
        near = [s for s in _alternatives(sizes, rule.dim) if not self.breaks(rule, s)]
        near = [s for s in near if self.legal(s)] or list(filter(None, map(self.mended, near[:8])))
        for legal in dict.fromkeys(near[:_MOST_SPECS]):
            yield str(trusted_allocation(self.allocation.backend, self.allocation.name, legal))

    def breaks(self, rule: Rule, sizes: Sizes) -> bool:
        """Whether `sizes` break `rule` for this model."""
        return rule.broken(sizes, self.facts, self.settings)

    def legal(self, sizes: Sizes) -> bool:
        """Whether backend and model take `sizes`."""
        backend = self.allocation.backend
        return not broken_rules(BACKENDS[backend], sizes) and fits(
            sizes, backend, self.facts, self.settings
        )

    def mended(self, sizes: Sizes) -> Sizes | None:
        """`sizes` with whatever else is wrong changed too, the nearest way."""
        backend = BACKENDS[self.allocation.backend]
        for _ in range(8):
            if broken_rules(backend, sizes):
                legal = legal_expert_sizes(backend, sizes)
                sizes = sizes._replace(e=legal[0]) if legal else sizes._replace(etp=1)
                continue
            errors = errors_of(backend.name, self.facts)
            rule = next((r for r in errors if self.breaks(r, sizes)), None)
            if rule is None:
                return sizes
            others = _alternatives(sizes, rule.dim)
            sizes = next((s for s in others if not self.breaks(rule, s)), Sizes(d=sizes.world))
        return None


def _hint(rule: Rule, specs: list[str], advice: str) -> str:
    if not specs:
        return advice
    if rule.severity == "warning":
        return f"{advice}; not so with {' or '.join(specs)}"
    return f"write {' or '.join(specs)} ({advice})"


def _alternatives(sizes: Sizes, dim: str) -> list[Sizes]:
    """`sizes` with another size of `dim` and as many GPUs, nearest first: d gives or takes."""
    now = getattr(sizes, dim)
    if dim in ("e", "etp"):
        values = divisors(sizes.world // sizes.p)
        found = [sizes._replace(**{dim: value}) for value in values]
    else:
        ranks = now * sizes.d
        found = [sizes._replace(**{dim: v, "d": ranks // v}) for v in divisors(ranks)]
    others = (s for s in found if getattr(s, dim) != now)
    return sorted(others, key=lambda s: (_ratio(getattr(s, dim), now), getattr(s, dim)))


def _ratio(a: int, b: int) -> float:
    return max(a, b) / min(a, b)
