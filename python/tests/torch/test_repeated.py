"""Layers of the same kind: looked into once, and the graph is the same as without that."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from remat.torch.base.private import is_region
from remat.torch.session import session
from remat.torch.trace import conversion
from torch import fx, nn
from torch.nn import functional
from training import fit

needs_regions = pytest.mark.skipif(
    torch.__version__ < "2.13", reason="PyTorch uses regions again from 2.13 on"
)


class Layer(nn.Module):
    """One of a stack; with a number and a choice of its own."""

    def __init__(self, width: int = 8, scale: float = 1.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop, self.scale = nn.Dropout(0.25), scale

    def forward(self, x: torch.Tensor, shift: torch.Tensor | None = None, times: int = 1) -> torch.Tensor:
        y = self.norm(x) if shift is None else self.norm(x) + shift
        for _ in range(times):
            y = self.down(functional.gelu(self.up(y)))
        return x + self.scale * self.drop(y)


class Stack(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.foot, self.head = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.foot(x)
        shift = x.mean(0, keepdim=True)
        for layer in self.layers:
            x = layer(x, shift=shift)
        return self.head(x)


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bodies of all regions that Dynamo made, in order."""
    made: list[str] = []
    plain = session.flat

    def noted(gm: fx.GraphModule) -> fx.GraphModule:
        made.extend(str(node.args[0].target) for node in gm.graph.nodes if is_region(node))  # type: ignore[union-attr]
        return plain(gm)

    monkeypatch.setattr(session, "flat", noted)
    return made


def stack(count: int = 4, make: Callable[[], nn.Module] = Layer) -> Stack:
    torch.manual_seed(0)
    return Stack([make() for _ in range(count)])


def gradients(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model.zero_grad(set_to_none=True)
    loss = model(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def assert_trains_alike(model: nn.Module, fitted: Any, x: torch.Tensor) -> None:
    mine, theirs = gradients(fitted, x), gradients(model, x)
    assert len(mine) == len(theirs)
    assert all(a.equal(b) for a, b in zip(mine, theirs, strict=True))


def described(gm: fx.GraphModule) -> list[Any]:
    """Ops in order, with arguments of the graph by name and the modules that they are in."""
    name: dict[fx.Node, str] = {}
    lines = []
    for number, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        name[node] = str(node.target) or str(number)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            continue
        given = fx.map_arg((node.args, node.kwargs), lambda each: f"%{name[each]}")  # type: ignore[arg-type, return-value]
        name[node] = str(len(lines))
        lines.append(
            (node.op, str(node.target), str(given), list(node.meta.get("nn_module_stack", {}).values()))
        )
    return lines


@needs_regions
def test_the_graph_is_that_of_a_trace_without_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []
    plain = session.flat
    monkeypatch.setattr(session, "flat", lambda gm: graphs.append(plain(gm)) or graphs[-1])
    model, x = stack(), torch.randn(256, 8)
    fit(copy.deepcopy(model), x, "90%")
    monkeypatch.setattr(conversion, "layers_once", lambda _: nullcontext())
    fit(copy.deepcopy(model), x, "90%")
    with_regions, without = map(described, graphs)
    assert with_regions == without
    places = {path for _, _, _, stack in without for path, _ in stack}
    assert any(path.endswith("layers.3.up") for path in places)


@needs_regions
def test_layers_of_a_kind_are_one_region(regions: list[str]) -> None:
    model, x = stack(), torch.randn(256, 8)
    fitted = fit(copy.deepcopy(model), x, "90%")
    assert len(regions) == 4
    assert len(set(regions)) == 1
    assert_trains_alike(model, fitted, x)


@needs_regions
def test_layers_that_share_weights_inside_are_of_another_kind(regions: list[str]) -> None:
    """A trace of the first would read one weight where the others have two."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
            return x + self.two(self.one(x).tanh() + shift)

    model, x = stack(6, Twice), torch.randn(256, 8)
    for layer in list(model.layers)[:3]:
        layer.two = layer.one
    fitted = fit(copy.deepcopy(model), x, "90%")
    assert len(regions) == 6
    assert len(set(regions)) == 2
    assert_trains_alike(model, fitted, x)


def test_weights_that_two_layers_share_get_one_gradient() -> None:
    model, x = stack(), torch.randn(256, 8)
    model.layers[2].up = model.layers[0].up
    assert_trains_alike(model, fit(copy.deepcopy(model), x, "90%"), x)


def test_a_number_of_a_layer_is_its_own() -> None:
    torch.manual_seed(0)
    model, x = Stack([Layer(scale=0.5 + (number > 1)) for number in range(4)]), torch.randn(256, 8)
    assert_trains_alike(model, fit(copy.deepcopy(model), x, "90%"), x)


@pytest.mark.parametrize("place", [0, 2])
def test_a_later_change_of_one_layer_counts(place: int) -> None:
    model, x = stack(), torch.randn(256, 8)
    fitted = fit(copy.deepcopy(model), x, "90%")
    assert_trains_alike(model, fitted, x)
    for each in (model, fitted):
        each.layers[place].drop.p = 0.75
    assert_trains_alike(model, fitted, x)
    for each in (model, fitted):
        each.layers[place].scale = 3.0
    assert_trains_alike(model, fitted, x)
    for each in (model, fitted):
        each.layers[place].drop.eval()
    assert_trains_alike(model, fitted, x)


def test_a_layer_that_returns_its_input_is_traced_as_ever() -> None:
    class Same(Layer):
        def forward(self, x: torch.Tensor, shift: torch.Tensor | None = None, times: int = 1) -> torch.Tensor:
            return x

    model, x = stack(4, Same), torch.randn(256, 8)
    fitted = fit(copy.deepcopy(model), x, "100%")
    assert len(fitted.remat.parts) >= 1
    assert_trains_alike(model, fitted, x)


def test_hooks_and_counters_of_layers_run_as_ever() -> None:
    class Counting(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: torch.Tensor, shift: torch.Tensor | None = None, times: int = 1) -> torch.Tensor:
            self.calls += 1
            self.seen.add_(1)
            return super().forward(x, shift, times)

    model, x = stack(4, Counting), torch.randn(256, 8)
    model.layers[1].register_forward_hook(lambda module, args, output: output * 2)
    fitted = fit(copy.deepcopy(model), x, "90%")
    before = [layer.calls for layer in fitted.layers]
    assert_trains_alike(model, fitted, x)
    assert [layer.calls - start for layer, start in zip(fitted.layers, before, strict=True)] == [1] * 4
    assert [float(layer.seen) for layer in fitted.layers] == [1.0] * 4


def test_one_layer_called_again_and_again() -> None:
    class Albert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Layer() for _ in range(3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for number in range(6):
                x = self.layers[number % 2](x, times=1 + number // 3)
            return self.layers[2](x)

    torch.manual_seed(0)
    model, x = Albert(), torch.randn(256, 8)
    assert_trains_alike(model, fit(copy.deepcopy(model), x, "90%"), x)


@needs_regions
def test_lengths_that_vary_keep_their_regions(regions: list[str]) -> None:
    model = stack()
    fitted = fit(copy.deepcopy(model), torch.randn(256, 8), "90%", dynamic=None)
    for length in (200, 240, 300):
        assert_trains_alike(model, fitted, torch.randn(length, 8))
    assert len(regions) == 8
