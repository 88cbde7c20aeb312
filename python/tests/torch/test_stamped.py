"""The trace of many layers, told from that of four: the same graph as traced whole, the same bits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import remat
import torch
from remat.torch.session import region
from remat.torch.trace.stamped import Shortened
from test_repeated import Layer, Stack, assert_trains_alike, needs_regions, stack
from torch import nn
from training import fit

pytestmark = needs_regions


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each trace, whether it was told from one of fewer layers."""
    found: list[bool] = []
    plain = region.Region._told_by_fewer

    def noted(self: Any, *args: Any) -> Any:
        trace = plain(self, *args)
        found.append(trace is not None)
        return trace

    monkeypatch.setattr(region.Region, "_told_by_fewer", noted)
    return found


def whole(model: nn.Module, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> remat.Graph:
    """The step, with every layer traced for itself."""
    with monkeypatch.context() as patch:
        patch.setattr(region, "shortened", lambda *_: None)
        return remat.torch.capture(model, x, costs="roofline")


class Plain(Layer):
    """Reads nothing that needs a gradient and is not its own, or of the layer before."""

    def forward(self, x: torch.Tensor, shift: torch.Tensor | None = None, times: int = 1) -> torch.Tensor:
        return super().forward(x, None, times)


class Attention(Layer):
    """With views, saved logarithms of sums and random numbers of the kernel."""

    def forward(self, x: torch.Tensor, shift: torch.Tensor | None = None, times: int = 1) -> torch.Tensor:
        heads = self.up(self.norm(x)).view(-1, 4, 4, 4).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return x + self.drop(self.down(mixed.transpose(1, 2).reshape(x.shape[0], -1)))


@pytest.mark.parametrize("make", [Plain, Attention])
def test_the_step_is_that_of_a_trace_of_every_layer(
    make: Callable[[], nn.Module], told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = stack(9, make), torch.randn(256, 8)
    graph = remat.torch.capture(model, x, costs="roofline")
    assert told == [True]
    assert graph.to_dict() == whole(model, x, monkeypatch).to_dict()


def test_many_layers_train_as_in_eager_mode(told: list[bool]) -> None:
    model, x = stack(10, Attention), torch.randn(256, 8)
    fitted = fit(copy.deepcopy(model), x, "70%")
    for _ in range(2):
        assert_trains_alike(model, fitted, x)
    assert told == [True]


def test_lengths_that_vary_are_told_from_few_layers_too(
    told: list[bool], traces: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced: four layers at each of two lengths, and with symbols; then no more."""
    of_few: list[bool] = []
    plain = Shortened.told

    def noted(self: Shortened, trace: Any) -> Any:
        of_few.append(plain(self, trace) is not None)
        return plain(self, trace)

    monkeypatch.setattr(Shortened, "told", noted)
    model, lengths = stack(10, Attention), (256, 192, 320, 128, 448)
    fitted = fit(copy.deepcopy(model), torch.randn(lengths[0], 8), "70%", dynamic=None)
    for length in lengths:
        assert_trains_alike(model, fitted, torch.randn(length, 8))
    assert told == [True, True]
    # Two that were traced, these two again by the trace with symbols, and three more.
    assert of_few == [True] * 7
    assert len(traces) == 3
    assert len({part.ops for part in fitted.remat.parts}) == 1


def other_width(model: Stack) -> None:
    model.layers[5].up, model.layers[5].down = nn.Linear(8, 24), nn.Linear(24, 8)


def other_number(model: Stack) -> None:
    model.layers[5].scale = 2.0


def shared(model: Stack) -> None:
    model.layers[6].up = model.layers[4].up


def frozen(model: Stack) -> None:
    model.layers[4].up.requires_grad_(False)


def views(model: Stack) -> None:
    weights = torch.randn(2, 16, 8)
    model.layers[4].up.weight = nn.Parameter(weights[0])
    model.layers[5].up.weight = nn.Parameter(weights[1])


@pytest.mark.parametrize("change", [other_width, other_number, shared, frozen, views])
def test_a_layer_that_is_not_like_the_others_keeps_what_is_its_own(
    change: Callable[[Stack], None], told: list[bool]
) -> None:
    model, x = stack(10, Plain), torch.randn(256, 8)
    change(model)
    # Copies of parameters share no memory.
    assert_trains_alike(copy.deepcopy(model), fit(model, x, "90%"), x)
    assert True not in told


class Counting(Plain):
    """Writes to a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor, shift: torch.Tensor | None = None, times: int = 1) -> torch.Tensor:
        self.seen.add_(1)
        return super().forward(x, shift, times)


def test_layers_that_give_gradients_to_something_in_common_are_traced_each(told: list[bool]) -> None:
    model, x = stack(9, Layer), torch.randn(256, 8)
    assert_trains_alike(model, fit(copy.deepcopy(model), x, "90%"), x)
    assert True not in told


def test_layers_that_write_are_traced_each(told: list[bool]) -> None:
    model, x = stack(9, Counting), torch.randn(256, 8)
    fitted = fit(copy.deepcopy(model), x, "90%")
    assert_trains_alike(model, fitted, x)
    assert [float(layer.seen) for layer in fitted.layers] == [1.0] * 9
    assert True not in told


def test_results_of_inner_layers_that_are_read_elsewhere(told: list[bool]) -> None:
    class Skips(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x, middle = self.foot(x), None
            for number, layer in enumerate(self.layers):
                x = layer(x)
                middle = x if number == 4 else middle
            return self.head(x) * self.head(middle)

    torch.manual_seed(0)
    model, x = Skips([Plain() for _ in range(10)]), torch.randn(256, 8)
    assert_trains_alike(model, fit(copy.deepcopy(model), x, "90%"), x)
    assert True not in told
