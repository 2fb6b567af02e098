"""The names of headings in links, as GitHub makes them, so that one link works there and on the site."""

import re

HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1?\2`*~* *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
EXPLICIT = re.compile(r"""<a\s+(?:id|name)=["']([^"']+)["']""")


def slug(heading: str, separator: str = "-") -> str:
    """What GitHub makes of a heading: letters, digits, hyphens and underscores stay, spaces become hyphens."""
    text = re.sub(r"<[^>]+>", "", heading)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def without_code(markdown: str) -> str:
    """The text with its code blocks and code spans blanked out."""
    return CODE.sub("", FENCE.sub("", markdown))


def anchors(markdown: str) -> set[str]:
    """All anchors of a page; a heading that occurs again gets -1, -2, …"""
    found: set[str] = set(EXPLICIT.findall(markdown))
    for heading in HEADING.findall(FENCE.sub("", markdown)):
        name, number = slug(heading), 0
        while name in found:
            number += 1
            name = f"{slug(heading)}-{number}"
        found.add(name)
    return found
