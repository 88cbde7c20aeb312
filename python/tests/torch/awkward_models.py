"""Little models that PyTorch's tracing has trouble with, each with its inputs; each returns its loss."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class _Of(nn.Module):
    """A model of a function of itself and its inputs, with two layers."""

    def __init__(self, function: Callable[..., torch.Tensor], size: int = 8) -> None:
        super().__init__()
        self.function = function
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(self, *inputs).square().mean()


def _narrow(m: Any, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return m.second(torch.narrow(m.first(x).tanh(), 0, i, 2).tanh())


def _index_fill(m: Any, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return m.second(m.first(x).tanh().index_fill(-1, i, m.second.bias.sum().tanh()).sin())


def _indexed_by_a_mask(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.first(x)
    inside = h > 0
    out = torch.zeros_like(h)
    out[inside] = h[inside] * 2
    return m.second(out).tanh()


def _mask_assigned(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.first(x)
    h[x.sum(-1) > 0] = m.second.bias
    return m.second(h.tanh())


def _mask_assigned_under_autocast(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        h = m.first(x).float()
        h[x.sum(-1) > 0] = m.second.bias
        with torch.no_grad():
            shift = h.mean()
        return m.second(h.tanh() - shift).float()


def _mask_assigned_without_gradient(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.first(x).tanh()
    parts = h.chunk(2, dim=-1)
    with torch.no_grad():
        w = m.second(x).tanh()
        rows = torch.narrow(w, 0, (x[0, 0] > 9).long(), 8)
        scale = rows.mean()
    return m.second(torch.cat([parts[1], parts[0]], -1)).tanh() * scale


def _eigenvalues(m: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvals(m.second(m.first(x).tanh())).abs()


def _gradient_inside(m: Any, x: torch.Tensor) -> torch.Tensor:
    z = x.detach().requires_grad_(True)
    gradient = torch.autograd.grad(m.first(z).sin().sum(), z)[0]
    return m.second(m.first(x + gradient))


class _Scaled(nn.Module):
    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def _module_made_inside(m: Any, x: torch.Tensor) -> torch.Tensor:
    for _ in range(1):
        x = m.first(x).tanh()
        torch._dynamo.graph_break()
        x = _Scaled(2.0)(x)
    return m.second(x)


def _set_from_the_first_batch(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.first(x)
    if not m.second.bias.sum() > 50:
        m.second.bias.data = (h.std(0) + 60).data
    return m.second(h)


def _random(draw: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        for layer in (m.first, m.second, m.first, m.second):
            x = torch.tanh(layer(x)) * draw(x)
        return x

    return forward


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return 2 * ctx.saved_tensors[0] * gradient


class Layers(nn.Module):
    """Four layers alike in a list. between: from a layer and its input to its output."""

    def __init__(self, between: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.between = between
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.between(layer, x)
        return x.square().mean()


def _sharing() -> Layers:
    model = Layers(lambda layer, x: layer(x))
    model.layers[1][0].weight = model.layers[0][0].weight
    model.layers[3][0].bias = model.layers[2][0].bias
    return model


def _hooked() -> Layers:
    model = Layers(lambda layer, x: layer(x))
    model.layers[2].register_forward_hook(lambda module, args, output: output * 3)
    model.layers[3].register_forward_pre_hook(lambda module, args: (args[0] - 1,))
    return model


def _replaced() -> Layers:
    model = Layers(lambda layer, x: layer(x))
    plain = model.layers[2].forward
    model.layers[2].forward = lambda x: plain(x) * 2
    return model


def _parametrized() -> Layers:
    model = Layers(lambda layer, x: layer(x))
    for layer in model.layers:
        nn.utils.parametrizations.spectral_norm(layer[0])
    return model


def _added_to(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = layer[0](x)  # type: ignore[index]
    y += x
    y[:, :2].mul_(2)
    return y.relu_()


class Config(OrderedDict[str, float]):
    """As configurations of diffusers are."""


class _Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.config = nn.Linear(8, 8), Config(scale=2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x) * self.config["scale"]


def _configured() -> nn.Module:
    model = Layers(lambda layer, x: layer(x))
    model.layers = nn.ModuleList(_Configured() for _ in range(3))
    return model


def _sparse() -> nn.Module:
    model = _Of(lambda m, i: m.second(m.rows(i)))
    model.rows = nn.Embedding(16, 8, sparse=True)
    return model


def _raises(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.first(x) @ torch.ones(3, 3)


def _x() -> torch.Tensor:
    return torch.randn(8, 8)


AWKWARD: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "narrow": (lambda: _Of(_narrow), lambda: (_x(), torch.tensor(3))),
    "index_fill": (lambda: _Of(_index_fill), lambda: (_x(), torch.tensor([0, 2]))),
    "indexed by a mask": (lambda: _Of(_indexed_by_a_mask), lambda: (_x(),)),
    "mask assigned": (lambda: _Of(_mask_assigned), lambda: (_x(),)),
    "mask assigned under autocast": (lambda: _Of(_mask_assigned_under_autocast), lambda: (_x(),)),
    "narrow without gradient": (lambda: _Of(_mask_assigned_without_gradient), lambda: (_x(),)),
    "eigenvalues": (lambda: _Of(_eigenvalues), lambda: (torch.randn(2, 8, 8),)),
    "gradient inside": (lambda: _Of(_gradient_inside), lambda: (_x(),)),
    "module made inside": (lambda: _Of(_module_made_inside), lambda: (_x(),)),
    "set from the first batch": (lambda: _Of(_set_from_the_first_batch), lambda: (_x(),)),
    "rand": (lambda: _Of(_random(lambda x: torch.rand(x.shape, device=x.device))), lambda: (_x(),)),
    "randint": (
        lambda: _Of(_random(lambda x: torch.randint(0, 3, x.shape, dtype=x.dtype))),
        lambda: (_x(),),
    ),
    "normal": (lambda: _Of(_random(lambda x: torch.normal(0.0, 1.0, x.shape))), lambda: (_x(),)),
    "shared tensors": (_sharing, lambda: (_x(),)),
    "hooks": (_hooked, lambda: (_x(),)),
    "replaced forward": (_replaced, lambda: (_x(),)),
    "parametrization": (_parametrized, lambda: (_x(),)),
    "in place": (lambda: Layers(_added_to), lambda: (_x(),)),
    "own function": (lambda: Layers(lambda layer, x: _Twice.apply(layer(x))), lambda: (_x(),)),
    "dictionary": (_configured, lambda: (_x(),)),
    "sparse": (_sparse, lambda: (torch.tensor([1, 2, 3]),)),
    "raises": (lambda: _Of(_raises), lambda: (_x(),)),
}

__all__ = ["AWKWARD", "Layers"]
