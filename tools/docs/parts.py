"""Reference pages of parts: a section for every registered compressor, regulariser and update, from its class."""

import inspect
from collections.abc import Mapping

from methods import linked
from mkdocs.structure.pages import Page
from settings_page import options

from fedcef.compressors import COMPRESSORS
from fedcef.core.aggregation import AGGREGATIONS
from fedcef.core.parts import options_of
from fedcef.core.schedules import SCHEDULES
from fedcef.optimizers import LOCAL_UPDATES, SERVER_UPDATES
from fedcef.regularizers import REGULARIZERS

Registry = Mapping[str, type]
PAGES: dict[str, dict[str, tuple[str, Registry]]] = {
    "api/compressors.md": {"": ("compressor", COMPRESSORS)},
    "api/regularizers.md": {"": ("regularizer", REGULARIZERS)},
    "api/optimizers.md": {
        "Local updates": ("local_update", LOCAL_UPDATES),
        "Server updates": ("server_update", SERVER_UPDATES),
        "Schedules": ("local_schedule", SCHEDULES),
        "Rules of aggregation": ("aggregation", AGGREGATIONS),
    },
}
"""For each page its groups of parts: a heading, the section of the settings, and the registry."""


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    groups = PAGES.get(page.file.src_uri, {})
    return "\n\n".join([markdown, *(text for title, group in groups.items() for text in sections(title, *group))])


def sections(title: str, section: str, registry: Registry) -> list[str]:
    """A section for each part, below a heading if there is one."""
    level = "###" if title else "##"
    return [f"## {title}"] * bool(title) + [part(level, section, name, kind) for name, kind in registry.items()]


def part(level: str, section: str, name: str, kind: type) -> str:
    """The name, the docstring, where it is found and its options."""
    package = ".".join(kind.__module__.split(".")[:2])
    home = kind.__module__ if package == "fedcef.core" else package
    text = [
        f"{level} {kind.__name__}",
        linked(inspect.getdoc(kind) or ""),
        f'`{section}.name = "{name}"`, or `from {home} import {kind.__name__}`.',
    ]
    rows = [f"| `{option}` | {cells} |" for option, cells in options(kind, options_of(kind))]
    if rows:
        text.append("\n".join(["| option | values | default | meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join(text)
