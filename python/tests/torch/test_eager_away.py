"""Steps in eager mode whose saved tensors go to a host and come back: bits of eager mode, predicted peaks,
whatever the clock, and whatever a step does.
"""

from __future__ import annotations

import copy
import gc
import logging
import math
import time
from dataclasses import replace
from typing import Any

import pytest
import remat
import remat.torch
import torch
from late import at_random, leave_out_waits, pool_of, until
from models import CASES, Case, case
from remat.torch.eager import passing, planning
from remat.torch.eager.captured import recorded_steps
from torch import nn
from training import fit, step_peak, train

HOST = "2GB/s"


@pytest.fixture(autouse=True)
def copies_whatever_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps that are so small, recomputing is often as quick, by durations that are measured."""
    monkeypatch.setattr(planning, "_LITTLE", math.inf)


def fit_copying(model: nn.Module, inputs: Any, budget: int | str, **options: object) -> nn.Module:
    fitted = fit(
        model, inputs, budget, **{"host": HOST, "executor": "eager", "work_limit": 200_000, **options}
    )
    assert all(part.copied_out > 0 for part in fitted.remat.parts)
    return fitted


class Branches(nn.Module):
    """From the fourth block on, data decide."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.Dropout(0.1)
            )
            for _ in range(6)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, block in enumerate(self.blocks):
            x = x + block(x)
            if number == 3 and x.mean() > 3:
                x = torch.tanh(x) * 2
        return x


def rows(size: int = 256, shift: float = 0.0) -> torch.Tensor:
    torch.manual_seed(7)
    return torch.randn(size, 64) + shift


