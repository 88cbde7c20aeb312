"""A random module: layers from the rules, and what is around them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import alike, control, images, sequences, values
from .layer import FLOATS, Layer


def rules_of(module: Any) -> list[type[Layer]]:
    """All that a file defines, in its sequence."""
    return [each for each in vars(module).values() if is_rule(each) and each.__module__ == module.__name__]


def is_rule(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, Layer) and item is not alike.Alike


IMAGE_RULES = rules_of(images)
# With how much chance a layer is of which file.
RULES = [(sequences, 0.34), (alike, 0.26), (values, 0.28), (control, 0.12)]


def rule(draw: random.Random, kind: torch.dtype, image: bool) -> type[Layer]:
    if image:
        return draw.choice([each for each in IMAGE_RULES if kind in each.types])
    (file,) = draw.choices([file for file, _ in RULES], [weight for _, weight in RULES])
    return draw.choice([each for each in rules_of(file) if kind in each.types])


class RandomModule(nn.Module):
    """Layers with and without residual connections, a second input in the middle, a number that each step
    changes, and a loss alone or with another output; sequences, or images, most of them channels-last.

    outside: is the loss made of what a call returns, by another?
    looped: are the layers called in a loop? Where Dynamo's graph ends in one it leaves the whole loop alone.
    """

    outside = False

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.image = draw.random() < 0.2
        width = 8 if self.image else draw.choice([8, 16])
        self.type = draw.choices(FLOATS, [0.76, 0.06, 0.12, 0.06])[0]
        count = draw.choice([1, 2, 2, 3, 4])
        self.layers = nn.ModuleList(rule(draw, self.type, self.image)(draw, width) for _ in range(count))
        self.residual = [draw.random() < 0.5 for _ in self.layers]
        # Nothing else may need a gradient.
        self.gain = nn.Parameter(torch.ones(()))
        self.second = draw.randrange(len(self.layers)) if draw.random() < 0.3 else None
        self.weighted = draw.random() < 0.15
        self.form = draw.choice(["sum", "mean", "log_softmax"])
        # After which layer the other output branches off: nothing but the last step uses it.
        self.late = draw.randrange(len(self.layers)) if draw.random() < 0.3 else None
        self.looped, self.autocast = draw.random() < 0.6, self.type == FLOATS[0] and draw.random() < 0.05
        self.writes, self.asked = draw.random() < 0.1, draw.random() < 0.3
        self.channels_last = self.image and draw.random() < 0.8
        batch, length = draw.choice([2, 4]), draw.choice([8, 8, 16])
        self.shape = (batch, width, 6, 6) if self.image else (batch, length, width)
        self.to(self.type)
        if self.channels_last:
            self.to(memory_format=torch.channels_last)

    @property
    def once(self) -> bool:
        return all(layer.once for layer in self.layers)

    def refusals(self) -> list[str]:
        return [layer.refusal for layer in self.layers if layer.refusal]

    def change(self, step: int) -> None:
        for layer in self.layers:
            layer.change(step)

    def inputs(self, draw: random.Random) -> tuple[Any, ...]:
        """Tensors, the first of which may ask for a gradient, and a number."""
        generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
        count = 1 if self.second is None else 2
        made = [torch.randn(self.shape, generator=generator).to(self.type) for _ in range(count)]
        made = [x.to(memory_format=torch.channels_last) if self.channels_last else x for x in made]
        made[0].requires_grad_(self.asked)
        return (*made, 0.3) if self.weighted else tuple(made)

    def forward(self, x: torch.Tensor, *others: Any) -> Any:
        if self.writes and not self.asked:
            x.mul_(0.9)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            x, aside = self.loop(x, others) if self.looped else self.unrolled(x, others, 0, None)
        x = x * (self.gain * others[-1] if self.weighted else self.gain)
        result = x if self.outside else loss_by(self.form, x)
        return result if aside is None else (result, aside)

    def loop(self, x: torch.Tensor, others: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor | None]:
        aside = None
        for i in range(len(self.layers)):
            x, aside = self.one(x, others, i, aside)
        return x, aside

    def unrolled(
        self, x: torch.Tensor, others: tuple[Any, ...], i: int, aside: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        x, aside = self.one(x, others, i, aside)
        return (x, aside) if i + 1 == len(self.layers) else self.unrolled(x, others, i + 1, aside)

    def one(
        self, x: torch.Tensor, others: tuple[Any, ...], i: int, aside: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        y = self.layers[i](x)
        x = x + y if self.residual[i] else y
        if i == self.second:
            x = x * others[0].tanh()
        return x, x.tanh() if i == self.late else aside


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
