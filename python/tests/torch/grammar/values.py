"""Rules of types, of chance and of ops that read values."""

from __future__ import annotations

import random
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from .layer import SINGLE, Layer


class Sixteen(Layer):
    """Ops in 16 bits that have forms with numbers."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.type = draw.choice([torch.bfloat16, torch.float16])
        self.linear = nn.Linear(width, width)
        self.kind = draw.choice(["pow", "std", "var", "log2", "erf", "exp2", "ldexp", "addmm"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(self.linear(x)).to(self.type)
        if self.kind == "pow":
            y = y.pow(1.7)
        elif self.kind == "std":
            y = (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-3)
        elif self.kind == "var":
            y = y / (y.var(-1, keepdim=True) + 1)
        elif self.kind == "log2":
            y = torch.log2(y * 2 + 1)
        elif self.kind == "erf":
            y = y * 0.5 * (1 + torch.erf(y / 2**0.5))
        elif self.kind == "addmm":
            weight = self.linear.weight.to(self.type)
            y = torch.addmm(y.flatten(0, 1), y.flatten(0, 1), weight, beta=0.6, alpha=0.2).view_as(y)
        else:
            y = torch.exp2(y) if self.kind == "exp2" else torch.ldexp(torch.ones_like(y), y)
        return y.to(x.dtype)


class Complex(Layer):
    types = SINGLE

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["div", "matmul", "fft", "conj", "abs"])
        self.weight = nn.Parameter(torch.randn(width, width, dtype=torch.complex64) / width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.complex(x, x.cos())
        weight = self.weight.to(z.dtype)
        if self.kind == "div":
            return (((weight[0].tanh() * z) / (z.sin() + 2)).abs()).to(x.dtype)
        if self.kind == "fft":
            return torch.fft.irfft(torch.fft.rfft(x, dim=1) * weight[0], n=x.shape[1], dim=1).to(x.dtype)
        z = z @ weight
        return ((z.conj() * z).imag + z.real if self.kind == "conj" else z.abs()).to(x.dtype)


class Chance(Layer):
    """Random numbers, from PyTorch's generator or Python's."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        kinds = ["rand", "randn", "randint", "normal", "bernoulli", "rand_like", "randn_like", "multinomial"]
        self.kind = draw.choice([*kinds, "randperm", "normal_", "python"])
        self.linear, self.times = nn.Linear(width, width), draw.randint(1, 3)

    def noise(self, x: torch.Tensor) -> torch.Tensor | float:
        if self.kind in ("rand_like", "randn_like"):
            return getattr(torch, self.kind)(x)
        if self.kind in ("rand", "randn"):
            return getattr(torch, self.kind)(x.shape, dtype=x.dtype)
        if self.kind == "randint":
            return torch.randint(3, x.shape).to(x.dtype)
        if self.kind == "normal":
            return torch.normal(1.0, 0.5, x.shape).to(x.dtype)
        if self.kind == "normal_":
            return torch.empty_like(x).normal_(1.0, 0.5)
        if self.kind == "bernoulli":
            return torch.bernoulli(torch.sigmoid(x.detach()))
        if self.kind == "multinomial":
            return (
                x.detach().float().sigmoid().flatten(0, 1).multinomial(self.width).view(x.shape).to(x.dtype)
            )
        return torch.randperm(self.width).to(x.dtype) if self.kind == "randperm" else random.random()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = torch.tanh(self.linear(x)) * self.noise(x)
        return x


