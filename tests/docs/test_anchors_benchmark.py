"""The benchmark of anchors: models coded against models that clients have."""

import sys

import pytest
import torch
from test_pages import DOCS

SIZE = 8192


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(DOCS.parent / "benchmarks")
    yield __import__("anchors")
    for module in ("anchors", "measure"):
        sys.modules.pop(module, None)


def models(moved):
    """A start, an earlier model and one that has moved on from it by that share of its way."""
    start, way, more = torch.randn(3, SIZE, generator=torch.Generator().manual_seed(0))
    return start, start + way, start + way + moved * more


def test_without_an_anchor_it_is_what_a_snapshot_leaves(study):
    start, past, now = models(0.3)
    found = study.measured(now, {5: past}, start, 7)
    for bits, share in ((1, 0.363), (2, 0.1175), (3, 0.0345), (4, 0.0095)):  # of the best levels for normal numbers
        error, length = found[f"start: {bits}"]
        assert error == pytest.approx(share / (1 - share), rel=0.08)  # made unbiased
        assert length == pytest.approx(bits * SIZE // 8, abs=110)


def test_an_anchor_leaves_so_much_less_as_the_model_has_moved_since(study):
    start, past, now = models(0.1)
    found = study.measured(now, {5: past}, start, 7)
    for bits in (1, 2, 4):
        assert found[f"exact 5: {bits}"][0] == pytest.approx(0.01 * found[f"start: {bits}"][0], rel=0.1)
        assert found[f"exact 5: {bits}"][1] == pytest.approx(found[f"start: {bits}"][1], rel=0.01)


def test_an_anchor_that_must_be_fetched_costs_its_bytes_and_brings_its_error(study):
    start, past, now = models(0.0)
    found = study.measured(now, {5: past}, start, 7)
    error, length = found["told 5 in 2: 1"]
    assert length == pytest.approx(found["start: 2"][1] + found["start: 1"][1], rel=0.02)
    assert error == pytest.approx(found["start: 2"][0] * found["start: 1"][0], rel=0.1)
    assert error > found["start: 3"][0]  # two messages tell less than one of as many bits
