"""Tables on narrow terminals: columns go before names are broken."""

import io

import pytest
from rich.console import Console

from fedcef.report import find_frontier, load_runs, make_frontier_table, make_table

LABELS = ("FedCEF r=0.01, dense downlink", "Zhang et al.")


def printed(view, width):
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(view)
    return console.file.getvalue()


@pytest.fixture
def records(make_run):
    return load_runs([make_run(label.replace(" ", "_"), label=label) for label in LABELS])


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(110, []), (80, ["paper total", "wall", "train loss"]), (60, ["density", "wire up"])],
)
def test_results(records, width, left_out):
    text = printed(make_table(records), width)
    assert all(label in text for label in LABELS)
    assert max(map(len, text.splitlines())) <= width
    said = " ".join(text.partition("A wider terminal also shows: ")[2].split()).rstrip(".").split(", ")
    assert bool(left_out) == ("A wider terminal" in text)
    assert set(left_out) <= set(said)
    assert "accuracy" in text
    assert "total" in text


def test_a_frontier(records):
    found = find_frontier(records)
    assert "wire up" in printed(make_frontier_table(found), 100)
    narrow = printed(make_frontier_table(found), 60)
    assert all(label in narrow for label in LABELS)
    assert "wire up" not in narrow.partition("A wider terminal")[0]
    assert "A wider terminal also shows: wire up" in narrow
