"""The budget from the first step on: recorded steps, and steps that leave the record, evict saved tensors."""

from __future__ import annotations

import copy
import gc
import itertools
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import remat
import remat.torch
import torch
import torch.nn.functional as F
from remat.torch.base.storages import digest, same_bits, tensor_storages
from remat.torch.eager import proofs, step as recorded_step
from remat.torch.eager.prepare import Preparation
from remat.torch.eager.recorded import Around, StepGraph
from remat.torch.eager.results import Run
from remat.torch.eager.session import EagerSession
from remat.torch.eager.step import TrainingStep
from remat.torch.plan.options import Options
from torch import nn
from torch.utils.checkpoint import checkpoint

NARROW, WIDTH, BATCH = 3, 32, 512
Tail = Callable[[torch.Tensor], torch.Tensor]


class Stack(nn.Module):
    """Layers, and something else after the second one where `other` is set."""

    def __init__(self, act: Tail, other: Tail = torch.tanh) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH if i else NARROW, WIDTH) for i in range(12))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.act, self.special, self.other = act, other, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = self.act(layer(x))
            if i == 1 and self.other:
                x = self.special(x)
        return self.norm(x).square().mean()


def written(x: torch.Tensor) -> torch.Tensor:
    """In place, in parts that were split, into memory without content, and where it was read before."""
    a, b = torch.chunk(x * 1.5, 2, 1)
    y = torch.cat([(a + 1).mul_(2).sigmoid_(), b.tanh()], 1)
    y = F.hardswish(y, inplace=True)
    return torch.empty_like(y).copy_(y.exp()).sub(1).relu_()


def noisy(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.2).relu_() + torch.rand_like(x).sin() * 0.01


def inner(x: torch.Tensor) -> torch.Tensor:
    """A gradient of a gradient, inside."""
    (first,) = torch.autograd.grad(x.sin().square().sum(), x, create_graph=True)
    return x + 0.1 * first


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = checkpoint(lambda t: F.dropout(t.sin(), 0.1).cos(), x, use_reentrant=False)
    return made


def mixed(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x * x.sigmoid()).float() * 0.01 + x


def past_the_dispatcher(x: torch.Tensor) -> torch.Tensor:
    """What numpy writes cannot be made again."""
    factor = torch.empty(x.shape)
    factor.numpy()[:] = 0.5
    return torch.exp(x * (factor * 1.5))


def in_parts(x: torch.Tensor) -> torch.Tensor:
    """Memory without content is written to in parts: what is left of it cannot be compared."""
    made = torch.empty(2, *x.shape)
    for i, part in enumerate((x.sin(), x.cos())):
        made[i] = part
    return made[0] * made[1] + x


def sparse_inside(x: torch.Tensor) -> torch.Tensor:
    """A matrix that has no memory of its own, which graph networks multiply with."""
    places = torch.arange(BATCH)
    rows, entries = torch.arange(BATCH + 1), torch.full((BATCH,), 0.5)
    matrix = torch.sparse_csr_tensor(rows, places, entries, (BATCH, BATCH), check_invariants=True)
    return matrix @ x.sin() + x


def other_memory(x: torch.Tensor) -> torch.Tensor:
    """A tensor is given the memory of another one, as cuDNN's recurrent layers do with their weights."""
    shown, small = torch.zeros_like(x), torch.ones(2)
    shown.set_((x * 1.5).detach())
    small.resize_(x.shape).zero_()
    return torch.exp(x * 0.1 + shown.sin() + small)


TAILS = {
    "in place": written,
    "random": noisy,
    "gradients inside": inner,
    "checkpoint": checkpointed,
    "autocast": mixed,
    "past the dispatcher": past_the_dispatcher,
    "other memory": other_memory,
}


def inputs() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(BATCH, NARROW)


