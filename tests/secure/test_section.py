"""The section [secure]: what it makes of a method, and what it refuses, in one sentence each."""

import pytest
import torch

from deployment.setting import LASSO, simulation
from fedcef.compressors.grid import Grid
from fedcef.core.errors import ConfigError
from fedcef.runs.settings import Settings

SECURE = {"range": 0.5, "bits": 10}
BASE = {
    "rounds": 3,
    "num_clients": 6,
    "local_steps": 2,
    "local_lr": 0.01,
    "data": LASSO,
    "algorithm": {"name": "fedpaq"},
    "secure": SECURE,
}


def settings(**changes):
    return Settings(**{**BASE, **changes})


def built(**changes):
    run = settings(**changes)
    return run.build_algorithm(run.build_problem())


def test_it_is_off_by_default_and_survives_a_file():
    assert Settings().secure is None
    run = settings()
    assert "[secure]" in run.to_toml()
    assert run.secure.threshold == pytest.approx(2 / 3)


@pytest.mark.parametrize(("clients_per_round", "width"), [(0, 13), (2, 11), (4, 12)])
def test_numbers_are_as_wide_as_the_sum_of_a_cohort(clients_per_round, width):
    grid = built(clients_per_round=clients_per_round).compressor
    assert isinstance(grid, Grid)
    assert (grid.width, grid.ratio, grid.bits) == (width, 1.0, 10)


def test_randk_says_what_is_drawn():
    grid = built(compressor={"name": "randk", "ratio": 0.25, "unbiased": True}).compressor
    assert (grid.ratio, grid.unbiased) == (0.25, True)


REFUSED = {
    "sends other positions for each client": {"compressor": {"name": "topk"}},
    "TopK sends other positions": {"compressor": {"name": "topk"}},
    "STC sends other positions": {"compressor": {"name": "stc"}},
    "Threshold sends other positions": {"compressor": {"name": "threshold"}},
    "DCTTopK sends other positions": {"compressor": {"name": "dct_topk"}},
    "QSGD has scales or factors of each client's own": {"compressor": {"name": "qsgd"}},
    "Eden has scales": {"compressor": {"name": "eden"}},
    "PowerSGD has scales": {"compressor": {"name": "powersgd"}},
    "leave compressor.values out": {"compressor": {"name": "randk", "values": "uniform4"}},
    "scaffold sends more than that": {"algorithm": {"name": "scaffold"}},
    "that of demo needs the single ones": {"algorithm": {"name": "demo"}, "compressor": {"name": "identity"}},
    "take weighting = 'uniform'": {"weighting": "samples"},
    "A budget is not planned with": {"budget": "1MB", "compressor": {"name": "randk"}},
    "only a mean can be made of that": {"aggregation": {"name": "median"}},
    "The sum of 1 message hides nothing": {"clients_per_round": 1},
    "at most 24 are exact": {"secure": {"range": 1.0, "bits": 16}, "num_clients": 300},
    "client's own noise goes without": {"privacy": {"clip": 1.0, "noise": 1.0}},
    "goes with [secure]": {"privacy": {"clip": 1.0, "noise": 1.0, "added_by": "server"}, "secure": None},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_refused(said):
    if "privacy" in REFUSED[said]:
        pytest.importorskip("dp_accounting")
    with pytest.raises(ConfigError) as refused:
        built(**REFUSED[said])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [{"bits": 1}, {"bits": 17}, {"block": 3}, {"block": 1}, {"threshold": 0.5}, {"neighbours": 3}, {"range": 0}],
)
def test_options_that_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"secure.{next(iter(wrong))}"):
        settings(secure={**SECURE, **wrong})


@pytest.mark.parametrize("method", ["fedpaq", "fedcef", "ef21", "scallion", "fed_ef"])
@pytest.mark.parametrize("compressor", [{"name": "identity"}, {"name": "randk", "ratio": 0.5}])
def test_a_fine_grid_is_next_to_none(method, compressor):
    """With 16 bits a run ends where it ends without; chunks of a cohort and the whole give the same bits."""
    run = settings(algorithm={"name": method}, compressor=compressor, secure={"range": 64.0, "bits": 16, "block": 0})
    with_, without = simulation(run), simulation(settings(algorithm=run.algorithm, compressor=compressor, secure=None))
    chunked = simulation(run.model_copy(update={"cohort_chunk": 4}))
    for one in (with_, without, chunked):
        for _ in range(run.rounds):
            one.step()
    assert torch.equal(with_.model(), chunked.model())
    if compressor["name"] == "identity":
        assert float((with_.model() - without.model()).norm() / without.model().norm()) < 2e-3
    expected = 3 * 6 * (23 + 1 + len(next(iter(up_names(run)))) + 50 + -(-grid_count(run) * 19 // 8))
    assert with_.ledger.totals()["wire_up_bytes"] == expected


def up_names(run):
    problem = run.build_problem()
    algorithm = run.build_algorithm(problem)
    from fedcef.deployment.protocol import Protocol

    assert algorithm.compressor.width == 19
    return Protocol(run, problem).up_parts()


def grid_count(run):
    problem = run.build_problem()
    return run.build_algorithm(problem).compressor.count(problem.dim)
