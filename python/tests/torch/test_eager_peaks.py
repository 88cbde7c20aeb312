"""Peaks of steps in eager mode are those that were predicted, and nothing is left of what ran again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import remat.torch
import torch
import torch.nn.functional as F
from remat.torch.base.allocator import trace_allocations
from remat.torch.eager.ledger import Ledger
from torch import nn


class Around(nn.Module):
    """Something between two others. Numbers that it multiplies with are tensors of a few bytes that
    autograd holds."""

    def __init__(self, called: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.called, self.weight = called, nn.Parameter(torch.rand(shape) + 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (self.weight * 1.01) * (x * 0.99)
        return (self.called(y * (y * 0.5).cos()) * 0.75).sin().square().sum()


def entropy(y: torch.Tensor) -> torch.Tensor:
    """Whose backward writes to what the op before it made: one op of the graph, with one number of bytes."""
    return F.binary_cross_entropy_with_logits(y, y.square())


def reflections(y: torch.Tensor) -> torch.Tensor:
    return torch.linalg.householder_product(y, y[0])


def bilinear(y: torch.Tensor) -> torch.Tensor:
    """Whose backward makes three gradients before the first is added to what exists."""
    return F.bilinear(y[0], y[1], y.unsqueeze(0)) * 3


@pytest.mark.parametrize("called", [entropy, reflections, bilinear])
def test_steps_need_what_is_predicted_whatever_way_backwards_go_while_they_are_recorded(
    called: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    torch.manual_seed(0)
    model, x = Around(called, (6, 6)), torch.rand(6, 6, requires_grad=True)
    fitted = remat.torch.fit(model, (x,), "100%", executor="eager", outputs="dropped")
    for part in fitted.remat.parts:
        assert part.recomputed_steps == 0
    for adds in (False, True):
        # The first of each kind is not measured: its blocks are then known to the allocator's trace.
        predicted = [p for p in fitted.remat.parts if (p.existing_gradients > 0) == adds]
        for _ in range(2):
            if not adds:
                fitted.zero_grad()
                x.grad = None
            measured = remat.torch.measure_peak(lambda: fitted(x).backward(), resident=[fitted, x])
        assert measured == predicted[0].predicted_peak <= predicted[0].budget


@dataclass
class Followed:
    """Ops of a forward, and which of them may run again."""

    functions: list[Any]
    again: set[int]
    passing: Any = None
    made: tuple[int, ...] = ()
    copying: Any = None
    readings: tuple[int, ...] = ()
    products: bool = False


def test_what_ran_again_goes_with_its_last_reader_although_a_write_to_it_does_not_run_again() -> None:
    weight, x = torch.rand(64, 64, requires_grad=True), torch.rand(64, 64)
    ops = torch.ops.aten
    functions = [ops.mul.Tensor, ops.clone.default, ops.log1p_.default, ops.sum.default]

    def step() -> None:
        weight.grad = None
        ledger = Ledger([Followed(functions, {0, 1, 2})])
        total = ledger.through(lambda: (weight * x).log1p_().sum())
        assert ledger.left_at is None
        total.backward()

    gc.collect()
    gc.disable()
    try:
        step()
        with trace_allocations() as trace:
            step()
            step()
    finally:
        gc.enable()
    assert sum(trace.left().values()) == weight.nbytes