def step(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Loss, gradients, buffers and the generator after a step."""
    torch.manual_seed(7)
    model.zero_grad()
    loss = model(x)
    loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]
    return [t.clone() for t in [*found, torch.get_rng_state()]]


def peak(run: Callable[[], Any], *resident: Any) -> int:
    return remat.torch.measure_peak(run, resident=resident)


def eager_peak(model: nn.Module, x: torch.Tensor) -> int:
    other = copy.deepcopy(model)
    other(x).backward()  # what is allocated once
    other.zero_grad()
    return peak(lambda: other(x).backward(), other, x)


def peak_beside(found: nn.Module, plain: nn.Module, x: torch.Tensor) -> int:
    """The peak of a step, whose gradients are those of the plain model."""
    peaks, gradients = [], []
    for model in (plain, found):
        torch.manual_seed(7)
        model.zero_grad()
        peaks.append(peak(lambda model=model: model(x).backward(), model, x))  # type: ignore[misc]
        gradients.append([p.grad for p in model.parameters()])
    assert equal(*gradients)
    return peaks[1]


def fitted(model: nn.Module, x: torch.Tensor, budget: int, **options: Any) -> Any:
    return remat.torch.fit(
        model, x, budget, executor="eager", accumulate=False, work_limit=5_000, time_limit=None, **options
    )


def recorded(model: nn.Module, x: torch.Tensor, budget: int | str) -> remat.Graph:
    options = Options.from_mapping({"budget": budget, "executor": "eager"})
    preparation = Preparation(model, options, None, lambda about, text: None)
    record = preparation.recorded(((x,), {})).record
    resident = sum(tensor_storages([model, x]).values())
    return StepGraph(record, Around({"resident": resident})).graph


def kinds(graph: remat.Graph) -> list[str]:
    return [op["kind"] for op in graph.to_dict()["ops"]]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("name", TAILS)
def test_recording_and_steps_that_leave_the_record_stay_within_the_budget(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model, x = Stack(torch.tanh, TAILS[name]), inputs()
    plain = copy.deepcopy(model)
    budget = int(0.8 * eager_peak(model, x))
    made: list[Any] = []
    with caplog.at_level(logging.WARNING, "remat.torch"):
        assert peak(lambda: made.append(fitted(model, x, budget)), model, x) <= 1.02 * budget
        assert not caplog.records
        model.other = plain.other = made[0].other = True
        assert peak(lambda: made.append(step(made[0], x)), made[0], x) <= 1.02 * budget
    assert equal(made[1], step(plain, x))
    assert [r.message for r in caplog.records if "without a plan" in r.message]
    assert not [r.message for r in caplog.records if "although all is evicted" in r.message]
    # The next one has a plan.
    assert equal(step(made[0], x), step(plain, x))


@pytest.mark.parametrize("tail", [*TAILS.values(), in_parts])
def test_recording_sees_the_same_step_whatever_is_evicted(tail: Tail) -> None:
    torch.manual_seed(0)
    model, x = Stack(tail), inputs()
    whole = eager_peak(model, x)
    graphs = [recorded(model, x, budget) for budget in ("100%", int(0.5 * whole))]
    for graph in graphs:
        assert graph.keep_all_peak == whole
        assert kinds(graph) == kinds(graphs[0])


class TwoWays(nn.Module):
    """Which activation follows the layers depends on the sign of what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH if i else NARROW, WIDTH) for i in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        negative = bool(x.sum() < 0)
        for layer in self.layers:
            x = torch.tanh(layer(x))
            x = F.softplus(x) if negative else F.dropout(x, 0.1)
        return x.square().mean()


def test_calls_that_turn_from_one_plan_to_another_stay_within_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the former plan kept of the ops that both have, the other may have dropped. Here it has, where all
    ops take as long.
    """
    ticks = itertools.count(0, 100_000)
    monkeypatch.setattr(recorded_step, "clock_of", lambda device: lambda: next(ticks))
    torch.manual_seed(0)
    model, x = TwoWays(), inputs().abs()
    budget = int(0.67 * eager_peak(model, x))
    eager, planned = copy.deepcopy(model), fitted(model, x, budget)
    ways = [x, -x]
    for way in (0, 1, 1, 0, 0, 1, 0):
        assert equal(step(planned, ways[way]), step(eager, ways[way]))
        planned.zero_grad()
        assert peak(lambda way=way: planned(ways[way]).backward(), planned, ways[way]) <= budget  # type: ignore[misc]


class RandomDepth(nn.Module):
    """Layers that each call leaves out at random, as LayerDrop does. draw: of a number between 0 and 1."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
            )
            for _ in range(8)
        )
        self.draw = draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x if self.draw() < 0.3 else x + layer(x)
        return x


