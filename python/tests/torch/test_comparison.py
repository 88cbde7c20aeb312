"""`fit` compares a step with eager mode, whose saved tensors are on the host meanwhile."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import remat
import torch
from remat.torch import measure_peak
from remat.torch.base.errors import HostMemoryError
from remat.torch.base.saved import NotSavedError
from remat.torch.base.storages import same_bits
from remat.torch.session import comparison
from remat.torch.session.comparison import HostSaves
from torch import nn
from training import fit

OTHER_GRADIENTS = "its trace has other gradients than eager mode"


class Scaled(torch.autograd.Function):
    """Its backward has other numbers in a trace."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * (1.1 if torch.compiler.is_compiling() else 1.2)


class Compiling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = Scaled.apply(layer(x)).tanh()
        return x.square().mean()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # Dynamo does
def test_gradients_that_a_trace_changes_are_those_of_eager_mode(caplog: pytest.LogCaptureFixture) -> None:
    model, x = Compiling(), torch.randn(256, 64)
    fitted = fit(copy.deepcopy(model), x, "80%")
    for each in (model, fitted):
        each(x).backward()
    for mine, its in zip(model.parameters(), fitted.parameters(), strict=True):
        assert mine.grad is not None
        assert its.grad is not None
        assert mine.grad.equal(its.grad)
    assert OTHER_GRADIENTS in caplog.text
    caplog.clear()
    fit(model, x, "80%", executor="boxed")
    assert f'{OTHER_GRADIENTS}: executor="eager" has the same' in caplog.text


class Otherwise(nn.Module):
    """Needs more memory in eager mode than in a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
            x = x if torch.compiler.is_compiling() else x * x.softmax(-1).cumsum(-1)
        return x.square().mean()


def test_a_refusal_names_a_budget_for_the_program_of_eager_mode() -> None:
    model, x = Otherwise(), torch.randn(512, 64)
    with pytest.raises(remat.NoPlanError, match='executor="eager"') as error:
        fit(model, x, 300_000)
    known = error.value.smallest_known
    assert fit(model, x, known).remat.budget == known


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise HostMemoryError("the disk is full")

    monkeypatch.setattr(comparison, "MappedFile", full)


@pytest.mark.usefixtures("no_room")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
def test_outputs_alone_are_compared_where_the_host_has_no_room(caplog: pytest.LogCaptureFixture) -> None:
    model = Compiling()
    assert fit(model, torch.randn(256, 64), "80%").remat.parts[0].predicted_peak > 0
    assert OTHER_GRADIENTS not in caplog.text


def test_saved_tensors_come_back_as_they_lay() -> None:
    base = torch.randn(12, 33, requires_grad=True) * 1
    weights = torch.randn(5, requires_grad=True)
    saves, seen = HostSaves([weights]), []
    with saves.watched():
        for each in (
            base[3:, 1:],
            base.t(),
            base[:, :1].expand(12, 7),
            base[:0],
            base[0, 5],
            base.to(torch.complex64),
        ):
            seen.append((each, each.sin()))
        product = weights * weights
    for each, made in seen:
        saved = made.grad_fn._saved_self  # type: ignore[union-attr]
        assert same_bits(saved, each)
        assert saved.stride() == each.stride()
        assert saved.data_ptr() != each.data_ptr() or not each.numel()
        assert saved.data_ptr() % 64 == each.data_ptr() % 64
    assert product.grad_fn._saved_self.data_ptr() == weights.data_ptr()  # type: ignore[union-attr]


@pytest.mark.usefixtures("no_room")
def test_what_is_not_saved_is_an_error_of_its_own() -> None:
    x = torch.randn(5, requires_grad=True)
    with HostSaves([]).watched():
        y = (x * 2).sin().sum()
    with pytest.raises(NotSavedError):
        y.backward()


def test_saves_on_the_host_take_no_memory_of_the_step() -> None:
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)) for _ in range(16)]
    model, x = nn.Sequential(*layers), torch.randn(2048, 64)

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    def elsewhere() -> None:
        with HostSaves([*model.parameters(), x]).watched():
            step()

    activation = x.nbytes
    present = sum(p.nbytes for p in model.parameters()) + x.nbytes
    assert measure_peak(step, resident=[model, x]) > present + 40 * activation
    assert measure_peak(elsewhere, resident=[model, x]) < 2 * present + 6 * activation
