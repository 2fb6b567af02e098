"""Docstrings as they are written here, made ready for the site: columns become tables, examples become code."""

import re

import griffe

ROW = re.compile(r"(\S(?: ?\S)*?)(?<![.;:!?]) {2,}(\S.*)")  # two spaces after a sentence make no column


class Docstrings(griffe.Extension):
    """For mkdocstrings: rewrites the paragraphs of every docstring that Markdown would misread."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Called for everything that has a docstring, before it is rendered."""
        if obj.docstring is not None:
            paragraphs = re.split(r"\n{2,}", obj.docstring.value)
            obj.docstring.value = "\n\n".join(example(paragraph) or table(paragraph) for paragraph in paragraphs)


def example(paragraph: str) -> str:
    """A code block, if the paragraph is a session with the interpreter; otherwise nothing."""
    return f"```python\n{paragraph}\n```" if paragraph.startswith(">>> ") else ""


def table(paragraph: str) -> str:
    """A table, if all lines of a paragraph are a name, spaces and words; otherwise the paragraph."""
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
