"""Small models that return their loss."""

from __future__ import annotations

import torch
from torch import nn


class MLP(nn.Module):
    """Linear and tanh, eight times: a plain chain."""

    def __init__(self, width: int = 128, depth: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(m for _ in range(depth) for m in (nn.Linear(width, width), nn.Tanh())))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


class ConvNet(nn.Module):
    """Convolutions with batch norm: ops of several outputs, buffers that the step overwrites."""

    def __init__(self, channels: int = 16, depth: int = 5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(depth):
            layers += [
                nn.Conv2d(channels if i else 3, channels, 3, padding=1),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean((2, 3))).square().mean()


class Encoder(nn.Module):
    """Attention, layer norm and dropout: random ops, and views everywhere."""

    def __init__(self, width: int = 64, depth: int = 3, dropout: float = 0.1) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x)).square().mean()
