"""Layouts of ops' results as kernels really make them, where tracing has other ones.

A trace computes strides and storages with models of the kernels, which differ from them: products of 16-bit
images and expanded tensors are contiguous in a trace, and the result of `fold` really has a larger storage.
Every distinct op runs while its cost is measured, and there the two are compared; the step is then traced
again with the real layouts, so that later ops are traced correctly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from ..base.errors import log
from ..base.nodes import tensors_of
from ..base.private import FakeTensor, results_made_by, suggest_memory_format
from ..base.step import StepGraph
from ..trace.gradients import takes_gradient
from ..trace.inplace import OVER
from ..trace.strides import with_strides_of_ones
from .cost import Cost, Layout, call_signature, signature


def layout_of(tensor: torch.Tensor) -> Layout:
    return (tensor.storage_offset(), tensor.untyped_storage().nbytes(), *tensor.stride())


def real_layouts(node: fx.Node, result: Any) -> tuple[Layout, ...]:
    """Layouts of the tensors that an op really makes; empty if they are as traced."""
    traced, real = tensors_of(node.meta.get("val")), tensors_of(result)
    if OVER in node.meta or takes_gradient(node) or len(traced) != len(real):
        return ()
    if any(a.shape != b.shape or a.dtype is not b.dtype for a, b in zip(traced, real, strict=True)):
        return ()
    if all(map(lies_alike, traced, real)):
        return ()
    return tuple(map(layout_of, real))


def lies_alike(traced: torch.Tensor, real: torch.Tensor) -> bool:
    """Compares layouts; strides of dimensions of size 1 or 0 do not count, but where convolutions choose a
    memory format by them.
    """
    return traced.untyped_storage().nbytes() == real.untyped_storage().nbytes() and (
        real.numel() == 0
        or (
            all(a == b or n == 1 for a, b, n in zip(traced.stride(), real.stride(), real.shape, strict=True))
            and (real.dim() not in (4, 5) or suggest_memory_format(traced) is suggest_memory_format(real))
        )
    )


# Most traces of a step; layouts still wrong then are counted with their real sizes.
_MOST_TRACES = 16


class TracedOtherwiseError(Exception):
    """Raised to leave AOTAutograd when ops make results other than traced."""


class Layouts:
    """The real layouts of one model's results that a trace had wrong, by call of an op."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Layout, ...]] = {}
        self._targets: set[Any] = set()
        self._raised = 0

    def compare(self, step: StepGraph, costs: Mapping[str, Cost]) -> None:
        """Raises TracedOtherwiseError if the measured layouts of a step differ from the traced ones, and a
        new trace with them would differ.
        """
        found: dict[str, tuple[Layout, ...]] = {}
        for op in step.ops:
            node, cost = op.node, None if op.node is None else costs.get(signature(op.node))
            if node is None or cost is None or not cost.layouts:
                continue
            if tuple(map(layout_of, tensors_of(node.meta["val"]))) != cost.layouts:
                found[signature(node)] = cost.layouts
                self._targets.add(node.target)
        if not found.keys() <= self._known.keys() and self._raised < _MOST_TRACES:
            self._raised += 1
            self._known.update(found)
            log.debug("%d ops make results that lie otherwise than traced: %s", len(found), list(found))
            raise TracedOtherwiseError

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Traces inside the block use the real layouts."""
        with results_made_by(self._corrected):
            yield

    def _corrected(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        if func not in self._targets:
            return with_strides_of_ones(func, args, kwargs, result)
        try:
            layouts = self._known.get(call_signature(func, args, kwargs))
        except RuntimeError:  # sizes that are symbols
            return result
        if layouts is None or len(layouts) != len(tensors_of(result)):
            return result
        left = iter(layouts)
        return tree_map(
            lambda item: _made(item, next(left)) if isinstance(item, FakeTensor) else item, result
        )


def _made(traced: FakeTensor, layout: Layout) -> torch.Tensor:
    """A traced tensor with this layout."""
    offset, size, *strides = layout
    with traced.fake_mode:
        flat = torch.empty(size // traced.dtype.itemsize, dtype=traced.dtype, device=traced.device)
        return flat.as_strided(traced.shape, strides, offset)
