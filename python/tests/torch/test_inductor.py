"""Executor "inductor": gradients as in eager mode, masks drawn once, peaks that follow the plan."""

from __future__ import annotations

import copy
import logging

import pytest
import remat
import remat.torch
import torch
from models import Case, case
from remat.torch.plan.aiming import Aimed, aim
from torch import nn
from training import fit, step_peak


def step(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    torch.manual_seed(3)
    model.zero_grad()
    loss = model(*inputs)
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize(
    "c", [case("mlp"), pytest.param(case("conv_net"), marks=pytest.mark.long)], ids=lambda c: c.name
)
def test_gradients_are_close_to_eager_ones_and_the_peak_falls_with_the_budget(c: Case) -> None:
    model, inputs = c.build()
    eager = copy.deepcopy(model)
    expected = step(eager, inputs)
    peaks = []
    for budget in ("100%", "70%"):
        torch._dynamo.reset()
        fitted = fit(copy.deepcopy(model), inputs, budget, executor="inductor", accumulate=False)
        torch.testing.assert_close(step(fitted, inputs), expected)
        scale = max(float(p.grad.abs().max()) for p in eager.parameters())
        for mine, theirs in zip(fitted.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4 * scale)
        for mine, theirs in zip(fitted.buffers(), eager.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs)
        part = fitted.remat.parts[0]
        fitted.zero_grad()
        peaks.append(step_peak(fitted, inputs))
        assert part.measured_peak == pytest.approx(peaks[-1], rel=0.02)
        # Inductor's own order may need more than the plan's, but never silently.
        assert (part.measured_peak > part.budget) == (part.exceeded > 0)
        assert peaks[-1] <= 1.05 * part.budget
    assert part.recomputed_steps > 0
    assert peaks[1] < 0.85 * peaks[0]


@pytest.mark.parametrize("name", ["mlp", pytest.param("conv_net", marks=pytest.mark.long)])
def test_the_first_step_and_later_ones_keep_the_budget_and_peak_as_predicted(name: str) -> None:
    model, inputs = case(name).build()
    fitted = fit(model, inputs, "70%", executor="inductor", accumulate=False)
    part = fitted.remat.parts[0]
    first = step_peak(fitted, inputs)
    fitted.zero_grad()
    second = step_peak(fitted, inputs)
    assert first <= part.budget
    assert second <= part.budget
    # Inductor's schedule is known: what is left is the loss's gradient, which autograd holds.
    assert first == pytest.approx(part.predicted_peak, rel=0.01)
    assert second == pytest.approx(part.predicted_peak, rel=0.01)
    # Of the plan itself, whose results are stored one by one, this is not so.
    assert part.predicted_peak < 0.995 * part.plan.peak


def test_a_budget_that_no_try_keeps_is_an_error_with_the_least_that_was_found() -> None:
    def make(budget: int) -> Aimed[None]:
        return Aimed(None, budget + 10 if budget > 60 else 70, 0.5)

    with pytest.raises(remat.NoPlanError, match="budget of 50 B; smallest budget known to work: 70") as found:
        aim(make, 50, floor=20)
    assert found.value.smallest_known == 70


@pytest.mark.parametrize("slope", [0.6, 0.9, 1.2])
def test_aiming_ends_within_the_budget_and_near_it(slope: float) -> None:
    """Peaks off by a share of what is planned for, and more by steps."""
    asked = []

    def make(budget: int) -> Aimed[int]:
        asked.append(budget)
        return Aimed(budget, int(slope * budget) // 7 * 7, 1.0 - budget / 4000)

    found = aim(make, 1000, floor=100)
    assert 900 <= found.peak <= 1000
    assert found.made == max(b for b in asked if int(slope * b) // 7 * 7 <= 1000)
    assert len(asked) <= 4


def test_a_plan_that_is_impossible_one_by_one_is_aimed_at_from_the_least_that_is_possible() -> None:
    def make(budget: int) -> Aimed[int]:
        if budget < 1200:
            raise remat.InfeasibleError("too small", smallest_known=1200)
        return Aimed(budget, budget - 250, 100 / budget)

    assert aim(make, 1000, floor=100).peak == 1000
    with pytest.raises(remat.InfeasibleError):
        aim(make, 90, floor=100)


def test_a_first_step_above_the_budget_is_said_with_numbers(caplog, monkeypatch) -> None:
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "100%", executor="inductor", accumulate=False)
    part = fitted.remat.parts[0]
    monkeypatch.setattr(part, "budget", 4_000_000)
    with caplog.at_level(logging.WARNING, "remat.torch"):
        step(fitted, inputs)
        step(fitted, inputs)
    (said,) = [r.getMessage() for r in caplog.records if "Inductor's first step" in r.getMessage()]
    assert f"({part.measured_peak - 4_000_000} bytes) above the budget of 3.81 MiB" in said


def test_without_gradients_inductor_runs_too() -> None:
    model, inputs = case("mlp").build()
    eager = copy.deepcopy(model)
    fitted = fit(model, inputs, "100%", executor="inductor")
    with torch.no_grad():
        torch.testing.assert_close(fitted(*inputs), eager(*inputs))


@pytest.mark.long
def test_gradients_add_up_and_a_retained_graph_runs_again() -> None:
    model, inputs = case("mlp").build()
    eager = copy.deepcopy(model)
    fitted = fit(model, inputs, "80%", executor="inductor")
    for each in (eager, fitted):
        torch.manual_seed(3)
        loss = each(*inputs)
        loss.backward(retain_graph=True)
        loss.backward()
        each(*inputs).backward()
    for mine, theirs in zip(fitted.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def test_an_executor_that_does_not_exist_is_refused() -> None:
    model, inputs = case("mlp").build()
    with pytest.raises(remat.UsageError, match='must be "auto", "boxed", "eager" or "inductor"'):
        fit(model, inputs, "100%", executor="tvm")
