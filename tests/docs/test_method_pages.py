"""Every registered method has a page with equations, options and a command that works."""

import importlib
from pathlib import Path

import pytest

from fedcef.algorithms import ALGORITHMS
from fedcef.runs.experiments import load_settings

pytest.importorskip("mkdocs", reason="the site is built with the extra `docs`")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "docs"))
    return importlib.import_module("methods")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_method_has_its_page(name, pages):
    page = pages.page(name, ROOT / "docs")
    assert page.startswith(f"# {pages.title_of(ALGORITHMS[name])}\n")
    equations = page.partition("## Equations")[2].partition("## Options")[0]
    assert "←" in equations or "=" in equations.partition("<pre>")[2]
    assert "`local_lr` | `0.1`" in page


@pytest.mark.parametrize("name", ALGORITHMS)
def test_its_command_is_one_that_runs(name, pages):
    words = pages.command(name).split()
    assert words[:3] == ["fedcef", "run", "demo"]
    config = load_settings("demo", [word for word in words[3:] if word != "--set"])
    assert type(config.build_algorithm(config.build_problem())) is ALGORITHMS[name]


def test_titles_are_all_different(pages):
    titles = [pages.title_of(kind) for kind in ALGORITHMS.values()]
    assert len(set(titles)) == len(titles)
