"""The model, its data, and how it is trained: nothing here knows of Flower or of compression."""

from functools import lru_cache

import numpy as np

HIDDEN = 64


@lru_cache(maxsize=1)
def mnist():
    """MNIST, from where `fedcef data get mnist` puts it: images and labels to train with, and to test with."""
    from fedcef.problems.data.datasets import load

    data = load("mnist")
    images, test_images = (part.numpy().reshape(-1, 784) for part in (data.train_inputs, data.test_inputs))
    return images, data.train_targets.numpy(), test_images, data.test_targets.numpy()


def partition(number, count, samples):
    """A node's own images and labels, and some to evaluate with: every `count`-th of the training set."""
    images, labels, _, _ = mnist()
    mine = np.random.default_rng(0).permutation(len(labels))[number::count][:samples]
    cut = len(mine) * 4 // 5
    return (images[mine[:cut]], labels[mine[:cut]]), (images[mine[cut:]], labels[mine[cut:]])


def first_arrays(seed):
    """Two layers: 50,890 parameters."""
    rng = np.random.default_rng(seed)

    def layer(inputs, outputs):
        return rng.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(np.float32), np.zeros(outputs, np.float32)

    return [*layer(784, HIDDEN), *layer(HIDDEN, 10)]


def scores(arrays, images):
    """Hidden values, and log-probabilities."""
    weight1, bias1, weight2, bias2 = arrays
    hidden = np.maximum(images @ weight1 + bias1, 0)
    out = hidden @ weight2 + bias2
    out -= out.max(1, keepdims=True)
    return hidden, out - np.log(np.exp(out).sum(1, keepdims=True))


def train(arrays, images, labels, lr, seed):
    """One pass over a node's images in batches of 32, by hand; the mean loss."""
    arrays = [array.copy() for array in arrays]
    total = 0.0
    for batch in np.array_split(np.random.default_rng(seed).permutation(len(labels)), max(1, len(labels) // 32)):
        x, y = images[batch], labels[batch]
        hidden, logs = scores(arrays, x)
        total -= float(logs[np.arange(len(y)), y].sum())
        error = np.exp(logs)
        error[np.arange(len(y)), y] -= 1
        error /= len(y)
        back = (error @ arrays[2].T) * (hidden > 0)
        for array, gradient in zip(arrays, (x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)), strict=True):
            array -= np.float32(lr) * gradient
    return arrays, total / len(labels)


def test(arrays, images, labels):
    """Mean loss and accuracy."""
    _, logs = scores(arrays, images)
    return -float(logs[np.arange(len(labels)), labels].mean()), float((logs.argmax(1) == labels).mean())
