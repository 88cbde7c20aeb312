"""Errors that reach people: what they say, in which units, and how little stands around them."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable

import pytest
import remat
import remat.torch
import torch
from models import case


def caught_from(call: Callable[[], object]) -> remat.RematError:
    with pytest.raises(remat.RematError) as caught:
        call()
    return caught.value


def our_frames(error: BaseException) -> list[str]:
    """Functions below this file."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.name for frame in frames if frame.filename != __file__]


@pytest.mark.parametrize(
    ("budget", "meant"),
    [("70", "70%"), (70, "70%"), (" 100 ", "100%"), ("700", "700MiB"), (0.7, "70%"), (1.0, "100%")],
)
def test_a_number_without_its_unit_is_asked_about_before_anything_is_traced(budget, meant) -> None:
    model, inputs = case("mlp").build()
    error = caught_from(lambda: remat.torch.fit(model, inputs, budget))
    assert isinstance(error, remat.BudgetError)
    assert f'did you mean "{meant}"?' in str(error)


def test_percent_is_answered_in_percent_that_works_and_in_bytes() -> None:
    model, inputs = case("mlp").build()
    error = caught_from(lambda: remat.torch.fit(model, inputs, "10%", accumulate=False))
    assert isinstance(error, remat.InfeasibleError)
    text = str(error)
    assert re.match(r"the budget of 10% \([0-9.]+ [KM]iB, \d+ bytes\) is impossible for this step: ", text)
    known = re.search(r"known to work: ([0-9.]+%) \([0-9.]+ [KM]iB, (\d+) bytes\)$", text)
    assert known is not None
    assert int(known[2]) == error.smallest_known
    assert remat.torch.fit(model, inputs, known[1], accumulate=False).remat.plan.steps


def test_bytes_are_answered_in_units_and_bytes_with_the_reserve() -> None:
    model, inputs = case("mlp").build()
    error = caught_from(lambda: remat.torch.fit(model, inputs, "2KiB", reserve="1KiB", accumulate=False))
    assert str(error).startswith("the budget of 2.00 KiB (2048 bytes) is impossible for this step: ")
    assert "1.00 KiB (1024 bytes) of them reserved" in str(error)
    assert f"({error.floor} bytes)" in str(error)
    assert f"({error.smallest_known} bytes)" in str(error)


@pytest.mark.parametrize("reserve", [0, "1GiB"], ids=["below the floor", "all of it reserved"])
def test_the_smallest_budget_known_is_the_best_one_known(reserve) -> None:
    model, inputs = case("mlp").build()
    options = {"reserve": reserve, "work_limit": 20_000}
    error = caught_from(lambda: remat.torch.fit(model, inputs, "2KiB", **options))
    assert isinstance(error, remat.NoPlanError)
    planned = remat.torch.fit(model, inputs, error.smallest_known, **options).remat
    assert planned.predicted_peak <= error.smallest_known < planned.keep_all_peak
    assert planned.plan is not None


def test_errors_of_fit_stand_alone_and_the_logger_has_the_rest(caplog) -> None:
    model, inputs = case("mlp").build()
    with caplog.at_level(logging.DEBUG, "remat.torch"):
        error = caught_from(lambda: remat.torch.fit(model, inputs, "2KiB", work_limit=20_000))
    assert len(our_frames(error)) == 1
    assert error.__suppress_context__
    assert any(record.exc_info for record in caplog.records)


def test_errors_of_a_later_call_of_a_fitted_model_stand_alone() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8)), 4
    fitted = remat.torch.fit(model, torch.randn(x, 8), "20KiB", outputs="dropped")
    error = caught_from(lambda: fitted(torch.randn(4096, 8)))
    assert isinstance(error, remat.NoPlanError)
    assert [name for name in our_frames(error) if "wrapped" not in name and "call" not in name] == []


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"budget": "2KiB"}, remat.InfeasibleError, "is impossible for this step"),
        ({"budget": "70"}, remat.BudgetError, 'did you mean "70%"'),
        ({"budgt": "1GiB"}, remat.UsageError, "did you mean 'budget'"),
        ({}, remat.BudgetError, "a budget is needed"),
    ],
)
def test_errors_out_of_torch_compile_are_our_own_with_pytorchs_frames_only(options, kind, message) -> None:
    model, inputs = case("mlp").build()
    compiled = torch.compile(model, backend="remat", options=options)
    error = caught_from(lambda: compiled(*inputs))
    assert type(error) is kind
    assert message in str(error)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f.name for f in frames if "/python/remat/" in f.filename]
    assert ours == ["call"]
    assert len(frames) < 16


def test_a_given_plan_that_existing_gradients_make_too_large_says_so() -> None:
    model, inputs = case("mlp").build()
    planned = remat.torch.fit(model, inputs, "80%", work_limit=10_000).remat
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    given = {"plan": list(planned.plan.steps)}
    error = caught_from(lambda: remat.torch.fit(model, inputs, planned.budget, **given))
    assert isinstance(error, remat.PlanError)
    assert re.search(r"KiB \(\d+ bytes\) of it are gradients that exist already", str(error))
    model.zero_grad()
    assert remat.torch.fit(model, inputs, planned.budget, **given).remat.plan.steps


def test_reports_are_written_in_units_and_held_in_bytes() -> None:
    model, inputs = case("mlp").build()
    fitted = remat.torch.fit(model, inputs, "80%", work_limit=10_000)
    peak = fitted.remat.predicted_peak
    assert f" {remat.format_bytes(peak)} predicted, " in str(fitted.remat)
    assert f"predicted_peak = {remat.format_bytes(peak)}\n" in str(fitted.remat.largest())
    assert str(remat.torch.report(fitted)).startswith(f"peak = {remat.format_bytes(peak)}\n")


class Padded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.few = torch.nn.Parameter(torch.randn(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = torch.cat([self.few, x.new_zeros(1000)])
        return (x * padded).sin().exp().sum()


def test_the_smallest_budget_known_counts_gradients_that_lie_in_the_memory_of_more() -> None:
    model, inputs, options = Padded(), (torch.randn(4, 1064),), {"work_limit": 20_000, "executor": "boxed"}
    error = caught_from(lambda: remat.torch.fit(model, inputs, "1B", **options))
    assert isinstance(error, remat.InfeasibleError)
    assert remat.torch.fit(model, inputs, error.smallest_known, **options).remat.parts
