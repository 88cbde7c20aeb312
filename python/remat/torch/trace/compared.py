"""Two ways to run an op, compared bit for bit on this machine.

Tensors are as in the step: types, layouts, expanded dimensions; large ones are made smaller such that
vectorized loops, their remainders and the split between threads stay covered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves, tree_map

from ..base.alone import undisturbed, vary
from ..base.storages import same_bits

# Tensors have at most twice as many elements; kernels use several threads from 32,768 on. Fewer suffice if
# elements are only copied.
_ELEMENTS, _COPIED = 1 << 16, 1 << 12
# Largest tensors that are not made smaller.
_MOST = 1 << 24
# Elements to compare, if needed in several runs, and the most runs.
_COMPARED, _RUNS = 1 << 15, 16
# Sizes keep their remainder: no kernel takes more elements at once.
_VECTOR = 64


@dataclass(frozen=True)
class Layout:
    """The properties of a tensor that decide how kernels traverse it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: str

    @classmethod
    def of(cls, val: torch.Tensor) -> Layout:
        offset = val.storage_offset() % _VECTOR
        device = "cpu" if val.device.type == "meta" else str(val.device)
        return cls(tuple(val.shape), tuple(val.stride()), int(offset), val.dtype, device)

    def of_type(self, dtype: torch.dtype) -> Layout:
        """The same layout with another type."""
        return replace(self, dtype=dtype)

    def sized(self, sizes: Sequence[int]) -> Layout:
        """The layout with these sizes in dimensions that are not expanded."""
        shape = tuple(1 if own == 1 else size for own, size in zip(self.shape, sizes, strict=True))
        return Layout(shape, self._strides_at(shape), self.offset, self.dtype, self.device)

    def _strides_at(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Strides with the same sequence of dimensions, adjacency and gaps."""
        found, extent, extent_before = list(self.strides), 1, 1
        for i in sorted(range(len(shape)), key=lambda i: (self.strides[i], -i)):
            stride = self.strides[i]
            if stride == 0 or (self.shape[i] == 1 and stride != extent_before):
                continue
            gap = max(0, stride - extent_before)
            gap = gap if gap < 2 * _VECTOR else gap % _VECTOR + _VECTOR
            found[i] = extent + gap
            extent, extent_before = found[i] * shape[i], stride * self.shape[i]
        return tuple(found)

    def made(self, strange: bool, below: int) -> torch.Tensor:
        """A tensor of this layout. Integers are in [0, below), since they may be indices."""
        reach = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        size = 0 if 0 in self.shape else self.offset + reach + 1
        flat = torch.zeros(size, dtype=self.dtype, device=self.device)
        if flat.is_floating_point() or flat.is_complex():
            vary(flat, strange)
        elif self.dtype is torch.bool:
            flat.copy_(torch.randint(2, flat.shape, device=flat.device))
        else:
            flat.copy_(torch.arange(size, device=flat.device).remainder_(below))
        return flat.as_strided(self.shape, self.strides, self.offset if size else 0)


class Kind(Enum):
    """How an op uses the argument that may be written over.

    EACH: something with each element, and with the others' elements there. SLICE, SELECTED: it copies its
    second argument to a part of a dimension, or to one index of it. SOME: something with some elements.
    """

    EACH, SLICE, SELECTED, SOME = range(4)


# Results of this process, by op and arguments.
_seen: dict[str, bool] = {}


def same_over(node: fx.Node, write: Callable[..., torch.Tensor], index: int, kind: Kind) -> bool:
    """True if an op makes the same bits when it writes over its argument `index`.

    write: the function that does that, called with the op's arguments, and that one also as `out`.
    """

    def described(arg: Any) -> Any:
        val = arg.meta.get("val") if isinstance(arg, fx.Node) else arg
        return Layout.of(val) if isinstance(val, torch.Tensor) else val

    args = _smaller([map_aggregate(arg, described) for arg in node.args], index, kind)
    if args is None:
        return False
    key = f"{node.target} {index} {args!r}"
    if key not in _seen:
        try:
            with undisturbed():
                _seen[key] = _compare(node.target, write, index, args, kind)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            _seen[key] = False  # ops that cannot run alone keep their normal form
    return _seen[key]


def _smaller(args: list[Any], index: int, kind: Kind) -> list[Any] | None:
    """Smaller tensors; None if they are too large."""
    sizes = list(args[index].shape)
    if kind is Kind.SOME:
        return args if torch.Size(sizes).numel() <= _MOST else None
    dim = None if kind is Kind.EACH else (args[2] if len(args) > 2 else 0) % max(1, len(sizes))
    sizes = fewer_elements(sizes, dim)

    def sized(arg: Any) -> Any:
        if not isinstance(arg, Layout):
            return arg
        if dim is not None and kind is Kind.SELECTED and arg is not args[index]:
            return arg.sized(sizes[:dim] + sizes[dim + 1 :])
        mine = sizes[len(sizes) - len(arg.shape) :]
        return arg.sized([arg.shape[i] if i == dim else size for i, size in enumerate(mine)])

    return [sized(arg) for arg in args]


def fewer_elements(shape: Sequence[int], dim: int | None = None) -> list[int]:
    """Limits the number of elements. dim: this dimension stays; elements are only copied."""
    sizes = list(shape)
    while torch.Size(sizes).numel() > 2 * (_ELEMENTS if dim is None else _COPIED):
        largest = max((i for i in range(len(sizes)) if i != dim), key=sizes.__getitem__, default=None)
        if largest is None or sizes[largest] <= 2:
            break
        sizes[largest] = _about_half(sizes[largest])
    return sizes


def _about_half(size: int) -> int:
    half = max(2, size // 2)
    return half if size < 4 * _VECTOR else half + (size - half) % _VECTOR


def _compare(op: Any, write: Callable[..., Any], index: int, args: list[Any], kind: Kind) -> bool:
    torch.manual_seed(0)
    elements = max(1, torch.Size(args[index].shape).numel())
    # The second half of the runs includes infinities and NaN.
    half = 1 if kind in (Kind.SLICE, Kind.SELECTED) else min(_RUNS, -(-_COMPARED // elements))
    return all(_is_same(op, write, index, args, strange=run >= half) for run in range(2 * half))


def _is_same(op: Any, write: Callable[..., Any], index: int, args: list[Any], strange: bool) -> bool:
    below = min((size for size in args[index].shape if size > 0), default=1)
    given = tree_map(lambda a: a.made(strange, below) if isinstance(a, Layout) else a, args)
    before = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves(given)]
    expected, target = op(*given), given[index]
    if (expected.shape, expected.stride(), expected.dtype) != (target.shape, target.stride(), target.dtype):
        return False
    found = write(*given, out=target)
    if found.data_ptr() != target.data_ptr() or found.stride() != expected.stride():
        return False
    # Nothing else is written to.
    return same_bits(found, expected) and all(
        same_bits(old, new)
        for old, new in zip(before, tree_leaves(given), strict=True)
        if isinstance(new, torch.Tensor) and new is not target
    )
