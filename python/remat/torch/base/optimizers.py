"""Optimizer steps for single parameters."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from .private import OPTIMIZER_HOOKS


def is_of_pytorch(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.split(".")[:2] == ["torch", "optim"]


def without_parameters(optimizer: torch.optim.Optimizer) -> Any:
    """A copy of the optimizer without parameters, state and hooks."""
    double: Any = object.__new__(type(optimizer))
    # A scheduler puts its own `step` on the instance, bound to the real optimizer.
    double.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
    for hooks in OPTIMIZER_HOOKS:
        double.__dict__[hooks] = OrderedDict()
    double.state = defaultdict(dict)
    return double


def step_of(kind: Any) -> Any:
    """The step of an optimizer class, without PyTorch's wrappers for hooks and profiles."""
    step = kind.step
    return step.__wrapped__ if getattr(step, "hooked", False) else step


def step_alone(
    optimizer: torch.optim.Optimizer, group: Mapping[str, Any], parameter: torch.Tensor, state: Any
) -> None:
    """A step for one parameter.

    group: parameter group with the settings. state: of the parameters, read and written.
    """
    double = without_parameters(optimizer)
    double.param_groups = [{**group, "params": [parameter]}]
    double.state = state
    step_of(type(optimizer))(double)
