"""Equations as MathML: LaTeX between dollars, as GitHub reads it, becomes part of the page when the site is built.

No script and no font is loaded to show them.
"""

import re
from html import unescape

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


NORM = re.compile(r"<mo[^>]*>(&#x02016;)</mo>")


def on_page_content(html: str, **_: object) -> str:
    html = INLINE.sub(lambda found: mathml(found[1], "inline"), html)
    return DISPLAY.sub(lambda found: f'<div class="equation">{mathml(found[1], "block")}</div>', html)


def mathml(latex: str, display: str) -> str:
    """The bars of norms keep their height: browsers stretch the left one and not the right one, which has an index."""
    return NORM.sub(r'<mo stretchy="false">\1</mo>', convert(unescape(latex), display=display))
