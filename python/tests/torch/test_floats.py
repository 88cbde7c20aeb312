"""Python floats that change from call to call: nothing but their value changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import remat.torch
import torch
from torch import nn
from training import fit

# The first one is part of what Dynamo compiles; from the second on it is a number that changes.
VALUES = (0.15, 0.23, 0.37, 0.0, 1.0, 0.59)


class Weighted(nn.Module):
    def __init__(self, weigh: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.weigh = weigh

    def forward(self, x: torch.Tensor, weight: float) -> torch.Tensor:
        h = x
        for layer in self.layers:
            h = torch.tanh(layer(h) * weight)
        return self.weigh(h, x, weight)


FORMS: dict[str, Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]] = {
    "a weight of the loss": lambda h, x, w: h.square().mean() + w * h.mean(),
    "a mixture": lambda h, x, w: (w * h + (1 - w) * x).square().mean() / (w + 2.25),
    "a threshold": lambda h, x, w: torch.where(h > w, h, 2.5 * w).sum(),
    "a constant beside it": lambda h, x, w: (h * 0.37 + h * w).sum(),
    "an exponent": lambda h, x, w: (h.abs() + 0.5).pow(w).sum(),
    "dropout": lambda h, x, w: nn.functional.dropout(h, w).sum(),
}


def made(form: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Weighted(FORMS[form]), torch.randn(32, 16)


def step(model: Any, x: torch.Tensor, weight: float) -> list[torch.Tensor]:
    torch.manual_seed(5)
    model.zero_grad()
    loss = model(x, weight)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert all(a.equal(b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("executor", ["fit", pytest.param("compile", marks=pytest.mark.long)])
def test_every_value_gives_the_bits_of_eager_mode(form: str, executor: str) -> None:
    model, x = made(form)
    eager = copy.deepcopy(model)
    if executor == "fit":
        trained = fit(model, (x, VALUES[0]), "95%")
    else:
        trained = torch.compile(model, backend="remat", options={"budget": 1 << 20, "work_limit": 20_000})
    for weight in VALUES:
        assert_equal(step(trained, x, weight), step(eager, x, weight))


@pytest.mark.parametrize("form", ["a weight of the loss", "a mixture", "a threshold", "a constant beside it"])
def test_a_new_value_costs_no_trace_and_no_plan(form: str, traces: list[Any]) -> None:
    model, x = made(form)
    fitted = fit(model, (x, VALUES[0]), "95%", accumulate=False, outputs="dropped")
    step(fitted, x, VALUES[1])
    before = len(traces), len(fitted.remat.parts)
    for weight in (0.31, 0.41, 0.53, 1.7):
        step(fitted, x, weight)
    assert (len(traces), len(fitted.remat.parts)) == before


def test_calls_in_flight_keep_their_values() -> None:
    model, x = made("a mixture")
    eager = copy.deepcopy(model)
    fitted = remat.torch.fit(model, (x, VALUES[0]), 1 << 20, calls=2, work_limit=20_000)
    step(fitted, x, VALUES[1])
    fitted.zero_grad()
    eager.zero_grad()
    for each in (fitted, eager):
        losses = [each(x, weight) for weight in (0.31, 0.83)]
        losses[0].backward()
        losses[1].backward()
    for mine, theirs in zip(fitted.parameters(), eager.parameters(), strict=True):
        assert mine.grad.equal(theirs.grad)


def test_a_value_holds_where_the_plan_recomputes() -> None:
    model, x = made("a weight of the loss")
    eager = copy.deepcopy(model)
    fitted = fit(model, (x, VALUES[0]), "96%")
    step(fitted, x, VALUES[1])
    assert any(part.recomputed_steps for part in fitted.remat.parts)
    assert_equal(step(fitted, x, 0.71), step(eager, x, 0.71))


def test_the_least_budget_does_for_other_values_too() -> None:
    model, x = made("a mixture")
    options: Any = {"accumulate": False, "outputs": "dropped", "time_limit": None, "work_limit": 20_000}
    with pytest.raises(remat.NoPlanError) as caught:
        remat.torch.fit(model, (x, VALUES[0]), 2000, **options)
    fitted = remat.torch.fit(model, (x, VALUES[0]), caught.value.smallest_known, **options)
    for weight in VALUES[:3]:
        fitted.zero_grad()
        step(fitted, x, weight)


class Counting(nn.Module):
    """Reads the number of its call: an argument, or else an attribute that it counts itself."""

    def __init__(self, use: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.use, self.calls = use, 0

    def forward(self, x: torch.Tensor, number: int | None = None) -> torch.Tensor:
        self.calls += 1
        return self.use(self.layers(x), self.calls if number is None else number).square().mean()


# With the most plans for the numbers 1 to 11.
INTS: dict[str, tuple[Callable[[torch.Tensor, int], torch.Tensor], int]] = {
    "nothing": (lambda h, n: h, 3),
    "a factor": (lambda h, n: h * (1 + n), 5),
    "a warm-up": (lambda h, n: h * min(1.0, n / 7), 5),
    "a warm-up beside it": (lambda h, n: h * min(1.0, n / 7) + n / 100, 6),
    "every third": (lambda h, n: h * 2 if n % 3 == 0 else h, 5),
    "a remainder": (lambda h, n: h * (n % 5), 8),
    "an exponent": (lambda h, n: h.abs().pow(n), 99),
    "a size": (lambda h, n: h[n:].sum() + h, 99),
}


@pytest.mark.parametrize("use", INTS)
@pytest.mark.parametrize("given", [True, False])
def test_an_int_that_changes_costs_few_traces_and_has_the_bits_of_eager_mode(
    use: str, given: bool, caplog: pytest.LogCaptureFixture
) -> None:
    function, most = INTS[use]
    model, x = Counting(function), torch.randn(32, 16)
    eager = copy.deepcopy(model)
    fitted: Any = fit(model, (x, 0) if given else x, "95%", accumulate=False)
    for number in range(1, 12):
        inputs: Any = (x, number) if given else (x,)
        for each in (fitted, eager):
            each.zero_grad()
            each(*inputs).backward()
        assert_equal([p.grad for p in fitted.parameters()], [p.grad for p in eager.parameters()])
        assert repr(fitted.calls) == repr(eager.calls)
    assert len(fitted.remat.parts) <= most
    assert ("times for inputs of equal shapes" in caplog.text) == (most == 99)
