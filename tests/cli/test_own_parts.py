"""Classes of one's own by import path, from the folder in which the command is given."""

import sys
import tomllib

import pytest

MODULE = '''
"""What someone has beside their experiments."""
from dataclasses import dataclass

import torch

from fedcef.algorithms import FedCEF
from fedcef.compressors import TopK
from fedcef.core.schedules import Schedule
from fedcef.regularizers import L1


@dataclass(frozen=True)
class Lazy(FedCEF):
    """A method whose server stays where it is."""

    def model(self, replica):
        return 0 * replica["z"]


@dataclass(frozen=True)
class OneIn(TopK):
    """Keeps one entry in so many."""

    every: int = 100

    def compress(self, x, key):
        return TopK(ratio=1 / self.every).compress(x, key)


@dataclass(frozen=True)
class Twice(L1):
    """Twice the norm."""

    def value(self, x):
        return 2 * super().value(x)


@dataclass(frozen=True)
class Half(Schedule):
    """Half of every step."""

    def factor(self, round_):
        return torch.full_like(round_, 0.5, dtype=torch.float64)
'''
TINY = ["--set", "rounds=2", "--set", "num_clients=3", "--set", "model.name=softmax", "--set", "snapshot_every=1"]


@pytest.fixture
def own(tmp_path, fedcef):
    (tmp_path / "my_parts.py").write_text(MODULE)
    yield fedcef
    sys.modules.pop("my_parts", None)


@pytest.mark.parametrize(
    ("key", "name", "options"),
    [
        ("algorithm", "Lazy", {"mixing": 0.5}),
        ("compressor", "OneIn", {"every": 50}),
        ("regularizer", "Twice", {"weight": 0.01}),
        ("local_schedule", "Half", {}),
    ],
)
def test_it_runs_is_recorded_and_goes_on(own, tmp_path, key, name, options):
    changes = [f"{key}.name=my_parts:{name}", *(f"{key}.{option}={value}" for option, value in options.items())]
    result = own("run", "demo", *TINY, *(word for change in changes for word in ("--set", change)), "--out", "mine")
    assert result.code == 0, result.err
    assert f"my_parts:{name}" in result.out or key != "algorithm"
    recorded = tomllib.loads((tmp_path / "mine" / "config.toml").read_text())[key]
    assert recorded["name"] == f"my_parts:{name}"
    assert recorded.items() >= options.items()
    (tmp_path / "mine" / "summary.json").unlink()
    assert own("run", "--resume", "mine").code == 0


def test_it_can_be_swept(own, tmp_path):
    swept = ["--set", 'compressor.name=["topk","my_parts:OneIn"]', "--only", "FedCEF r=0.1", "--out", "out"]
    result = own("sweep", "demo", *TINY, *swept)
    assert result.code == 0, result.err
    assert "2/2 done" in result.err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "algorithm.name=my_parts:OneIn",
            "is 'my_parts:OneIn'; it must be a dataclass that derives from Algorithm.",
        ),
        ("compressor.name=my_parts:Nothing", "my_parts has no function or class Nothing"),
        ("regularizer.name=nowhere:L1", "there is no module nowhere; start where it lies, or install it."),
        ("compressor.evry=3", "Did you mean compressor.every?"),
    ],
)
def test_mistakes(own, change, says):
    result = own("run", "demo", *TINY, "--set", "compressor.name=my_parts:OneIn", "--set", change)
    assert result.code == 2
    assert says in result.sentence
