"""Steps that add to existing gradients: by ops of the plan, wherever autograd would do just that."""

from __future__ import annotations

import copy
import gc
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import remat
import remat.torch
import torch
from models import MLP
from ranks import run_on_two_ranks
from torch import nn
from training import fit, step_peak

ADDITION = "remat.add_gradient"


class Wide(nn.Module):
    """Gradients are most of what a step takes."""

    def __init__(self, depth: int = 6, width: int = 96) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x.square().mean()


def wide() -> tuple[Wide, torch.Tensor]:
    torch.manual_seed(0)
    return Wide(), torch.randn(8, 96)


def fitted_pair(**options: Any) -> tuple[nn.Module, nn.Module, torch.Tensor]:
    """A model, its fitted copy, both with a gradient, and an input."""
    model, x = wide()
    fitted = fit(copy.deepcopy(model), x, 1 << 30, **{"outputs": "dropped", **options})
    for each in (model, fitted):
        each(x).backward()
    return model, fitted, x


def assert_same(mine: nn.Module, theirs: nn.Module) -> None:
    for (name, a), b in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        assert a.grad is None or b.grad is None or a.grad.equal(b.grad), name


def additions(fitted: nn.Module) -> int:
    """Of the plan that was made last."""
    graph = fitted.remat.parts[-1].graph
    return sum(graph.op(step).kind == ADDITION for step in fitted.remat.parts[-1].plan.steps)


def test_a_second_step_holds_one_set_of_gradients_and_the_one_that_is_being_added() -> None:
    model, fitted, x = fitted_pair()
    for each in (model, fitted):
        each(x).backward()
    assert_same(fitted, model)
    first, second = fitted.remat.parts
    assert second.existing_gradients == sum(p.nbytes for p in model.parameters())
    assert additions(fitted) == len(list(model.parameters()))
    largest = max(p.nbytes for p in model.parameters())
    assert 4 * largest < second.existing_gradients
    assert second.predicted_peak <= first.predicted_peak + 2 * largest
    measured = step_peak(fitted, [x])
    assert measured == pytest.approx(second.predicted_peak, rel=1e-4)
    assert measured <= step_peak(model, [x])
    adding = remat.torch.report(fitted).adding
    assert adding is not None
    filled = adding.by_category()
    assert 0 < filled.get("gradients of parameters", 0) <= 2 * largest


def test_nothing_of_a_step_waits_for_the_garbage_collector() -> None:
    _, fitted, x = fitted_pair()
    fitted(x).backward()  # makes the plan that adds
    given = torch.ones(())
    dies = weakref.ref(given)
    gc.collect()
    gc.disable()
    try:
        fitted(x).backward(given)
        del given
        assert dies() is None
    finally:
        gc.enable()


def test_gradients_that_are_asked_for_by_name_leave_and_existing_ones_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, fitted, x = fitted_pair()
    before = [p.grad.clone() for p in fitted.parameters()]
    with caplog.at_level(logging.WARNING, "remat.torch"):
        found = torch.autograd.grad(fitted(x), list(fitted.parameters()))
    expected = torch.autograd.grad(model(x), list(model.parameters()))
    assert all(a.equal(b) for a, b in zip(found, expected, strict=True))
    assert all(p.grad.equal(b) for p, b in zip(fitted.parameters(), before, strict=True))
    assert "were to end in its backward" in caplog.text
    # Which is planned for from then on: two sets.
    fitted(x).backward()
    assert additions(fitted) == 0


def test_a_backward_for_some_parameters_adds_to_those_alone() -> None:
    model, fitted, x = fitted_pair()
    for each in (model, fitted):
        each(x).backward(inputs=[each.layers[1].weight, each.layers[4].bias])
    assert_same(fitted, model)


