"""The code that carries plans out: what it frees, what it writes over, and what eager mode does the same."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import remat.torch
import torch
from models import MLP
from remat.torch.run.codegen import boxed
from remat.torch.trace import dropout
from remat.torch.trace.kernels import kernel_of
from torch import fx, nn
from training import fit, step_peak, train

aten: Any = torch.ops.aten


def graph_of(make: Any, inputs: int) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(make(graph, *(graph.placeholder(f"x{i}") for i in range(inputs))))
    return fx.GraphModule(nn.Module(), graph)


def test_arguments_and_results_are_freed_at_their_last_read() -> None:
    alive: list[list[bool]] = []
    refs: list[Any] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        gc.collect()
        refs.append(weakref.ref(x))
        alive.append([r() is not None for r in refs])
        return x + 1

    def chain(graph: fx.Graph, x: fx.Node, unused: fx.Node) -> tuple[fx.Node, ...]:
        for _ in range(3):
            x = graph.call_function(look, (x,))
        return (x,)

    run = boxed(graph_of(chain, 2))
    args = [torch.zeros(2), torch.zeros(2)]
    unused = weakref.ref(args[1])
    (result,) = run(args)
    assert args == []
    assert unused() is None
    assert result.tolist() == [3.0, 3.0]
    assert alive == [[True], [False, True], [False, False, True]]


def test_constants_of_every_kind_reach_the_ops() -> None:
    def make(graph: fx.Graph, x: fx.Node) -> tuple[fx.Node, ...]:
        full = graph.call_function(aten.full.default, ([2, 2], float("-inf")), {"dtype": torch.float64})
        both = graph.call_function(aten.cat.default, ([x, full], 0))
        return (graph.call_function(aten.clone.default, (both,), {"memory_format": torch.contiguous_format}),)

    (result,) = boxed(graph_of(make, 1))([torch.ones(1, 2, dtype=torch.float64)])
    assert result.tolist() == [[1.0, 1.0], [-float("inf")] * 2, [-float("inf")] * 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("p", [0.1, 0.37, 0.5])
def test_dropout_draws_and_rounds_as_in_eager_mode(dtype: torch.dtype, p: float) -> None:
    x = torch.randn(64, 33, dtype=dtype).requires_grad_()
    x.data[0, 0] = float("inf")
    gradient = torch.randn(64, 33, dtype=dtype)
    torch.manual_seed(5)
    expected = nn.functional.dropout(x, p)
    expected.backward(gradient)
    torch.manual_seed(5)
    with torch.no_grad():
        result, mask = kernel_of(aten.native_dropout.default)(x, p, True)
        back = kernel_of(aten.native_dropout_backward.default)(gradient, mask, 1 / (1 - p))
    assert torch.equal(result.nan_to_num(7), expected.nan_to_num(7))
    assert torch.equal(result.signbit(), expected.signbit())
    assert torch.equal(back, x.grad)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda x: x,
    "turned": lambda x: x.transpose(1, 2),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "a part": lambda x: x[:, 1:, ::2],
    "repeated": lambda x: x[:, :1].expand(-1, 4, -1, -1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dropout_is_that_of_eager_mode_however_tensors_lie(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](torch.randn(2, 4, 12, 10).to(dtype))
    for gradient in (torch.randn(x.shape).to(dtype), LAYOUTS["turned"](torch.randn(x.shape).to(dtype))):
        if gradient.shape != x.shape:
            continue
        leaf = x.detach().requires_grad_()
        torch.manual_seed(5)
        expected = nn.functional.dropout(leaf, 0.3)
        (expected_back,) = torch.autograd.grad(expected, leaf, gradient)
        torch.manual_seed(5)
        result, mask = kernel_of(aten.native_dropout.default)(x, 0.3, True)
        back = kernel_of(aten.native_dropout_backward.default)(gradient, mask, 1 / 0.7)
        for mine, own in ((result, expected), (back, expected_back)):
            assert torch.equal(mine, own)
            assert mine.stride() == own.stride()


@pytest.mark.parametrize("other", ["_forward", "_backward"])
def test_dropout_that_is_not_eager_modes_gives_way_to_pytorchs(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = getattr(dropout, other)

    def slightly_other(x: torch.Tensor, *rest: Any) -> Any:
        found = make(x, *rest)
        (found if isinstance(found, torch.Tensor) else found[0]).mul_(1 + 1e-6)
        return found

    monkeypatch.setattr(dropout, other, slightly_other)
    monkeypatch.setattr(dropout, "_seen", {})
    x, state = torch.randn(8, 16), torch.get_rng_state()
    found, mask = dropout.dropout(x, 0.25, True)
    back = dropout.dropout_backward(x, mask, 1 / 0.75)
    torch.set_rng_state(state)
    expected, _ = aten.native_dropout.default(x, 0.25, True)
    assert torch.equal(found, expected)
    assert torch.equal(back, aten.native_dropout_backward.default(x, mask, 1 / 0.75))


class Assigner(nn.Module):
    """Assigns to a slice, as spectral layers do, and sums gradients of what is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            y = layer(x)
            padded = torch.zeros_like(y)
            padded[:, 8:40] = torch.tanh(y)[:, 8:40]
            x = padded + 0.5 * y + x
        return x.square().mean()


