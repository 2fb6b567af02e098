"""Images changed at random as they are drawn, as a function of keys: the same on every device and engine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcef.core import rng


@dataclass(frozen=True)
class CropFlip:
    """Padded on all sides with zeros (the mean, in standardised images), cropped at random, mirrored half the time."""

    padding: int = 4

    def draw(self, keys: Tensor, count: int) -> Tensor:
        """What happens to each of `count` images of every key: (...) -> int64 (..., count), one number for each."""
        places = (2 * self.padding + 1) ** 2 * 2
        return rng.integers(keys, count, torch.full_like(keys, places))

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Images (m, channels, height, width), a number for each (m,) -> the same shape, channels last in memory."""
        count, _, height, width = images.shape
        shifts = 2 * self.padding + 1
        mirrored, place = (drawn % 2).view(-1, 1), drawn // 2
        rows = torch.arange(height, device=images.device) + (place // shifts).view(-1, 1)
        columns = torch.arange(width, device=images.device)
        columns = torch.where(mirrored == 1, width - 1 - columns, columns) + (place % shifts).view(-1, 1)
        padded = torch.nn.functional.pad(images, [self.padding] * 4).permute(0, 2, 3, 1)
        which = torch.arange(count, device=images.device).view(-1, 1, 1)
        return padded[which, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


AUGMENTATIONS: dict[str, CropFlip | None] = {"none": None, "crop_flip": CropFlip()}
