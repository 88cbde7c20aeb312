"""Rules for sequences: what most models are made of."""

from __future__ import annotations

import random
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import create_causal_mask

from .layer import Layer


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
        # Without momentum it asks for the number of calls, which breaks the graph.
        self.once = getattr(self.norm, "momentum", 0.1) is not None

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
            mask = (
                mask
                if self.mask == "boolean"
                else torch.zeros(length, length, dtype=x.dtype).masked_fill(~mask, -1e4)
            )
        y = F.scaled_dot_product_attention(
            *(q, k, v, mask),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.mask == "causal",
            enable_gqa=self.groups != self.heads,
        )
        return y.transpose(1, 2).reshape(batch, length, width)


class MaskedAttention(Layer):
    """As in transformers, with a mask that eager mode leaves out where nothing but the future is hidden."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.num_key_value_groups = draw.choice([1, 2, 4])
        self.heads, self.groups = 4, 4 // self.num_key_value_groups
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * self.groups * (width // 4))
        self.config = SimpleNamespace(_attn_implementation="sdpa", is_causal=True)
        self.given = draw.choice(["nothing", "positions", "packed", "ones", "padding"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2 * self.groups, -1).transpose(1, 2).chunk(2, 1)
        positions = torch.arange(length)[None]
        positions = positions % 5 if self.given == "packed" else positions
        ones = torch.ones(batch, length, dtype=torch.long)
        padding = ones if self.given == "ones" else (torch.arange(length) < length - 2) & (ones > 0)
        mask = create_causal_mask(
            self.config,
            x,
            padding if self.given in ("ones", "padding") else None,
            None,
            None if self.given == "nothing" else positions,
        )
        y, _ = sdpa_attention_forward(self, q, k, v, mask, is_causal=True)
        return y.reshape(batch, length, width)


class Convolution(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.conv = nn.Conv1d(width, width, 3, padding=1, groups=draw.choice([1, 2, width]))

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
        self.kind = draw.choice(["add", "slice", "fill", "mul", "put", "clamp", "copy"])
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.scale
        if self.kind == "add":
            y += x
        elif self.kind == "slice":
            y[:, 1:] = torch.tanh(x[:, :-1])
        elif self.kind == "fill":
            y = y.masked_fill_(x > 1, 0.5)
        elif self.kind == "put":
            y.index_put_((torch.tensor([0, 1]),), x[:2].sin())
        elif self.kind == "clamp":
            y.clamp_(-1, 1)
        elif self.kind == "copy":
            y[0].copy_(x[1])
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
        self.kind = draw.choice(["replaced", "in place", "number", "counted"])
        self.calls = 0
        # Dynamo compiles each call again, because a number has changed.
        self.once = self.kind != "counted"
        self.register_buffer("mean", torch.zeros(width))
        self.branch = draw.randrange(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        now = x.detach().mean((0, 1))
        if self.kind == "replaced":
            self.mean = 0.9 * self.mean + 0.1 * now
        elif self.kind == "in place":
            self.mean.lerp_(now, 0.1)
        elif self.kind == "counted":
            self.calls += 1
            return x * (1.0 if self.calls < 3 else 0.5)
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
