"""Characters and widths that the terminal can show."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import ConsoleOptions, OverflowMethod
from rich.text import Text

_ASCII = {"…": "...", "×": "x", "·": "|", "–": "-", "→": "->", "⋅": "*"}


# -- characters ---------------------------------------------------------------------------------


class Pen:
    """Makes `Text` of strings: never markup, nothing unprintable, ASCII where it must be."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.ascii = options.ascii_only
        self.width = options.max_width
        # Off a terminal nothing wraps, and then nothing may be cut either.
        self.overflow: OverflowMethod = "ignore" if options.no_wrap else "fold"

    def plain(self, text: str) -> str:
        """`text` with every character that the terminal cannot show written as an escape."""
        if text.isascii() and text.isprintable():
            return text
        return "".join(map(self._char, text))

    def _char(self, char: str) -> str:
        if char.isprintable() and not (self.ascii and ord(char) > 127):
            return char
        return _ASCII.get(char) or char.encode("unicode_escape", "replace").decode("ascii")

    def text(self, *parts: str | tuple[str, str]) -> Text:
        """One `Text` of parts, each a string or (string, style)."""
        out = Text(overflow=self.overflow)
        for part in parts:
            string, style = (part, "") if isinstance(part, str) else part
            out.append(self.plain(string), style)
        return out

    def words(self, *parts: str | tuple[str, str]) -> Text:
        """`text` that wraps between words alone: a backend string is one, and is to be copied."""
        out = self.text(*parts)
        out.overflow = "ignore"
        return out

    def lines(self, lines: Iterable[str]) -> Text:
        """Lines of text; the line breaks between them are kept."""
        return Text("\n".join(map(self.plain, lines)), overflow=self.overflow)
