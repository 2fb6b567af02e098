"""The rules by hand: what they make of a few vectors, what a few vectors can do to them, and when they are the mean."""

import math
import tomllib
from dataclasses import dataclass

import pytest
import torch

from fedcef.algorithms.received import mean_of
from fedcef.core.aggregation import (
    AGGREGATIONS,
    Aggregation,
    GeometricMedian,
    Mean,
    Median,
    NormClipping,
    TrimmedMean,
)
from fedcef.core.errors import ConfigError
from fedcef.core.training import Training
from fedcef.runs.settings import Settings
from fedcef.wire import Dense

FIVE = torch.tensor([[1.0, 0.0], [2.0, -1.0], [4.0, 8.0], [3.0, 1.0], [1000.0, -999.0]], dtype=torch.float64)


def combined(rule, vectors, memory=None):
    return rule.combine(vectors, rule.start(vectors[0]) if memory is None else memory)[0]


def test_a_trimmed_mean_by_hand():
    assert combined(TrimmedMean(trim=0.2), FIVE).tolist() == [3.0, 0.0]  # of 2, 3, 4 and of -1, 0, 1
    assert combined(TrimmedMean(trim=0.4), FIVE).tolist() == [3.0, 0.0]  # the medians are left


def test_trimming_rounds_up_and_leaves_something():
    ten = torch.arange(10.0).square().unsqueeze(1)
    assert combined(TrimmedMean(trim=0.11), ten) == sum(k * k for k in range(2, 8)) / 6
    assert combined(TrimmedMean(trim=0.2), ten) == sum(k * k for k in range(2, 8)) / 6  # 0.2 · 10 is 2, not 3
    assert combined(TrimmedMean(trim=0.49), ten) == (16 + 25) / 2
    assert combined(TrimmedMean(trim=0.49), ten[:2]) == 0.5
    assert TrimmedMean(trim=0.49).is_mean(2)


def test_a_median_by_hand():
    assert combined(Median(), FIVE).tolist() == [3.0, 0.0]
    assert combined(Median(), FIVE[:4]).tolist() == [2.5, 0.5]


def test_clipping_by_hand_with_a_bound_that_follows_the_norms():
    rule = NormClipping(factor=2.0, memory=0.5)
    vectors = torch.tensor([[3.0, 4.0], [0.0, 1.0], [30.0, 40.0]], dtype=torch.float64)  # of norms 5, 1, 50
    first, memory = rule.combine(vectors, rule.start(vectors[0]))
    assert memory["usual"].tolist() == [5.0]
    assert first.tolist() == pytest.approx([(3 + 0 + 6) / 3, (4 + 1 + 8) / 3], abs=1e-15)  # the third has norm 10
    second, memory = rule.combine(2 * vectors, memory)
    assert memory["usual"].tolist() == [7.5]  # halfway from 5 to 10
    assert second.tolist() == pytest.approx([(6 + 0 + 9) / 3, (8 + 2 + 12) / 3], abs=1e-15)  # to norm 15


def test_the_usual_norm_is_a_quantile():
    norms = torch.arange(1.0, 11.0, dtype=torch.float64).unsqueeze(1)
    for quantile, usual in ((0.5, 5.0), (0.8, 8.0), (1.0, 10.0), (0.01, 1.0)):
        rule = NormClipping(quantile=quantile)
        assert rule.combine(norms, rule.start(norms[0]))[1]["usual"].tolist() == [usual]


def test_a_geometric_median_by_hand():
    """Of three points on a line the middle one; of the corners of a square its centre, for which a far one pays."""
    line = torch.tensor([[0.0], [1.0], [50.0]], dtype=torch.float64)
    assert combined(GeometricMedian(iterations=60), line).item() == pytest.approx(1.0, abs=1e-4)
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    assert combined(GeometricMedian(), square).abs().max() <= 1e-12
    point = combined(GeometricMedian(iterations=200), FIVE)
    pull = (point - FIVE) / (point - FIVE).norm(dim=1, keepdim=True)
    assert pull.sum(0).norm() <= 1e-9  # the gradient of the sum of distances


