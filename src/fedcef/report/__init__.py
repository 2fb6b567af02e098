"""Tables, figures and the HTML page about finished runs.

Everything here is read from run folders; nothing here knows the simulator.
"""

from collections.abc import Sequence
from pathlib import Path

from fedcef.core.errors import RunError
from fedcef.report.data.frontier import Frontier, frontier, frontier_table, write_csv
from fedcef.report.data.records import RunRecord, find_runs, load_runs
from fedcef.report.data.table import table
from fedcef.report.figures.figure import figure
from fedcef.report.figures.figures import figures
from fedcef.report.figures.frontier_figure import frontier_figure
from fedcef.report.figures.paper import paper
from fedcef.report.figures.tradeoff import tradeoff
from fedcef.report.page.frontier_page import frontier_page
from fedcef.report.page.page import page

__all__ = [
    "Frontier",
    "RunRecord",
    "figure",
    "figures",
    "find_runs",
    "frontier",
    "frontier_table",
    "load_runs",
    "page",
    "paper",
    "table",
    "tradeoff",
    "write_frontier",
    "write_paper",
    "write_report",
]


def write_report(folders: Sequence[Path], out: Path) -> list[Path]:
    """Writes `figure.png`, `figure.pdf` and `report.html` about the run folders into `out`."""
    records = load_runs(folders)
    _make(out)
    paths = [out / "figure.png", out / "figure.pdf", out / "report.html"]
    figure(records, paths[0])
    figure(records, paths[1])
    page(records, paths[2])
    return paths


def write_paper(folders: Sequence[Path], out: Path) -> list[Path]:
    """Writes the paper's figures about the run folders, and `paper.html`, into `out`."""
    records = load_runs(folders)
    _make(out)
    return paper(records, out)


def write_frontier(found: Frontier, records: Sequence[RunRecord], out: Path) -> list[Path]:
    """Writes `frontier.png`, `.pdf`, `.csv` and `.html` into `out`."""
    _make(out)
    paths = [out / f"frontier.{suffix}" for suffix in ("png", "pdf", "csv", "html")]
    frontier_figure(found, paths[0])
    frontier_figure(found, paths[1])
    write_csv(found, paths[2])
    frontier_page(found, records, paths[3])
    return paths


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The report cannot be written to {out}: {error.strerror}.") from error
