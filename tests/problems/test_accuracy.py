"""What counts as predicted, for every form of outputs."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef.core.errors import ConfigError, ProblemError
from fedcef.problems.accuracy import balanced_accuracy, right_and_counted
from fedcef.problems.problem import Problem
from fedcef.simulation.evaluation import Evaluator


def share(outputs, targets, **options):
    right, counted = right_and_counted(outputs, targets, **options)
    assert right.shape == counted.shape
    return int((right & counted).sum()), int(counted.sum())


def test_one_output_for_each_class():
    outputs = torch.tensor([[3.0, 1.0, 2.0], [0.0, 4.0, 1.0], [1.0, 0.0, 2.0]])
    assert share(outputs, torch.tensor([0, 1, 0])) == (2, 3)
    assert share(outputs, torch.tensor([[0], [1], [0]])) == (2, 3)


def test_ignored_targets_do_not_count():
    outputs = torch.tensor([[3.0, 1.0, 2.0], [0.0, 4.0, 1.0], [1.0, 0.0, 2.0]])
    assert share(outputs, torch.tensor([0, -100, 0])) == (1, 2)
    assert share(outputs, torch.tensor([-1, -1, 2])) == (1, 1)
    assert share(outputs, torch.tensor([0, 255, 2]), ignore_index=255) == (2, 2)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("labels", [[1, 0, 1, 1], [1, -1, 1, 1]])
def test_two_classes_by_the_sign_of_one_output(shape, labels):
    assert share(torch.tensor([2.0, -1.0, -3.0, 0.1]).view(shape), torch.tensor(labels)) == (3, 4)


def test_pixels_have_their_classes_on_axis_1():
    targets = torch.randint(0, 6, (2, 5, 7), generator=torch.Generator().manual_seed(0))
    outputs = nn.functional.one_hot(targets, 6).permute(0, 3, 1, 2).float()
    assert share(outputs, targets) == (70, 70)
    assert share(outputs.roll(1, dims=1), targets) == (0, 70)


def test_other_shapes_are_refused():
    with pytest.raises(ProblemError, match=r"outputs \(3, 10, 5\) for targets \(3, 10\).*put its classes on axis 1"):
        right_and_counted(torch.zeros(3, 10, 5), torch.zeros(3, 10, dtype=torch.int64))
    with pytest.raises(ProblemError, match="There is no accuracy"):
        right_and_counted(torch.zeros(4, 3), torch.zeros(4, 2, dtype=torch.int64))


class Tokens(nn.Module):
    """A token's own class is its largest output."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 8)
        self.linear = nn.Linear(8, 5)

    def forward(self, x):
        return self.linear(self.embedding(x)).transpose(1, 2)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [(Tokens(), torch.randint(0, 5, (50, 10))), (nn.Conv2d(1, 6, 3, padding=1), torch.rand(40, 1, 6, 6))],
)
def test_accuracy_of_many_predictions_per_sample_is_at_most_1(model, inputs):
    targets = model(inputs).argmax(1)
    problem = Problem.build(model, cross_entropy, [(inputs, targets)], test=(inputs, targets))
    assert Evaluator(problem, 0.1)(problem.z0)["accuracy"] == 1.0
    wrong = targets.clone()
    wrong[0] = (wrong[0] + 1) % 5
    problem = Problem.build(model, cross_entropy, [(inputs, targets)], test=(inputs, wrong))
    assert Evaluator(problem, 0.1)(problem.z0)["accuracy"] == pytest.approx(1 - 1 / len(inputs))


def test_classes_count_alike_in_the_balanced_accuracy():
    outputs = torch.eye(2)[[0, 0, 0, 0, 0]]
    assert float(balanced_accuracy(outputs, torch.tensor([0, 0, 0, 1, -100]))) == 0.5


def evaluated(*metrics):
    g = torch.Generator().manual_seed(0)
    data = torch.randn(30, 4, generator=g), torch.randint(0, 3, (30,), generator=g)
    problem = Problem.build(nn.Linear(4, 3), cross_entropy, [data], test=data)
    return problem, Evaluator(problem, 0.1, metrics=metrics)(problem.z0)


def test_metrics_by_name_and_by_import_path(tmp_path, monkeypatch):
    (tmp_path / "my_metrics.py").write_text(
        "def confidence(outputs, targets):\n    return outputs.softmax(1).amax(1).mean()\n\n\n"
        "def two(outputs, targets):\n    return outputs[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    problem, found = evaluated("balanced_accuracy", "my_metrics:confidence")
    outputs = problem.model(problem.test.inputs).detach()
    assert found["confidence"] == pytest.approx(float(outputs.softmax(1).amax(1).mean()))
    assert found["balanced_accuracy"] == pytest.approx(float(balanced_accuracy(outputs, problem.test.targets)))
    with pytest.raises(ConfigError, match=r"The metric two returned shape \(3,\); it must return one number"):
        evaluated("my_metrics:two")


def test_a_metric_that_does_not_exist():
    with pytest.raises(ConfigError, match="Did you mean balanced_accuracy"):
        evaluated("balanced_acuracy")
