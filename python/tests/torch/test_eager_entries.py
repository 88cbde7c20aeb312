"""What is promised of traced steps holds for recorded ones: capture, sweep, report, largest_batch, verify."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest
import remat
import remat.torch
import torch
from remat.torch.eager.ledger import Ledger
from torch import nn

WIDTH = 32


class Branches(nn.Module):
    """A branch that data decide, in a module of its own; a buffer that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4))
        self.register_buffer("seen", torch.zeros(WIDTH, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
            if x.sum() > 1e6:
                x = x * 2
        self.seen.add_(1)
        return x.square().mean()


def inputs(size: int = 64) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(size, WIDTH)


def recorded(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if "recorded in eager mode" in r.message]


def test_a_step_that_is_not_one_graph_is_captured_by_recording(caplog: pytest.LogCaptureFixture) -> None:
    model, x = Branches(), inputs()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with caplog.at_level(logging.WARNING, "remat.torch"):
        graph = remat.torch.capture(model, x)
    (line,) = recorded(caplog)
    assert "not traced" in line
    assert "test_eager_entries.py" in line
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(p.grad is not None for p in model.parameters())
    modules = {(graph.op(i).phase, graph.op(i).module) for i in range(graph.num_ops)}
    # Of the backward too.
    assert {("forward", "blocks.2.1"), ("backward", "blocks.2.1"), ("backward", "first")} <= modules
    names = {graph.value_name(value) for value in graph.inputs}
    assert {"parameter blocks.0.0.weight", "buffer seen", "input 0"} <= names
    assert "aten.addmm.default" in {graph.op(i).kind for i in range(graph.num_ops)}
    with pytest.raises(remat.torch.UnsupportedModelError, match="Dynamo"):
        remat.torch.capture(model, x, executor="boxed")


def test_what_is_written_in_place_to_a_buffer_is_counted_once() -> None:
    model, x = Branches(), inputs()
    graph = remat.torch.capture(model, x, executor="eager")
    measured = remat.torch.measure_peak(lambda: model(x).backward(), resident=[model, x])
    assert graph.keep_all_peak == pytest.approx(measured, rel=0.001)


def test_a_sweep_of_a_recorded_step_has_plans_that_fit_keeps() -> None:
    model, x = Branches(), inputs()
    swept = remat.torch.sweep(model, x, points=4, executor="eager", work_limit=10_000, time_limit=None)
    rows = swept.rows
    assert len(rows) > 1
    assert rows[0].overhead == 0
    assert rows[0].budget == swept.keep_all_peak
    assert all(a.budget > b.budget and a.overhead < b.overhead for a, b in pairwise(rows))
    assert swept.adding is not None
    assert "recomputed" in swept._repr_html_()
    budget = max(rows[-1].budget, swept.adding.rows[-1].budget)
    fitted = remat.torch.fit(model, x, budget, executor="eager", work_limit=10_000)
    assert fitted.remat.predicted_peak <= budget
    with pytest.raises(remat.UsageError, match="points must be from 2"):
        remat.torch.sweep(model, x, points=1, executor="eager")


def test_a_report_of_a_recorded_step_says_what_fills_its_peak() -> None:
    model, x = Branches(), inputs()
    filled = remat.torch.report(model, x, executor="eager", accumulate=False)
    size = sum(p.nbytes for p in model.parameters())
    assert filled.by_category()["parameters"] == size
    assert filled.by_category()["buffers"] == model.seen.nbytes
    assert filled.by_category()["inputs"] == x.nbytes
    assert filled.by_module()["blocks.3.0"] > 0
    planned = remat.torch.report(model, x, "85%", executor="eager", accumulate=False, work_limit=10_000)
    assert planned.peak < filled.peak
    fitted = remat.torch.fit(model, x, "85%", executor="eager", work_limit=10_000)
    both = remat.torch.report(fitted)
    assert both.adding is not None
    assert both.adding.by_category()["existing gradients"] == size


def test_verify_compares_a_model_that_cannot_be_traced() -> None:
    found = remat.torch.verify(Branches(), inputs(), "85%", executor="eager", work_limit=10_000)
    assert found.equal
    assert found.within


def test_what_cannot_be_recorded_is_refused_in_one_line() -> None:
    model: Any = Branches()
    with pytest.raises(remat.torch.UnsupportedModelError, match="^nothing that this model returns requires"):
        remat.torch.capture(nn.ReLU(), inputs(), executor="eager")
    with pytest.raises(remat.UsageError, match="meta and fake tensors have none$"):
        remat.torch.capture(model.to("meta"), inputs().to("meta"), executor="eager")
    with pytest.raises(remat.UsageError, match="^measure_costs: "):
        remat.torch.measure_costs(Branches(), inputs(), "costs.json", executor="eager")


def test_the_largest_batch_of_a_recorded_step(caplog: pytest.LogCaptureFixture) -> None:
    model = Branches()
    sizes: dict[str, Any] = {"accumulate": False, "work_limit": 5_000, "time_limit": None}
    with caplog.at_level(logging.WARNING, "remat.torch"):
        found = remat.torch.largest_batch(model, inputs, 100_000, most=4096, multiple=8, **sizes)
    assert len(recorded(caplog)) == 1
    row = found.row(found.largest)
    assert row.peak is not None
    assert row.peak <= 100_000
    assert found.row(found.largest + 8).peak is None
    assert found.row(found.best).throughput == max(r.throughput or 0 for r in found.rows)
    assert str(found)
    assert remat.torch.fit(model, inputs(found.largest), 100_000, executor="eager", **sizes)
    with pytest.raises(remat.InfeasibleError, match="at the least size, 1024") as caught:
        remat.torch.largest_batch(model, inputs, 100_000, least=1024, executor="eager", **sizes)
    known = caught.value.smallest_known
    again = remat.torch.largest_batch(
        model, inputs, known, least=1024, most=1030, multiple=2, executor="eager", **sizes
    )
    assert again.largest >= 1024


@pytest.mark.parametrize("budget", ["100%", "80%"])
def test_a_step_in_eager_mode_is_recorded_beside_its_plan(budget: str) -> None:
    x = inputs(1024)
    fitted = remat.torch.fit(Branches(), x, budget, executor="eager", work_limit=20_000)
    optimizer = torch.optim.SGD(fitted.parameters(), lr=0.1)

    def step() -> None:
        fitted(x).backward()
        optimizer.step()
        optimizer.zero_grad()

    found = remat.torch.record(step, resident=[fitted, x])
    assert found.report is fitted.remat.largest()
    assert (found.report.recomputed_steps > 0) == (budget == "80%")
    assert len(found.measured) == len(found.predicted) == len(found.report.plan)
    assert abs(found.measured_peak - found.predicted_peak) <= 0.002 * found.predicted_peak
    assert found.excess <= 0.002 * found.predicted_peak
    # Steps that run something, but for what Python lets go of meanwhile.
    ran = [found.report.graph.op(op).kind != "remat.let_go" for op in found.report.plan.steps]
    near = abs(found.measured - found.predicted) <= 0.002 * found.predicted_peak
    assert near[ran].mean() > 0.9
    assert "<html" in found.page(points=0)._repr_html_().lower()


def test_a_recording_of_calls_that_share_a_backward_is_refused_in_one_line() -> None:
    x = inputs()
    fitted = remat.torch.fit(Branches(), x, "100%", executor="eager", work_limit=1000)
    with pytest.raises(remat.torch.UnsupportedModelError, match=r"^record: several graphs are in flight"):
        remat.torch.record(lambda: (fitted(x) + fitted(x)).backward())
    with pytest.raises(remat.UsageError, match=r"^record: no planned step ran"):
        remat.torch.record(lambda: fitted(x))
    assert remat.torch.measure_peak(lambda: fitted(x).backward(), resident=[fitted, x]) > 0


class Cache:
    """No container that anybody knows."""

    __slots__ = ("items",)

    def __init__(self, items: list[torch.Tensor]) -> None:
        self.items = items


class Answer:
    def __init__(self, loss: torch.Tensor, logits: torch.Tensor, cache: Cache) -> None:
        self.loss, self.logits, self.cache = loss, logits, cache


class Answers(nn.Module):
    """Returns objects that hold tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.out = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: torch.Tensor) -> Answer:
        kept = []
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
            kept.append(x + 1)
        logits = self.out(x)
        return Answer(logits.square().mean(), logits * 1, Cache(kept))


@pytest.mark.parametrize("budget", ["100%", "80%"])
@pytest.mark.parametrize("holds", ["nothing", "logits", "all"])
def test_outputs_in_objects_are_held_or_dropped(budget: str, holds: str) -> None:
    torch.manual_seed(0)
    model, x = Answers(), inputs(256)
    fitted = remat.torch.fit(
        model, x, budget, executor="eager", work_limit=5_000, time_limit=None, accumulate=False
    )
    kept: list[Any] = []

    def step() -> None:
        answer = fitted(x)
        kept[:] = {"nothing": [], "logits": [answer.logits], "all": [answer]}[holds]
        loss = answer.loss
        del answer
        loss.backward()

    for _ in range(3):
        fitted.zero_grad()
        kept.clear()
        measured = remat.torch.measure_peak(step, resident=[fitted, x])
    assert fitted.remat.predicted_peak == pytest.approx(measured, rel=0.002)
    (part,) = fitted.remat.parts
    assert part.predicted_peak <= part.budget


def test_a_plan_for_outputs_that_go_takes_no_memory_in_the_middle_of_training() -> None:
    torch.manual_seed(0)
    model, x = Answers(), inputs(256)
    options: Any = {"executor": "eager", "work_limit": 5_000, "time_limit": None, "accumulate": False}
    with pytest.raises(remat.NoPlanError) as caught:
        remat.torch.fit(model, x, 1200, **options)
    budget = caught.value.smallest_known
    fitted = remat.torch.fit(model, x, budget, **options)
    plans, peaks = [], []
    for _ in range(3):
        fitted.zero_grad()
        # Nobody holds the outputs, which the second call knows.
        peaks.append(remat.torch.measure_peak(lambda: fitted(x).loss.backward(), resident=[fitted, x]))
        plans.append(fitted.remat.parts[-1:])
    assert max(peaks) <= budget
    assert plans[0] != plans[2], "nothing was planned again"
    assert fitted.remat.overhead < 1
    assert f"{100 * fitted.remat.overhead:.2f} % more time than eager mode's ops" in str(fitted.remat)
    assert f"overhead = {fitted.remat.overhead:.2%} of eager mode's ops" in str(fitted.remat.largest())


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, WIDTH, sparse=True)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.square().mean()


def test_sparse_gradients_count() -> None:
    torch.manual_seed(0)
    model, x = Sparse(), torch.randint(500, (128,))
    peaks: list[tuple[int, int]] = []
    for accumulate in (False, True):
        fitted = remat.torch.fit(
            model, x, "95%", executor="eager", work_limit=5_000, time_limit=None, accumulate=accumulate
        )
        fitted.zero_grad()
        if accumulate:
            fitted(x).backward()
        measured = remat.torch.measure_peak(lambda f=fitted: f(x).backward(), resident=[fitted, x])
        peaks.append((measured, fitted.remat.predicted_peak))
    (making, predicted), (adding, most) = peaks
    assert making == pytest.approx(predicted, rel=0.002)
    size = 128 * (WIDTH * 4 + 8)
    assert making + size < adding <= most <= adding + 3 * size


class Routed(nn.Module):
    """Tokens go where the largest of their numbers says."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.layers = nn.Linear(WIDTH, 4), nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            weights, _ = self.gate(x).topk(2, -1)
            x = torch.tanh(layer(x)) * weights.tanh().sum(-1, keepdim=True)
        return x.square().mean()


def test_options_of_plans_hold_in_eager_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Routed(), inputs(256)
    options: dict[str, Any] = {
        "executor": "eager",
        "work_limit": 5_000,
        "time_limit": None,
        "accumulate": False,
    }

    def runs_again(fitted: Any) -> set[str]:
        graph, steps = fitted.remat.graph, list(fitted.remat.plan.steps)
        return {graph.op(step).kind for step in steps if steps.count(step) > 1}

    with pytest.raises(remat.NoPlanError) as caught:
        remat.torch.fit(model, x, 1200, routing="recompute", **options)
    known = caught.value.smallest_known
    assert known is not None
    assert "aten.topk.default" in runs_again(remat.torch.fit(model, x, known, routing="recompute", **options))
    kept = remat.torch.fit(model, x, "75%", **options)
    assert runs_again(kept)
    assert "aten.topk.default" not in runs_again(kept)
    # What a loss needs is taken from the budget.
    large = remat.torch.fit(model, x, "100%", loss_workspace=50_000, **options)
    assert (
        large.remat.predicted_peak
        == remat.torch.fit(model, x, "100%", **options).remat.predicted_peak + 50_000
    )
    assert remat.torch.fit(model, x, "75%", verify=True, **options)
    # A step that makes other bits is found.
    right = Ledger.through
    monkeypatch.setattr(Ledger, "through", lambda self, call: right(self, call) * 2)
    with pytest.raises(remat.torch.VerificationError, match="^verify: Routed: .* differ from eager mode"):
        remat.torch.fit(model, x, "100%", verify=True, **options)
