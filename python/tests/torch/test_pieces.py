"""Models in several graphs, or with code beside them: nothing false is said of them, and nothing dies."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import remat
import remat.torch
import torch
from torch import nn
from training import step_peak

OPTIONS: Any = {"work_limit": 10_000, "costs": "roofline", "executor": "boxed"}


class Checked(nn.Module):
    """A branch on data, between what is large."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(16, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.out(x)
        if torch.isnan(logits).any():
            raise ValueError("nan")
        return nn.functional.cross_entropy(logits, logits.detach().argmax(-1))


class InPieces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU()) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks[:2]:
            x = block(x)
        torch._dynamo.graph_break()
        return self.blocks[2](x).pow(2).mean()


class WithEagerCode(nn.Module):
    """What runs without a plan needs more at its peak than it leaves in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(50, 50)

    @torch.compiler.disable
    def loss(self, x: torch.Tensor) -> torch.Tensor:
        targets = torch.arange(4 * 8).reshape(4, 8) % 49 + 1
        return nn.functional.ctc_loss(x.log_softmax(-1), targets, (40,) * 4, (8,) * 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.loss(self.lin(x).tanh().sin()) * 2


class BranchInLoop(nn.Module):
    """Dynamo leaves the whole function alone."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x).tanh()
            if x.sum() > 0:
                x = x * 2
        return x.square().mean()


CASES: dict[str, tuple[type[nn.Module], Callable[[], torch.Tensor]]] = {
    "checked": (Checked, lambda: torch.randn(256, 16)),
    "in pieces": (InPieces, lambda: torch.randn(512, 32)),
    "with eager code": (WithEagerCode, lambda: torch.randn(40, 4, 50)),
    "branch in a loop": (BranchInLoop, lambda: torch.randn(256, 16)),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    make, inputs = CASES[name]
    return make(), inputs()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ask", [remat.torch.capture, remat.torch.sweep, remat.torch.report])
def test_a_model_in_pieces_is_not_captured_and_the_place_is_named(ask: Any, name: str) -> None:
    model, x = made(name)
    with pytest.raises(remat.torch.UnsupportedModelError, match=r"test_pieces\.py:\d+") as caught:
        ask(model, x, **OPTIONS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", [c if c == "in pieces" else pytest.param(c, marks=pytest.mark.long) for c in CASES]
)
def test_keeping_everything_is_accepted_and_smallest_known_works(name: str) -> None:
    model, x = made(name)
    eager = copy.deepcopy(model)
    peak = step_peak(eager, [x])
    whole = remat.torch.fit(model, x, "100%", **OPTIONS)
    trains_within(whole, eager, x, whole.remat.predicted_peak)
    with pytest.raises(remat.NoPlanError) as caught:
        remat.torch.fit(model, x, peak // 4, **OPTIONS)
    error = caught.value
    assert "\n" not in str(error)
    assert not isinstance(error, remat.InfeasibleError)
    assert error.floor <= peak
    assert "none goes below" not in str(error)
    # Of steps that add to gradients, too.
    assert error.smallest_known <= max([peak * 1.1, *(part.budget for part in whole.remat.parts)])
    fitted = remat.torch.fit(model, x, error.smallest_known, **OPTIONS)
    assert fitted.remat.predicted_peak <= error.smallest_known
    assert fitted.remat.peak_lower_bound <= peak if fitted.remat.parts else True
    trains_within(fitted, eager, x, error.smallest_known)


def trains_within(fitted: nn.Module, eager: nn.Module, x: torch.Tensor, budget: int) -> None:
    for model in (fitted, eager):
        model.zero_grad()
    for _ in range(2):
        expected, found = eager(x), fitted(x)
        expected.backward()
        found.backward()
        assert torch.equal(expected, found)
        for a, b in zip(eager.parameters(), fitted.parameters(), strict=True):
            assert a.grad is not None
            assert b.grad is not None
            assert torch.equal(a.grad, b.grad)
    for model in (fitted, eager):
        model.zero_grad()
    assert step_peak(fitted, [x]) <= budget


def test_a_model_without_any_plan_runs_with_a_word(caplog) -> None:
    model, x = made("branch in a loop")
    fitted = remat.torch.fit(model, x, "100%", **OPTIONS)
    assert not fitted.remat.parts
    assert re.search(
        r"nothing of this model has a plan, it runs as in eager mode: .*test_pieces", caplog.text
    )
    assert "nothing planned" in str(fitted.remat)
    assert remat.torch.verify(model, x, "100%", **OPTIONS).within


def test_smallest_known_does_not_depend_on_the_clock() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(12)))
    x, known = torch.randn(128, 16), set[int]()
    for seconds in (0.001, 0.3):
        torch._dynamo.reset()
        options: Any = {"loss": lambda y: y.square().sum(), "costs": "roofline", "time_limit": seconds}
        with pytest.raises(remat.NoPlanError) as caught:
            remat.torch.fit(model, x, 30_000, **options)
        known.add(caught.value.smallest_known)
        fitted = remat.torch.fit(model, x, caught.value.smallest_known, **options)
        assert fitted.remat.predicted_peak <= caught.value.smallest_known
    assert len(known) == 1


def test_gradients_that_exist_when_fit_is_called_change_no_plan() -> None:
    model, x = made("checked")
    plans = []
    for _ in range(2):
        fitted = remat.torch.fit(model, x, "100%", **OPTIONS)
        plans.append([(p.existing_gradients, p.predicted_peak) for p in fitted.remat.parts])
        model(x).backward()
        before = [p.grad for p in model.parameters()]
    assert plans[0] == plans[1]
    assert all(p.grad is gradient for p, gradient in zip(model.parameters(), before, strict=True))
