"""Tables, figures and the HTML page about finished runs.

Everything here is read from run folders; nothing here knows the simulator.  `data/` reads and groups, `figures/` draws
for paper, `page/` writes the interactive page, `write.py` puts them together.
"""

from fedcef.report.data.frontier import Frontier, find_frontier, make_frontier_table
from fedcef.report.data.records import RunRecord, load_runs
from fedcef.report.data.table import make_table
from fedcef.report.figures.figure import draw_figure
from fedcef.report.figures.panels import draw_figures
from fedcef.report.figures.tradeoff import draw_tradeoff
from fedcef.report.page.document import write_page
from fedcef.report.write import write_frontier, write_paper, write_report
from fedcef.runs.reader import find_runs

__all__ = [
    "Frontier",
    "RunRecord",
    "draw_figure",
    "draw_figures",
    "draw_tradeoff",
    "find_frontier",
    "find_runs",
    "load_runs",
    "make_frontier_table",
    "make_table",
    "write_frontier",
    "write_page",
    "write_paper",
    "write_report",
]
