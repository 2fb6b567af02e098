"""Text in lines that fit a terminal."""

from __future__ import annotations

import textwrap

LEAST = 20
"""Characters of text that a line has at least, however narrow the terminal."""


def hang(text: str, indent: int, width: int) -> list[str]:
    """Lines of at most this width, the second and later ones indented; words, paths and addresses stay whole."""
    first = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text.lstrip(),
        max(width, indent + LEAST),
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