@pytest.mark.parametrize(
    ("draw", "share"),
    [
        (lambda: torch.rand(()).item(), 0.7),
        (random.random, 0.45),
        (lambda: random.randint(0, 9) / 10, 0.6),
    ],
)
def test_depths_that_are_drawn_stay_within_the_budget_from_the_first_step_on(
    draw: Callable[[], float], share: float
) -> None:
    """The sample has fewer layers than other steps: at 70 % of their peak it needs no second run."""
    torch.manual_seed(0)
    model, x = RandomDepth(draw), torch.randn(BATCH, WIDTH)
    plain = copy.deepcopy(model)

    def train(model: nn.Module, losses: list[torch.Tensor], seed: int) -> int:
        def step() -> None:
            torch.manual_seed(seed)
            random.seed(seed)
            loss = model(x).square().mean()
            losses.append(loss.detach())
            loss.backward()

        found = peak(step, model, x)
        losses += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        return found

    eager: list[torch.Tensor] = []
    planned: list[torch.Tensor] = []
    peaks = [train(plain, eager, seed) for seed in range(6)]
    assert min(peaks) < 0.68 * max(peaks)
    few = peaks.index(min(peaks))
    torch.manual_seed(few)
    random.seed(few)
    budget = int(share * max(peaks))
    other = remat.torch.fit(model, x, budget, executor="eager", work_limit=5_000, time_limit=None)
    assert max(train(other, planned, seed) for seed in range(6)) <= 1.01 * budget
    assert equal(planned, eager)
    assert "depend on random numbers" in str(other.remat)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_that_attention_makes_inside_are_kept() -> None:
    """They have neither shapes nor strides."""

    class Ragged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
            for layer in self.layers:
                parts = [torch.tanh(layer(x)).sin() for x in parts]
            x = (
                torch.nested.as_nested_tensor(parts, layout=torch.jagged)
                .unflatten(-1, (2, -1))
                .transpose(1, 2)
            )
            made = F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)
            return made.transpose(1, 2).flatten(-2).values().square().mean()

    torch.manual_seed(0)
    model: Any = Ragged()
    parts = [torch.randn(n, WIDTH) for n in (70, 40, 90, 20)]
    plain = copy.deepcopy(model)
    budget = int(0.97 * peak(lambda: copy.deepcopy(plain)(parts).backward(), plain, parts))
    other: Any = remat.torch.fit(model, (parts,), budget, executor="eager", work_limit=5_000, time_limit=None)
    assert other.remat.parts[0].recomputed_steps > 0
    for _ in range(2):
        assert equal(step(other, parts), step(plain, parts))


def test_the_report_is_there_when_it_is_known_that_nobody_holds_outputs() -> None:
    torch.manual_seed(0)

    class Wide(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.layers[1](torch.relu(self.layers[0](x))))

    model, x = Wide(torch.relu), inputs()
    planned = remat.torch.fit(model, x, "100%", loss=lambda y: y.square().mean(), executor="eager")
    first = planned.remat.predicted_peak
    for _ in range(2):
        loss = planned(x).square().mean()
        loss.backward()
        assert planned.remat.predicted_peak <= first
        planned.zero_grad()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_results_are_no_storages_while_a_step_is_recorded_within_a_budget() -> None:
    torch.manual_seed(0)
    model, x = Stack(sparse_inside), inputs()
    plain = copy.deepcopy(model)
    assert equal(step(fitted(model, x, int(0.9 * eager_peak(model, x))), x), step(plain, x))


def test_plans_that_are_made_in_training_take_no_memory_beside_gradients_that_exist() -> None:
    """Calls with other ops, where gradients are much of what is in memory."""
    torch.manual_seed(0)
    model = Stack(torch.tanh)
    model.wide = nn.Linear(WIDTH, 40 * WIDTH, bias=False)
    model.register_forward_hook(lambda m, _, loss: loss + m.wide(m.layers[0].weight.T).square().mean())
    plain, x = copy.deepcopy(model), inputs()
    plain(x).backward()
    budget = int(0.9 * peak(lambda: plain(x).backward(), plain, x))
    plain.zero_grad()
    found = remat.torch.fit(model, x, budget, executor="eager", work_limit=5_000, time_limit=None)
    for other in (False, True, True):
        found.other = plain.other = other
        found.special = plain.special = torch.sin
        assert peak(lambda: found(x).backward(), found, x) <= 1.01 * budget
        plain(x).backward()
        assert all(
            torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), plain.parameters(), strict=True)
        )


