"""One trace of AOTAutograd serves all steps of the same shapes."""

from __future__ import annotations

import copy
import gc
from typing import Any

import torch
from torch import nn
from training import fit


def test_steps_with_and_without_existing_gradients_are_traced_once(traces: list[Any]) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)), torch.randn(32, 64)
    fitted = fit(copy.deepcopy(model), x, "100%")
    assert len(traces) == 1
    kinds = {bool(part.existing_gradients) for part in fitted.remat.parts}
    assert kinds == {False, True}
    for _ in range(3):
        for each in (model, fitted):
            each(x).square().mean().backward()
    for mine, theirs in zip(fitted.parameters(), model.parameters(), strict=True):
        assert mine.grad is not None
        assert mine.grad.equal(theirs.grad)
    # The first step shows that nobody holds the output: planned again, not traced again.
    assert len(traces) == 1
    fitted(x[:5]).square().mean().backward()
    assert len(traces) == 2


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) * 0.25).tanh() * 0.75


def test_traces_hold_no_numbers_as_tensors() -> None:
    def numbers() -> int:
        gc.collect()
        return sum(type(t) is torch.Tensor and t.dtype == torch.float64 for t in gc.get_objects())

    before = numbers()
    fitted = fit(Scaled(), torch.randn(32, 64), "100%")
    fitted(torch.randn(16, 64)).sum().backward()
    assert numbers() == before
