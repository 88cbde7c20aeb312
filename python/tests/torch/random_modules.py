"""Random modules from a grammar, for what nobody thought of.

`python random_modules.py --modules 100` compares that many with eager mode, each within a random budget.
"""

from __future__ import annotations

import argparse
import copy
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import remat
import remat.torch
import torch
import torch.nn.functional as F
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import create_causal_mask


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


RULES: list[Callable[[random.Random, int], Layer]] = [
    *(Dense, Norm, Attention, MaskedAttention, Convolution, Dropout, InPlace, Views, Memory, Shared)
]


class ImageConvolution(Layer):
    """From (batch, width, height, height) to the same shape, as all that follow."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.conv = nn.Conv2d(
            width, width, draw.choice([1, 3]), padding="same", groups=draw.choice([1, width])
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class ImageNorm(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.norm = draw.choice([nn.BatchNorm2d(width), nn.GroupNorm(2, width), nn.InstanceNorm2d(width)])
        # A segmentation fault of PyTorch 2.13: a channels-last input of a group norm that needs no gradient.
        self.scale = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x * self.scale)


class ImageInPlace(Layer):
    """Writes that could move a channels-last image."""

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["fill", "part", "scatter", "index", "copy", "relu", "dropout", "clamp"])
        self.scale = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.scale
        if self.kind == "fill":
            y.masked_fill_(x > 1, 0.5)
        elif self.kind == "part":
            y[:, 1:].mul_(x[:, :1])
        elif self.kind == "scatter":
            y.scatter_add_(1, torch.zeros_like(x, dtype=torch.long), x)
        elif self.kind == "index":
            y.index_copy_(1, torch.tensor([0, 1]), x[:, :2].sin())
        elif self.kind == "copy":
            y.copy_((2 * x).contiguous())
        elif self.kind == "dropout":
            y = F.dropout2d(F.dropout(y, 0.2, self.training, inplace=True), 0.2, self.training)
        else:
            y = F.relu_(y) if self.kind == "relu" else y.clamp_(-1, 1)
        return y


class ImageViews(Layer):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__(draw, width)
        self.kind = draw.choice(["pool", "shuffle", "flip", "gate"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "pool":
            return F.interpolate(F.max_pool2d(x, 2), scale_factor=2, mode="bilinear")
        if self.kind == "shuffle":
            return F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2)
        return x.flip(2) if self.kind == "flip" else x * x.mean((2, 3), keepdim=True).sigmoid()


IMAGE_RULES: list[Callable[[random.Random, int], Layer]] = [
    *(ImageConvolution, ImageConvolution, ImageNorm, ImageInPlace, ImageInPlace, ImageViews)
]


class RandomModule(nn.Module):
    """Layers with and without residual connections, a second input in the middle, and a loss alone or with
    another output; sequences, or images, most of them channels-last.

    outside: is the loss made of what a call returns, by another?
    """

    outside = False

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.image = draw.random() < 0.25
        width = 8 if self.image else draw.choice([8, 16])
        rules = IMAGE_RULES if self.image else RULES
        self.layers = nn.ModuleList(draw.choice(rules)(draw, width) for _ in range(draw.randint(2, 6)))
        self.residual = [draw.random() < 0.5 for _ in self.layers]
        self.second = draw.randrange(len(self.layers)) if draw.random() < 0.4 else None
        self.form = draw.choice(["sum", "mean", "log_softmax"])
        # After which layer the other output branches off: nothing but the last step uses it.
        self.late = draw.randrange(len(self.layers)) if draw.random() < 0.3 else None
        self.channels_last = self.image and draw.random() < 0.8
        batch, length = draw.choice([2, 4]), draw.choice([8, 32])
        self.shape = (batch, width, 6, 6) if self.image else (batch, length, width)
        if self.channels_last:
            self.to(memory_format=torch.channels_last)

    def inputs(self, draw: random.Random) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
        count = 1 if self.second is None else 2
        made = [torch.randn(self.shape, generator=generator) for _ in range(count)]
        return tuple(x.to(memory_format=torch.channels_last) if self.channels_last else x for x in made)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> Any:
        aside = None
        for i, layer in enumerate(self.layers):
            y = layer(x)
            x = x + y if self.residual[i] else y
            if i == self.second:
                x = x * other.tanh()
            if i == self.late:
                aside = x.tanh()
        result = x if self.outside else loss_by(self.form, x)
        return result if aside is None else (result, aside)


def loss_by(form: str, x: torch.Tensor) -> torch.Tensor:
    if form == "log_softmax":
        return -x.log_softmax(-1)[..., 0].mean()
    return x.square().mean() if form == "mean" else x.sin().sum()


@dataclass(frozen=True)
class Loss:
    """From what a call returns. form: of a loss that the model leaves to others; all: of the other output
    too, if there is one?
    """

    form: str | None
    all: bool = False

    @classmethod
    def of(cls, model: RandomModule) -> Loss:
        return cls(model.form if model.outside else None)

    def __call__(self, outputs: Any) -> torch.Tensor:
        first, *others = outputs if isinstance(outputs, tuple) else (outputs,)
        loss = first if self.form is None else loss_by(self.form, first)
        return loss + others[0].sum() if self.all and others else loss


def state(model: nn.Module) -> dict[str, Any]:
    """What a module holds besides its parameters: values of buffers, and numbers."""
    numbers = {n: m.calls for n, m in model.named_modules() if isinstance(m, Memory)}
    return {**{n: b.clone() for n, b in model.named_buffers()}, **numbers}


def train(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], loss_of: Loss, accumulate: bool
) -> dict[str, Any]:
    """What three steps leave: in the last one all outputs get a gradient."""
    left: dict[str, Any] = {}
    torch.manual_seed(1)
    for step, loss in enumerate((loss_of, loss_of, replace(loss_of, all=True))):
        if not accumulate:
            model.zero_grad()
        value = loss(model(*inputs))
        value.backward()
        left[f"step {step} loss"] = value.detach().clone()
        left |= {
            f"step {step} {n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None
        }
        left |= {f"step {step} {n}": value for n, value in state(model).items()}
    return {**left, "generator": torch.get_rng_state()}


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of what is not equal bit for bit; not-a-number equals itself."""

    def bits(item: Any) -> Any:
        item = torch.as_tensor(item)
        return item.dtype, item.shape, item.reshape(-1).view(torch.uint8).tolist()

    return [n for n in {**a, **b} if n not in a or n not in b or bits(a[n]) != bits(b[n])]


