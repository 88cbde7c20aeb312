"""Control flow, transforms of `torch.func` and complex constants inside models, and what a forward raises."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import remat
import torch
from remat.torch import UnsupportedModelError
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from training import fit, step_peak


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.apart(layer, x)
        return x.square().mean()

    def apart(self, layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return layer(x)


class Branches(Layers):
    def apart(self, layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.cond(x.sum() > 0, lambda y: y.tanh() * 2, lambda y: y.sin() + 1, (layer(x),))
        return y


class Scans(Layers):
    def apart(self, layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        y = layer(x)
        sums: torch.Tensor = scan(lambda a, b: ((a + b).tanh(), (a + b).sin()), torch.zeros(64), y[:8])[1]
        return torch.cat([sums, y[8:]])


class Loops(Layers):
    def apart(self, layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            count = while_loop(lambda i: i.sum() < 3, lambda i: (i + 1,), (torch.zeros(1),))[0]
        return layer(x) * count


class Tangents(Layers):
    def apart(self, layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        value, tangent = torch.func.jvp(layer, (x,), (torch.ones_like(x),))
        return value + 0.1 * tangent


def trained_equal(model: nn.Module, fitted: nn.Module, x: torch.Tensor) -> bool:
    for each in (model, fitted):
        each.zero_grad()
        each(x).backward()
    pairs = zip(model.parameters(), fitted.parameters(), strict=True)
    return all(torch.equal(a.grad, b.grad) for a, b in pairs)


# PyTorch's own.
deprecated = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


@deprecated
@pytest.mark.parametrize("make", [Branches, Scans])
def test_branches_and_scans_are_traced(make: type[Layers]) -> None:
    model, x = make(), torch.randn(256, 64)
    fitted = fit(copy.deepcopy(model), x, "90%")
    assert fitted.remat.parts[0].overhead > 0
    assert trained_equal(model, fitted, x)
    fitted.zero_grad()
    assert step_peak(fitted, (x,)) <= fitted.remat.budget


@deprecated
@pytest.mark.parametrize(("make", "executor"), [(Loops, "auto"), (Loops, "eager"), (Branches, "eager")])
def test_what_cannot_be_recorded_is_refused_in_a_line(make: type[Layers], executor: str) -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"cannot record this step, although it runs \(.*"
    ) as error:
        fit(make(), torch.randn(256, 64), "90%", executor=executor)
    assert "\n" not in str(error.value)


@deprecated
@pytest.mark.parametrize("executor", ["auto", "eager"])
def test_what_a_transform_makes_stays_in_memory(executor: str) -> None:
    model, x = Tangents(), torch.randn(256, 64)
    budget = 700_000
    with pytest.raises(remat.NoPlanError) as error:
        fit(copy.deepcopy(model), x, budget, executor=executor)
    fitted = fit(copy.deepcopy(model), x, error.value.smallest_known, executor=executor)
    assert trained_equal(model, fitted, x)


class Stops(Layers):
    stops = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if self.stops and i == 3:
                raise KeyboardInterrupt
        return x.square().mean()


def test_a_forward_that_was_interrupted_is_planned_again() -> None:
    model, x = Stops(), torch.randn(1024, 64)
    fitted = fit(model, x, "100%")
    for _ in range(2):
        model.stops = True
        with pytest.raises(KeyboardInterrupt):
            fitted(x)
        model.stops = False
        fitted.zero_grad()
        assert step_peak(fitted, (x,)) <= fitted.remat.budget


class Phases(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(64, 64, dtype=torch.cfloat) * 0.05 for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.view_as_complex(x)
        for weight in self.weights:
            y = (y @ weight) * 2j + torch.exp(1j * y.real)
        return torch.view_as_real(y).square().mean()


def test_complex_constants_are_traced() -> None:
    model, x = Phases(), torch.randn(256, 64, 2)
    fitted = fit(copy.deepcopy(model), x, "80%", executor="boxed", accumulate=False, strict=True)
    assert trained_equal(model, fitted, x)
