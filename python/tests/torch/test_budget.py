"""Budgets that are found out: what the device has free, and what an optimizer will take of it."""

from __future__ import annotations

from typing import Any

import pytest
import remat
import remat.torch
import torch
from models import case
from remat.torch.plan.budget import auto_budget, optimizer_state_bytes
from torch import nn
from training import step_peak

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
MB = 1 << 20


@pytest.fixture
def cuda_memory(monkeypatch):
    """A CUDA allocator that says what the test wants: total, free (of all processes), reserved, allocated."""

    def say(total: int, free: int, reserved: int, allocated: int) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, total))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocated)
        monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)

    return say


def test_auto_is_what_is_free_and_what_this_process_has_already(cuda_memory) -> None:
    cuda_memory(total=1000 * MB, free=600 * MB, reserved=200 * MB, allocated=100 * MB)
    assert auto_budget(CUDA, 100 * MB, 0, 0) == 800 * MB
    assert auto_budget(CUDA, 100 * MB, 0, "5%") == 750 * MB
    assert auto_budget(CUDA, 100 * MB, 0, 100 * MB) == 700 * MB


def test_auto_leaves_out_what_is_in_use_beside_the_step(cuda_memory) -> None:
    cuda_memory(total=1000 * MB, free=600 * MB, reserved=200 * MB, allocated=150 * MB)
    assert auto_budget(CUDA, 100 * MB, 0, 0) == 750 * MB


@pytest.mark.parametrize(
    ("allocated", "for_the_step"),
    [(100, 700), (150, 700), (200, 700), (260, 640)],
    ids=["state to come", "half of it there", "all there", "more beside it"],
)
def test_a_reserve_is_subtracted_once_be_it_allocated_or_not(cuda_memory, allocated, for_the_step) -> None:
    cuda_memory(total=1000 * MB, free=500 * MB, reserved=300 * MB, allocated=allocated * MB)
    budget = auto_budget(CUDA, 100 * MB, 100 * MB, 0)
    assert budget - 100 * MB == for_the_step * MB


def test_auto_is_rounded_so_that_the_next_start_finds_its_plan(cuda_memory) -> None:
    cuda_memory(total=1000 * MB, free=600 * MB, reserved=0, allocated=0)
    first = auto_budget(CUDA, 0, 0, 0)
    cuda_memory(total=1000 * MB, free=604 * MB + 17, reserved=0, allocated=0)
    assert auto_budget(CUDA, 0, 0, 0) == first


def test_auto_with_nothing_left_is_an_error(cuda_memory) -> None:
    cuda_memory(total=1000 * MB, free=40 * MB, reserved=0, allocated=0)
    with pytest.raises(remat.BudgetError, match="nothing is left"):
        auto_budget(CUDA, 0, 0, "5%")


def test_auto_on_the_cpu_asks_for_bytes() -> None:
    model, inputs = case("mlp").build()
    with pytest.raises(remat.BudgetError, match="give bytes"):
        remat.torch.fit(model, inputs, "auto")
    compiled = torch.compile(model, backend="remat", options={"budget": "auto"})
    with pytest.raises(remat.BudgetError, match="give bytes"):
        compiled(*inputs)


def test_auto_is_found_out_once_with_the_model_and_its_inputs_as_part_of_the_step(monkeypatch) -> None:
    asked: list[int] = []

    def answer(device: torch.device, resident: int, reserve: int, margin: object) -> int:
        asked.append(resident)
        return 50 * MB

    monkeypatch.setattr(remat.torch.session.surroundings, "auto_budget", answer)
    model, (x,) = case("mlp").build()
    fitted = remat.torch.fit(model, x, "auto", work_limit=20_000)
    fitted(x[:8]).backward()
    assert asked == [sum(4 * p.numel() for p in model.parameters()) + 4 * x.numel()]
    assert [part.budget for part in fitted.remat.parts] == [50 * MB] * 3


