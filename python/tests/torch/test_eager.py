"""Planned recomputation in eager mode: any model that trains in eager mode, as it is written."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import remat
import remat.torch
import torch
import torch.nn.functional as F
from remat.torch.eager.recorder import Recorder
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import said_of_the_rest

WIDTH, BATCH = 48, 192


def dense(count: int = 6) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))


class Branch(nn.Module):
    """A branch that data decide, and a number that Python reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = dense()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if i == 3 and x.sum() > 0:
                x = x * 2
        return x.square().mean() * (1 + x.abs().max().item())


class Residual(nn.Module):
    """Of an equation: gradients of gradients inside the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_(True)
        u = self.net(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
        return (second[:, 0] + first[:, 1] - u[:, 0].sin()).square().mean()


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out.square().mean()


class Cells(nn.Module):
    """Gates are pieces of one tensor, each written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(32, WIDTH)
        outputs = []
        for each in x.view(-1, 32, WIDTH):
            h, c = self.cell(each, (h, c))
            outputs.append(h)
        return torch.stack(outputs).square().mean()


class Checkpoints(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant, self.first = reentrant, nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * WIDTH, WIDTH)
            )
            for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=self.reentrant) if i % 2 else layer(x)
        return x.square().mean()


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0].cos()


class Plain(nn.Module):
    """act: from a layer's result to the next one's input."""

    def __init__(self, act: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layers, self.act = dense(), act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.act(layer(x))
        return x.square().mean()


class Autocast(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            for layer in self.layers:
                x = self.act(layer(x))
        return x.float().square().mean()


class Images(nn.Module):
    """Batch norm's statistics, ReLU in place, a buffer that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 if i == 0 else 8, 8, 3, padding=1) for i in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(4))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(-1, 3, 16, WIDTH // 3)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = self.relu(norm(conv(x)))
        return x.square().mean()


class Held(Branch):
    """Python has a block's activations until its end, where memory is highest."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for first, second in zip(self.layers[::2], self.layers[1::2], strict=True):
            x = self.block(x, first, second)
        return x.square().mean()

    def block(self, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
        held = [torch.tanh(first(x))]
        for _ in range(6):
            held.append(torch.sin(held[-1]))
        largest = torch.cat([each.detach() for each in held] * 3).abs().max()
        return x + torch.tanh(second(held[-1])) / largest


class Recurrent(nn.Module):
    """oneDNN's kernel returns a workspace only where gradients are on."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(WIDTH, WIDTH, batch_first=True) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(-1, 8, WIDTH)
        for layer in self.layers:
            x = torch.tanh(layer(x)[0] * 2)
        return x.square().mean()


def noisy(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(F.gelu(x), 0.2) + 0.1 * torch.rand_like(x)


def written(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    z = y.exp()
    y.mul_(2).add_(z)
    y[:, 1:] = z[:, :-1]
    return y


MODELS: dict[str, Callable[[], nn.Module]] = {
    "branch": Branch,
    "gradients inside": Residual,
    "experts": Experts,
    "cells": Cells,
    "checkpoint": lambda: Checkpoints(False),
    "reentrant checkpoint": lambda: Checkpoints(True),
    "own function": lambda: Plain(Sine.apply),
    "autocast": lambda: Autocast(F.gelu),
    "random": lambda: Plain(noisy),
    "in place": lambda: Plain(written),
    "images": Images,
    "held": Held,
}


def inputs_of(model: nn.Module) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.rand(512, 2) if isinstance(model, Residual) else torch.randn(BATCH, WIDTH)


def planned(model: nn.Module, x: Any, budget: int | str, **options: Any) -> Any:
    return remat.torch.fit(model, x, budget, executor="eager", work_limit=20_000, time_limit=None, **options)


def least(model: nn.Module, x: Any) -> tuple[Any, int]:
    """Within the least budget that is known, and that."""
    with pytest.raises(remat.NoPlanError) as caught:
        planned(model, x, 1200)
    budget = caught.value.smallest_known
    assert budget is not None
    return planned(model, x, budget), budget


def train(model: nn.Module, x: torch.Tensor, steps: int = 4) -> list[torch.Tensor]:
    """Losses, gradients, buffers and the generator; the second step adds to the gradients of the first."""
    torch.manual_seed(7)
    found = []
    for step in range(steps):
        if step != 1:
            model.zero_grad()
        loss = model(x)
        loss.backward()
        found.append(loss.detach().clone())
        found += [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [*found, *(b.clone() for b in model.buffers()), torch.get_rng_state()]


def peak(model: nn.Module, x: torch.Tensor) -> int:
    model.zero_grad()
    return remat.torch.measure_peak(lambda: model(x).backward(), resident=[model, x])


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


# Of others, test_eager_peaks and random modules run the like.
OFTEN = ("branch", "gradients inside", "cells", "checkpoint", "random", "in place", "images")


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in MODELS]
)
def test_steps_are_those_of_eager_mode_within_the_least_budget(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    x = inputs_of(model)
    before = copy.deepcopy(model.state_dict())
    fitted, budget = least(model, x)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert fitted.remat.parts[0].recomputed_steps > 0
    assert budget < fitted.remat.keep_all_peak
    expected = train(copy.deepcopy(model), x)
    assert equal(train(fitted, x), expected)
    # A step that makes its gradients, and one that adds to them.
    assert peak(fitted, x) <= budget
    adding = remat.torch.measure_peak(lambda: fitted(x).backward(), resident=[fitted, x])
    assert adding <= budget


@pytest.mark.parametrize("name", ["cells", "images", "random", "held"])
def test_predictions_hold_to_a_thousandth(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    x = inputs_of(model)
    for share in ("100%", "90%"):
        fitted = planned(model, x, share, accumulate=False)
        assert peak(fitted, x) == pytest.approx(fitted.remat.predicted_peak, rel=0.001)


def test_an_op_that_returns_a_workspace_where_gradients_are_on_runs_once() -> None:
    torch.manual_seed(0)
    model = Recurrent()
    x = inputs_of(model)
    fitted = planned(model, x, "98%")
    assert fitted.remat.parts[0].recomputed_steps > 0
    assert equal(train(fitted, x), train(copy.deepcopy(model), x))


def test_the_plan_of_another_branch_is_made_when_it_is_met(caplog: pytest.LogCaptureFixture) -> None:
    model, x = Branch(), inputs_of(Branch())
    fitted, _ = least(model, x)
    parts = len(fitted.remat.parts)
    with torch.no_grad():  # the other branch from now on
        for p in model.layers[3].parameters():
            p.neg_()
    expected = train(copy.deepcopy(model), x)
    with caplog.at_level(logging.WARNING, "remat.torch"):
        assert equal(train(fitted, x), expected)
    said = [record.message for record in caplog.records]
    (line,) = [text for text in said if "is not the one that was recorded" in text]
    assert said_of_the_rest(said, line) in line
    assert len(fitted.remat.parts) > parts


def test_graphs_that_are_kept_run_again_and_several_calls_come_before_a_backward() -> None:
    model = Plain(F.gelu)
    x = inputs_of(model)
    fitted, _ = least(model, x)
    found = []
    for each in (copy.deepcopy(model), fitted):
        loss = each(x)
        loss.backward(retain_graph=True)
        loss.backward()
        first, second = each(x), each(x * 2)
        (first + second).backward()
        found.append([p.grad for p in each.parameters()])
        each.zero_grad()
    assert equal(*found)


class TwoLosses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.GELU())]
        self.a, self.b = nn.Sequential(*layers), nn.Sequential(*copy.deepcopy(layers))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.a(x).square().mean(), self.b(x).square().mean()


def test_several_backwards_of_one_call_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    model, x = TwoLosses(), torch.randn(512, 64)
    twin, fitted = copy.deepcopy(model), remat.torch.fit(model, x, "50%", loss=sum, executor="eager")
    for several in (False, True):
        for each in (twin, fitted):
            each.zero_grad()
            losses = each(x)
            for loss in losses if several else [sum(losses)]:
                loss.backward()
        said = [r.message for r in caplog.records if "several backwards" in r.message]
        assert len(said) == several
        pairs = zip(twin.parameters(), fitted.parameters(), strict=True)
        assert all(torch.equal(a.grad, b.grad) for a, b in pairs)


def test_gradients_of_gradients_outside_the_model_and_hooks_of_every_kind() -> None:
    model = Plain(torch.tanh)
    x = inputs_of(model)
    fitted, _ = least(model, x.clone().requires_grad_())
    found = []
    for each in (model, fitted):
        seen: list[Any] = []
        handles = [
            each.layers[1].register_forward_hook(lambda m, a, o: o * 2),
            each.layers[2].register_full_backward_hook(lambda m, gi, go, seen=seen: seen.append(go[0].sum())),
            each.layers[0].weight.register_hook(lambda g: g * 3),
            each.layers[0].bias.register_post_accumulate_grad_hook(
                lambda p, seen=seen: seen.append(p.grad.sum())
            ),
        ]
        own = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(each(own), own, create_graph=True)
        gradient.square().sum().backward()
        found.append([gradient.detach(), own.grad, *(p.grad for p in each.parameters()), *seen])
        for handle in handles:
            handle.remove()
        each.zero_grad()
    assert equal(*found)


def test_a_tensor_that_is_written_to_before_the_backward_is_an_error_as_in_eager_mode() -> None:
    model = Plain(torch.tanh)
    x = inputs_of(model)
    fitted, _ = least(model, x)
    for each in (model, fitted):
        loss = each(x)
        with torch.no_grad():
            each.layers[1].weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_backwards_run_in_threads() -> None:
    model = Plain(noisy)
    x = inputs_of(model)
    fitted, _ = least(model, x)
    torch.manual_seed(3)
    losses = [fitted(x), fitted(x)]
    threads = [threading.Thread(target=loss.backward) for loss in losses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [p.grad for p in fitted.parameters()]
    fitted.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    first, second = model(x), model(x)
    first.backward()
    second.backward()
    for a, p in zip(found, model.parameters(), strict=True):
        # Which of the two comes first is open: a + b and b + a are equal.
        assert torch.equal(a, p.grad)


def test_an_op_whose_second_run_makes_other_bits_runs_once(caplog: pytest.LogCaptureFixture) -> None:
    class Counted(nn.Module):
        """Writes past the dispatcher: what comes of it depends on how often it ran."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = dense()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
                y = torch.zeros_like(x)
                y.detach().numpy()[:] = np.sin(x.detach().numpy())
                x = x * y
            return x.square().mean()

    torch.manual_seed(0)
    model, x = Counted(), inputs_of(Branch())
    with caplog.at_level(logging.WARNING, "remat.torch"):
        fitted, budget = least(model, x)
    # Of products of such results a second run makes other bits too, but only since it reads others.
    said = [r.message.partition(":")[0] for r in caplog.records if "runs once" in r.message]
    assert set(said) == {"aten.zeros_like.default"}
    assert peak(fitted, x) <= budget
    assert equal(train(fitted, x), train(copy.deepcopy(model), x))


def test_fit_chooses_eager_mode_where_the_step_is_not_one_graph(caplog: pytest.LogCaptureFixture) -> None:
    x = inputs_of(Branch())
    with caplog.at_level(logging.WARNING, "remat.torch"):
        fitted = remat.torch.fit(Branch(), x, "100%", work_limit=20_000)
    (line,) = [r.message for r in caplog.records if "runs in eager mode" in r.message]
    assert "test_eager.py" in line
    assert "branch" in line
    assert fitted.remat.parts[0].planner == "eager"
    whole = remat.torch.fit(Plain(torch.tanh), x, "100%", work_limit=20_000)
    assert whole.remat.parts[0].planner != "eager"


def test_what_needs_a_trace_is_refused_in_one_line() -> None:
    x = inputs_of(Branch())
    with pytest.raises(remat.UsageError, match=r"^remat: calls=2 does not go with executor=\"eager\"$"):
        planned(Branch(), x, "100%", calls=2)
    with pytest.raises(remat.torch.UnsupportedModelError, match="^nothing that this model returns requires"):
        planned(nn.ReLU(), x, "100%")


def test_a_copy_runs_without_a_plan_on_its_own_weights() -> None:
    model = Plain(torch.tanh)
    x = inputs_of(model)
    fitted, _ = least(model, x)
    fitted(x).backward()
    copied = copy.deepcopy(fitted)
    assert copied.remat is None
    with torch.no_grad():
        for p in copied.parameters():
            p.zero_()
    assert copied(x).item() == 0.0
    assert fitted(x).item() != 0.0


def test_memory_that_is_filled_after_it_was_saved_is_kept() -> None:
    """`rrelu` saves its noise before it draws it, and autograd does not count that as a write."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = nn.functional.rrelu(layer(x).tanh(), training=True).sin()
            return x.square().mean()

    torch.manual_seed(0)
    model, x = Noisy(), torch.randn(512, 16)
    fitted = remat.torch.fit(model, x, "75%", executor="eager")
    assert fitted.remat.parts[0].recomputed_steps
    found = []
    for each in (copy.deepcopy(model), fitted):
        each.zero_grad()
        torch.manual_seed(1)
        loss = each(x)
        loss.backward()
        found.append([loss, *(p.grad for p in each.parameters())])
    assert all(a.equal(b) for a, b in zip(*found, strict=True))


def test_ops_that_write_to_lists_run_once() -> None:
    with Recorder() as recorder:
        a = torch.ones(4) * 2
        a.mul_(2.0)
        torch._foreach_mul_([a], 2.0)
    assert [op.may_repeat for op in recorder.ops[-2:]] == [True, False]


@pytest.mark.parametrize(("share", "keeps"), [(0.6, True), (0.36, False)])
def test_plans_leave_room_for_other_calls_before_a_backward(
    share: float, keeps: bool, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))))
    twin, inputs = copy.deepcopy(model), torch.randn(2, 512, 64).unbind()

    def steps(model: nn.Module, count: int) -> tuple[list[int], list[torch.Tensor]]:
        def step() -> None:
            first, second = map(model, inputs)
            (first - second).square().mean().backward()

        peaks, found = [], []
        for _ in range(count):
            model.zero_grad()
            peaks.append(remat.torch.measure_peak(step, resident=[model, inputs]))
            found += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return peaks, found

    eager, expected = steps(twin, 3)
    budget = int(share * max(eager))
    fitted = remat.torch.fit(model, inputs[0], budget, executor="eager", work_limit=20_000, time_limit=None)
    planned, found = steps(fitted, 3)
    assert equal(found, expected)
    assert "was called 2 times before the first backward" in caplog.text
    assert planned[0] > budget
    assert (planned[-1] <= budget) == keeps
    assert ("such steps exceed it" in caplog.text) != keeps
