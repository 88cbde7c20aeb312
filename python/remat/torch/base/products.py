"""Products of batches as eager mode makes them.

`matmul` of a larger batch by a batch of one is one product where the latter needs a gradient, else a batch of
products. Where PyTorch traces, or a dispatch mode is active, it is one product in any case, with other last
bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_CALLS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__)


def product_of_batches(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor | None:
    """As a batch of products; None where `matmul` chooses the same by itself everywhere."""
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] == b.shape[0]:
        return None
    alone = a if a.shape[0] == 1 else b
    if alone.shape[0] != 1 or alone.requires_grad:
        return None
    size = max(a.shape[0], b.shape[0])
    return torch.bmm(a.expand(size, -1, -1), b.expand(size, -1, -1))


class EagerProducts(TorchFunctionMode):
    """Inside, calls of `matmul` from Python are those of eager mode, under dispatch modes too. met: was there
    one that would differ?"""

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _CALLS and not kwargs and all(type(each) in _PLAIN for each in args):
            a, b = args[::-1] if func is torch.Tensor.__rmatmul__ else args
            made = product_of_batches(a, b)
            if made is not None:
                self.met = True
                return made
        return func(*args, **(kwargs or {}))
