"""Copies and shapes of a call's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

Call = tuple[tuple[Any, ...], dict[str, Any]]


def apart(call: Call) -> Call:
    """The same arguments, with tensors that a recorded step can write to, and differentiate."""

    def own(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or isinstance(item, torch.nn.Parameter):
            return item
        return item.detach().clone().requires_grad_(item.requires_grad)

    made: Call = tree_map(own, call)
    return made


def shapes_of(call: Call) -> Sequence[Any]:
    """A key that distinguishes calls before their ops are known."""
    return tuple(
        (each.shape, each.dtype, each.requires_grad) if isinstance(each, torch.Tensor) else type(each)
        for each in tree_leaves(call)
    )
