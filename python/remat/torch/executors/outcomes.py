"""The results of a step, which checkpoints must not change by a bit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..base.generators import generator_states
from ..base.storages import digest, has_data

# Results by name; for tensors, a digest of their bytes.
Outcome = dict[str, Any]

_PLAIN = (bool, int, float, str, type(None))
_CONTAINERS = (list, tuple, dict, set, deque)


def outcome_of(model: torch.nn.Module, inputs: Any, loss: torch.Tensor) -> Outcome:
    """The loss, all gradients, buffers, inputs, generators, and what modules hold of plain values."""
    found: Outcome = {"the loss": _digest(loss)}
    for name, parameter in model.named_parameters():
        found[f"the gradient of {name}"] = _digest(parameter.grad)
    for name, buffer in model.named_buffers():
        found[f"buffer {name}"] = _digest(buffer)
    for number, leaf in enumerate(tree_leaves(inputs)):
        if isinstance(leaf, torch.Tensor):
            found[f"input {number}"] = _digest(leaf)
            found[f"the gradient of input {number}"] = _digest(leaf.grad)
    found.update((f"the {name}", _digest(state)) for name, state in generator_states().named())
    found.update(_attributes(model))
    return found


def _attributes(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for path, module in model.named_modules():
        for key, value in vars(module).items():
            name = f"attribute {path}.{key}".replace(" .", " ")
            if type(value) in _PLAIN:
                yield name, repr(value)
            elif type(value) in _CONTAINERS:
                yield f"the length of {name}", len(value)
            elif isinstance(value, torch.Tensor):
                yield name, _digest(value)


def _digest(tensor: torch.Tensor | None) -> Any:
    if tensor is None or tensor.layout is not torch.strided or tensor.is_nested or not has_data(tensor):
        return None
    return tuple(tensor.shape), tensor.dtype, digest(tensor)


def differing(expected: Outcome, found: Outcome) -> list[str]:
    """Names of the results that differ."""
    return [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
