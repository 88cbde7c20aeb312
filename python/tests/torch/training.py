"""Training steps, and what they leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import remat.torch
import torch
from torch import nn


@dataclass
class Trace:
    """What steps of a model leave: losses, gradients, buffers, generator state."""

    losses: list[torch.Tensor]
    gradients: dict[str, torch.Tensor | None]
    buffers: dict[str, torch.Tensor]
    generator: torch.Tensor

    @classmethod
    def of(cls, model: nn.Module, losses: list[torch.Tensor]) -> Trace:
        """What steps with these losses have left in the model, as copies."""
        return cls(
            losses,
            {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()},
            {n: b.clone() for n, b in model.named_buffers()},
            torch.get_rng_state(),
        )

    def differences(self, other: Trace) -> list[str]:
        """Names of all that is not equal bit for bit."""
        found = [
            f"loss {i}"
            for i, (a, b) in enumerate(zip(self.losses, other.losses, strict=True))
            if not a.equal(b)
        ]
        assert self.gradients.keys() == other.gradients.keys()
        assert self.buffers.keys() == other.buffers.keys()
        for name, mine in self.gradients.items():
            theirs = other.gradients[name]
            if (mine is None) != (theirs is None) or (mine is not None and not mine.equal(theirs)):
                found.append(f"gradient {name}")
        found += [
            f"buffer {name}" for name, mine in self.buffers.items() if not mine.equal(other.buffers[name])
        ]
        if not self.generator.equal(other.generator):
            found.append("generator state")
        return found


def fit(model: nn.Module, inputs: Any, budget: int | str | None, **options: Any) -> nn.Module:
    """`remat.torch.fit` with little time for planning: the tests ask what plans do, not how good they are."""
    return remat.torch.fit(model, inputs, budget, **{"work_limit": 20_000, **options})


def train(model: nn.Module, inputs: Sequence[torch.Tensor], steps: int = 3) -> Trace:
    """Steps from a fixed seed that add up their gradients; the model returns its loss."""
    torch.manual_seed(7)
    losses = []
    for _ in range(steps):
        loss = model(*inputs)
        loss.backward()
        losses.append(loss.detach().clone())
    return Trace.of(model, losses)


def step_peak(model: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Measured peak of one step, with the model's tensors and the inputs."""

    def step() -> None:
        model(*inputs).backward()

    return remat.torch.measure_peak(step, resident=[model, *inputs])


def said_of_the_rest(said: Sequence[str], line: str) -> str:
    """What a warning that a call leaves what was recorded has to say of its further ops, after these."""
    above = any(text.startswith("a call that") for text in said[: said.index(line)])
    return f"what comes after it {'runs' if above else 'stays within the budget'} without a plan"