def test_plans_that_are_made_in_training_need_no_more_where_nobody_holds_outputs() -> None:
    """Their steps are compared and measured as they are trained: without the outputs that went."""
    torch.manual_seed(0)

    class Scores(TwoWays):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            loss = super().forward(x)
            scores = (x @ self.layers[0].weight.T).repeat(1, 8)
            return {"loss": loss + scores.square().mean(), "scores": scores}

    model, x = Scores(), inputs().abs()
    plain = copy.deepcopy(model)
    ways = [x, -x]
    most = max(peak(lambda way=way: plain(way)["loss"].backward(), plain, way) for way in ways)  # type: ignore[misc]
    budget = int(0.8 * most)
    plain.zero_grad()
    found = remat.torch.fit(model, x, budget, executor="eager", work_limit=5_000, time_limit=None)
    for way in (0, 0, 1, 1, 1, 0):
        for each in (plain, found):
            torch.manual_seed(3)
            last = peak(lambda each=each, way=way: each(ways[way])["loss"].backward(), each, ways[way])  # type: ignore[misc]
        assert last <= budget
        assert all(
            torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), plain.parameters(), strict=True)
        )


def test_what_cannot_stay_within_the_budget_is_said_or_an_error_before_it_happens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, x = Stack(torch.tanh), inputs()
    whole = eager_peak(model, x)
    budget = whole // 4

    def refused(**options: Any) -> None:
        with pytest.raises(remat.RematError, match="budget of"):
            fitted(model, x, budget, **options)

    assert peak(lambda: refused(strict=True), model, x) <= 1.05 * budget
    with caplog.at_level(logging.WARNING, "remat.torch"):
        refused()
    assert len([r for r in caplog.records if "although all is evicted that can be" in r.message]) == 1


class Bank(nn.Module):
    """Compares results with those of the last three calls."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(WIDTH, WIDTH), nn.GELU())))
        self.last: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.body(x)
        self.last = [*self.last, own.detach()][-3:]
        return (own @ torch.cat(self.last).T).exp().mean(1).log().mean()


def test_calls_of_another_kind_that_no_plan_keeps_exceed_the_budget_by_as_little_as_a_plan_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(0)
    model, x = Bank(), torch.randn(16 * WIDTH, WIDTH)
    plain = copy.deepcopy(model)

    def steps(model: nn.Module) -> tuple[list[int], list[torch.Tensor]]:
        peaks, found = [], []
        for _ in range(5):
            model.zero_grad()
            kept = list(model.last)  # what the step takes out of it stays
            peaks.append(peak(lambda: model(x).backward(), model, x, kept))
            found += [p.grad.clone() for p in model.parameters()]
        return peaks, found

    eager, expected = steps(plain)
    budget = int(0.6 * max(eager))
    planned, found = steps(
        remat.torch.fit(model, x, budget, executor="eager", work_limit=5_000, time_limit=None)
    )
    assert equal(found, expected)
    said = [r.message for r in caplog.records if "exceed the budget by as little as a plan can" in r.message]
    assert len(said) == 1
    assert budget < planned[-1] < 0.95 * eager[-1]
    assert max(planned) < max(eager)


def test_a_result_that_is_written_to_before_the_backward_is_an_error_as_in_eager_mode() -> None:
    class Shown(Stack):
        def forward(self, x: torch.Tensor) -> Any:
            first = self.layers[0](x).tanh()
            y = first.exp() if self.other else first.sin()
            return y, super().forward(y[:, :NARROW])

    model, x = Shown(torch.tanh), inputs()
    found = fitted(model, x, int(0.8 * eager_peak(Stack(torch.tanh), x)) + 8 * WIDTH * BATCH)
    found.other = True
    shown, loss = found(x)
    shown.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("backward", [False, True])
def test_nothing_is_left_of_a_step_that_left_the_record(backward: bool) -> None:
    model, x = Stack(torch.tanh, noisy), inputs()
    found = fitted(model, x, int(0.75 * eager_peak(model, x)))
    gc.collect()
    gc.disable()
    try:
        found.other = True
        loss = found(x)
        assert [item for item in gc.get_objects() if type(item) is Run]
        if backward:
            loss.backward()
        del loss
        assert not [item for item in gc.get_objects() if type(item) is Run]
    finally:
        gc.enable()


def test_parameters_that_a_forward_writes_to_are_afterwards_what_they_were() -> None:
    class Moving(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.norm.weight.mul_(0.9)
            return super().forward(x)

    model, x = Moving(torch.tanh), inputs()
    before = model.norm.weight.detach().clone()
    fitted(model, x, int(0.8 * eager_peak(model, x)))
    assert torch.equal(model.norm.weight, before)


def test_more_shapes_than_plans_are_kept_for_stay_within_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model, x = Stack(torch.tanh), inputs()
    plain, longer = copy.deepcopy(model), torch.cat([x, x[:64]])
    budget = int(0.8 * eager_peak(model, x))
    found = fitted(model, x, budget, max_shapes=1)
    made: list[Any] = []
    with caplog.at_level(logging.WARNING, "remat.torch"):
        assert peak(lambda: made.append(step(found, longer)), found, longer) <= budget
    assert equal(made[0], step(plain, longer))
    assert equal(step(found, x), step(plain, x))
    (line,) = [r.message for r in caplog.records]
    assert "max_shapes" in line
    assert len(found.remat.parts) == 1


class Growing(nn.Module):
    """An attribute decides over a branch, in steps that fit as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.many = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
            if self.many:
                x = x.sin().exp().cos().tanh()
        return x.square().mean()


