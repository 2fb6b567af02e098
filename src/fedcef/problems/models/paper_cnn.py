"""The paper's convolutional networks."""

from __future__ import annotations

from torch import Tensor, nn


class PaperCNN(nn.Module):
    """The paper's networks: blocks of 3×3 convolutions that end in a 2×2 max-pool, then two linear layers.

    Pooling comes before the block's last ReLU, which gives the same function for a quarter of the work.
    """

    def __init__(
        self, input_shape: tuple[int, ...], num_classes: int, blocks: tuple[tuple[int, ...], ...], hidden: int
    ) -> None:
        super().__init__()
        channels, height, width = input_shape
        layers: list[nn.Module] = []
        for block in blocks:
            for i, out in enumerate(block):
                layers.append(nn.Conv2d(channels, out, 3, padding=1))
                if i == len(block) - 1:
                    layers.append(nn.MaxPool2d(2))
                layers.append(nn.ReLU())
                channels = out
        self.features = nn.Sequential(*layers)
        area = (height >> len(blocks)) * (width >> len(blocks))
        self.classifier = nn.Sequential(nn.Linear(channels * area, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Images (batch, channels, height, width) -> (batch, classes)."""
        return self.classifier(self.features(x).flatten(1))  # type: ignore[no-any-return]


class MnistCNN(PaperCNN):
    """The paper's MNIST network (convolutions 32, 64; linear 3136-128-10; p = 421,642)."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(input_shape, num_classes, blocks=((32,), (64,)), hidden=128)


class Cifar10CNN(PaperCNN):
    """The paper's CIFAR-10 network (convolutions 64, 64, 128, 128; linear 8192-512-10; p = 4,460,106)."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__(input_shape, num_classes, blocks=((64, 64), (128, 128)), hidden=512)
