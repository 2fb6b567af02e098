"""The notebooks' first cell installs what is missing, and nothing where nothing is; the site links to Colab."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))

from colab import CELL, CELL_ID, link, with_address  # noqa: E402

HERE = "https://github.com/someone/fedcef"


def installs(cell, monkeypatch, folder, missing=()):
    """Run the cell in a folder where some modules are missing; the commands that it starts."""
    started = []
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
    monkeypatch.setattr(subprocess, "run", lambda command, check: started.append(command))
    monkeypatch.chdir(folder)
    exec(cell, {})
    return started


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_it_is_the_first_code_of_every_notebook(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    assert first["id"] == CELL_ID
    assert "".join(first["source"]) == CELL
    assert first["outputs"] == []


def test_it_does_nothing_where_all_is_here(monkeypatch, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    assert installs(CELL, monkeypatch, tmp_path) == []


def test_it_installs_from_the_checkout_around_it(monkeypatch):
    (command,) = installs(CELL, monkeypatch, ROOT / "notebooks", ["fedcef"])
    assert command == [
        sys.executable, "-m", "pip", "install", "--quiet", f"fedcef[data,plot] @ {ROOT.as_uri()}"
    ]  # fmt: skip


@pytest.mark.parametrize("missing", ["fedcef", "sklearn", "matplotlib"])
def test_without_a_checkout_it_installs_from_the_repository(missing, monkeypatch, tmp_path):
    (command,) = installs(with_address(CELL, HERE), monkeypatch, tmp_path, [missing])
    assert command[-1] == f"fedcef[data,plot] @ git+{HERE}"


def test_without_an_address_it_says_what_to_do(monkeypatch, tmp_path):
    with pytest.raises(RuntimeError, match="set REPOSITORY to the address of its repository"):
        installs(CELL, monkeypatch, tmp_path, ["fedcef"])


def test_the_link_leads_to_the_published_copy(monkeypatch):
    monkeypatch.delenv("DOCS_VERSION", raising=False)
    assert link(HERE, "a.ipynb") == ""  # not published
    monkeypatch.setenv("DOCS_VERSION", "0.2")
    assert link(None, "a.ipynb") == ""
    assert link(HERE, "a.ipynb") == (
        "https://colab.research.google.com/github/someone/fedcef/blob/gh-pages/0.2/notebooks/a.ipynb"
    )


def test_the_page_and_the_copy_of_a_published_site(monkeypatch):
    pytest.importorskip("mkdocs")
    from notebooks import copy, page

    monkeypatch.setenv("DOCS_VERSION", "0.2")
    notebook = ROOT / "notebooks/first_steps.ipynb"
    code = ["".join(cell["source"]) for cell in json.loads(copy(notebook, HERE))["cells"]]
    assert with_address(CELL, HERE) in code
    assert f'REPOSITORY = "{HERE}"' in with_address(CELL, HERE)
    text, _ = page(notebook, HERE)
    assert "[Open in Colab](https://colab" in text
    assert "subprocess" not in text  # the cell is for those who run it
    assert "Colab" not in page(notebook)[0]
