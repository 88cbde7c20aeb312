"""Programs that call `forward` of a fitted module themselves."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from typing import Any

import pytest
import remat.torch
import torch
from torch import fx, nn

SAID = "forward(...) runs without a plan"


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


class Inherits(Model):
    """Has no forward of its own."""


def inputs() -> torch.Tensor:
    return torch.randn(1024, 64, generator=torch.Generator().manual_seed(1))


def fitted(kind: type[Model] = Model, executor: str = "auto") -> Any:
    return remat.torch.fit(kind(), inputs(), "60%", executor=executor, work_limit=20_000)


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def said(caplog: pytest.LogCaptureFixture) -> int:
    return sum(SAID in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("executor", ["boxed", "eager"])
@pytest.mark.parametrize("kind", [Model, Inherits])
def test_a_warning_says_once_that_forward_has_no_plan(
    kind: type[Model], executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain, x = kind(), inputs()
    model = fitted(kind, executor)
    model(x).backward()
    with torch.no_grad():
        assert model.forward(x, scale=0.5).equal(plain(x, scale=0.5))
    assert said(caplog) == 0
    for call in (model.training_step, model.forward):
        model.zero_grad()
        plain.zero_grad()
        call(x).backward()
        plain(x).backward()
        assert all(map(torch.equal, gradients(model), gradients(plain)))
    assert said(caplog) == 1
    assert inspect.signature(model.forward) == inspect.signature(plain.forward)


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_a_forward_that_is_replaced_by_one_that_calls_it(
    executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As mixed precision of Accelerate does, and Lightning for a moment."""
    plain, x = Model(), inputs()
    model = fitted(executor=executor)
    original = model.forward
    for forward in (functools.wraps(original)(lambda *args: original(*args) * 2), original):
        model.forward = forward
        assert model(x).equal(plain(x) * (1 if forward is original else 2))
        assert model.forward(x).equal(plain(x) * (1 if forward is original else 2))
    assert said(caplog) == 0


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
    for strict in (False, True):
        assert torch.export.export(model, (x,), strict=strict).module()(x).equal(expected)
    again: Any = remat.torch.fit(model, x, "60%", work_limit=20_000)
    again(x).backward()
    assert said(caplog) == 0
