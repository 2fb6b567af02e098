"""How long a browser takes over a report on 50 runs of 100,000 evaluated rounds with 200 clients.

    python benchmarks/report_page.py [--repeats 5]        needs playwright and a Chromium on the path

Seconds from asking for the page to its first paint and to the first curves that can be seen (the page is opened at its
curves; panels out of view wait), and from choosing another axis to the next frame.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from fedcef.report import write_page
from fedcef.report.data.records import RunRecord

ROUNDS, RUNS, CLIENTS = 100_000, 50, 200
SIZE = {"width": 1440, "height": 900}
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

SHOWN = """() => new Promise((done) => {
  const look = () => document.querySelector(".plot .scatterlayer .trace")
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now() / 1e3)))
    : requestAnimationFrame(look);
  look();
})"""
CHANGED = """(axis) => new Promise((done) => {
  const began = performance.now();
  document.querySelector(`#axes input[value=${axis}]`).click();
  requestAnimationFrame(() => setTimeout(() => done((performance.now() - began) / 1e3)));
})"""
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime / 1e3"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        found, began = records(), time.perf_counter()
        write_page(found, path)
        print(f"written in {time.perf_counter() - began:.1f} s, {path.stat().st_size / 1e6:.2f} MB")
        flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        with sync_playwright() as play:
            program = next(place for name in NAMES if (place := shutil.which(name)))
            browser = play.chromium.launch(executable_path=program, args=flags)
            print(f"Chromium {browser.version}, {SIZE['width']} x {SIZE['height']}; medians of {repeats}, and ranges")
            visits = [visit(browser, path) for _ in range(repeats)]
            browser.close()
    for what in visits[0]:
        seconds = [one[what] for one in visits]
        print(f"  {what:16} {statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f})")


def visit(browser: Browser, path: Path) -> dict[str, float]:
    """Open the page in a window of its own, and choose two other axes."""
    page = browser.new_page(viewport=SIZE)
    page.goto(f"{path.as_uri()}#curves", wait_until="commit")
    drawn = page.evaluate(SHOWN)
    found = {"first paint": page.evaluate(PAINTED), "first curves": drawn}
    found["axis to rounds"] = page.evaluate(CHANGED, "round")
    found["axis to bytes"] = page.evaluate(CHANGED, "wire_bytes")
    page.close()
    return found


def records() -> list[RunRecord]:
    """Runs of two methods, evaluated in every round."""
    t = np.arange(ROUNDS + 1.0)
    noise = np.random.default_rng(0).normal(size=t.size)
    common = {"round": t, "wall_s": 0.013 * t, "accuracy": 0.9 - 0.8 * np.exp(-t / 9e3) + 0.01 * noise}
    common |= {name: 0.1 + np.exp(-t / 2e4 + 0.1 * noise) for name in ("train_loss", "objective", "stationarity")}
    counts = [[n % 7 + label for label in range(10)] for n in range(CLIENTS)]
    facts = {"clients": {"classes": list(range(10)), "counts": counts}}
    found = []
    for k in range(RUNS):
        sent = 1234.5 * (k + 1) * t
        columns = {f"{count}_{way}_bytes": sent for count in ("wire", "paper") for way in ("up", "down")}
        columns |= common | {"wire_bytes": 2 * sent, "paper_bytes": 2 * sent, "density": np.exp(-t / (1e4 * (k + 1)))}
        config = {"name": "large", "rounds": ROUNDS, "num_clients": CLIENTS, "local_lr": 0.01 * k, "seed": 0}
        config |= {"algorithm": {"name": ("fedcef", "zhang")[k % 2]}, "data": {"name": "mnist"}}
        text = "\n".join(f"setting_{i} = {i}" for i in range(90))
        summary = {"status": "finished", "accuracy": 0.9, "seed": 0}
        found.append(RunRecord(Path("gone") / str(k), f"run {k}", columns, summary, config, text, facts))
    return found


if __name__ == "__main__":
    main()
