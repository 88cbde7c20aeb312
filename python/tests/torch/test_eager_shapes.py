"""Calls with smaller tensors follow the plan of a call with larger ones, where that is shown to do."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import remat
import remat.torch
import torch
from remat.torch.eager import shapes
from remat.torch.eager.prepare import Preparation
from remat.torch.eager.results import Shown
from remat.torch.eager.shapes import Key
from torch import nn
from training import said_of_the_rest

WIDTH, LONG = 32, 64


class Blocks(nn.Module):
    """more: by how much less it makes at most, the more its input has."""

    def __init__(self, more: int = 0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.more = more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(torch.nn.functional.gelu(layer(x))) * x.sigmoid()
        if self.more:
            rest = x.new_ones(self.more - x.shape[0], WIDTH) * self.layers[0].weight[0]
            return x.square().mean() + rest.sin().exp().mean()
        return x.square().mean()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes that are recorded."""
    found: list[Any] = []
    own = Preparation.recorded

    def record(self: Preparation, call: Any, adds: bool = False) -> Any:
        found.append(tuple(call[0][0].shape))
        return own(self, call, adds)

    monkeypatch.setattr(Preparation, "recorded", record)
    return found


def rows(n: int) -> torch.Tensor:
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(n))


def budget_of(model: nn.Module, n: int, share: float) -> int:
    own = copy.deepcopy(model)
    return int(share * remat.torch.measure_peak(lambda: own(rows(n)).backward(), resident=[own]))


def train(model: nn.Module, call: Any, sizes: list[int]) -> list[torch.Tensor]:
    found = []
    for n in sizes:
        model.zero_grad(set_to_none=True)
        loss = call(rows(n))
        loss.backward()
        found += [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]
    return found


def fitted(model: nn.Module, budget: Any, **options: Any) -> Any:
    known = {"work_limit": 5000, "time_limit": None, "accumulate": False, **options}
    return remat.torch.fit(model, rows(LONG), budget, executor="eager", **known)


def test_smaller_calls_follow_the_plan_of_a_larger_one(recorded: list[Any]) -> None:
    model = Blocks()
    plain, budget = copy.deepcopy(model), budget_of(model, LONG, 0.75)
    fit = fitted(model, budget, max_shapes=1)
    assert fit.remat.parts[0].recomputed_steps
    sizes = [48, 64, 17, 48, 1]
    assert all(map(torch.equal, train(model, fit, sizes), train(plain, plain, sizes)))
    assert recorded == [(LONG, WIDTH)]
    assert len(fit.remat.parts) == 1
    for n in (48, 30, 30):
        model.zero_grad(set_to_none=True)
        x = rows(n)
        assert remat.torch.measure_peak(lambda x=x: fit(x).backward(), resident=[model, x]) <= budget


class Returning(Blocks):
    """Returns what it makes."""

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = torch.tanh(torch.nn.functional.gelu(layer(x))) * x.sigmoid()
        return x.square().mean(), torch.cat([x] * 40)


def test_outputs_of_smaller_calls_say_nothing_of_larger_ones(recorded: list[Any]) -> None:
    """Dropped or held: the larger call has a plan with its outputs in memory, smaller ones follow that."""
    model = Returning()
    plain = copy.deepcopy(model)
    held: list[Any] = []

    def step(call: Any, n: int, holds: bool) -> None:
        model.zero_grad(set_to_none=True)
        outputs = call(rows(n))
        held.append(outputs)
        loss = outputs[0]
        if not holds:
            held.clear()
        del outputs
        loss.backward()
        held.clear()

    budget = remat.torch.measure_peak(lambda: step(plain, LONG, True), resident=[plain]) * 9 // 10
    fit = fitted(model, budget, loss=lambda outputs: outputs[0])
    for n, holds in ((48, False), (64, False), (64, False), (48, True), (64, True), (64, True), (20, True)):
        peak = remat.torch.measure_peak(lambda n=n, holds=holds: step(fit, n, holds), resident=[model])
        assert peak <= budget, (n, holds)
    assert recorded == [(LONG, WIDTH)]


def test_larger_calls_and_shares_are_planned_for_themselves(recorded: list[Any]) -> None:
    model = Blocks()
    fit = fitted(model, budget_of(model, LONG, 1.5))
    train(model, fit, [80, 72])
    assert recorded == [(64, WIDTH), (80, WIDTH)]
    recorded.clear()
    fit = fitted(Blocks(), "75%")
    fit(rows(48)).backward()
    assert recorded == [(64, WIDTH), (48, WIDTH)]


