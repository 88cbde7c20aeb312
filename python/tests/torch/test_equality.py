"""Planned training is eager training, bit for bit, within the budget."""

from __future__ import annotations

import copy

import pytest
import remat
import remat.torch
import torch
from models import CASES, Case, case
from plans import random_plan, segment_plan
from torch import nn
from training import fit, step_peak, train


@pytest.fixture(scope="module")
def eager():
    """Traces of eager training by case, made once."""
    made = {}

    def get(c: Case):
        if c.name not in made:
            model, inputs = c.build()
            made[c.name] = train(model, inputs)
        return made[c.name]

    return get


@pytest.mark.parametrize(
    ("c", "budget"),
    [
        # The lowest budget; of the GPT the highest too.
        pytest.param(
            c, b, marks=[] if b == c.budgets[-1] or (c.name, b) == ("gpt", "100%") else pytest.mark.long
        )
        for c in CASES
        for b in c.budgets
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_three_accumulating_steps_equal_eager_and_keep_the_budget(eager, c: Case, budget: str) -> None:
    model, inputs = c.build()
    fitted = fit(model, inputs, budget)
    assert eager(c).differences(train(fitted, inputs)) == []
    for part in fitted.remat.parts:
        assert part.predicted_peak <= part.budget
        assert (part.recomputed_steps > 0) == (part.predicted_peak < part.keep_all_peak)
    with_gradients = fitted.remat.parts[-1]
    assert with_gradients.existing_gradients > 0
    measured = step_peak(fitted, inputs)
    assert measured <= with_gradients.budget
    assert measured == pytest.approx(with_gradients.predicted_peak, rel=0.01)
    model.zero_grad()
    measured = step_peak(fitted, inputs)
    assert measured <= fitted.remat.parts[0].budget
    assert measured == pytest.approx(fitted.remat.parts[0].predicted_peak, rel=0.01)


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_a_budget_of_everything_recomputes_nothing_and_needs_no_more_than_eager(c: Case) -> None:
    model, inputs = c.build()
    eager_peak = step_peak(copy.deepcopy(model), inputs)
    fitted = fit(model, inputs, "100%")
    assert fitted.remat.parts[0].recomputed_steps == 0
    assert step_peak(fitted, inputs) <= 1.001 * eager_peak


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize("name", [pytest.param("conv_net", marks=pytest.mark.long), "encoder"])
def test_random_plans_with_recomputation_anywhere_equal_eager(eager, name: str, seed: int) -> None:
    c = case(name)
    model, inputs = c.build()
    graph = remat.torch.capture(model, inputs, accumulate=False)
    plan = random_plan(graph, seed)
    assert len(plan) > 1.2 * graph.num_ops
    fitted = fit(model, inputs, 1 << 40, plan=list(plan.steps), accumulate=False)
    assert eager(c).differences(train(fitted, inputs)) == []
    model.zero_grad()
    assert step_peak(fitted, inputs) == pytest.approx(fitted.remat.predicted_peak, rel=0.01)


@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_segment_plans_run_with_the_peak_that_the_simulator_says(eager, name: str) -> None:
    c = case(name)
    model, inputs = c.build()
    graph = remat.torch.capture(model, inputs, accumulate=False)
    plan = segment_plan(graph, 4)
    assert plan.peak < 0.9 * graph.keep_all_peak
    fitted = fit(model, inputs, 1 << 40, plan=plan, accumulate=False)
    assert eager(c).differences(train(fitted, inputs)) == []
    model.zero_grad()
    # The simulator does not know which results take the place of an argument.
    assert fitted.remat.predicted_peak <= 1.005 * plan.peak
    assert step_peak(fitted, inputs) == pytest.approx(fitted.remat.predicted_peak, rel=0.005)


def test_a_different_seed_gives_different_masks_so_that_equality_means_something() -> None:
    model, inputs = case("encoder").build()
    fitted = fit(model, inputs, "70%")
    torch.manual_seed(1)
    first = fitted(*inputs)
    torch.manual_seed(2)
    assert not first.equal(fitted(*inputs))


class SumsWhatIsTransposed(nn.Module):
    """Batch norm's output has other strides than tracing says; the sum of all is taken in their sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(8), nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.norm(self.linear(x).transpose(1, 2)).transpose(1, 2)
        self.mean.lerp_(y.detach().mean((0, 1)), 0.1)
        return (y - self.mean).square().mean()


def test_a_result_is_written_over_an_argument_only_where_strides_stay_those_of_eager_mode() -> None:
    torch.manual_seed(0)
    found = remat.torch.verify(SumsWhatIsTransposed(), torch.randn(4, 8, 8), "100%")
    assert found.differences == ()
    assert found.within


class ByOneMatrix(nn.Module):
    """A batch of products with the same matrix, which needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(9, 9) for _ in range(6))
        self.register_buffer("matrix", torch.randn(1, 3, 3))
        self.frozen = nn.Parameter(torch.randn(1, 3, 3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        y = x.view(-1, 3, 3) @ self.matrix
        return torch.matmul(self.frozen, y).flatten(1).square().mean()


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_products_by_a_batch_of_one_are_those_of_eager_mode(executor: str) -> None:
    torch.manual_seed(0)
    model, x = ByOneMatrix(), torch.randn(300, 9)
    expected = train(copy.deepcopy(model), (x,))
    fitted = remat.torch.fit(model, (x,), "85%", executor=executor, work_limit=5_000, time_limit=None)
    assert fitted.remat.parts[0].recomputed_steps > 0
    assert expected.differences(train(fitted, (x,))) == []
