"""Rules for images, most of them channels-last."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import nn

from .layer import Layer


class ImageConvolution(Layer):
    """From (batch, width, height, height) to the same shape, as all that follow."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.conv = nn.Conv2d(
            width, width, draw.choice([1, 3]), padding="same", groups=draw.choice([1, width])
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class ImageNorm(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.norm = draw.choice([nn.BatchNorm2d(width), nn.GroupNorm(2, width), nn.InstanceNorm2d(width)])
        # A segmentation fault of PyTorch 2.13: a channels-last input of a group norm that needs no gradient.
        self.scale = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x * self.scale)


class ImageInPlace(Layer):
    """Writes that could move a channels-last image."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["fill", "part", "scatter", "index", "copy", "relu", "dropout", "clamp"])
        self.scale = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.scale
        if self.kind == "fill":
            y.masked_fill_(x > 1, 0.5)
        elif self.kind == "part":
            y[:, 1:].mul_(x[:, :1])
        elif self.kind == "scatter":
            y.scatter_add_(1, torch.zeros_like(x, dtype=torch.long), x)
        elif self.kind == "index":
            y.index_copy_(1, torch.tensor([0, 1]), x[:, :2].sin())
        elif self.kind == "copy":
            y.copy_((2 * x).contiguous())
        elif self.kind == "dropout":
            y = F.dropout2d(F.dropout(y, 0.2, self.training, inplace=True), 0.2, self.training)
        else:
            y = F.relu_(y) if self.kind == "relu" else y.clamp_(-1, 1)
        return y


class ImageViews(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["pool", "shuffle", "flip", "gate"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "pool":
            return F.interpolate(F.max_pool2d(x, 2), scale_factor=2, mode="bilinear")
        if self.kind == "shuffle":
            return F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2)
        return x.flip(2) if self.kind == "flip" else x * x.mean((2, 3), keepdim=True).sigmoid()


class ImageHalf(Layer):
    """16 bits, in a layout that ops may change."""

    types = (torch.float32, torch.bfloat16)

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["convolution", "cast", "expanded", "transposed"])
        self.conv, self.back = nn.Conv2d(width, width, 2, 2), nn.ConvTranspose2d(width, width, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "cast":
            return (
                torch.tanh(x * 1.01).to(torch.bfloat16, memory_format=torch.channels_last).sin().to(x.dtype)
            )
        if self.kind == "expanded":
            y = x.bfloat16()
            return (torch.ones((), dtype=y.dtype).expand(y.shape) * y.sin()).to(x.dtype)
        if self.kind == "convolution":
            with torch.autocast("cpu", torch.bfloat16):
                return self.back(F.silu(self.conv(x))).to(x.dtype)
        z = self.conv(x).permute(0, 2, 3, 1).contiguous() * 2
        return self.back(z.permute(0, 3, 1, 2))
