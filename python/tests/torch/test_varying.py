"""Shapes that vary: traced once, with symbols, and equal to eager mode bit for bit all the same."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import remat.torch
import torch
from remat_models.zoo import animal
from torch import nn
from training import fit


def loss_of(outputs: Any) -> torch.Tensor:
    if hasattr(outputs, "loss"):
        return outputs.loss
    return outputs.square().mean()


def called(model: nn.Module, inputs: Any) -> Any:
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def assert_equal_steps(
    model: nn.Module, fitted: Callable[..., Any], inputs: Sequence[Any], accumulate: bool = False
) -> None:
    """Losses, gradients, buffers and generators of each, from the same seed."""
    for given in inputs:
        left = []
        for each in (model, fitted):
            if not accumulate:
                each.zero_grad(set_to_none=True)
            torch.manual_seed(3)
            loss = loss_of(called(each, given))
            loss.backward()
            gradients = [None if p.grad is None else p.grad.clone() for p in each.parameters()]
            left.append(
                [loss.detach(), *gradients, *(b.clone() for b in each.buffers()), torch.get_rng_state()]
            )
        for mine, theirs in zip(*left, strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or torch.equal(mine, theirs), (
                {k: tuple(v.shape) for k, v in given.items()} if isinstance(given, dict) else given[0].shape
            )


class Compiled(nn.Module):
    """A model in the hands of `torch.compile`."""

    def __init__(self, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.__dict__["run"] = torch.compile(model, backend="remat", options=options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["run"](*args, **kwargs)


def subject(name: str, sizes: Sequence[int]) -> tuple[nn.Module, list[Any]]:
    """A model of the zoo, and inputs of these lengths, or sides of pictures."""
    found = animal(name)
    model, _ = found.build()
    key = "length" if "length" in found.small else "side"
    made = []
    for size in sizes:
        given = {**found.small, key: size}
        names = found.inputs.__code__.co_varnames
        made.append(found.inputs(**{k: v for k, v in given.items() if k in names}))
    return model, made


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gpt2", (48, 40, 32, 56)),
        pytest.param("bert", (48, 40, 32, 56), marks=pytest.mark.long),
        pytest.param("resnet", (24, 32, 40, 28), marks=pytest.mark.long),
        pytest.param("unet", (24, 32, 40, 16), marks=pytest.mark.long),
    ],
)
def test_steps_of_shapes_that_vary_equal_those_of_eager_mode(name: str, sizes: Sequence[int]) -> None:
    model, inputs = subject(name, sizes)
    fitted = fit(copy.deepcopy(model), inputs[0], "90%", loss=loss_of, outputs="dropped", dynamic=None)
    assert_equal_steps(model, fitted, inputs)
    assert_equal_steps(model, fitted, inputs[2:], accumulate=True)


def test_further_shapes_are_not_traced_anew_and_keep_to_the_budget(traces: list[Any]) -> None:
    model, inputs = subject("gpt2", (48, 40, 32, 56, 44, 28))
    fitted = fit(copy.deepcopy(model), inputs[0], "90%", loss=loss_of, outputs="dropped", dynamic=None)
    for given in inputs[1:3]:
        loss_of(called(fitted, given)).backward()
    # Of each of the first two shapes, and with symbols.
    assert len(traces) == 3
    for given in inputs[3:]:
        fitted.zero_grad(set_to_none=True)
        before = len(fitted.remat.parts)
        loss_of(called(fitted, given)).backward()
        assert len(fitted.remat.parts) == before + 1
        part = fitted.remat.parts[-1]
        fitted.zero_grad(set_to_none=True)
        assert part.predicted_peak <= part.budget
        measured = remat.torch.measure_peak(
            lambda given=given: loss_of(called(fitted, given)).backward(), resident=[fitted, *given.values()]
        )
        assert measured == pytest.approx(part.predicted_peak, rel=2e-3)
    assert len(traces) == 3


class Branching(nn.Module):
    """Takes other kernels for long sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.into(x)
        hidden = hidden.relu() if x.shape[1] > 30 else hidden.tanh()
        return self.out(hidden)


def test_branches_on_sizes_are_those_of_eager_mode() -> None:
    torch.manual_seed(0)
    model = Branching()
    inputs = [(torch.randn(4, n, 16),) for n in (8, 12, 16, 40, 20, 48, 1, 33)]
    fitted = fit(copy.deepcopy(model), inputs[0], "100%", loss=loss_of, dynamic=None)
    assert_equal_steps(model, fitted, inputs)


def test_nothing_is_traced_with_symbols_where_that_is_not_wanted(traces: list[Any]) -> None:
    torch.manual_seed(0)
    model = Branching()
    inputs = [(torch.randn(4, n, 16),) for n in (8, 12, 16, 20)]
    fitted = fit(copy.deepcopy(model), inputs[0], "100%", loss=loss_of, dynamic=False)
    assert_equal_steps(model, fitted, inputs)
    assert len(traces) == len(inputs)


@pytest.mark.parametrize("fits", [True, False])
def test_a_trace_with_symbols_that_is_another_one_is_not_used(
    fits: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from remat.torch.session import varying

    monkeypatch.setattr(varying, "differ", lambda *_: "one op is another")
    torch.manual_seed(0)
    model = Branching()
    inputs = [(torch.randn(4, n, 16),) for n in (8, 12, 16, 20, 24)]
    with caplog.at_level(logging.INFO, logger="remat.torch"):
        other = copy.deepcopy(model)
        if fits:
            planned: Any = fit(other, inputs[0], "100%", loss=loss_of, dynamic=None)
        else:
            planned = Compiled(other, {"budget": "100%", "work_limit": 20_000})
        assert_equal_steps(model, planned, inputs)
    assert "each shape is traced for itself: one op is another" in caplog.text


@pytest.mark.long
def test_torch_compile_traces_shapes_that_vary_once_too(traces: list[Any]) -> None:
    model, inputs = subject("bert", (48, 40, 32, 56, 44))
    other = copy.deepcopy(model)
    options = {"budget": "90%", "work_limit": 20_000, "outputs": "dropped"}
    compiled = Compiled(other, options)
    assert_equal_steps(model, compiled, inputs)
    counted = len(traces)
    assert_equal_steps(model, compiled, [subject("bert", (36,))[1][0]])
    assert len(traces) == counted


def test_arguments_may_show_a_part_of_a_storage() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
    rows = [torch.randn(2, length, 8)[1] for length in (24, 40, 32, 16)]

    def loss(out):
        return out.square().mean()

    fitted = fit(copy.deepcopy(model), rows[0], "100%", loss=loss, dynamic=None)
    for x in rows:
        for each in (model, fitted):
            each.zero_grad(set_to_none=True)
            loss(each(x)).backward()
        for mine, theirs in zip(fitted.parameters(), model.parameters(), strict=True):
            assert mine.grad.equal(theirs.grad)
