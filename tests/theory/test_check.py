"""fedcef theory: which conditions a run meets, and that the bound holds where it should."""

from dataclasses import replace

import pytest
import torch
import typer
from safetensors.torch import save_file
from torch import nn

import fedcef
from fedcef.algorithms import FedCEF
from fedcef.cli import theory as command
from fedcef.core.errors import ConfigError, RunError
from fedcef.problems.problem import Problem
from fedcef.regularizers import L1
from fedcef.runs.experiments import load_settings
from fedcef.runs.folder import RunFolder
from fedcef.runs.run import run
from fedcef.theory import check_theorem

SMALL = [
    "rounds=40", "num_clients=4", "local_steps=3", "precision=float64", "data.dim=15", "data.samples=30",
    "data.support=5", "eval.every=1", "algorithm.name=fedcef", "compressor.name=topk", "compressor.ratio=0.5",
]  # fmt: skip


def unmet(found):
    return [condition.what for condition in found.conditions if not condition.met]


@pytest.mark.parametrize("batch", [0, 10])
def test_a_run_that_meets_the_conditions_stays_below_the_bound(tmp_path, batch):
    settings = [*SMALL, f"batch_size={batch}"]
    advice = check_theorem("lasso", settings, samples=0).advice
    settings += [f"local_lr={0.99 * advice.local_lr}", f"server_lr={advice.server_lr}"]
    folder = RunFolder.new(tmp_path / "run")
    run(load_settings("lasso", settings), folder)
    found = check_theorem(str(folder.path), samples=0)
    assert unmet(found) == []
    assert found.applies
    assert found.measured.evaluated == found.measured.rounds == 40
    assert 0 < found.measured.mean <= found.bound.total
    assert (found.bound.noise > 0) == (batch > 0)
    assert found.bound.total <= advice.bound.total * 1.02  # nearly the same step sizes


def test_the_advice_meets_both_inequalities():
    advice = check_theorem("lasso", SMALL).advice
    settings = [*SMALL, f"local_lr={advice.local_lr!r}", f"server_lr={advice.server_lr!r}"]
    assert unmet(check_theorem("lasso", settings)) == []


def test_settings_outside_the_theorem_are_named():
    assert unmet(check_theorem("lasso", SMALL)) == [
        "β ≤ min(η², (1-q)²)/(25L)",
        "η_g ≥ √(16(1-q)² + 161η²)/(5η(1-q))",
    ]
    others = [
        "regularizer.name=mcp", "clients_per_round=2", "clip_norm=1.0", "local_schedule.name=cosine",
        "algorithm.drift_weight=0.5", "algorithm.downlink=lossy", "server_lr=100", "local_lr=1e-9",
    ]  # fmt: skip
    found = check_theorem("lasso", [*SMALL, *others])
    assert unmet(found) == [
        "h is convex, ρ",
        "all clients in every round",
        "steps stay as long",
        "gradients are unbiased",
        "Algorithm 1 as it is",
    ]
    assert found.bound is None
    assert not found.applies


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("local_update.name=momentum", "local_update momentum"),
        ("algorithm.control=direction", "control direction"),
        ("algorithm.metric=adam", "metric adam"),
        ("algorithm.downlink=lossy", "lossy downlink"),
        ("algorithm.downlink=snapshot", "snapshot downlink"),
        ("attack.name=sign_flip", "attack"),
    ],
)
def test_what_departs_from_algorithm_1_is_named(change, said):
    found = check_theorem("lasso", [*SMALL, change])
    (condition,) = (each for each in found.conditions if each.what == "Algorithm 1 as it is")
    assert condition.value == said
    assert not condition.met


def test_the_papers_own_downlink_and_the_increment_are_algorithm_1():
    for downlink in ("dense", "increment"):
        assert "Algorithm 1 as it is" not in unmet(check_theorem("lasso", [*SMALL, f"algorithm.downlink={downlink}"]))


