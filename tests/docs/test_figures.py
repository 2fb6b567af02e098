"""Figures that are drawn from the docs' own tables are up to date."""

import runpy
from pathlib import Path

DRAW = Path(__file__).parents[2] / "tools" / "docs" / "draw_bytes.py"


def test_the_picture_of_the_bytes_shows_the_table():
    names = runpy.run_path(str(DRAW))
    assert names["FIGURE"].read_text("utf-8") == names["drawing"](), f"run python {DRAW.name}"