def same_gradients(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return all(p.grad is not None and q.grad is not None and p.grad.equal(q.grad) for p, q in pairs)


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_late_copies_change_neither_bits_nor_the_peak(c: Case, native: bool, slow, monkeypatch) -> None:
    if not native:
        monkeypatch.setattr(passing, "_extension", lambda: None)
    model, inputs = c.build()
    eager = train(copy.deepcopy(model), inputs)
    sizes = slow(at_random(1, 0.003))
    fitted = fit_copying(model, inputs, "75%")
    making, adding = fitted.remat.parts
    assert making.traffic == remat.torch.Traffic()  # of training alone
    assert eager.differences(train(fitted, inputs)) == []
    assert sizes
    assert making.traffic.out + adding.traffic.out > 0
    assert step_peak(fitted, inputs) <= adding.budget
    fitted.zero_grad()
    assert step_peak(fitted, inputs) == pytest.approx(making.predicted_peak, rel=2e-3)


@pytest.mark.parametrize("way", ["out", "in"])
def test_a_wait_that_is_left_out_shows(way: str, slow, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = case("mlp").build()
    eager = train(copy.deepcopy(model), inputs)
    fitted = fit_copying(model, inputs, "75%", accumulate=False)
    slow(lambda size: 0.03)
    leave_out_waits(monkeypatch, way)
    peak = step_peak(fitted, inputs)
    fitted.zero_grad()
    differences = eager.differences(train(fitted, inputs))
    if way == "in":
        assert differences
    else:
        assert peak > 1.01 * fitted.remat.predicted_peak or differences
    time.sleep(0.5)  # until what nobody waited for has ended


@pytest.mark.parametrize("budget", ["70%", 1_500_000])
def test_a_step_that_leaves_its_plan_has_the_bits_of_eager_mode(budget: int | str, slow) -> None:
    model = Branches()
    eager = copy.deepcopy(model)
    fitted = fit_copying(model, rows(), budget)
    slow(at_random(2))
    for shift in (0.0, 5.0, 0.0, 5.0, 5.0, 0.0):
        for each in (eager, fitted):
            torch.manual_seed(3)
            each(rows(shift=shift)).square().mean().backward()
        assert same_gradients(eager, fitted)


def test_another_loss_asks_for_things_in_another_sequence(slow) -> None:
    model = Branches()
    eager = copy.deepcopy(model)
    fitted = fit_copying(model, rows(), "70%")
    slow(at_random(3))
    for each in (eager, fitted):
        torch.manual_seed(3)
        (torch.logsumexp(each(rows()), 1) ** 3).cumsum(0).tanh().sum().backward()
    assert same_gradients(eager, fitted)


def test_a_backward_may_come_twice_and_several_calls_before_one(slow) -> None:
    model = Branches()
    eager = copy.deepcopy(model)
    fitted = fit_copying(model, rows(), "70%")
    slow(at_random(4))
    for each in (eager, fitted):
        torch.manual_seed(5)
        losses = [each(rows()).square().mean() for _ in range(3)]
        losses[1].backward(retain_graph=True)
        losses[0].backward()
        losses[1].backward()
        del losses
    assert same_gradients(eager, fitted)
    gc.collect()
    pool = pool_of(fitted)
    until(lambda: pool.bytes_used == 0)
    kept = fitted(rows())
    assert pool.bytes_used > 0
    del kept
    until(lambda: pool.bytes_used == 0)


def test_smaller_calls_follow_the_plan_of_larger_ones(slow) -> None:
    model = Branches()
    eager = copy.deepcopy(model)
    fitted = fit_copying(model, rows(), 1_500_000)
    slow(at_random(5))
    for size in (200, 100, 256, 30):
        for each in (eager, fitted):
            torch.manual_seed(3)
            each(rows(size)).square().mean().backward()
        assert same_gradients(eager, fitted)
    assert sum(part.traffic.calls for part in fitted.remat.parts) >= 3


def test_a_double_backward_fetches_what_it_needs(slow) -> None:
    model = Branches()
    eager = copy.deepcopy(model)
    fitted = fit_copying(model, rows().requires_grad_(), "70%")
    slow(at_random(6))
    for each in (eager, fitted):
        torch.manual_seed(5)
        x = rows().requires_grad_()
        (gradient,) = torch.autograd.grad(each(x).square().mean(), x, create_graph=True)
        (gradient.square().sum() + x.sum()).backward()
    assert same_gradients(eager, fitted)


def test_a_forward_that_asks_for_what_has_just_left_has_the_bits_of_eager_mode(slow) -> None:
    class Asks(Branches):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.ones(()))  # no op comes before autograd asks

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            asks = bool(x.mean() > 3)
            for block in self.blocks:
                x = x + block(x)
            y = x.square().mean()
            if asks:
                weight = self.blocks[0][1].weight
                (inner,) = torch.autograd.grad(y, weight, self.one, retain_graph=True)
                y = y + (inner * weight).sum()
            return y

    model = Asks()
    eager = copy.deepcopy(model)
    fitted = fit_copying(model, rows(), "80%")
    slow(lambda size: 0.03)
    for each in (eager, fitted):
        torch.manual_seed(3)
        each(rows(shift=5.0)).backward()
    assert same_gradients(eager, fitted)


def test_what_is_written_to_before_the_backward_is_an_error_as_in_eager_mode() -> None:
    class Saves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

        def forward(self, x: torch.Tensor, writes: bool = False) -> torch.Tensor:
            first = None
            for block in self.blocks:
                x = torch.tanh(block(x))
                first = x if first is None else first
            if writes:
                first.mul_(2)
            return x

    fitted = fit_copying(Saves(), rows(), "75%")
    fitted(rows()).sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        fitted(rows(), writes=True).sum().backward()


def test_memory_that_autograd_saves_in_parts_stays() -> None:
    """Gates, as those of an LSTM, are written one after the other, and saved as they are made."""

    class Gated(Branches):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.ModuleList(nn.Linear(64, 128) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for gate in self.gates:
                a, b = torch.unsafe_chunk(gate(x), 2, 1)
                x = x + a.sigmoid_() * b.tanh_()
            return super().forward(x).square().mean()

    model, x = Gated(), rows()
    eager = copy.deepcopy(model)

    def step(call: Any) -> None:
        torch.manual_seed(3)
        call(x).backward()

    fitted = fit_copying(model, x, "75%", accumulate=False)
    step(eager)
    step(fitted)
    assert same_gradients(eager, fitted)
    fitted.zero_grad()
    measured = remat.torch.measure_peak(lambda: step(fitted), resident=[fitted, x])
    assert measured == fitted.remat.parts[0].predicted_peak


def test_what_a_slow_host_is_too_slow_for_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_LITTLE", 0.02)
    fitted = fit(Branches(), rows(), "70%", executor="eager", host="1KB/s", work_limit=200_000)
    for part in fitted.remat.parts:
        assert part.copied_out == 0
        assert part.recomputed_steps > 0
        assert part.gap >= 0


def test_what_was_asked_for_less_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner finds a plan that needs more in eager mode, and says for less that there is none."""
    asked: list[int] = []
    own = planning._planned

    def planned(graph: remat.Graph, target: int, options: Any) -> remat.PlanResult:
        asked.append(target)
        return own(graph, graph.keep_all_peak if len(asked) == 1 else graph.resident, options)

    monkeypatch.setattr(planning, "_planned", planned)
    (step,) = recorded_steps(Branches(), rows(), None, {"work_limit": 10_000}, False)
    limit = step.graph.keep_all_peak * 3 // 4
    found = planning.within(step.step, limit, step.settled())
    assert isinstance(found, planning.Searched)
    assert asked == [limit, found.target]
    assert found.result.status == "infeasible"
    assert not found.is_proved


def test_verify_compares_steps_that_copy() -> None:
    fitted = fit_copying(Branches(), rows(), "70%", verify=True)
    assert "copied out" in str(fitted.remat)


def test_loops_that_call_several_models_copy_too(slow, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Branches(), Branches()
    eager = copy.deepcopy((first, second))
    step = remat.torch.planned(first, second, budget="60%", host=HOST, work_limit=400_000)
    slow(at_random(7))
    for _ in range(4):
        torch.manual_seed(5)
        eager[1](eager[0](rows())).square().mean().backward()
        torch.manual_seed(5)
        with step:
            second(first(rows())).square().mean().backward()
        assert same_gradients(eager[0], first)
        assert same_gradients(eager[1], second)
    assert any(part.copied_out and part.traffic.out for part in step.remat.parts)


def test_a_model_that_is_not_one_graph_copies_by_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "remat.torch"):
        fitted = fit_copying(Branches(), rows(), "70%", executor="auto")
    assert all(part.planner == "eager" for part in fitted.remat.parts)


def test_steps_are_captured_and_swept_with_a_host() -> None:
    options = {"executor": "eager", "host": HOST, "work_limit": 100_000}
    graph = remat.torch.capture(Branches(), rows(), **options)
    assert remat.plan(graph, "60%", host=HOST, work_limit=100_000).plan.copies
    swept = remat.torch.sweep(Branches(), rows(), points=3, accumulate=False, **options)
    assert len(swept.rows) > 1


def test_copies_that_the_host_has_no_room_for_at_once_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the planner's plan one may come back before another leaves, here only in the backward."""
    planned = planning._planned

    def with_more_room(graph: remat.Graph, target: int, options: Any) -> remat.PlanResult:
        return planned(graph, target, replace(options, host=options.host and HOST))

    monkeypatch.setattr(planning, "_planned", with_more_room)
    for room in (140_000, 400_000):  # of 524,288 bytes
        small = remat.Host(out=2e9, in_=2e9, budget=room)
        fitted = fit(Branches(), rows(), "85%", host=small, executor="eager", work_limit=200_000)
        assert all(part.host_peak <= room for part in fitted.remat.parts)


def test_what_the_host_has_no_room_for_is_said(tmp_path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(remat.torch.HostMemoryError, match="gone"):
        fit_copying(Branches(), rows(), "70%", host_dir=gone)
    small = remat.Host(out=2e9, in_=2e9, budget=70_000)
    fitted = fit_copying(Branches(), rows(), "70%", host=small)
    assert all(0 < part.host_peak <= 70_000 for part in fitted.remat.parts)
