"""Copies and shapes of a call's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..base.private import write_count

Call = tuple[tuple[Any, ...], dict[str, Any]]


def apart(call: Call) -> Call:
    """The same arguments, with tensors that a recorded step can write to, and differentiate."""

    def own(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or isinstance(item, torch.nn.Parameter):
            return item
        return item.detach().clone().requires_grad_(item.requires_grad)

    made: Call = tree_map(own, call)
    return made


@dataclass(frozen=True)
class Remembered:
    """A call that ran. Its arguments are not copied, and hold no graph."""

    call: Call
    counts: Sequence[int]

    @classmethod
    def of(cls, call: Call) -> Remembered:
        def shown(item: Any) -> Any:
            if not isinstance(item, torch.Tensor) or item.is_leaf:
                return item
            return item.detach().requires_grad_(item.requires_grad)

        own = tree_map(shown, call)
        return cls(own, _write_counts(own))

    def unchanged(self) -> Call | None:
        """None if an argument was written to since."""
        return self.call if _write_counts(self.call) == self.counts else None


def _write_counts(call: Call) -> list[int]:
    tensors = [each for each in tree_leaves(call) if isinstance(each, torch.Tensor)]
    return [write_count(each) for each in tensors]


def shapes_of(call: Call) -> Sequence[Any]:
    """A key that distinguishes calls before their ops are known."""
    return tuple(
        (each.shape, each.dtype, each.requires_grad) if isinstance(each, torch.Tensor) else type(each)
        for each in tree_leaves(call)
    )
