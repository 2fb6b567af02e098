"""The centralised solver, against the optimality conditions and against scikit-learn."""

import pytest
import torch

from fedcef.core.errors import ProblemError
from fedcef.problems.lasso import lasso
from fedcef.regularizers import L1
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run
from fedcef.simulation.evaluation import Evaluator
from fedcef.simulation.optimum import solve

PROBLEM = lasso(L1(0.1), num_clients=4, samples=60, dim=30, support=10)


def test_the_solution_is_stationary_and_no_point_nearby_is_better():
    z, value = solve(PROBLEM, tolerance=1e-10)
    exact = PROBLEM.to("cpu", torch.float64)
    measures = Evaluator(exact, step=0.01)(z)
    assert measures["stationarity"] <= 1e-16
    assert measures["objective"] == pytest.approx(value, abs=1e-12)
    generator = torch.Generator().manual_seed(0)
    for size in (1e-1, 1e-3):
        for _ in range(20):
            near = z + size * torch.randn(30, generator=generator, dtype=torch.float64)
            assert Evaluator(exact, step=1.0)(near)["objective"] > value


def test_it_agrees_with_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = linear_model.Lasso(alpha=0.1, fit_intercept=False, tol=1e-12, max_iter=100_000)
    model.fit(PROBLEM.train.inputs.double().numpy(), PROBLEM.train.targets.double().numpy())
    z, _ = solve(PROBLEM, tolerance=1e-10)
    assert torch.allclose(z, torch.from_numpy(model.coef_), atol=1e-6)


def test_a_problem_that_it_cannot_solve_is_said_to_be_one():
    with pytest.raises(ProblemError, match=r"did not reach .* set eval.optimum = false"):
        solve(PROBLEM, tolerance=1e-10, iterations=3)


def test_the_gap_is_recorded(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(
        """
        rounds = 20
        num_clients = 4
        local_lr = 0.002
        batch_size = 0
        eval = { every = 5, optimum = true }
        data = { name = "lasso", dim = 20, samples = 30, support = 5 }
        regularizer = { weight = 0.1 }
        """
    )
    summary = run(load_settings(str(path)), RunFolder.new(tmp_path / "run"))
    gaps = [record["gap"] for record in RunFolder(tmp_path / "run").records() if "gap" in record]
    assert len(gaps) == 5
    assert gaps[0] > gaps[-1] == summary["gap"] > -1e-6
