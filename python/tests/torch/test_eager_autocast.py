"""Ops whose kernels call ops that autocast casts, which it does not where a dispatch mode looks on."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import remat.torch
import torch
import torch.nn.functional as F
from torch import nn


class Cast(nn.Module):
    def __init__(self, called: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.called, self.weight = called, nn.Parameter(torch.randn(8, 6, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.called(x.sin() * 1.1, self.weight.tanh())
        return (y * y).sin().sum()


def bilinear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.bilinear(x, x.flip(0), weight)


def outside(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        return F.bilinear(x, x.flip(0), weight)


def distances(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.cdist(x.repeat(5, 1), weight[0])


def pinverse(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.pinverse(x) @ x + weight[0]


def test_an_op_that_differs_while_it_is_looked_at_is_refused_in_one_line() -> None:
    torch.manual_seed(0)
    with pytest.raises(remat.torch.UnsupportedModelError, match=r"^inside autocast[^\n]*cast$"):
        remat.torch.fit(Cast(bilinear), (torch.randn(6, 6),), "100%", executor="eager")


@pytest.mark.parametrize("called", [outside, distances, pinverse])
def test_other_ops_are_those_of_eager_mode(
    called: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    torch.manual_seed(0)
    model, x = Cast(called), torch.randn(6, 6)
    fitted = remat.torch.fit(copy.deepcopy(model), (x,), "100%", executor="eager")
    for each in (model, fitted):
        each(x).backward()
    assert model.weight.grad.equal(fitted.weight.grad)


class Tied(nn.Module):
    """One weight is read three times, as an embedding and as what scores are made with."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) * 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.embedding(x, self.weight).tanh() @ self.weight
        return F.gelu(F.embedding(x.flip(0), self.weight) + y) @ self.weight.T


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("budget", ["100%", 500_000])
def test_casts_of_steps_that_are_recorded_are_not_read_by_the_users(budget: str | int, verify: bool) -> None:
    """Autocast keeps what it casts until its context is left. Gradients of casts that are older than the
    step are summed last.
    """
    torch.manual_seed(0)
    model, x = Tied(), torch.randint(64, (256,))
    plain = copy.deepcopy(model)
    options = {"loss": lambda y: y.float().square().mean(), "executor": "eager", "verify": verify}
    fitted = remat.torch.fit(model, x, budget, **options)
    for _ in range(3):
        for each in (plain, fitted):
            with torch.autocast("cpu", torch.bfloat16):
                y = each(x)
            y.float().square().mean().backward()
        assert plain.weight.grad.equal(model.weight.grad)
    assert len(fitted.remat.parts) == 4  # without autocast and with it, making gradients and adding to them
