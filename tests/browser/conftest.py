"""A browser without a window, and a report on small real runs; tests are skipped where there is no browser."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcef.core.errors import DivergedError
from fedcef.report import RunRecord, find_frontier, find_runs, load_runs, write_frontier, write_page, write_paper
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BASE = ("model.name=softmax", "rounds=14", "eval.every=1", "local_steps=2", "num_clients=5", "snapshot_every=0")
RUNS = {
    "sparse": ("label=FedCEF <r=0.1>",),
    "sparse-1": ("label=FedCEF <r=0.1>", "seed=1"),
    "zhang": ("label=Zhang & others", "algorithm.name=zhang", "compressor.name=identity"),
    "diverged": ("label=Diverged", "local_lr=1e30"),
}


@dataclass
class Visit:
    """A page in a browser, and all that it complained about or asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


Open = Callable[..., Visit]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn", reason="the runs of these tests are on scikit-learn's digits")
    folder = tmp_path_factory.mktemp("runs")
    for name, changes in RUNS.items():
        with suppress(DivergedError):
            run(load_settings("demo", [*BASE, *changes]), RunFolder.new(folder / name))
    return folder


@pytest.fixture(scope="session")
def pages(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """report.html, frontier.html and paper.html about the runs, many.html about 50 of 5,000 rounds each."""
    out = tmp_path_factory.mktemp("pages")
    records = load_runs(find_runs(runs))
    write_frontier(find_frontier(records, [("a reference", 1e6, 0.9)]), records, out)
    (out / "report.html").rename(out / "frontier.html")
    write_page(records, out / "report.html")
    write_paper(find_runs(runs), out)
    write_page(_many(records[0]), out / "many.html")
    return out


def _many(record: RunRecord) -> list[RunRecord]:
    """Runs of two methods in 25 variants each, as long as the page has to thin."""
    t = np.arange(5001.0)
    found = []
    for k in range(50):
        columns = {name: (k + 1) * 1e3 * t for name in record.rounds if name.endswith("bytes")}
        measured = dict.fromkeys(("train_loss", "objective", "stationarity", "density"), (k % 25 + 1) / (t + 9))
        rounds = {"round": t, "wall_s": t / 50, "accuracy": 1 - measured["density"], **columns, **measured}
        method = ("fedcef", "zhang")[k % 2]
        config = {**record.config, "local_lr": 0.01 * (k + 1), "algorithm": {"name": method}}
        summary = {**record.summary, **{name: float(column[-1]) for name, column in rounds.items()}}
        found.append(replace(record, label=f"{method} variant {k}", rounds=rounds, config=config, summary=summary))
    return found


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, by `npm install axe-core` here, or from where AXE_CORE says."""
    places = [os.environ.get("AXE_CORE", ""), "node_modules/axe-core/axe.min.js"]
    path = next((Path(place) for place in places if place and Path(place).is_file()), None)
    if path is None:
        pytest.skip("axe-core is not here: npm install --no-save axe-core, or set AXE_CORE to its axe.min.js")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is on the path")
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with driver.sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=flags)
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any, pages: Path) -> Iterator[Open]:
    """visit(name, width=…, scheme=…) -> the page, opened in a window of its own."""
    contexts = []

    def go(name: str = "report.html", width: int = 1400, scheme: str = "light", view: str = "") -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        found = Visit(context.new_page())
        found.page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.goto((pages / name).as_uri() + view)
        return found

    yield go
    for context in contexts:
        context.close()
