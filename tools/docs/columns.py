"""Docstrings that explain names in two columns are shown as tables."""

import re

import griffe

ROW = re.compile(r"(\S(?: ?\S)*?) {2,}(\S.*)")


class Columns(griffe.Extension):
    """For mkdocstrings: a paragraph all of whose lines are a name, spaces and words becomes a table."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = "\n\n".join(map(table, re.split(r"\n{2,}", obj.docstring.value)))


def table(paragraph: str) -> str:
    lines = paragraph.splitlines()
    rows = [ROW.fullmatch(line) for line in lines]
    if len(lines) < 2 or not all(rows):
        return paragraph
    cells = [
        f"| {', '.join(f'`{name}`' for name in row[1].split(', '))} | {row[2].replace('|', chr(92) + '|')} |"
        for row in rows
        if row
    ]
    return "\n".join(["| | |", "|---|---|", *cells])
