"""The models of the tests: small, and between them everything that is hard to run again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
from gpt import GPT, Config


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


@dataclass(frozen=True)
class Case:
    """A model that returns its loss, what it is called with, and the budgets it is tested at."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    budgets: tuple[str, ...] = ("100%", "80%", "65%")

    def build(self) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        torch.manual_seed(0)
        return self.make(), self.inputs()


def _gpt_inputs() -> tuple[torch.Tensor, ...]:
    return torch.randint(128, (4, 64)), torch.randint(128, (4, 64))


CASES = (
    Case("mlp", MLP, lambda: (torch.randn(1024, 128),), ("100%", "85%", "75%")),
    Case("conv_net", ConvNet, lambda: (torch.randn(8, 3, 32, 32),), ("100%", "80%", "70%")),
    Case("encoder", Encoder, lambda: (torch.randn(8, 64, 64),)),
    Case("gpt", lambda: GPT(Config(layers=4, width=64, heads=2, context=64)), _gpt_inputs),
)


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)
