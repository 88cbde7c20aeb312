"""Random modules from a grammar, for what nobody thought of.

`python random_modules.py --modules 100` compares that many with eager mode, each within a random budget.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable

import remat
import remat.torch
import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    """One rule of the grammar: from (batch, length, width) to the same shape."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__()
        self.width = width


class Dense(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        inner = draw.choice([width, 2 * width])
        self.up, self.down = nn.Linear(width, inner, bias=draw.random() < 0.7), nn.Linear(inner, width)
        self.act = draw.choice([nn.GELU(), nn.Tanh(), nn.SiLU(), nn.ReLU(inplace=draw.random() < 0.5)])
        if draw.random() < 0.3:
            self.up.weight.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.act(self.up(x)))


class Norm(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["layer", "batch", "group"])
        make = {
            "layer": lambda: nn.LayerNorm(width),
            "batch": lambda: nn.BatchNorm1d(width, momentum=draw.choice([0.1, None])),
            "group": lambda: nn.GroupNorm(2, width),
        }
        self.norm = make[self.kind]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) if self.kind == "layer" else self.norm(x.transpose(1, 2)).transpose(1, 2)


class Attention(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.heads = draw.choice([1, 2, 4])
        self.groups = draw.choice([g for g in (1, 2, 4) if self.heads % g == 0])
        each = width // self.heads
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * self.groups * each)
        self.mask = draw.choice(["none", "causal", "boolean", "added"])
        self.dropout = draw.choice([0.0, 0.1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2 * self.groups, -1).transpose(1, 2).chunk(2, 1)
        mask = None
        if self.mask in ("boolean", "added"):
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            mask = mask if self.mask == "boolean" else torch.zeros(length, length).masked_fill(~mask, -1e4)
        y = F.scaled_dot_product_attention(
            *(q, k, v, mask),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.mask == "causal",
            enable_gqa=self.groups != self.heads,
        )
        return y.transpose(1, 2).reshape(batch, length, width)


class Convolution(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.conv = nn.Conv1d(width, width, 3, padding=1, groups=draw.choice([1, 2]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.transpose(1, 2)).transpose(1, 2)


class Dropout(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.dropout = draw.choice([nn.Dropout(0.2), nn.Dropout(0.2, inplace=True), nn.AlphaDropout(0.1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(x * 1.5)


class InPlace(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["add", "slice", "fill", "mul"])
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.scale
        if self.kind == "add":
            y += x
        elif self.kind == "slice":
            y[:, 1:] = torch.tanh(x[:, :-1])
        elif self.kind == "fill":
            y = y.masked_fill_(x > 1, 0.5)
        else:
            y[..., : self.width // 2].mul_(0.5)
        return y


class Views(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["chunk", "roll", "permute", "gate"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "roll":
            return x.roll(1, 1) + x
        if self.kind == "permute":
            return x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
        a, b = x.chunk(2, -1)
        return torch.cat([b, a.sin()], -1) if self.kind == "chunk" else torch.cat([a * b.sigmoid(), b], -1)


class Memory(Layer):
    """Buffers that a call overwrites or replaces, and branches on Python numbers."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["replaced", "in place", "number"])
        self.register_buffer("mean", torch.zeros(width))
        self.branch = draw.randrange(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        now = x.detach().mean((0, 1))
        if self.kind == "replaced":
            self.mean = 0.9 * self.mean + 0.1 * now
        elif self.kind == "in place":
            self.mean.lerp_(now, 0.1)
        else:
            return x * 0.5 if self.branch else x.abs()
        return x - self.mean


class Shared(Layer):
    """The same parameters twice."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(F.gelu(self.linear(x)))


RULES: list[Callable[[random.Random, int], Layer]] = [
    *(Dense, Norm, Attention, Convolution, Dropout, InPlace, Views, Memory, Shared)
]


class RandomModule(nn.Module):
    """Layers with and without residual connections, a second input in the middle, and a loss."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        width = draw.choice([8, 16])
        self.layers = nn.ModuleList(draw.choice(RULES)(draw, width) for _ in range(draw.randint(3, 9)))
        self.residual = [draw.random() < 0.5 for _ in self.layers]
        self.second = draw.randrange(len(self.layers)) if draw.random() < 0.4 else None
        self.form = draw.choice(["sum", "mean", "log_softmax"])
        batch, length = draw.choice([2, 4]), draw.choice([8, 12])
        self.shape = (batch, length, width)

    def inputs(self, draw: random.Random) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
        count = 1 if self.second is None else 2
        return tuple(torch.randn(self.shape, generator=generator) for _ in range(count))

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            y = layer(x)
            x = x + y if self.residual[i] else y
            if i == self.second:
                x = x * other.tanh()
        if self.form == "log_softmax":
            return -x.log_softmax(-1)[..., 0].mean()
        return x.square().mean() if self.form == "mean" else x.sin().sum()


def check(number: int) -> str | None:
    """What is wrong with a random module, in one line.

    Not a budget for which no plan is found, nor what PyTorch's own tracing does alike.
    """
    draw = random.Random(number)
    torch.manual_seed(number)
    model = RandomModule(draw)
    inputs = model.inputs(draw)
    if not any(p.requires_grad for p in model.parameters()):
        return None
    budget = f"{draw.choice([100, 95, 90, 80, 70, 60])}%"
    try:
        found = remat.torch.verify(model, inputs, budget, time_limit=0.3)
    except remat.NoPlanError:
        return None
    planned = set(found.differences) - set(found.tracing_differences)
    if not planned and found.within and found.measured_peak <= found.predicted_peak:
        return None
    kinds = [type(layer).__name__ for layer in model.layers]
    return f"module {number}, {budget}, {kinds}: {' | '.join(str(found).splitlines())}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--modules", type=int, default=100)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for number in range(asked.first, asked.first + asked.modules):
        try:
            found = check(number)
        except Exception as error:
            found = f"module {number}: {type(error).__name__}: {error}"
        wrong += found is not None
        if found:
            print(found, flush=True)
    print(f"{asked.modules} modules, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
