"""Programs that call `forward` of a fitted module themselves."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import remat.torch
import torch
from torch import fx, nn


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*[y for _ in range(8) for y in (nn.Linear(64, 64), nn.GELU())])

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.layers(x) * scale


class Model(Base):
    """Also has a step of its own, as modules of Lightning."""

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return super().forward(x, scale).square().mean()

    def training_step(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x)


def inputs() -> torch.Tensor:
    return torch.randn(1024, 64, generator=torch.Generator().manual_seed(1))


def peak(model: nn.Module, call: Callable[..., torch.Tensor], x: torch.Tensor) -> int:
    model.zero_grad()
    return remat.torch.measure_peak(lambda: call(x).backward(), resident=[model, x])


def fitted(budget: Any = "60%", executor: str = "auto") -> Any:
    return remat.torch.fit(Model(), inputs(), budget, executor=executor, work_limit=20_000)


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("executor", ["auto", "boxed", "eager"])
def test_forward_is_planned_like_a_call(executor: str, caplog: pytest.LogCaptureFixture) -> None:
    plain, x = Model(), inputs()
    budget = peak(plain, plain, x) * 6 // 10
    model = fitted(budget, executor)
    for call in (model.forward, model.training_step, model):
        assert peak(model, call, x) <= budget
        assert all(map(torch.equal, gradients(model), gradients(plain)))
    with torch.no_grad():
        assert model.forward(x, scale=0.5).equal(plain(x, scale=0.5))
    assert not caplog.records
    assert inspect.signature(model.forward) == inspect.signature(plain.forward)


@pytest.mark.parametrize("everywhere", [False, True])
def test_forward_of_a_model_with_hooks_runs_none_and_says_that_it_has_no_plan(
    everywhere: bool, caplog: pytest.LogCaptureFixture
) -> None:
    plain, x, met = Model(), inputs(), []
    model = fitted()
    register = nn.modules.module.register_module_forward_hook if everywhere else model.register_forward_hook
    hook = register(lambda module, *_: met.append(module))
    with caplog.at_level(logging.WARNING, logger="remat"):
        for _ in range(2):
            model.forward(x).backward()
    hook.remove()
    assert not any(isinstance(each, Model) for each in met)
    said = [record.getMessage() for record in caplog.records]
    assert len([each for each in said if "forward of a fitted Model is called itself" in each]) == 1
    plain(x).backward()
    plain(x).backward()
    assert all(map(torch.equal, gradients(model), gradients(plain)))


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_a_forward_that_is_replaced_by_one_that_calls_it(executor: str) -> None:
    """As mixed precision of Accelerate does, and Lightning for a moment."""
    plain, x = Model(), inputs()
    model = fitted(executor=executor)
    original = model.forward
    for forward in (functools.wraps(original)(lambda *args: original(*args) * 2), original):
        model.forward = forward
        assert model(x).equal(plain(x) * (1 if forward is original else 2))
        assert model.forward(x).equal(plain(x) * (1 if forward is original else 2))
    del model.forward
    budget = model.remat.budget
    assert peak(model, model.forward, x) <= budget


def test_what_is_made_of_a_fitted_module_has_the_models_forward(caplog: pytest.LogCaptureFixture) -> None:
    plain, x = Model(), inputs()
    model = fitted()
    expected = plain(x)
    for copied in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(copied) is Model
        assert copied.forward(x).equal(expected)
    parameters = {name: p.detach() * 0 for name, p in model.named_parameters()}
    assert torch.func.functional_call(model, parameters, (x,)).item() == 0
    assert fx.symbolic_trace(model)(x).equal(expected)
    compiled: Any = torch.compile(model, backend="eager")
    assert compiled(x).equal(expected)
    assert torch.compile(model.forward, backend="eager")(x).equal(expected)
    again: Any = remat.torch.fit(model, x, "60%", work_limit=20_000)
    assert again.forward(x).equal(expected)
