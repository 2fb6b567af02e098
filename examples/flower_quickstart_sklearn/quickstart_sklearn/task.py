"""The model, its data, and how it is trained: nothing here knows of Flower or of compression."""

import warnings
from functools import lru_cache

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss


@lru_cache(maxsize=1)
def mnist():
    """MNIST, from where `fedcef data get mnist` puts it: images and labels to train with, and to test with."""
    from fedcef.problems.data.datasets import load

    data = load("mnist")
    images, test_images = (part.numpy().reshape(-1, 784) for part in (data.train_inputs, data.test_inputs))
    return images, data.train_targets.numpy(), test_images, data.test_targets.numpy()


def partition(number, count, samples, seed):
    """A node's own images and labels, and some to evaluate with: every `count`-th of the training set."""
    images, labels, _, _ = mnist()
    mine = np.random.default_rng(seed).permutation(len(labels))[number::count][:samples]
    cut = len(mine) * 4 // 5
    return (images[mine[:cut]], labels[mine[:cut]]), (images[mine[cut:]], labels[mine[cut:]])


def model_from(arrays, iterations=1):
    """A logistic regression of 7,850 parameters that goes on from these; from zeros if there are none."""
    model = LogisticRegression(C=0.1, max_iter=iterations, warm_start=True)
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = arrays or (np.zeros((10, 784)), np.zeros(10))
    return model


def train(model, images, labels):
    """A few iterations of its solver on a node's images; the loss."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged, and need not
        model.fit(images, labels)
    return test(model, images, labels)[0]


def test(model, images, labels):
    """Mean loss and accuracy."""
    return log_loss(labels, model.predict_proba(images), labels=model.classes_), float(model.score(images, labels))
