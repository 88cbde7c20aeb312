"""Gives traced tensors the strides of eager mode.

Eager mode keeps the strides of a tensor that it writes to. Tracing makes a new tensor, with the strides of
the out-of-place op: `masked_fill` of a channels-last image is contiguous. Sums over it, and kernels that read
it, then differ in the last bits; random numbers are placed differently.

Dimensions of one element have other strides in a trace than kernels give them. They place no element, but
convolutions choose a memory format by them: images of a batch of one may be channels-last in a trace only,
with other workspaces and other layouts of all later results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..base.private import (
    FakeTensor,
    OpOverload,
    TorchDispatchMode,
    _disable_current_modes,
    no_python_dispatcher,
    overload_name,
    schema,
)
from .tangents import same_strides

aten: Any = torch.ops.aten

# Ops with other names if not in place. Other random ops draw into a clone.
_FUNCTIONAL = {aten.bernoulli_.float: aten.bernoulli.p}
_RANDOM = {aten.bernoulli_.float, aten.bernoulli_.Tensor}


class EagerStrides(TorchDispatchMode):
    """Inside the block, traced tensors written in place keep their strides."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        functional = _functional(func)
        if functional is None or not _may_move(args[0]):
            return func(*args, **kwargs)
        target = args[0]
        if func in _RANDOM:
            _write_in_memory_order(func, args, kwargs)
        elif _strides(functional, args, kwargs) in (None, target.stride()):
            return func(*args, **kwargs)
        elif torch.Tag.pointwise in func.tags and aten.is_non_overlapping_and_dense(target):
            _write_in_memory_order(func, args, kwargs)
        else:
            target.copy_(functional(*args, **kwargs))
        return target


def _functional(func: Any) -> Any:
    """The out-of-place form of an op; None if it writes to no tensor, or to several."""
    if not isinstance(func, OpOverload) or func.namespace != "aten" or not schema(func).is_mutable:
        return None
    name = schema(func).name.removeprefix("aten::")
    writes = [argument.alias_info is not None for argument in schema(func).arguments]
    if not name.endswith("_") or name.endswith("__") or writes[:1] != [True] or any(writes[1:]):
        return None
    if func in _FUNCTIONAL:
        return _FUNCTIONAL[func]
    packet = getattr(aten, name[:-1], None)
    return getattr(packet, overload_name(func), None)


def _may_move(target: Any) -> bool:
    """True if a new tensor could have other strides."""
    return isinstance(target, torch.Tensor) and _is_plain(target) and not target.is_contiguous()


def with_strides_of_ones(func: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """The result of an op on fake tensors, with the strides that views really give to dimensions of one
    element. To be called outside of the fake mode.
    """
    # Other kernels for meta tensors do not always give the strides of real ones.
    views = isinstance(func, OpOverload) and (func.is_view or func is aten._unsafe_view.default)
    if not views or not isinstance(result, FakeTensor):
        return result
    given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
    if result.dim() < 3 or not all(map(_is_plain, (result, *given))) or 1 not in result.shape:
        return result
    strides = _strides(func, args, kwargs)
    if strides is None or strides == result.stride():
        return result
    if not same_strides(result.shape, strides, result.stride()):
        return result
    with result.fake_mode:
        return result.as_strided(result.shape, strides, result.storage_offset())


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and all(type(n) is int for n in (*tensor.shape, *tensor.stride()))


def _strides(functional: Callable[..., Any], args: Any, kwargs: Any) -> tuple[int, ...] | None:
    """Strides of the result; None if they depend on data."""

    def described(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        return torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device="meta")

    # The Python dispatcher has models of kernels too.
    with _disable_current_modes(), no_python_dispatcher():
        try:
            result: torch.Tensor = functional(*tree_map(described, args), **tree_map(described, kwargs))
        except (RuntimeError, NotImplementedError):
            return None
    return result.stride()


def _write_in_memory_order(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """The op on views whose dimensions stand as they do in the target's memory, where it is contiguous; that
    is the sequence in which eager mode walks through it.
    """
    target = args[0]
    strides = target.stride()
    order = sorted(range(target.dim()), key=lambda i: (-strides[i], i))

    def ordered(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or item.dim() == 0:
            return item
        return item[(None,) * (target.dim() - item.dim())].permute(order)

    func(*tree_map(ordered, args), **tree_map(ordered, kwargs))
