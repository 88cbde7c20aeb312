"""Where a node of the autograd graph passes gradients on to."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from .private import accumulated_leaf


def takers_of(tensors: Sequence[Any]) -> list[Hashable]:
    """Where the gradients of these go; None for items that are no tensors."""
    return [_taker_of(item) if isinstance(item, torch.Tensor) else None for item in tensors]


def positions_of(node: Any, takers: Sequence[Hashable]) -> dict[int, int]:
    """By index of a taker to which the node passes a gradient, the position of that among all it returns."""
    edges = enumerate(node.next_functions)
    given = {_taker(function, number): i for i, (function, number) in edges if function is not None}
    return {i: given[taker] for i, taker in enumerate(takers) if taker in given}


def _taker(function: Any, number: int) -> Hashable:
    """The leaf that a gradient is accumulated into, or a node and which of its gradients it is."""
    leaf = accumulated_leaf(function)
    return (function, number) if leaf is None else id(leaf)


def _taker_of(tensor: torch.Tensor) -> Hashable:
    return id(tensor) if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)
