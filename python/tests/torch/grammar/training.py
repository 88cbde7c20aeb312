"""A few steps of a model, and all that they leave, to be compared."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch import nn

from .module import Loss, RandomModule
from .sequences import Memory

STEPS = 3


def state(model: nn.Module) -> dict[str, Any]:
    """What a module holds besides its parameters: values of buffers, and numbers."""
    numbers = {n: m.calls for n, m in model.named_modules() if isinstance(m, Memory)}
    return {**{n: b.clone() for n, b in model.named_buffers()}, **numbers}


def generators() -> dict[str, Any]:
    """States of all of them, as what can be compared."""
    _, keys, position, *_ = numpy.random.get_state()
    return {
        "generator": torch.get_rng_state(),
        "Python's generator": list(random.getstate()[1]),
        "numpy's generator": [*keys.tolist(), position],
    }


def seed_all() -> None:
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)


def fresh(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies with the same strides."""
    return tuple(
        x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
        for x in inputs
    )


def at_step(inputs: tuple[Any, ...], step: int) -> tuple[Any, ...]:
    """The number among them changes from step to step."""
    return tuple(x * (1 + step) if isinstance(x, float) else x for x in inputs)


def train(
    model: RandomModule,
    call: Callable[..., Any],
    inputs: tuple[Any, ...],
    loss_of: Loss,
    accumulate: bool,
    copied: bool,
) -> dict[str, Any]:
    """What the steps leave: in the last one all outputs get a gradient. call: the model, or what compiled
    it; copied: from the second step on a copy of it is trained.
    """
    left: dict[str, Any] = {}
    inputs = fresh(inputs)
    seed_all()
    for step in range(STEPS):
        if copied and step == 1:
            call = copy.deepcopy(call)
            model = getattr(call, "_orig_mod", call)
        if not accumulate:
            model.zero_grad()
        model.change(step)
        loss = replace(loss_of, all=True) if step + 1 == STEPS else loss_of
        value = loss(call(*at_step(inputs, step)))
        value.backward()
        now = {"loss": value.detach().clone(), **state(model)}
        now |= {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        for i, x in enumerate(inputs):
            if isinstance(x, torch.Tensor):
                now |= {f"input {i}": x.detach().clone()}
                now |= {} if x.grad is None else {f"gradient of input {i}": x.grad.clone()}
        left |= {f"step {step} {n}": each for n, each in now.items()}
    parameters = {f"parameter {n}": p.detach().clone() for n, p in model.named_parameters()}
    return {**left, **parameters, **generators()}


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of what is not equal bit for bit; not-a-number equals itself."""

    def bits(item: Any) -> Any:
        item = torch.as_tensor(item).detach()
        whole = torch.view_as_real(item.resolve_conj()) if item.is_complex() else item
        if whole.is_floating_point():
            whole = whole.masked_fill(whole.isnan(), float("nan"))
        return item.dtype, item.shape, whole.reshape(-1).view(torch.uint8).tolist()

    return [n for n in {**a, **b} if n not in a or n not in b or bits(a[n]) != bits(b[n])]


def close(a: Any, b: Any) -> bool:
    """Equal but for rounding?"""
    return torch.allclose(torch.as_tensor(a), torch.as_tensor(b), 1e-3, 1e-4, equal_nan=True)
