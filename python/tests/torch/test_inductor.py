"""Executor "inductor": gradients as in eager mode, masks drawn once, peaks that follow the plan."""

from __future__ import annotations

import copy
import logging

import pytest
import remat
import remat.torch
import torch
from models import Case, case
from torch import nn
from training import fit, step_peak


def step(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    torch.manual_seed(3)
    model.zero_grad()
    loss = model(*inputs)
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize(
    "c", [case(name) for name in ("mlp", "conv_net", "encoder", "gpt")], ids=lambda c: c.name
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


def test_gradients_add_up_and_a_retained_graph_runs_again() -> None:
    model, inputs = case("gpt").build()
    eager = copy.deepcopy(model)
    fitted = fit(model, inputs, "75%", executor="inductor")
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
    with pytest.raises(remat.UsageError, match='executor must be "boxed" or "inductor"'):
        fit(model, inputs, "100%", executor="tvm")