@pytest.mark.parametrize("rule", [TrimmedMean(trim=0.0), NormClipping(factor=math.inf), Mean()])
def test_what_is_the_mean_is_so_bit_for_bit(rule):
    vectors = torch.randn(7, 33, generator=torch.Generator().manual_seed(1))
    assert rule.is_mean(7)
    assert torch.equal(combined(rule, vectors), mean_of(Dense(vectors)))


def test_a_bound_that_nobody_reaches_leaves_the_mean_bit_for_bit():
    vectors = torch.randn(7, 33, generator=torch.Generator().manual_seed(1))
    rule = NormClipping(factor=1e6)
    assert not rule.is_mean(7)
    assert torch.equal(combined(rule, vectors), mean_of(Dense(vectors)))


@pytest.mark.parametrize("name", [name for name in AGGREGATIONS if name != "mean"])
def test_equal_vectors_stay_what_they_are(name):
    vectors = torch.tensor([[0.5, -3.0, 1024.0]]).repeat(8, 1)
    assert torch.equal(combined(AGGREGATIONS[name](), vectors), vectors[0])


@pytest.mark.parametrize("name", [name for name in AGGREGATIONS if name != "mean"])
@pytest.mark.parametrize("size", [1e3, 1e12, 3e38])
def test_a_fifth_of_the_vectors_cannot_lead_it_away(name, size):
    """The others are around 1; however large the lies are, the result stays near, and finite."""
    honest = 1 + 0.1 * torch.randn(16, 50, generator=torch.Generator().manual_seed(2))
    lies = torch.full((4, 50), -size)
    rule = AGGREGATIONS[name]()
    result = combined(rule, torch.cat([honest[:8], lies, honest[8:]]))
    shift = (result - honest.mean(0)).norm() / honest.mean(0).norm()
    assert shift <= {"norm_clipping": 0.45}.get(name, 0.08)  # clipping bounds each lie by the usual norm: 4/20 · 2
    assert (combined(Mean(), torch.cat([honest, lies])) - 1).norm() > 100 * shift


@pytest.mark.parametrize("name", ["trimmed_mean", "median"])
def test_the_order_of_clients_and_of_columns_does_not_matter(name, monkeypatch):
    vectors = torch.randn(9, 40, generator=torch.Generator().manual_seed(3))
    rule = AGGREGATIONS[name]()
    whole = combined(rule, vectors)
    assert torch.equal(combined(rule, vectors.flip(0)), whole)
    monkeypatch.setattr("fedcef.core.aggregation._AT_ONCE", 27)  # three columns at a time
    assert torch.equal(combined(rule, vectors), whole)


def test_a_rule_is_named_like_every_part():
    assert Training(aggregation="median").aggregation == Median()
    assert Training(aggregation={"name": "trimmed_mean", "trim": 0.1}).aggregation == TrimmedMean(trim=0.1)
    assert Training(aggregation=NormClipping(factor=math.inf)).aggregation.is_mean(3)
    assert Training().aggregation == Mean()
    for wrong, says in (
        ("mode", "aggregation.name is 'mode'; it must be one of mean, trimmed_mean, median, norm_clipping"),
        ({"name": "trimmed_mean", "trim": 0.5}, "aggregation.trim is 0.5; it must be less than 0.5."),
        ({"name": "median", "trim": 0.1}, "There is no setting aggregation.trim"),
        (NormClipping(factor=0.0), "factor is 0.0; it must be greater than 0."),
        (3, "a rule, its name or a section"),
    ):
        with pytest.raises(ConfigError, match=says):
            Training(aggregation=wrong)


@dataclass(frozen=True, kw_only=True)
class OneOf(Aggregation):
    """The vector of one client."""

    place: int = 0
    """Whose."""

    def combine(self, vectors, memory):
        return vectors[self.place], memory


def test_a_rule_of_ones_own_is_named_by_its_import_path():
    section = {"name": f"{__name__}:OneOf", "place": 2}
    settings = Settings(aggregation=section)
    assert settings.aggregation == OneOf(place=2)
    assert Settings(**tomllib.loads(settings.to_toml())).aggregation == OneOf(place=2)
