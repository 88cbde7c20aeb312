"""What only runs to come hold does not stay where it is more than what they can make: without a plan, a step
needs no more than eager mode.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import remat.torch
import torch
from remat.torch.base.storages import tensor_storages
from torch import nn

WIDTH = 32


@torch.library.custom_op("remat_tests::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    """Ops of others run once."""
    return x.flip(0)


class Scaled(nn.Module):
    """Layers that are scaled by something small, of something large that runs once."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.kind = nn.Linear(3, WIDTH), kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for _ in range(12):
            with torch.no_grad():
                scale = self.scale(turned(y.detach()))
            y = torch.tanh(y * 0.9 * scale + 0.1)
            if y.sum() > 1e9:
                y = y * 2
        return y.square().mean()

    def scale(self, large: torch.Tensor) -> torch.Tensor:
        if self.kind == "nobody asks":
            large.exp().sum()
            return torch.ones(1)
        if self.kind == "in place":
            return (large * 1.5).abs_()[:4].add_(1).tanh_().mean(0)
        return (large * 1.5)[:4].tanh().sum(0)


def step(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    loss = model(x)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("kind", ["nobody asks", "asked for", "in place"])
def test_what_is_larger_than_what_is_made_of_it_is_let_go(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model, x, other = Scaled(kind), torch.randn(512, 3), torch.randn(500, 3)
    plain = copy.deepcopy(model)
    step(plain, x)
    plain.zero_grad()
    budget = int(0.7 * remat.torch.measure_peak(lambda: step(plain, x), resident=[plain, x]))
    made: list[Any] = []
    found: list[torch.Tensor] = []
    with caplog.at_level(logging.WARNING, "remat.torch"):
        resident = [model, x, other]

        def fit() -> None:
            made.append(remat.torch.fit(model, x, budget, executor="eager", accumulate=False, max_shapes=1))

        assert remat.torch.measure_peak(fit, resident=resident[:2]) <= 1.02 * budget
        fitted = made[0]
        peak = remat.torch.measure_peak(lambda: found.extend(step(fitted, other)), resident=resident)
    assert peak <= budget + sum(tensor_storages(x).values())
    assert all(map(torch.equal, found, step(plain, other)))
    assert not [r.message for r in caplog.records if "although all is evicted" in r.message]
