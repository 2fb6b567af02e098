"""The reference has all that `fedcef` exports and every registered part, and its examples print what they say."""

import importlib
import re
from pathlib import Path

import pytest
from test_pages import outputs

import fedcef
from fedcef.algorithms import ALGORITHMS
from fedcef.compressors import COMPRESSORS
from fedcef.optimizers import LOCAL_UPDATES, SERVER_UPDATES
from fedcef.regularizers import REGULARIZERS

ROOT = Path(__file__).parents[2]
DIRECTIVE = re.compile(r"^::: (\S+)\n(?:    options:\n(?:      members: \[(.*?)\])?)?", re.MULTILINE)
ON_THEIR_PAGES = [ALGORITHMS, COMPRESSORS, REGULARIZERS, LOCAL_UPDATES, SERVER_UPDATES]
"""Registries of which every part gets a page or a section when the site is built."""


def documented():
    """What the pages name: modules whole, or some of their members, or single objects."""
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for path, members in DIRECTIVE.findall(page.read_text("utf-8")):
            module = importlib.import_module(path) if is_module(path) else None
            if module is None:
                yield path
            else:
                names = members.split(", ") if members else [name for name in vars(module) if not name.startswith("_")]
                yield from (f"{path}.{name}" for name in names)


def is_module(path):
    try:
        importlib.import_module(path)
    except ModuleNotFoundError:
        return False
    return True


def exported():
    names = [name for name in dir(fedcef) if isinstance(getattr(fedcef, name), type) or name in fedcef.__all__]
    return {name: getattr(fedcef, name) for name in names}


def test_everything_exported_is_in_the_reference():
    pytest.importorskip("sklearn", reason="the estimators are exported as well")
    shown = set(documented())
    parts = {kind for registry in ON_THEIR_PAGES for kind in registry.values()}
    found = exported()
    assert {"run", "Problem", "TopK", "FederatedLasso"} <= found.keys()
    missing = [
        name
        for name, thing in found.items()
        if thing not in parts and f"{thing.__module__}.{thing.__qualname__}" not in shown
    ]
    assert missing == []


def test_what_the_reference_names_exists():
    for path in documented():
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path


def test_every_part_has_a_section(monkeypatch):
    pytest.importorskip("mkdocs", reason="the site is built with the extra `docs`")
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "docs"))
    pages = importlib.import_module("parts")
    shown = "\n".join(
        text
        for groups in pages.PAGES.values()
        for title, group in groups.items()
        for text in pages.sections(title, *group)
    )
    for registry in ON_THEIR_PAGES[1:]:
        for name, kind in registry.items():
            assert re.search(rf"^###? {kind.__name__}$", shown, re.MULTILINE), name
            assert f'.name = "{name}"`' in shown


@pytest.mark.parametrize("page", ["compressors", "regularizers", "optimizers"])
def test_its_examples(page):
    ((printed, said),), _ = outputs(f"api/{page}.md")
    assert printed == said