def rows() -> torch.Tensor:
    return torch.randn(8192, WIDTH, generator=torch.Generator().manual_seed(3)) * 0.1


def test_a_call_that_keeps_more_than_the_budget_is_noticed_where_nothing_runs_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(0)
    model, x = Growing(), rows()
    plain = copy.deepcopy(model)
    found = fitted(model, x, int(1.3 * eager_peak(model, x)))
    assert found.remat.overhead == 0
    with caplog.at_level(logging.WARNING, "remat.torch"):
        for _ in range(3):
            assert equal(step(found, x), step(plain, x))
        assert not caplog.records
        found.many = plain.many = True
        assert equal(step(found, x), step(plain, x))
        (line,) = [r.message for r in caplog.records]
        assert "above the budget of" in line
        caplog.clear()
        assert equal(step(found, x), step(plain, x))
    (line,) = [r.message for r in caplog.records]
    assert "without a plan" in line
    # The next one is planned for.
    assert equal(step(found, x), step(plain, x))
    made: list[Any] = []
    assert peak(lambda: made.append(step(found, x)), found, x) <= found.remat.budget
    assert equal(made[0], step(plain, x))


@pytest.mark.parametrize("grown", [-(1 << 30), None], ids=["garbage went", "not known"])
def test_nothing_is_said_where_the_forward_that_was_tried_tells_nothing(
    grown: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Garbage of other work may go while it runs, and a trace of the allocator takes memory itself."""
    monkeypatch.setattr(TrainingStep, "grown", lambda step, ledger: grown)
    model, x = Growing(), rows()
    found = fitted(model, x, int(1.3 * eager_peak(model, x)))
    with caplog.at_level(logging.WARNING, "remat.torch"):
        step(found, x)
    assert not caplog.records


def test_steps_are_followed_op_by_op_where_nobody_counts_what_is_in_use(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("remat.torch.eager.session.in_use_on", lambda device: None)
    model, x = Growing(), rows()
    found = remat.torch.fit(model, x, "100%", executor="eager", accumulate=False)
    step(found, x)
    found.many = True
    with caplog.at_level(logging.WARNING, "remat.torch"):
        step(found, x)
    assert any("without a plan" in r.message for r in caplog.records)


class Repeated(nn.Module):
    """A number in the data says how many rows there are: read by Python, or by an op alone."""

    def __init__(self, by_python: bool) -> None:
        super().__init__()
        self.layers, self.by_python = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8)), by_python

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.by_python:
            x = x.repeat(int(x[0, 0].item()), 1)
        else:
            x = x.repeat_interleave(x[0, 0].long().expand(len(x)), 0)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.square().mean()


@pytest.mark.parametrize("by_python", [True, False])
def test_sizes_that_depend_on_data_stay_within_the_budget(
    by_python: bool, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model, x = Repeated(by_python), torch.randn(BATCH, WIDTH)
    times = {n: x.clone().index_put_((torch.tensor(0), torch.tensor(0)), torch.tensor(n)) for n in (4.0, 8.0)}
    plain, budget = copy.deepcopy(model), int(1.2 * eager_peak(model, times[4.0]))
    assert eager_peak(model, times[8.0]) > 1.6 * budget
    found = fitted(model, times[4.0], budget)
    assert found.remat.overhead == 0
    with caplog.at_level(logging.WARNING, "remat.torch"):
        for n in (4.0, 8.0, 4.0, 8.0, 8.0):
            assert peak_beside(found, plain, times[n]) <= 1.01 * budget
    (line,) = [r.message for r in caplog.records]
    assert "makes more than was recorded" in line


def test_a_branch_that_comes_every_third_call_keeps_the_plan_of_the_others() -> None:
    """What is recorded after such a call is another one."""

    class Redrawn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
            self.register_buffer("calls", torch.tensor(0))
            self.register_buffer("noise", torch.randn(WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.calls >= 2:
                self.noise.copy_(torch.randn(WIDTH))
                self.calls.zero_()
            else:
                self.calls += 1
            for layer in self.layers:
                x = torch.tanh(layer(x) + self.noise)
            return x.square().mean()

    torch.manual_seed(0)
    model, x = Redrawn(), torch.randn(BATCH, WIDTH)
    plain, budget = copy.deepcopy(model), int(0.8 * eager_peak(model, x))
    found = fitted(model, x, budget)
    for _ in range(9):
        assert peak_beside(found, plain, x) <= 1.01 * budget
    assert len(found.remat.parts) == 1


def test_numbers_that_change_in_each_step_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 24
    monkeypatch.setattr(proofs, "_costs", proofs.Latest(most))
    monkeypatch.setattr(proofs, "_proved", proofs.Latest(most))
    model, x = Stack(lambda t: t * model.factor), inputs()
    model.factor = 1.5
    budget = int(0.8 * eager_peak(model, x))
    for number in range(4):
        model.factor = 1.0 + number / 8
        recorded(model, x, budget)
        assert 0 < len(proofs._costs) <= most
        assert 0 < len(proofs._proved) <= most
    assert len(proofs._costs) == most
    first, last = (proofs.signature_of("op", [number], {}) for number in (1, 2))
    few = proofs.Latest[bool](1)
    few.note(first, True)
    few.note(last, False)
    assert (few.get(first), few.get(last)) == (None, False)


def test_bits_of_one_element_with_any_stride_are_compared() -> None:
    one, other = (torch.empty_strided((1,), (5,), dtype=torch.int32).fill_(each) for each in (3, 4))
    assert same_bits(one, one.clone())
    assert not same_bits(one, other)


@pytest.mark.parametrize(
    "lies", [lambda t: t, lambda t: t.T, lambda t: t[:, ::2], lambda t: t.to(torch.complex64).conj()]
)
def test_comparing_bits_takes_little_memory_however_tensors_lie(lies: Tail) -> None:
    a, b = (lies(torch.arange(2**21, dtype=torch.float32).view(1, 2, -1)[0]) for _ in range(2))
    assert digest(a) == digest(b) == digest(a.resolve_conj().contiguous())
    assert peak(lambda: (same_bits(a, b), digest(a)), [a], b) <= sum(tensor_storages([a, b]).values()) + 2**20
    b.view_as(b)[-1, -1] += 1
    assert not same_bits(a, b)
    assert digest(a) != digest(b)


class Longer(nn.Module):
    """As many ops as a number says, as with packed sequences of other lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(NARROW, NARROW)

    def forward(self, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        for _ in range(int(count)):
            x = F.gelu(self.layer(x))
        return x.square().mean()


def test_no_more_plans_are_made_where_no_call_follows_any(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[Any] = []
    prepare = EagerSession.prepare
    monkeypatch.setattr(EagerSession, "prepare", lambda *a, **k: (prepared.append(a), prepare(*a, **k))[1])
    model, x = Longer(), inputs()
    plain, counts = copy.deepcopy(model), [torch.tensor(each) for each in range(5, 12)]
    options: dict[str, Any] = {"executor": "eager", "work_limit": 5_000, "time_limit": None}
    fitted = remat.torch.fit(model, (x, counts[0]), "85%", **options)
    for count in counts[1:]:
        for each in (plain, fitted):
            each.zero_grad()
            each(x, count).backward()
        assert equal(*([p.grad for p in each.parameters()] for each in (plain, fitted)))
    assert len(prepared) == 3
    assert "so do all calls from now on" in caplog.text
