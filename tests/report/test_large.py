"""Many long runs: the page stays small, and what stands out stays in it."""

from pathlib import Path

import numpy as np
import pytest

from fedcef.report import write_page
from fedcef.report.data.records import RunRecord
from fedcef.report.data.thinning import thin

ROUNDS, RUNS, CLIENTS = 100_000, 50, 200


def test_ends_and_extremes_are_kept():
    curve = np.cos(np.linspace(0, 400, 50_000))
    curve[31_234] = 9.0
    curve[77] = -9.0
    kept = thin([curve, np.arange(50_000.0)], 400)
    assert {0, 77, 31_234, 49_999} <= set(kept.tolist())
    assert kept.size <= 400
    assert (np.diff(kept) > 0).all()
    assert (kept < 500).sum() > 20  # the beginning, for a logarithmic axis
    assert thin([curve[:400]], 400).tolist() == list(range(400))


@pytest.fixture(scope="module")
def records():
    """50 runs of 100,000 evaluated rounds with 200 clients, on shared columns."""
    t = np.arange(ROUNDS + 1.0)
    noise = np.random.default_rng(0).normal(size=t.size)
    common = {"round": t, "wall_s": 0.013 * t, "accuracy": 0.9 - 0.8 * np.exp(-t / 9e3) + 0.01 * noise}
    for name in ("train_loss", "objective", "stationarity", "density", "test_loss"):
        common[name] = 0.1 + np.exp(-t / 2e4 + 0.1 * noise)
    facts = {
        "clients": {"classes": list(range(10)), "counts": [[n % 7 + c for c in range(10)] for n in range(CLIENTS)]}
    }
    found = []
    for k in range(RUNS):
        sent = 1234.5 * (k + 1) * t
        columns = {f"{count}_{way}_bytes": sent for count in ("wire", "paper") for way in ("up", "down")}
        both = {"wire_bytes": 2 * sent, "paper_bytes": 2 * sent}
        config = {"name": "large", "rounds": ROUNDS, "num_clients": CLIENTS, "local_lr": 0.01 * k, "seed": 0}
        config |= {"algorithm": {"name": ("fedcef", "zhang")[k % 2]}, "data": {"name": "mnist"}}
        text = "\n".join(f"setting_{i} = {i}" for i in range(90))
        summary = {"status": "finished", "accuracy": 0.9, "seed": 0}
        found.append(
            RunRecord(Path("gone") / str(k), f"run {k}", {**common, **columns, **both}, summary, config, text, facts)
        )
    return found


def test_the_page_stays_below_five_megabytes(records, tmp_path):
    write_page(records, tmp_path / "page.html")
    size = (tmp_path / "page.html").stat().st_size
    assert 1e6 < size < 5e6
    assert "Long curves are drawn with fewer points" in (tmp_path / "page.html").read_text("utf-8")
