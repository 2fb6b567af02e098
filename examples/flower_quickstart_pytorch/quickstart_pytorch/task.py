"""The model, its data, and how it is trained: nothing here knows of Flower or of compression."""

from functools import lru_cache

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    """Two convolutions and three linear layers: 44,426 parameters."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(256, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        """Images to scores."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(functional.relu(self.fc2(functional.relu(self.fc1(x)))))


@lru_cache(maxsize=1)
def mnist():
    """MNIST, from where `fedcef data get mnist` puts it: images and labels to train with, and to test with."""
    from fedcef.problems.data.datasets import load

    data = load("mnist")
    return data.train_inputs, data.train_targets, data.test_inputs, data.test_targets


def partition(number, count, samples):
    """A node's own images and labels, and some to evaluate with: every `count`-th of the training set."""
    images, labels, _, _ = mnist()
    mine = np.random.default_rng(0).permutation(len(labels))[number::count][:samples]
    cut = len(mine) * 4 // 5
    return (images[mine[:cut]], labels[mine[:cut]]), (images[mine[cut:]], labels[mine[cut:]])


def train(net, images, labels, lr, seed):
    """One pass over a node's images in batches of 32; the mean loss."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    total = 0.0
    for batch in torch.randperm(len(labels)).split(32):
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(images[batch].reshape(-1, 1, 28, 28)), labels[batch])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(labels)


def test(net, images, labels):
    """Mean loss and accuracy."""
    net.eval()
    with torch.no_grad():
        scores = net(images.reshape(-1, 1, 28, 28))
    return float(functional.cross_entropy(scores, labels)), float((scores.argmax(1) == labels).float().mean())
