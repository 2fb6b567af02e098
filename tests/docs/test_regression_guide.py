"""The guide to regression runs, and prints what it says."""

import re

import pytest
from test_pages import outputs

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-\d+)?")


def numbers(text):
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


def test_the_guide():
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    pairs, names = outputs("guides/regression.md")
    for printed, said in pairs:
        if said is None:
            continue
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", said)
        assert numbers(printed) == pytest.approx(numbers(said), rel=0.02, abs=1e-4)
    assert abs(names["weights"].numpy() - names["pooled"].coef_).max() < 1e-4
    assert names["history"].last["stationarity"] < 1e-8
