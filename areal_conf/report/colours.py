"""The colours of pictures and pages."""

from __future__ import annotations

COLOURS = {
    "rollout": "#77aadd",
    "actor": "#ee8866",
    "critic": "#44bb99",
    "ref": "#eedd88",
    "teacher": "#ffaabb",
}
"""Fills of the standard engines: Paul Tol's "light" scheme, made for dark text on it and told
apart with any colour vision (personal.sron.nl/~pault)."""

MORE_COLOURS = ("#99ddff", "#bbcc33", "#aaaa00", "#c9b3e6")
"""Fills of other engines, in turn."""

IN_TURN = (*COLOURS.values(), MORE_COLOURS[0])
"""Fills of engines by their number, on a page; they repeat."""

PARTS = (
    "#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#4477aa",
)  # fmt: skip
"""Fills of the parts of an engine's memory."""

VERDICTS = {"fits": "#2a7f3f", "may": "#c77700", "no": "#c62828", "unknown": "#666"}
"""Fills of a bar of memory."""

INK, PAPER = "#111111", "#ffffff"
