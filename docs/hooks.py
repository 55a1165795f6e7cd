r"""What mkdocs does to a page before it is rendered (mkdocs.yml, hooks).

In a table GitHub wants ``\|`` for a bar inside of code; Python-Markdown would show the backslash.
"""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with plain bars inside the code of its tables."""
    return re.sub(r"^\|.*\|$", _plain_bars, markdown, flags=re.M)


def _plain_bars(row: re.Match[str]) -> str:
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("\\|", "|"), row[0])
