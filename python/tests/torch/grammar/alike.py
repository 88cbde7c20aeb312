"""Rules that are lists of three and more layers of one class, each of them unlike the others in something."""

from __future__ import annotations

import random
from collections import OrderedDict
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm
from torch.utils.checkpoint import checkpoint

from .layer import SINGLE, Layer


class Block(nn.Module):
    """A layer that others may have too, and a tensor of its own."""

    def __init__(self, width: int, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.own = inner or nn.Linear(width, width), nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x)) * self.own


class Alike(Layer):
    """Blocks with residual connections; others say what is between them."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.blocks = nn.ModuleList(self.made(draw, width) for _ in range(draw.choice([3, 3, 4])))

    def made(self, draw: random.Random, width: int) -> nn.Module:
        return Block(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, block in enumerate(self.blocks):
            x = self.between(block, x, number)
        return x

    def between(self, block: nn.Module, x: torch.Tensor, number: int) -> torch.Tensor:
        return x + block(x)


class AlikeShared(Alike):
    """Some blocks share a layer with others."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        shared = [nn.Linear(width, width) for _ in range(3)]
        for block in self.blocks:
            block.inner = draw.choice(shared)


def doubled_output(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output * 2


def doubled_input(module: nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    return (args[0] * 2,)


def doubled_gradient(module: nn.Module, grads: Any, outputs: Any) -> tuple[torch.Tensor | None]:
    return (None if grads[0] is None else grads[0] * 2,)


def other_linear(module: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return x @ module.weight


def other_block(module: Block, x: torch.Tensor) -> torch.Tensor:
    return module.inner(x).sin()


class AlikeHooked(Alike):
    """One of them has a hook, or another `forward`, from the start or from some step on."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["forward", "pre", "backward", "replaced"])
        self.number, self.whole = draw.randrange(len(self.blocks)), draw.random() < 0.5
        self.since = draw.choice([None, 0, 1, 2])
        if self.since is None:
            self.hook()

    def hook(self) -> None:
        block = self.blocks[self.number]
        changed = block if self.whole else block.inner
        if self.kind == "forward":
            changed.register_forward_hook(doubled_output)
        elif self.kind == "pre":
            changed.register_forward_pre_hook(doubled_input)
        elif self.kind == "backward":
            changed.register_full_backward_hook(doubled_gradient)
        else:
            changed.forward = MethodType(other_block if self.whole else other_linear, changed)

    def change(self, step: int) -> None:
        if step == self.since:
            self.hook()


class AlikeInPlace(Alike):
    """What one returns is written to."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["add", "mul", "slice", "view", "relu", "fill", "expanded"])

    def between(self, block: nn.Module, x: torch.Tensor, number: int) -> torch.Tensor:
        y = block(x)
        if self.kind == "add":
            y += x
        elif self.kind == "mul":
            y.mul_(2)
        elif self.kind == "slice":
            y[:, :1].zero_()
        elif self.kind == "view":
            y.view(-1).add_(1)
        elif self.kind == "relu":
            torch.relu_(y)
        elif self.kind == "fill":
            y.masked_fill_(x > 1, 0)
        else:
            y.add_(x[:, :1])
        return y


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.saved_tensors[0].cos()


class Straight(torch.autograd.Function):
    """Rounded forward, and as if nothing were backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class AlikeFunction(Alike):
    """An `autograd.Function` of one's own in each."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.function = draw.choice([Sine, Straight])

    def between(self, block: nn.Module, x: torch.Tensor, number: int) -> torch.Tensor:
        return x + self.function.apply(block(x))


class AlikeParametrized(Alike):
    """A weight that is computed from others, by buffers that a call overwrites."""

    types = SINGLE

    def made(self, draw: random.Random, width: int) -> nn.Module:
        how = draw.choice([parametrizations.spectral_norm, parametrizations.weight_norm, spectral_norm])
        return Block(width, how(nn.Linear(width, width)))


class Config(OrderedDict):
    """A dictionary of a class of its own."""


class Configured(Block):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.config = Config(scale=2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.config["scale"]


class AlikeConfigured(Alike):
    def made(self, draw: random.Random, width: int) -> nn.Module:
        return Configured(width)


class AlikeCheckpointed(Alike):
    """Each under `torch.utils.checkpoint`, some with dropout."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.dropout = nn.Dropout(draw.choice([0.0, 0.2]))

    def part(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(block(x))

    def between(self, block: nn.Module, x: torch.Tensor, number: int) -> torch.Tensor:
        return x + checkpoint(self.part, block, x, use_reentrant=False)


class AlikeRate(Alike):
    """A rate of dropout, or a number, that the training loop changes."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["rate", "temperature"])
        self.dropout, self.temperature = nn.Dropout(0.1), 0.7

    def change(self, step: int) -> None:
        if self.kind == "rate":
            self.dropout.p = 0.1 + 0.1 * step
        else:
            self.temperature = 0.7 / (1 + step)

    def between(self, block: nn.Module, x: torch.Tensor, number: int) -> torch.Tensor:
        return x + self.dropout(block(x) / self.temperature)


class AlikeBroken(Alike):
    """Something after the second block, or after each, breaks Dynamo's graph in the loop."""

    once = False

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["graph break", "branch", "item"])
        self.each = draw.random() < 0.3

    def between(self, block: nn.Module, x: torch.Tensor, number: int) -> torch.Tensor:
        x = x + block(x)
        if self.each or number == 1:
            if self.kind == "graph break":
                torch._dynamo.graph_break()
            elif self.kind == "item":
                x = x * (1 + int(x.sum().item() > 0))
            elif x.sum() > 0:
                x = x * 2
        return x