@pytest.mark.parametrize("margin", ["abc", -1, "-5%"])
def test_a_margin_that_is_none_is_refused(margin) -> None:
    with pytest.raises(remat.BudgetError):
        remat.torch.fit(nn.Linear(2, 2), torch.zeros(1, 2), "auto", margin=margin)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p),
    "amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "centered": lambda p: torch.optim.RMSprop(p, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "averaged": lambda p: torch.optim.ASGD(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_an_optimizer_is_known_before_its_first_step(name: str) -> None:
    model = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3))
    optimizer = OPTIMIZERS[name](model.parameters())
    hooked: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: hooked.append(1))
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # leaves its own `step` on the optimizer
    values = [p.clone() for p in model.parameters()]
    foreseen = optimizer_state_bytes(optimizer, CPU)
    assert hooked == []
    assert name == "adagrad" or not optimizer.state
    assert all(p.equal(v) and p.grad is None for p, v in zip(model.parameters(), values, strict=True))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    real = sum(
        t.untyped_storage().nbytes() for s in optimizer.state.values() for t in s.values() if t is not None
    )
    assert foreseen == real == optimizer_state_bytes(optimizer, CPU)
    assert optimizer_state_bytes(optimizer, CUDA) == 0


def test_parameters_that_joined_later_are_foreseen_beside_the_others() -> None:
    first, second = nn.Linear(7, 5), nn.Linear(5, 3)
    second.bias.requires_grad_(False)
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1, momentum=0.9)
    first(torch.ones(1, 7)).sum().backward()
    optimizer.step()
    optimizer.add_param_group({"params": list(second.parameters())})
    assert optimizer_state_bytes(optimizer, CPU) == 4 * (7 * 5 + 5 + 5 * 3)


class Stubborn(torch.optim.SGD):
    """Looks at values before it makes its state."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad.sum().item() > 0:
                    self.state[parameter]["average"] = torch.zeros_like(parameter)


def test_an_optimizer_that_cannot_be_foreseen_asks_for_bytes() -> None:
    with pytest.raises(remat.UsageError, match="Stubborn .* reserve="):
        optimizer_state_bytes(Stubborn(nn.Linear(2, 2).parameters(), lr=0.1), CPU)
    optimizer = torch.optim.LBFGS(nn.Linear(2, 2).parameters())
    with pytest.raises(remat.UsageError, match="LBFGS .* reserve="):
        optimizer_state_bytes(optimizer, CPU)
    with pytest.raises(remat.UsageError, match=r"must be a torch\.optim\.Optimizer, not int"):
        remat.torch.fit(nn.Linear(2, 2), torch.zeros(1, 2), "1GiB", optimizer=3)


def test_the_budget_holds_with_the_state_of_the_optimizer() -> None:
    model, inputs = case("mlp").build()
    optimizer = torch.optim.AdamW(model.parameters())
    state = optimizer_state_bytes(optimizer, CPU)
    fitted = remat.torch.fit(model, inputs, "90%", optimizer=optimizer, reserve=1000, work_limit=20_000)
    part = fitted.remat.parts[0]
    assert part.reserve == state + 1000
    assert part.recomputed_steps > 0
    fitted(*inputs).backward()
    optimizer.step()
    model.zero_grad()
    peak = remat.torch.measure_peak(lambda: fitted(*inputs).backward(), resident=[model, optimizer, inputs])
    assert peak + 1000 <= part.budget
    assert peak + 1000 == pytest.approx(part.predicted_peak, rel=0.005)


class KeepsOnContext(torch.autograd.Function):
    """Keeps tensors as attributes, without `save_for_backward`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.x, ctx.w = x, w
        return (x @ w).tanh() @ w.t()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = (ctx.x @ ctx.w).tanh()
        d = (gradient @ ctx.w) * (1 - h * h)
        return d @ ctx.w.t(), ctx.x.t() @ d + gradient.t() @ h


class OfKeepers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.ParameterList(torch.randn(32, 32) * 0.1 for _ in range(5))
        self.wide = nn.ParameterList(torch.randn(32, 128) * 0.1 for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for narrow, wide in zip(self.narrow, self.wide, strict=True):
            x = x + KeepsOnContext.apply((x @ narrow).tanh(), wide)
        return x.square().mean()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_what_own_functions_keep_on_their_context_is_freed_as_planned() -> None:
    model, x = OfKeepers(), torch.randn(512, 32)
    fitted = remat.torch.fit(model, x, "95%", executor="boxed", work_limit=10_000)
    assert step_peak(fitted, (x,)) <= fitted.remat.budget
