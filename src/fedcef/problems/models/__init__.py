"""Models by name: MODELS[name](input shape, number of classes, …) is a module; what comes after are its options.

Outputs have their classes on axis 1, as torch's cross_entropy has them: (batch, classes) for one target a sample,
(batch, vocabulary, context) for one target a token.  All but a ResNet with batch normalisation have no buffers, so that
a flat vector of their parameters is all there is to train and send.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedcef.problems.models.dense import MLP, SoftmaxRegression
from fedcef.problems.models.gpt import GPT
from fedcef.problems.models.lstm import LSTM
from fedcef.problems.models.paper_cnn import Cifar10CNN, MnistCNN, PaperCNN
from fedcef.problems.models.resnet import ResNet18

__all__ = ["GPT", "LSTM", "MLP", "MODELS", "Cifar10CNN", "MnistCNN", "PaperCNN", "ResNet18", "SoftmaxRegression"]

MODELS: dict[str, Callable[..., nn.Module]] = {
    "softmax": SoftmaxRegression,
    "mlp": MLP,
    "mnist_cnn": MnistCNN,
    "cifar10_cnn": Cifar10CNN,
    "resnet18": ResNet18,
    "gpt": GPT,
    "lstm": LSTM,
}
