"""The example runs, and the documentation shows it as it is."""

import re
import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "bring_your_own.py"
GUIDE = (ROOT / "docs" / "bring_your_own.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
NUMBERS = re.compile(
    r"accuracy (?P<accuracy>[\d.]+), density (?P<density>[\d.]+) of (?P<parameters>\d+) parameters\n"
    r"bytes up (?P<up>[\d,]+), down (?P<down>[\d,]+)\n"
)


def numbers(text):
    found = NUMBERS.search(text)
    assert found, text
    return {name: float(number.replace(",", "")) for name, number in found.groupdict().items()}


@pytest.fixture(scope="module")
def example():
    """The names that the example leaves behind, and what it printed."""
    printed = StringIO()
    with torch.random.fork_rng(devices=[]), redirect_stdout(printed):
        names = runpy.run_path(str(EXAMPLE), run_name="__main__")
    return names, printed.getvalue()


def test_the_guide_shows_the_example_as_it_is():
    assert BLOCKS[0] == EXAMPLE.read_text("utf-8")


def test_the_example_is_short():
    lines = [line for line in BLOCKS[0].splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(lines) < 30


def test_the_example_prints_sensible_numbers(example):
    printed = numbers(example[1])
    assert printed["accuracy"] >= 0.93
    assert 0 < printed["density"] < 0.2
    clients, rounds = 5, 100
    dense = 4 * printed["parameters"] * clients * rounds
    assert 0 < printed["up"] < 0.1 * dense
    assert printed["up"] < printed["down"] < 0.4 * dense


def test_the_guide_quotes_what_the_example_prints(example):
    quoted, printed = numbers(GUIDE), numbers(example[1])
    assert quoted["parameters"] == printed["parameters"]
    assert quoted["accuracy"] == pytest.approx(printed["accuracy"], abs=0.02)
    for name in ("density", "up", "down"):
        assert quoted[name] == pytest.approx(printed[name], rel=0.1)


def test_the_trained_parameters_are_in_the_module(example):
    names, _ = example
    trained = torch.cat([p.detach().flatten() for p in names["model"].parameters()])
    assert float((trained != 0).double().mean()) == names["last"]["density"]


def test_the_guide_s_other_blocks_continue_the_example(example, tmp_path, monkeypatch):
    names = dict(example[0])
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(devices=[]):
        for block in BLOCKS[1:]:
            exec(block, names)
    assert (tmp_path / "model.pt").exists()
    assert names["exact"]["stationarity"][-1] < names["exact"]["stationarity"][0]
    assert names["fit"]["objective"][-1] < names["fit"]["objective"][0]
    assert "accuracy" not in names["fit"].records[-1]
    assert int(names["chosen"].sum()) == 30 * 32 + 32 * 2
