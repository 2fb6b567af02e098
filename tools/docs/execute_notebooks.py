"""Run the notebooks from the first cell to the last and store what they show: `make notebooks`."""

import os
import sys
from pathlib import Path

import nbformat
from colab import CELL, CELL_ID, with_address
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"


def execute(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.id != CELL_ID]
    first = nbformat.v4.new_code_cell(with_address(CELL, os.environ.get("REPOSITORY_URL")), id=CELL_ID)
    notebook.cells = [cells[0], first, *cells[1:]]  # below the heading
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata = {}  # times of execution would differ from run to run
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(FOLDER.glob("*.ipynb")):
        print(path)
        execute(path)