def test_a_call_for_which_there_is_no_plan_says_so_each_time() -> None:
    model = Blocks()
    plain, fit = copy.deepcopy(model), fitted(model, budget_of(model, LONG, 0.75))
    for _ in range(2):
        with pytest.raises(remat.NoPlanError, match="smallest budget known to work"):
            fit(rows(40 * LONG))
    assert all(map(torch.equal, train(model, fit, [LONG]), train(plain, plain, [LONG])))


def test_a_smaller_call_that_makes_more_leaves_the_plan(
    recorded: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    model = Blocks(more=LONG + 300)
    plain, budget = copy.deepcopy(model), budget_of(model, LONG, 1.2)
    fit = fitted(model, budget)
    with caplog.at_level(logging.WARNING, "remat.torch"):
        found = train(model, fit, [8])
    assert recorded == [(LONG, WIDTH)]
    said = [record.message for record in caplog.records]
    assert f"makes more than was recorded: {said_of_the_rest(said, said[-1])}" in said[-1]
    found += train(model, fit, [8, 8])
    assert recorded == [(LONG, WIDTH), (8, WIDTH)]
    assert all(map(torch.equal, found, train(plain, plain, [8, 8, 8])))


def test_what_differs_with_smaller_tensors_is_an_error_and_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Blocks()
    plain = copy.deepcopy(model)
    fit = fitted(model, budget_of(model, LONG, 0.75))
    right = Shown.tensor
    with monkeypatch.context() as patched:
        patched.setattr(Shown, "tensor", lambda self: right(self) * (2 if self.shape == (48, WIDTH) else 1))
        with pytest.raises(remat.torch.VerificationError, match=r"^aten\.\w+\.\w+: a second run makes other"):
            train(model, fit, [48])
    sizes = [64, 48]
    assert all(map(torch.equal, train(model, fit, sizes), train(plain, plain, sizes)))


@pytest.mark.parametrize("host", [None, "2GB/s"])
def test_smaller_calls_get_plans_of_their_own_from_what_they_made(
    recorded: list[Any], monkeypatch: pytest.MonkeyPatch, host: str | None
) -> None:
    monkeypatch.setattr(shapes, "_LOST", 0)
    model = Blocks()
    plain = copy.deepcopy(model)
    budget = budget_of(model, LONG, 0.75)
    fit = fitted(model, budget, host=host)
    first = len(fit.remat.parts)
    sizes = [56, 56, 32, 48, 32, 64, 16, 56, 32]
    found = train(model, fit, sizes)
    assert recorded == [(64, WIDTH)]
    # Whatever is no larger than what got a plan borrows from that.
    added = fit.remat.parts[first:]
    assert added
    assert all(part.overhead < fit.remat.parts[0].overhead for part in added)
    assert all(part.predicted_peak <= budget for part in added)
    assert all(map(torch.equal, found, train(plain, plain, sizes)))
    for size in (56, 48, 32, 16):
        model.zero_grad(set_to_none=True)
        x = rows(size)
        assert remat.torch.measure_peak(lambda x=x: fit(x).backward(), resident=[model, x]) <= budget


def test_which_shapes_cover_which() -> None:
    def key(*leaves: Any, structure: Any = "tree", modes: tuple[bool, ...] = (True,)) -> Key:
        found = ((torch.Size(each[0]), *each[1:]) if isinstance(each, tuple) else each for each in leaves)
        return Key(tuple(found), structure, modes)

    large = key(((4, 8), torch.float32, False), int)
    assert large.covers(large)
    assert large.covers(key(((4, 7), torch.float32, False), int))
    assert not large.covers(key(((5, 1), torch.float32, False), int))
    assert not large.covers(key(((8,), torch.float32, False), int))
    assert not large.covers(key(((4, 8), torch.float64, False), int))
    assert not large.covers(key(((4, 8), torch.float32, True), int))
    assert not large.covers(key(((4, 8), torch.float32, False), float))
    assert not large.covers(key(((4, 8), torch.float32, False), int, structure="other"))
    assert not large.covers(key(((4, 8), torch.float32, False), int, modes=(False,)))
