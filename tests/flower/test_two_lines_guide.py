"""The Python of the guide runs, and does what the guide says."""

import re
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedcef[flower]'")

import torch

from fedcef.flower.two_lines.layout import PIECE, SMALL
from fedcef.flower.two_lines.store import KEPT_RUNS

from .two_lines import Grid, app, start_model

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "flower_two_lines.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def names():
    found = {}
    for block in BLOCK.findall(GUIDE.read_text("utf-8")):
        exec(block, found)
    return found


def test_the_two_lines(names):
    assert type(names["strategy"]).__name__ == "Compressed"
    assert type(names["counting"]).__name__ == "Counted"


def test_messages_by_hand(names, tmp_path):
    from fedcef.flower import CompressedGrid, compressed

    grid = CompressedGrid(Grid(app([compressed()]), state=tmp_path, clients=2))
    models = names["one_round"](grid, start_model(), [1000, 999])
    assert [list(model) for model in models] == [["weight", "bias", "steps"]] * 2


def test_adapters(names):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    model[0].register_parameter("lora_A", torch.nn.Parameter(torch.ones(2, 4)))
    arrays = names["adapter_arrays"](model)
    assert list(arrays) == ["0.lora_A"]
    model[0].lora_A.data.zero_()
    names["put_adapter"](model, arrays)
    assert torch.equal(model[0].lora_A, torch.ones(2, 4))


def test_the_numbers_are_the_code_s():
    text = GUIDE.read_text("utf-8")
    assert f"at most {SMALL} entries" in text
    assert f"{PIECE / 1e6:.1f} million entries" in text
    assert "last four runs" in text
    assert KEPT_RUNS == 4
