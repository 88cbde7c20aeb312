"""Code that runs without a plan is never silent: a warning for each place, or an error with strict=True."""

from __future__ import annotations

import copy
import logging
import re
from typing import Any

import pytest
import remat
import remat.torch
import torch
from test_behaviour import Loop, Outputs, PartlyEager
from torch import nn
from training import Trace, fit, step_peak, train


class Experts(nn.Module):
    """Sends each row to the expert that its values choose."""

    def __init__(self, width: int = 32, count: int = 3) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.gate(x).softmax(-1)
        choice, out = weight.argmax(-1), torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = torch.nonzero(choice == i).squeeze(-1)
            out = out.index_add(0, rows, expert(x[rows]).tanh() * weight[rows, i : i + 1])
        return out


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.experts, self.last = nn.Linear(32, 32), Experts(), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.experts(self.first(x).tanh())).square().mean()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.lstm, self.last = nn.Linear(32, 32), nn.LSTM(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.lstm(self.first(x).tanh())[0]).square().mean()


def compiled(
    model: nn.Module, budget: int | str = "64MiB", dynamic: bool | None = None, **options: Any
) -> Any:
    given = {"budget": budget, "work_limit": 10_000, "time_limit": None, **options}
    return torch.compile(model, backend="remat", options=given, dynamic=dynamic)


def steps_of(model: nn.Module, planned: Any, x: torch.Tensor) -> Trace:
    """Those of `train`, of a compiled model, whose parameters have longer names."""
    torch.manual_seed(7)
    losses = []
    for _ in range(3):
        loss = planned(x)
        loss.backward()
        losses.append(loss.detach().clone())
    return Trace.of(model, losses)


def said(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "remat.torch" and r.levelname == "WARNING"]


def without_plan(caplog) -> list[str]:
    return [line for line in said(caplog) if "has no plan" in line]


@pytest.fixture(autouse=True)
def fresh(caplog):
    torch._dynamo.reset()
    torch.manual_seed(0)
    caplog.set_level(logging.WARNING, "remat.torch")


def test_code_that_depends_on_data_is_named_once_and_steps_are_right(caplog) -> None:
    model, x = Mixture(), torch.randn(512, 32)
    expected = train(copy.deepcopy(model), (x,))
    assert expected.differences(steps_of(model, compiled(model), x)) == []
    (line,) = without_plan(caplog)
    assert re.match(
        r"(Experts\.)?forward \(.*test_unplanned\.py:\d+\) has no plan and runs as in eager mode", line
    )
    assert "nonzero" in line
    (saved,) = [line for line in said(caplog) if "saves" in line and "KiB for the backward" in line]
    assert "beyond the budget" in saved


def test_every_model_of_a_class_is_told_of(caplog) -> None:
    # Dynamo gives up on a piece of code once in a process.
    x = torch.randn(64, 32)
    for _ in range(2):
        caplog.clear()
        compiled(Experts())(x).sum().backward()
        assert len(without_plan(caplog)) == 1


def test_strict_makes_it_an_error_at_every_step() -> None:
    planned, x = compiled(Mixture(), strict=True), torch.randn(64, 32)
    for _ in range(2):
        with pytest.raises(remat.torch.UnsupportedModelError, match=r"strict=True: .*forward \(.*nonzero"):
            planned(x)
    with torch.no_grad():
        planned(x)
    with pytest.raises(remat.torch.UnsupportedModelError, match=r"strict=True: .*nonzero"):
        fit(Mixture(), x, "64MiB", strict=True, executor="boxed")
    with pytest.raises(remat.UsageError, match="strict must be True or False"):
        fit(Mixture(), x, "64MiB", strict="yes")


def test_nothing_is_said_of_code_without_gradients(caplog) -> None:
    planned, x = compiled(Mixture()), torch.randn(64, 32)
    with torch.no_grad():
        planned(x)
    assert said(caplog) == []
    planned(x).backward()
    assert len(without_plan(caplog)) == 1


def test_a_recurrent_layer_is_planned_by_torch_compile_as_by_fit(caplog) -> None:
    model, x = Recurrent(), torch.randn(16, 8, 32)
    expected = train(copy.deepcopy(model), (x,))
    budget = int(1.1 * step_peak(copy.deepcopy(model), (x,)))
    planned = compiled(model, budget, strict=True)
    assert not torch._dynamo.config.allow_rnn
    assert expected.differences(steps_of(model, planned, x)) == []
    model.zero_grad()
    assert remat.torch.measure_peak(lambda: planned(x).backward(), resident=[model, x]) <= budget
    assert without_plan(caplog) == []


def test_shapes_beyond_dynamos_limit_are_named(caplog) -> None:
    with torch._dynamo.config.patch(recompile_limit=2):
        planned = compiled(Loop(), dynamic=False)
        for rows in (8, 16, 24, 32):
            planned(torch.randn(rows, 32)).backward()
        (line,) = without_plan(caplog)
        assert "recompile_limit" in line
        torch._dynamo.reset()
        strict = compiled(Loop(), dynamic=False, strict=True)
        for rows in (8, 16):
            strict(torch.randn(rows, 32)).backward()
        for rows in (24, 32):
            with pytest.raises(remat.torch.UnsupportedModelError, match="recompile_limit"):
                strict(torch.randn(rows, 32))
        strict(torch.randn(8, 32)).backward()


def test_code_that_is_disabled_is_counted_or_refused(caplog) -> None:
    model, x = PartlyEager(), torch.randn(1024, 64)
    compiled(model)(x).backward()
    (line,) = [line for line in said(caplog) if "beside the planned graphs" in line]
    assert "beyond the budget" in line
    assert "forward (" in line
    for call in (
        lambda: compiled(PartlyEager(), strict=True)(x),
        lambda: fit(model, x, "64MiB", strict=True, executor="boxed", work_limit=10_000, time_limit=None),
    ):
        with pytest.raises(remat.torch.UnsupportedModelError, match="strict=True: code (beside|outside)"):
            call()


def test_backward_hooks_of_modules_with_strict_are_an_error() -> None:
    fitted = fit(Loop(), torch.randn(64, 32), "64MiB", strict=True)
    fitted(torch.randn(64, 32)).backward()
    fitted.layers[1].register_full_backward_hook(lambda _, down, up: (2 * down[0],))
    with pytest.raises(remat.torch.UnsupportedModelError, match="strict=True"):
        fitted(torch.randn(64, 32))


def test_models_in_one_piece_are_strict_without_a_word(caplog) -> None:
    x = torch.randn(64, 64)
    fit(Outputs(), x, "64MiB", strict=True)(x).sum().backward()
    compiled(Outputs(), strict=True)(x).sum().backward()
    assert said(caplog) == []
