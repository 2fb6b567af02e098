"""Reports as files: figures, tables and pages about the same runs, together in one folder."""

from collections.abc import Sequence
from pathlib import Path

from fedcef.core.errors import RunError
from fedcef.report.data.frontier import Frontier, write_csv
from fedcef.report.data.groups import axes_of
from fedcef.report.data.paper import group_by_dataset
from fedcef.report.data.records import RunRecord, load_runs
from fedcef.report.figures.figure import draw_figure
from fedcef.report.figures.frontier import draw_frontier
from fedcef.report.figures.paper import draw_paper
from fedcef.report.page.document import write_groups, write_page
from fedcef.report.page.frontier import write_frontier_page


def write_report(folders: Sequence[Path], out: Path, page: bool = True) -> list[Path]:
    """Writes `figure.png`, `figure.pdf` and, unless another will, `report.html` about the run folders into `out`."""
    records = load_runs(folders)
    _make(out)
    paths = [out / "figure.png", out / "figure.pdf"]
    for path in paths:
        draw_figure(records, path)
    if page:
        write_page(records, out / "report.html")
    return [*paths, *([out / "report.html"] if page else [])]


def write_paper(folders: Sequence[Path], out: Path) -> list[Path]:
    """Writes the paper's figures about the run folders, and `paper.html`, into `out`."""
    groups, names = group_by_dataset(load_runs(folders))
    _make(out)
    shown = axes_of([item for group in groups for item in group.items])
    axes = dict.fromkeys(sorted(shown, key=lambda axis: axis != "paper_bytes"), False)
    paths = draw_paper(groups, out)
    write_groups(groups, names, axes, out / "paper.html")
    return [*paths, out / "paper.html"]


def write_frontier(found: Frontier, records: Sequence[RunRecord], out: Path) -> list[Path]:
    """Writes `frontier.png`, `.pdf` and `.csv`, and `report.html` that begins with the frontier, into `out`."""
    _make(out)
    paths = [*(out / f"frontier.{suffix}" for suffix in ("png", "pdf", "csv")), out / "report.html"]
    draw_frontier(found, paths[0])
    draw_frontier(found, paths[1])
    write_csv(found, paths[2])
    write_frontier_page(found, records, paths[3])
    return paths


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The report cannot be written to {out}: {error.strerror}.") from error
