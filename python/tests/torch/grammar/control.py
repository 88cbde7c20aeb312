"""Rules with breaks, branches, and what only the first call does."""

from __future__ import annotations

import random

import torch
from torch import nn

from .alike import Block
from .layer import SINGLE, Layer


class Break(Layer):
    """Dynamo's graph ends in it, in no loop."""

    once = False

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["graph break", "branch", "item", "check"])
        self.a, self.b = Block(width), Block(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        if self.kind == "graph break":
            torch._dynamo.graph_break()
        elif self.kind == "item":
            x = x * (1 + int(x.sum().item() > 0))
        elif self.kind == "branch":
            x = self.b(x) if x.sum() > 0 else x.sin()
        elif torch.isnan(x).any():
            raise ValueError("not a number")
        return self.b(x)


class BooleanIndex(Layer):
    """Shapes that depend on data."""

    once = False

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["selected", "assigned", "scattered", "nonzero"])
        self.linear, self.token = nn.Linear(width, width), nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, where = self.linear(x), x[..., 0] > 0
        if self.kind == "assigned":
            y[where] = self.token
            return y
        if self.kind == "scattered":
            return y.masked_scatter(where.unsqueeze(-1).expand_as(y), x.sin())
        if self.kind == "nonzero":
            rows = where.flatten().nonzero().squeeze(1)
            return y + (y.flatten(0, 1)[rows].sum(0) / (1 + rows.shape[0]))
        result = torch.zeros_like(y)
        result[where] = y[where] * 2
        return result


class Installs(Layer):
    """Hooks that the first call installs."""

    once = False

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.blocks, self.installed = nn.ModuleList(Block(width) for _ in range(3)), False
        self.used = draw.randrange(3)

    @torch.compiler.disable
    def install(self) -> None:
        if not self.installed:
            for block in self.blocks:
                block.register_forward_hook(lambda module, args, output: self.seen.append(output))
            self.installed = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.install()
        self.seen: list[torch.Tensor] = []
        for block in self.blocks:
            x = block(x)
        seen, self.seen = self.seen, []
        return seen[self.used]


class FirstBatch(Layer):
    """A parameter that is set from the first batch."""

    types = SINGLE
    once = False

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.linear, self.scale = nn.Linear(width, width), nn.Parameter(torch.ones(width))
        self.kind = draw.choice(["data", "copied"])
        self.register_buffer("done", torch.tensor(0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        if not self.done > 0:
            value = -torch.log(h.detach().std((0, 1)) + 1e-6)
            if self.kind == "data":
                self.scale.data = value
            else:
                with torch.no_grad():
                    self.scale.copy_(value)
            self.done = torch.tensor(1.0)
        return h * self.scale.exp()


class GradientInside(Layer):
    """`torch.autograd.grad` in the forward."""

    types = SINGLE
    once = False

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.net = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = x.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(self.net(z).sin().sum(), z)
        return self.net(x + gradient)


class Scale(nn.Module):
    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class MadeInForward(Layer):
    """A module that a call makes, in code that may run without a plan."""

    once = False

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.block, self.breaks = Block(width), draw.random() < 0.7

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(1):
            x = self.block(x)
            if self.breaks:
                torch._dynamo.graph_break()
            x = Scale(2.0)(x)
        return x