@pytest.mark.parametrize("budget", ["100%", "75%"])
def test_slices_are_assigned_without_copies_of_the_whole(budget: str) -> None:
    torch.manual_seed(0)
    model, inputs = Assigner(), (torch.randn(512, 64),)
    eager = copy.deepcopy(model)
    fitted = fit(model, inputs, budget)
    assert train(eager, inputs).differences(train(fitted, inputs)) == []
    kinds = [fitted.remat.graph.op(i).kind for i in range(fitted.remat.graph.num_ops)]
    assert "aten.copy.default" not in kinds
    assert "aten.slice_scatter.default" not in kinds
    for each in (eager, fitted):
        each.zero_grad()
    assert step_peak(fitted, inputs) <= step_peak(eager, inputs)


def test_results_take_the_place_of_arguments_that_nobody_reads_again_and_the_prediction_knows() -> None:
    torch.manual_seed(0)
    model, inputs = MLP(), (torch.randn(1024, 128),)
    fitted = fit(model, inputs, "100%", accumulate=False)
    part = fitted.remat.parts[0]
    simulated = remat.simulate(part.graph, part.plan.steps)
    assert simulated.overwrites
    assert part.predicted_peak == simulated.peak
    assert step_peak(fitted, inputs) == pytest.approx(part.predicted_peak, rel=0.001)
    report = remat.torch.report(fitted)
    assert sum(row.bytes for row in report.rows) == part.predicted_peak
    assert all(row.bytes > 0 for row in report.rows)


class Gates(nn.Module):
    """Products whose backward reads both factors, which nobody needs after that."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 128) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            a, b = layer(x).chunk(2, -1)
            x = a.sin() * b.cos()
        return x.square().mean()


@pytest.mark.parametrize("budget", ["100%", "80%"])
def test_a_saved_tensor_is_written_over_unless_the_backward_comes_again(budget: str) -> None:
    torch.manual_seed(0)
    model, inputs = Gates(), (torch.randn(256, 64),)
    eager = copy.deepcopy(model)
    fitted = fit(model, inputs, budget, accumulate=False)
    part = fitted.remat.parts[0]
    loss = next(i for i, step in enumerate(part.plan.steps) if part.graph.op(step).kind == "remat.loss")
    made = {v: i for i, step in enumerate(part.plan.steps[:loss]) for v in part.graph.op_outputs(step)}
    over = remat.simulate(part.graph, part.plan.steps).overwrites
    assert [step for step, old, _ in over if step > loss and old in made]
    assert step_peak(fitted, inputs) == pytest.approx(part.predicted_peak, rel=0.001)
    for each in (eager, fitted):
        each.zero_grad()
        result = each(*inputs)
        result.backward(retain_graph=True)
        result.backward(retain_graph=True)
        result.backward()
    assert train(eager, inputs).differences(train(fitted, inputs)) == []


def test_planning_counts_on_what_is_written_over() -> None:
    """Nothing runs again within a budget that keeping everything would miss without it."""
    torch.manual_seed(0)
    model, inputs = MLP(), (torch.randn(1024, 128),)
    graph = remat.torch.capture(model, inputs, accumulate=False)
    described = graph.to_dict()
    for op in described["ops"]:
        op.pop("over", None)
    assert graph.keep_all_peak < remat.Graph.from_dict(described).keep_all_peak - 100_000
    fitted = fit(model, inputs, graph.keep_all_peak, accumulate=False)
    assert fitted.remat.parts[0].recomputed_steps == 0
    assert step_peak(fitted, inputs) <= graph.keep_all_peak


class Returner(nn.Module):
    """Returns views of one tensor, twice the same, and what an op could write over."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.layer(x)
        z = y + x
        return z.mean(), y, y.view(-1), y.detach(), z * 2, z


def test_what_is_returned_is_never_written_over() -> None:
    torch.manual_seed(0)
    model, x = Returner(), torch.randn(8, 16)
    eager = copy.deepcopy(model)
    fitted = remat.torch.fit(model, x, "100%")
    mine, theirs = fitted(x), eager(x)
    for a, b in zip(mine, theirs, strict=True):
        assert a.equal(b)
        assert a.requires_grad == b.requires_grad
    for outputs in (mine, theirs):
        (outputs[0] + outputs[1].sum() + outputs[4].square().sum() + outputs[5].sum()).backward()
    for a, b in zip(fitted.parameters(), eager.parameters(), strict=True):
        assert a.grad.equal(b.grad)