class Einsum(Layer):
    """Attention pooling, and others that turn what they multiply."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["bn,bnd->bd", "bnd,de->bne", "bid,bjd->bij"])
        self.norm, self.weight = nn.LayerNorm(width), nn.Linear(width, 1)
        self.turn = nn.Parameter(torch.randn(width, width) / width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        if self.kind == "bn,bnd->bd":
            weight = self.weight(x).squeeze(-1).softmax(1)
            return x + torch.einsum(self.kind, weight, x)[:, None]
        if self.kind == "bnd,de->bne":
            return torch.einsum(self.kind, x, self.turn)
        return torch.einsum("bij,bjd->bid", torch.einsum(self.kind, x, x).softmax(-1), x)


class Routing(Layer):
    """A mixture of experts; what decides has ties."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.gate = nn.Linear(width, 4)
        self.experts = nn.Parameter(torch.randn(4, width, width) / width)
        self.kind = draw.choice(["topk", "sort", "argmax"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.gate(x)
        ties = (scores * 2).round() + scores * 0
        if self.kind == "argmax":
            return torch.einsum("bnd,bnde->bne", x, self.experts[ties.argmax(-1)]) * scores.amax(-1, True)
        weights, chosen = ties.topk(2) if self.kind == "topk" else (each[..., :2] for each in ties.sort(-1))
        chosen_ones = torch.zeros_like(ties).scatter_(-1, chosen, weights.softmax(-1))
        return torch.einsum("bnd,edf,bne->bnf", x, self.experts, chosen_ones)


class Scan(Layer):
    """Writes to slices, one after another."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.linear, self.kind = nn.Linear(width, width), draw.choice(["zeros", "empty", "of it"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        state = h * 2 if self.kind == "of it" else torch.zeros_like(h)
        if self.kind == "empty":
            state = torch.empty_like(h)
            state[:, 0] = 0
        for t in range(1, 5):
            state[:, t] = state[:, t - 1] * 0.9 + h[:, t]
        return state if self.kind == "zeros" else state[:, :5].sum(1, keepdim=True) + h


class Algebra(Layer):
    """Ops that refuse some matrices."""

    types = SINGLE

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.weight = nn.Parameter(torch.randn(width, width) / (4 * width))
        self.kind = draw.choice(["solve", "cholesky", "logdet", "slogdet", "inverse", "eigvals", "qr"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.weight.tanh() + torch.eye(self.width, dtype=x.dtype)
        if self.kind == "solve":
            return torch.linalg.solve(w, x.transpose(1, 2)).transpose(1, 2)
        if self.kind == "cholesky":
            return x @ torch.linalg.cholesky(w @ w.T + torch.eye(self.width, dtype=x.dtype))
        if self.kind == "logdet":
            return x * torch.logdet(w @ w.T)
        if self.kind == "slogdet":
            return x * torch.linalg.slogdet(w)[1]
        if self.kind == "eigvals":
            return x * torch.linalg.eigvals(w).abs().sum()
        return x @ (torch.linalg.inv(w) if self.kind == "inverse" else torch.linalg.qr(w)[1])


class Bags(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["sum", "mean", "max", "plain"])
        self.bags = nn.EmbeddingBag(40, width, mode="sum" if self.kind == "plain" else self.kind)
        self.table = nn.Embedding(40, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        indices = (x.detach().flatten(0, 1).float().nan_to_num(0, 0, 0).abs() * 10).clamp(max=39).long()
        if self.kind == "plain":
            return x * self.table(indices[:, 0]).view_as(x)
        return x + self.bags(indices).view_as(x)


class Recurrent(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        made = draw.choice([nn.RNN, nn.LSTM, nn.GRU])
        self.recurrent = made(width, width, batch_first=draw.random() < 0.5)
        self.autocast = draw.random() < 0.6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16) if self.autocast else nullcontext():
            return self.recurrent(x[:, :4])[0].to(x.dtype).mean(1, keepdim=True) + x


class Autocast(Layer):
    """A weight that is used once or twice in 16 bits."""

    types = (torch.float32,)

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.a, self.b, self.twice = nn.Linear(width, width), nn.Linear(width, width), draw.random() < 0.3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = torch.tanh(self.a(x))
            return (self.a(y) if self.twice else F.layer_norm(self.b(y), (self.width,))).to(x.dtype)


class Overlapping(Layer):
    """Views whose elements share memory, and storages larger than what is seen of them."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["unfold", "windows", "strided", "expand"])
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x * self.scale)
        if self.kind == "unfold":
            return y + F.unfold(y[:, None], (2, 1)).sum(1).mean(-1)[:, None, None]
        if self.kind == "windows":
            return y + y.unfold(1, 3, 1).mean((1, 3))[:, None]
        if self.kind == "strided":
            return y + torch.as_strided(y, (3, self.width), (1, 1)).mean(0)
        return y[:, :1].expand_as(y).contiguous() * y


class TensorNumbers(Layer):
    """Ops that take a number from a tensor."""

    once = False

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["index_fill", "narrow", "masked_fill", "repeat"])
        self.value = nn.Parameter(torch.tensor(0.3))
        self.register_buffer("start", torch.tensor(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x) * self.value
        if self.kind == "index_fill":
            return y.index_fill(-1, torch.tensor([0, 2]), self.value.detach())
        if self.kind == "narrow":
            return y + torch.narrow(y, 1, self.start, 2).sum(1, keepdim=True)
        if self.kind == "masked_fill":
            return y.masked_fill(x > 1, self.value.tanh())
        return y + y[:, :1].repeat_interleave(x.shape[1], 1)
