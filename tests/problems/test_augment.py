"""Crops and flips: which pixel goes where, and that keys alone decide."""

import pytest
import torch

from fedcef.core.errors import ConfigError, ProblemError
from fedcef.core.rng import round_key
from fedcef.core.round import Rounds
from fedcef.core.training import Training
from fedcef.oracles.loop import ClientLoop
from fedcef.problems.augment import CropFlip
from fedcef.problems.models import MODELS
from fedcef.problems.problem import Problem


def plain(image, padding, number):
    """The same by slicing: crop a padded image, then mirror the crop."""
    shifts = 2 * padding + 1
    mirrored, place = number % 2, number // 2
    down, right = place // shifts, place % shifts
    padded = torch.nn.functional.pad(image, [padding] * 4)
    crop = padded[:, down : down + image.shape[1], right : right + image.shape[2]]
    return crop.flip(-1) if mirrored else crop


def test_every_crop_and_flip():
    padding = 2
    numbers = torch.arange(2 * (2 * padding + 1) ** 2)
    images = torch.rand(len(numbers), 3, 5, 7, generator=torch.Generator().manual_seed(0))
    found = CropFlip(padding).apply(images, numbers)
    assert found.shape == images.shape
    assert found.is_contiguous(memory_format=torch.channels_last)
    for image, number, result in zip(images, numbers.tolist(), found, strict=True):
        assert torch.equal(result, plain(image, padding, number))


def test_all_places_are_drawn_about_equally_often():
    drawn = CropFlip().draw(round_key(0, 0, torch.arange(4)).own, 20_000)
    assert drawn.shape == (4, 20_000)
    counts = torch.bincount(drawn.flatten(), minlength=162)
    assert len(counts) == 162
    assert float((counts / 80_000 * 162 - 1).abs().max()) < 0.2  # four standard deviations of 494 draws are 0.18


def problem(augment=None, shape=(1, 8, 8)):
    g = torch.Generator().manual_seed(0)
    data = [(torch.randn(20, *shape, generator=g), torch.randint(0, 3, (20,), generator=g)) for _ in range(3)]
    torch.manual_seed(0)
    return Problem.build(MODELS["softmax"](shape, 3), torch.nn.functional.cross_entropy, data, augment=augment)


def batches(task, clients, round_=0):
    training = Training(seed=5, batch_size=6)
    take = ClientLoop(task, training).batches(Rounds(training, 3).at(round_, clients), clients, steps=3)
    return [take(k) for k in range(3)]


def test_minibatches_are_the_same_samples_changed():
    everyone = torch.arange(3)
    for kept, changed in zip(batches(problem(), everyone), batches(problem(CropFlip(1)), everyone), strict=True):
        assert torch.equal(kept.targets, changed.targets)
        assert not torch.equal(kept.inputs, changed.inputs)
        originals = {tuple(image.flatten().tolist()) for image in kept.inputs.flatten(0, 1)}
        for image in changed.inputs.flatten(0, 1):
            inner = [plain(torch.tensor(o).view(1, 8, 8), 1, n) for o in originals for n in range(18)]
            assert any(torch.equal(image, candidate) for candidate in inner)
            break  # one of them is enough work


def test_a_client_s_images_do_not_depend_on_the_cohort():
    task, some = problem(CropFlip(1)), torch.tensor([2, 0])
    for full, part in zip(batches(task, torch.arange(3)), batches(task, some), strict=True):
        assert torch.equal(full.inputs[some], part.inputs)
    assert not torch.equal(batches(task, some)[0].inputs, batches(task, some, round_=1)[0].inputs)


def test_what_cannot_be_augmented_is_refused():
    with pytest.raises(ProblemError, match="Only images"):
        problem(CropFlip(), shape=(5,))
    with pytest.raises(ConfigError, match="take augment = 'none'"):
        ClientLoop(problem(CropFlip()), Training(batch_size=0))
