"""The stored notebooks ran from top to bottom, and their code still runs."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
BY_NAME = {"ids": lambda path: path.stem}


def code_cells(path):
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} == {"first_steps", "federated_lasso"}


@pytest.mark.parametrize("path", NOTEBOOKS, **BY_NAME)
def test_it_was_executed_in_order_without_errors(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds == {"stream", "display_data"}  # text and figures, no errors
    assert all(output.get("name") != "stderr" for cell in cells for output in cell["outputs"])
    assert path.stat().st_size < 300_000


@pytest.mark.parametrize("path", NOTEBOOKS, **BY_NAME)
def test_its_code_runs(path, monkeypatch):
    """With few rounds, in one namespace, without a kernel."""
    plt = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("sklearn")
    plt.switch_backend("agg")
    monkeypatch.setattr(plt, "show", plt.close)
    names: dict[str, object] = {}
    printed = StringIO()
    with torch.random.fork_rng(devices=[]), redirect_stdout(printed):
        for cell in code_cells(path):
            exec("".join(cell["source"]), names)
            if "ROUNDS" in names:
                names["ROUNDS"] = min(names["ROUNDS"], {"first_steps": 8}.get(path.stem, 1000))
    assert printed.getvalue()
