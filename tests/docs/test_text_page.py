"""The page on text: its Python prints what it says, its settings are valid, its sizes are those of the models."""

import re
import tomllib

from test_pages import DOCS, blocks, outputs

from fedcef.problems.catalog import DATA
from fedcef.runs.settings import Settings


def test_the_python_of_the_page():
    ((printed, said), *_), names = outputs("text.md")
    assert printed == said
    assert names["Transposed"]


def test_the_settings_of_the_page():
    tables = [tomllib.loads(text) for language, text in blocks("text.md") if language == "toml"]
    assert [Settings(**table).data["name"] for table in tables] == ["stdlib", "text", "leaf"]
    assert {table["data"]["name"] for table in tables} <= set(DATA)


def test_the_sizes_of_the_page():
    rows = re.findall(r"^\| (\d+) \| \d+ \| (\d+) \| ([\d,]+) \| ([\d,]+) \|$", (DOCS / "text.md").read_text(), re.M)
    assert len(rows) == 4
    for layers, width, *sizes in rows:
        n, w = int(layers), int(width)
        rest = n * (4 * w * w + 24 * w * -(-w // 3) + 2 * w) + w
        assert [int(size.replace(",", "")) for size in sizes] == [rest + 256 * w, rest + 50_257 * w]