def close(a: Any, b: Any) -> bool:
    """Equal but for rounding?"""
    return torch.allclose(torch.as_tensor(a), torch.as_tensor(b), 1e-3, 1e-4, equal_nan=True)


@contextmanager
def warnings_of_strides() -> Iterator[list[str]]:
    """That gradients of outputs come with other strides than were traced; nothing else is shown."""
    said: list[str] = []
    log, handler = logging.getLogger("remat.torch"), logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(lambda record: "come with other strides" in record.getMessage())
    before = log.handlers, log.propagate
    log.handlers, log.propagate = [handler], False
    try:
        yield said
    finally:
        log.handlers, log.propagate = before


def check(number: int) -> str | None:
    """What is wrong with a random module, in one line; a budget for which no plan is found is not."""
    torch._dynamo.reset()
    draw = random.Random(number)
    torch.manual_seed(number)
    model = RandomModule(draw)
    inputs = model.inputs(draw)
    if not any(p.requires_grad for p in model.parameters()):
        return None
    budget, accumulate = f"{draw.choice([100, 95, 90, 80, 70, 60])}%", draw.random() < 0.2
    # Workspaces, without which a budget is not kept, are known where costs are measured.
    costs = draw.choice(["measured", "roofline", "roofline", "roofline"])
    # An output that the caller drops makes the measured peak lower than the prediction.
    outputs = "held" if costs == "measured" else draw.choice(["held", None])
    model.outside = draw.random() < 0.3
    loss = Loss.of(model)
    name = f"module {number}, {budget}, {[type(layer).__name__ for layer in model.layers]}"
    eager = copy.deepcopy(model)
    before = state(model)
    options: Any = {"costs": costs, "work_limit": 20000, "time_limit": 5.0, "outputs": outputs}
    once = is_compiled_once(model)
    try:
        with warnings_of_strides() as said:
            fitted = remat.torch.fit(model, inputs, budget, loss=loss, **options)
            if found := differences(before, state(model)):
                return f"{name}: fit changed {found}"
            expected, trained = (train(each, inputs, loss, accumulate) for each in (eager, fitted))
        found = differences(expected, trained)
        if said and not once:
            # What comes from other graphs is not known in the first step.
            rounded = [n for n in found if accumulate or n.startswith("step 0")]
            found = [n for n in found if n not in rounded or not close(expected[n], trained[n])]
        if found:
            return f"{name}: {len(found)} differ: {found[:4]}"
        return within(fitted, inputs, loss, name) if costs == "measured" and once else None
    except remat.NoPlanError:
        return None
    except remat.torch.UnsupportedModelError as error:
        return None if not once and "compiled nothing" in str(error) else f"{name}: {error}"


def is_compiled_once(model: nn.Module) -> bool:
    """Not where a batch norm without momentum breaks a loop, which then runs without a plan, as a warning
    says; nor where Dynamo compiles each call anew, because a number has changed.
    """
    momenta = [m.momentum for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    return None not in momenta and not any(
        m.kind == "counted" for m in model.modules() if isinstance(m, Memory)
    )


def within(fitted: nn.Module, inputs: tuple[torch.Tensor, ...], loss_of: Loss, name: str) -> str | None:
    """Does a step keep its budget, and the prediction?"""
    last: list[Any] = []

    def step() -> None:
        last.append(loss_of(fitted(*inputs)))
        last.pop().backward()

    for _ in range(2):
        # What the steps before have shown is planned for now, not while the peak is measured.
        fitted.zero_grad()
        step()
    fitted.zero_grad()
    measured = remat.torch.measure_peak(step, resident=[fitted, inputs])
    part = [part for part in fitted.remat.parts if not part.existing_gradients][-1]
    if measured > min(part.budget, part.predicted_peak):
        return f"{name}: {measured} bytes measured, {part.predicted_peak} predicted, {part.budget} allowed"
    return None


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
        if (number + 1) % 100 == 0:
            print(f"up to {number}: {wrong} wrong", file=sys.stderr, flush=True)
    print(f"{asked.modules} modules, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
