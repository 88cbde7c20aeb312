"""The models of the tests and what they are called with: what is hard to run again is in one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from remat_models.example import GPT, Config
from remat_models.small import MLP, ConvNet, Encoder
from torch import nn


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
    Case("encoder", lambda: Encoder(depth=2), lambda: (torch.randn(8, 64, 64),)),
    Case("gpt", lambda: GPT(Config(layers=2, width=64, heads=2, context=64)), _gpt_inputs),
)


def case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)