def test_networks_with_kinks_and_unbounded_regularisers_are_named():
    found = check_theorem("demo", ["num_clients=2", "regularizer.name=elastic_net"], samples=8)
    assert {"every f_i is smooth", "|h'| is bounded, B_h"} <= set(unmet(found))
    assert found.advice.bound is None


def test_a_compressor_without_q_leaves_nothing_to_say_of_steps():
    found = check_theorem("lasso", [*SMALL, "compressor.name=randk", "compressor.unbiased=true"])
    assert found.setting is None
    assert found.advice is None
    assert "C is a contraction, q²" in unmet(found)


def test_the_known_optimum_makes_the_bound_smaller(tmp_path):
    settings = [*SMALL, "rounds=2", "batch_size=0", "eval.optimum=true", "local_lr=1e-9", "server_lr=100"]
    folder = RunFolder.new(tmp_path / "run")
    run(load_settings("lasso", settings), folder)
    known, unknown = check_theorem(str(folder.path)), check_theorem("lasso", settings)
    assert known.optimum_known
    assert not unknown.optimum_known
    assert known.bound.start < unknown.bound.start


def test_other_algorithms_and_mistakes_are_sentences(tmp_path):
    identity = ["compressor.name=identity"]
    with pytest.raises(ConfigError, match=r"says nothing of zhang.*mixing=1"):
        check_theorem("demo", ["algorithm.name=zhang", *identity])
    with pytest.raises(ConfigError, match=r"says nothing of fedavg\.$"):
        check_theorem("demo", ["algorithm.name=fedavg", *identity])
    with pytest.raises(RunError):
        check_theorem(str(tmp_path))
    with pytest.raises(ConfigError, match="no experiment"):
        check_theorem("nothing")


def flip(path):
    """One bit of a file, near its end."""
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def problem_in_python():
    """For --problem too."""
    torch.manual_seed(0)
    clients = [(torch.randn(8, 3), torch.randint(0, 2, (8,))) for _ in range(2)]
    return Problem.build(nn.Linear(3, 2), nn.functional.cross_entropy, clients, regularizer=L1(1e-3))


@pytest.fixture
def python_run(tmp_path):
    fedcef.run(problem_in_python(), FedCEF(local_lr=0.1, local_steps=2), rounds=3, batch_size=4, out=tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("given", [problem_in_python, lambda: f"{__name__}:problem_in_python"])
def test_a_run_from_python_needs_its_problem(python_run, given):
    found = check_theorem(python_run, problem=given())
    assert found.curvatures.keys() == {"at the start", "at the end"}
    assert found.setting.num_clients == 2
    assert found.measured.rounds == 3


def test_a_run_from_python_without_its_problem_is_a_sentence(python_run):
    with pytest.raises(ConfigError, match=r"was made in Python.* --problem package\.module:function"):
        check_theorem(python_run)
    with pytest.raises(ConfigError, match=r"returned list; it must return a fedcef\.Problem"):
        check_theorem(python_run, problem="builtins:list")
    other = replace(problem_in_python(), z0=torch.zeros(8))
    with pytest.raises(ConfigError, match="is not the one of the run"):
        check_theorem(python_run, problem=other)
    with pytest.raises(ConfigError, match="runs from Python only"):
        check_theorem("lasso", problem=other)


def test_a_damaged_model_is_named(python_run):
    model = python_run / "model.safetensors"
    flip(model)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        check_theorem(python_run, problem=problem_in_python())
    model.write_bytes(b"no model")
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        check_theorem(python_run, problem=problem_in_python())
    save_file({"weight": torch.zeros(2, 3)}, model)
    with pytest.raises(RunError, match=r"model\.safetensors does not fit .*: bias differs or is missing"):
        check_theorem(python_run, problem=problem_in_python())


def test_the_command_prints_tables_and_sentences(capsys):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("version")(lambda: None)
    command.register(app)
    changes = [part for change in SMALL for part in ("--set", change)]
    app(["theory", "lasso", *changes], standalone_mode=False)
    shown = capsys.readouterr().out
    for text in ("L at the start", "condition of Theorem 1", "Step sizes that meet both", "gives no bound"):
        assert text in shown
