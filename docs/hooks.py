r"""What mkdocs does to a page before it is rendered (mkdocs.yml, hooks).

In a table GitHub wants ``\|`` for a bar inside of code; Python-Markdown would show the backslash.
In the finished page, backend strings are marked, so that no line breaks them.
"""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with plain bars inside the code of its tables."""
    return re.sub(r"^\|.*\|$", _plain_bars, markdown, flags=re.M)


def on_page_content(html: str, **_: Any) -> str:
    """The page with a class on every backend string, which the style keeps on one line."""
    return re.sub(
        r"<code>(?=(?:sglang|vllm|fsdp|megatron|archon)[:\[])", '<code class="spec">', html
    )


def _plain_bars(row: re.Match[str]) -> str:
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("\\|", "|"), row[0])
