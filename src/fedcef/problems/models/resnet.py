"""ResNet-18 for small images: He, Zhang, Ren, Sun, Deep residual learning for image recognition, CVPR 2016.

As usual for images of 32×32 the stem is one 3×3 convolution, which keeps the resolution, and no pooling follows it.
Group normalisation (Wu, He, Group normalization, ECCV 2018) is computed sample by sample and has no running statistics;
batch normalisation has buffers, and takes each sample together with the others of its batch.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from fedcef.core.errors import ConfigError
from fedcef.core.parts import check
from fedcef.core.ranges import Count


class ResNet18(nn.Module):
    """ResNet-18 with a 3×3 stem, for small images (p = 11,173,962 for CIFAR-10).

    Args:
        input_shape: (channels, height, width).
        num_classes: How many outputs there are.
        norm: "group", or "batch", which has buffers.
        groups: Of group normalisation; it must divide `width`.
        width: Channels of the first stage; every later one has twice as many.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        norm: Literal["group", "batch"] = "group",
        groups: int = 32,
        width: int = 64,
    ) -> None:
        super().__init__()
        check("model.norm", Literal["group", "batch"], norm)
        groups, width = check("model.groups", Count, groups), check("model.width", Count, width)
        if len(input_shape) != 3:
            raise ConfigError(f"resnet18 takes images (channels, height, width), not inputs {tuple(input_shape)}.")
        if norm == "group" and width % groups:
            raise ConfigError(f"model.groups is {groups}; it must divide model.width = {width}.")

        def normalise(channels: int) -> nn.Module:
            return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(groups, channels)

        self.stem = nn.Sequential(_conv3x3(input_shape[0], width), normalise(width), nn.ReLU())
        blocks: list[nn.Module] = []
        before = width
        for stage in range(4):
            after = width << stage
            for first in (True, False):
                branch = nn.Sequential(
                    _conv3x3(before, after, stride=2 if stage and first else 1),
                    normalise(after),
                    nn.ReLU(),
                    _conv3x3(after, after),
                    normalise(after),
                )
                shortcut: nn.Module = nn.Identity()
                if stage and first:
                    shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride=2, bias=False), normalise(after))
                blocks.append(Residual(branch, shortcut))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(before, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Images (batch, channels, height, width) -> (batch, classes)."""
        return self.classifier(self.blocks(self.stem(x)).mean((-2, -1)))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """ReLU(branch(x) + shortcut(x))."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) -> (batch, channels', height', width')."""
        return (self.branch(x) + self.shortcut(x)).relu()  # type: ignore[no-any-return]


def _conv3x3(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
