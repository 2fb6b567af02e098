"""docs/settings.md lists every setting as it is checked, and says what each is for."""

import importlib
import re
from pathlib import Path

import pytest

from fedcef.runs.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "docs"))
    return importlib.import_module("settings_page")


def test_the_page_is_up_to_date(tool):
    assert tool.PAGE.read_text("utf-8") == tool.page(), "run python tools/docs/settings_page.py"


def test_every_setting_is_on_the_page(tool):
    page = tool.page()
    for name in Settings.model_fields:
        assert f"| `{name}` |" in page or re.search(rf"`\[+{name}\]+`", page), name


def test_every_setting_has_a_meaning(tool):
    rows = [[cell.strip() for cell in row.split(" | ")] for row in re.findall(r"^\| (`.*) \|$", tool.page(), re.M)]
    assert len(rows) > 300
    assert [row[0] for row in rows if len(row) < 3 or not row[-1]] == []


def test_bounds_and_choices_are_told(tool):
    assert tool.values_of(Settings.model_fields["weighting"].annotation) == '`"uniform"`, `"samples"`'
    page = tool.page()
    assert "| `rounds` | whole number ≥ 1 | `100` |" in page
    assert "| `privacy.clip` | number > 0 | required |" in page
