"""A run goes on only with the loss that it began with, its options included, and with the same augmentation."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedcef import Problem, run
from fedcef.core.errors import ConfigError
from fedcef.problems.augment import CropFlip
from fedcef.python import folder
from fedcef.python.folder import loss_options

from .setting import method, small_problem

PROBLEM = small_problem()


def begin(path, loss, rounds=2, **options):
    problem = replace(PROBLEM, loss=loss)
    return run(problem, method(), rounds=rounds, batch_size=8, out=path, **options)


def tempered(temperature, outputs, targets):
    return cross_entropy(outputs / temperature, targets)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))),
        (partial(cross_entropy, label_smoothing=0.1), partial(cross_entropy, label_smoothing=0.2)),
        (partial(tempered, 1.0), partial(tempered, 2.0)),
    ],
    ids=["option", "weights", "partial", "by place"],
)
def test_a_loss_with_other_options_is_refused(tmp_path, before, after):
    begin(tmp_path / "run", before)
    with pytest.raises(ConfigError, match=r"holds a run with other settings or data \(data.loss_options was"):
        begin(tmp_path / "run", after, rounds=4, resume=True)
    longer = begin(tmp_path / "run", before, rounds=4, resume=True)
    assert longer.last["objective"] == begin(tmp_path / "at once", before, rounds=4).last["objective"]


def test_folders_of_earlier_versions_do_not_know_the_options(tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(folder, "loss_options", lambda loss: "")
        begin(tmp_path / "run", nn.CrossEntropyLoss())
    assert "loss_options" not in (tmp_path / "run" / "config.toml").read_text()
    begin(tmp_path / "run", nn.CrossEntropyLoss(), rounds=3, resume=True)


def images(augment):
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(8, 1, 6, 6, generator=generator), torch.arange(8) % 2) for _ in range(3)]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    return Problem.build(model, cross_entropy, data, augment=augment)


@pytest.mark.parametrize(("before", "after"), [(None, CropFlip()), (CropFlip(), None), (CropFlip(1), CropFlip(2))])
def test_another_augmentation_is_refused(tmp_path, before, after):
    options = {"batch_size": 4, "out": tmp_path / "run"}
    run(images(before), method(), rounds=2, **options)
    with pytest.raises(ConfigError, match=r"holds a run with other settings or data \(data.augment was"):
        run(images(after), method(), rounds=4, resume=True, **options)
    run(images(before), method(), rounds=4, resume=True, **options)


def test_folders_of_earlier_versions_do_not_know_the_augmentation(tmp_path, monkeypatch):
    options = {"batch_size": 4, "out": tmp_path / "run"}
    with monkeypatch.context() as before:
        before.setattr(folder, "augmentation", lambda problem: "")
        run(images(CropFlip()), method(), rounds=2, **options)
    assert "augment" not in (tmp_path / "run" / "config.toml").read_text()
    run(images(CropFlip()), method(), rounds=3, resume=True, **options)


def test_what_the_options_of_a_loss_are():
    assert loss_options(cross_entropy) == ""
    assert loss_options(nn.MSELoss()) == "reduction='mean'"
    assert loss_options(partial(partial(cross_entropy, reduction="sum"), reduction="mean")) == "reduction='mean'"
    pair = nn.Sequential(nn.Softmax(dim=1), nn.NLLLoss(ignore_index=3))
    assert loss_options(pair) == "0.dim=1, 1.ignore_index=3, 1.reduction='mean'"
