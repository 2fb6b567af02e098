"""Figures that are drawn from the docs' own tables are up to date."""

import runpy
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools" / "docs"


@pytest.mark.parametrize("name", ["draw_bytes.py", "draw_overview.py"])
def test_the_picture_shows_the_tables(name):
    names = runpy.run_path(str(TOOLS / name))
    assert names["FIGURE"].read_text("utf-8") == names["drawing"](), f"run python tools/docs/{name}"