def scaled(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The parameters are used outside the compiled graph too."""
    return m(x) + 0.01 * sum((p * p).sum() for p in m.parameters())


def both(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return m(x) + m(2 * x)


@pytest.mark.parametrize("loss", [scaled, both])
def test_what_reaches_a_parameter_in_one_backward_is_summed_before_it_is_added(
    loss: Callable[[nn.Module, torch.Tensor], torch.Tensor],
) -> None:
    model, fitted, x = fitted_pair()
    for _ in range(3):
        for each in (model, fitted):
            loss(each, x).backward()
        assert_same(fitted, model)


def test_two_backwards_add_one_after_the_other() -> None:
    model, fitted, x = fitted_pair(calls=2)
    for each in (model, fitted):
        one, other = each(x), each(2 * x)
        other.backward()
        one.backward()
    assert_same(fitted, model)
    assert additions(fitted) > 0


def test_gradients_that_are_cleared_between_forward_and_backward_are_made_anew() -> None:
    model, fitted, x = fitted_pair()
    for to_none in (True, False, True):
        for each in (model, fitted):
            loss = each(x)
            each.zero_grad(set_to_none=to_none)
            loss.backward()
        assert_same(fitted, model)


def test_a_graph_that_is_retained_adds_again() -> None:
    model, fitted, x = fitted_pair()
    for each in (model, fitted):
        loss = each(x)
        loss.backward(retain_graph=True)
        loss.backward()
    assert_same(fitted, model)


def test_hooks_see_what_they_see_in_eager_mode_and_their_parameters_leave() -> None:
    model, fitted, x = fitted_pair()
    seen: dict[nn.Module, list[Any]] = {model: [], fitted: []}
    for each in (model, fitted):
        note = seen[each].append
        each.layers[0].weight.register_hook(lambda grad, note=note: note(grad.clone()) or grad.clamp(-1e-5))
        each.layers[1].bias.register_post_accumulate_grad_hook(lambda p, note=note: note(p.grad.clone()))
        each(x).backward()
    assert_same(fitted, model)
    assert len(seen[model]) == len(seen[fitted]) == 2
    by_size = [sorted(found, key=torch.Tensor.numel) for found in seen.values()]
    assert all(a.equal(b) for a, b in zip(*by_size, strict=True))
    assert additions(fitted) == len(list(model.parameters())) - 2


def test_hooks_between_forward_and_backward_are_noticed() -> None:
    model, fitted, x = fitted_pair()
    for each in (model, fitted):
        loss = each(x)
        each.layers[0].weight.register_hook(lambda grad: grad * 3)
        loss.backward()
    assert_same(fitted, model)


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
@pytest.mark.parametrize("kind", ["strides", "requires_grad"])
def test_gradients_unlike_their_parameters_leave(kind: str) -> None:
    model, fitted, x = fitted_pair()
    for each in (model, fitted):
        weight = each.layers[2].weight
        if kind == "strides":
            weight.grad = weight.grad.t().contiguous().t()
        else:
            weight.grad = weight.grad.requires_grad_()
        each(x).backward()
    assert_same(fitted, model)
    assert additions(fitted) == len(list(model.parameters())) - 1


class Shared(nn.Module):
    """Two parameters with one gradient, and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(32, 32)) for _ in range(2))
        self.c = nn.Parameter(torch.randn(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * (self.a + self.b) * self.c
        return ((y * self.c).tanh() + self.a.sin() * 1e-3).sum()


def test_parameters_that_share_a_gradient_or_are_used_twice() -> None:
    torch.manual_seed(0)
    model, x = Shared(), torch.randn(32, 32)
    fitted = fit(copy.deepcopy(model), x, "100%")
    for _ in range(4):
        for each in (model, fitted):
            each(x).backward()
        assert_same(fitted, model)
    for each in (model, fitted):
        loss = each(x)
        each.zero_grad()  # what was to be added now leaves, both times
        loss.backward()
    assert_same(fitted, model)
    assert fitted.a.grad.data_ptr() != fitted.b.grad.data_ptr()


class Broken(nn.Module):
    """Two graphs, and a parameter that both read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(32, 32, bias=False) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (self.first(x) * self.scale).tanh()
        torch._dynamo.graph_break()
        return (self.second(x) * self.scale).square().sum()


def test_a_parameter_of_two_graphs_is_summed_before_it_is_added() -> None:
    torch.manual_seed(0)
    model, x = Broken(), torch.randn(16, 32)
    fitted = fit(copy.deepcopy(model), x, 1 << 30, executor="boxed")
    for _ in range(4):
        for each in (model, fitted):
            each(x).backward()
        assert_same(fitted, model)
    kinds = {part.graph.op(i).kind for part in fitted.remat.parts for i in range(part.graph.num_ops)}
    assert ADDITION in kinds


def test_steps_that_recompute_and_add_are_proved_equal_to_eager_mode(
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(0)
    model, x = MLP(), torch.randn(512, 128)
    with caplog.at_level(logging.INFO, "remat.torch"):
        fitted = fit(model, x, "70%", verify=True)
        for _ in range(2):
            fitted(x).backward()
    # Of both plans that `fit` makes, and of that for an output that is held.
    assert sum("bit for bit" in record.message for record in caplog.records) >= 2
    assert additions(fitted) > 0


@pytest.mark.long
def test_buckets_of_data_parallel_training_are_added_to(tmp_path: Path) -> None:
    said = run_on_two_ranks(
        """
        from models import Encoder
        from torch.nn.parallel import DistributedDataParallel

        def train(m, model, apart):
            for step in range(3):
                with m.no_sync() if apart else contextlib.nullcontext():
                    m(x).sum().backward()
                m(x * 2).sum().backward()
                if step == 1:
                    m.zero_grad(set_to_none=not apart)
            return [p.grad.clone() for p in model.parameters()]

        import contextlib
        for views, apart in ((True, True), (False, True), (True, False)):
            torch.manual_seed(0)
            model = Encoder(depth=1)
            x = torch.randn(4, 32, 64, generator=torch.Generator().manual_seed(rank))
            eager = copy.deepcopy(model)
            torch.manual_seed(1)
            expected = train(DistributedDataParallel(eager, gradient_as_bucket_view=views), eager, apart)
            fitted = remat.torch.fit(model, x, "80%", work_limit=20_000)
            torch.manual_seed(1)
            mine = train(DistributedDataParallel(fitted, gradient_as_bucket_view=views), model, apart)
            assert all(a.equal(b) for a, b in zip(expected, mine, strict=True)), (views, apart)
            kinds = {p.graph.op(i).kind for p in fitted.remat.parts for i in range(p.graph.num_ops)}
            assert "remat.add_gradient" in kinds, (views, apart)
        """,
        tmp_path,
    )
    assert len(said) == 2


def test_ten_steps_of_four_micro_batches_on_two_ranks_end_at_the_parameters_of_eager_mode(
    tmp_path: Path,
) -> None:
    said = run_on_two_ranks(
        """
        import contextlib
        from models import Encoder
        from torch.nn.parallel import DistributedDataParallel

        def train(m):
            optimizer = torch.optim.AdamW(m.parameters(), 1e-3)
            draws = torch.Generator().manual_seed(rank)
            torch.manual_seed(1 + rank)
            for _ in range(10):
                optimizer.zero_grad()
                for last in (False, False, False, True):
                    with contextlib.nullcontext() if last else m.no_sync():
                        m(torch.randn(4, 32, 64, generator=draws)).square().mean().backward()
                optimizer.step()
            return [p.detach().clone() for p in m.parameters()]

        torch.manual_seed(0)
        model = Encoder(depth=2)
        expected = train(DistributedDataParallel(copy.deepcopy(model)))
        fitted = remat.torch.fit(model, torch.randn(4, 32, 64), "70%", work_limit=20_000)
        mine = train(DistributedDataParallel(fitted))
        assert all(a.equal(b) for a, b in zip(expected, mine, strict=True))
        assert all(p.recomputed_steps > 0 for p in fitted.remat.parts)
        """,
        tmp_path,
    )
    assert len(said) == 2


def test_both_kinds_of_steps_are_planned_before_the_first_one() -> None:
    model, x = wide()
    fitted = fit(model, x, 1 << 30, outputs="dropped")
    planned = list(fitted.remat.parts)
    assert [part.existing_gradients > 0 for part in planned] == [False, True]
    assert fitted.remat.predicted_peak == planned[0].predicted_peak
    for _ in range(3):
        fitted(x).backward()
    assert fitted.remat.parts == planned
    only = fit(copy.deepcopy(model), x, 1 << 30, outputs="dropped", accumulate=False)
    assert len(only.remat.parts) == 1


def test_a_budget_that_one_kind_of_step_cannot_keep_is_refused_at_once() -> None:
    model, x = wide()
    options: dict[str, Any] = {"outputs": "dropped"}
    first, second = fit(model, x, 1 << 30, **options).remat.parts
    between = (first.least_known() + second.least_known()) // 2
    assert first.least_known() < between < second.peak_lower_bound
    with pytest.raises(
        remat.InfeasibleError, match="this is a step that adds to existing gradients"
    ) as caught:
        fit(copy.deepcopy(model), x, between, **options)
    assert "a step that makes its gradients: " in str(caught.value)
    assert fit(copy.deepcopy(model), x, caught.value.smallest_known, **options)
    # Without the second kind the budget does.
    assert fit(copy.deepcopy(model), x, between, accumulate=False, **options)
    with pytest.raises(remat.InfeasibleError, match="this is a step that makes its gradients") as caught:
        fit(copy.deepcopy(model), x, first.peak_lower_bound // 2, **options)
    assert caught.value.floor >= second.peak_lower_bound


def test_sweep_and_report_show_both_kinds_of_steps() -> None:
    model, x = wide()
    swept = remat.torch.sweep(model, x, points=3, work_limit=20_000)
    assert swept.adding is not None
    assert swept.adding.keep_all_peak > swept.keep_all_peak
    assert swept.to_dict()["adding"]["rows"] == [
        {k: v for k, v in vars(row).items() if k != "plan"} for row in swept.adding.rows
    ]
    assert "steps that add to existing gradients:" in str(swept)
    assert remat.torch.sweep(model, x, points=2, work_limit=20_000, accumulate=True).adding is None
    filled = remat.torch.report(model, x)
    assert filled.adding is not None
    assert filled.adding.by_category()["existing gradients"] == sum(p.nbytes for p in model.parameters())
    fitted = fit(model, x, 1 << 30)
    both = remat.torch.report(fitted)
    assert both.adding is not None
    assert (both.peak, both.adding.peak) == tuple(part.predicted_peak for part in fitted.remat.parts)
