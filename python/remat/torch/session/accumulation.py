"""Gradients that a planned backward itself adds to existing ones, if autograd would only do that, or passes
to an optimizer step.

Autograd sums all gradients of a parameter in one backward before it adds the sum to the existing gradient. So
a planned backward adds itself only if no other node of the autograd graph reaches the parameter, and if no
hooks are called in between.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.private import (
    BackwardCFunction,
    accumulate_hooks,
    accumulated_leaf,
    graph_task,
    has_tensor_hooks,
    local_part,
    running_backwards,
    will_execute,
)
from ..trace.gradients import Taker, hand_over


def may_be_added(leaf: torch.Tensor, grad: torch.Tensor | None) -> bool:
    """True if autograd would only add the leaf's next gradient to this one. None: one like it."""
    if has_tensor_hooks(leaf) or accumulate_hooks(leaf) or local_part(leaf) is not leaf:
        return False
    return leaf.layout is torch.strided if grad is None else is_like(leaf, grad)


def is_like(leaf: torch.Tensor, grad: torch.Tensor) -> bool:
    """True if the gradient differs from its leaf only in values."""
    return (
        grad.layout is torch.strided
        and not grad.requires_grad
        and local_part(grad) is grad
        and grad.dtype is leaf.dtype
        and grad.device == leaf.device
        and grad.shape == leaf.shape
        and grad.stride() == leaf.stride()
    )


# Runs the optimizer step of a parameter, and drops its gradient.
Step = Callable[[torch.Tensor], None]


class Ends:
    """For one call: decides at the begin of its backward which gradients end in it.

    step_of: the optimizer step of a leaf, if any. left: called with the positions of leaves whose gradients
    leave the backward after all, which needs more memory.
    """

    def __init__(
        self,
        node: Any,
        leaves: Sequence[torch.Tensor],
        step_of: Callable[[torch.Tensor], Step | None],
        left: Callable[[set[int]], None],
    ) -> None:
        """node: of the autograd graph that the call made."""
        self._leaves, self._step_of, self._left = leaves, step_of, left
        self._node = weakref.ref(node)
        node.register_prehook(self._due)

    def _due(self, _: Any) -> None:
        node = self._node()
        accumulating = {} if node is None or torch.is_grad_enabled() else _accumulated_by(node)
        takers = [self._taker(leaf, accumulating) for leaf in self._leaves]
        hand_over(takers)
        left = {
            position
            for position, (leaf, taker) in enumerate(zip(self._leaves, takers, strict=True))
            if taker is None and (leaf.grad is not None or self._step_of(leaf) is not None)
        }
        if left:
            self._left(left)

    def _taker(self, leaf: torch.Tensor, accumulating: dict[int, Any]) -> Taker | None:
        node, grad = accumulating.get(id(leaf)), leaf.grad
        if node is None or not _accumulates(node):
            return None
        step = self._step_of(leaf)
        if step is not None:
            return _stepping(leaf, step) if grad is None or is_like(leaf, grad) else None
        return _adding_to(grad) if grad is not None and may_be_added(leaf, grad) else None


def _adding_to(existing: torch.Tensor) -> Taker:
    def add(gradient: torch.Tensor) -> bool:
        existing.add_(gradient)
        return True

    return add


def _stepping(leaf: torch.Tensor, step: Step) -> Taker:
    def take(gradient: torch.Tensor) -> bool:
        if leaf.grad is not None:
            leaf.grad.add_(gradient)
        elif gradient.stride() == leaf.stride():
            leaf.grad = gradient
        else:  # autograd makes a copy with the strides of the leaf
            return False
        step(leaf)
        return True

    return take


def _accumulates(node: Any) -> bool:
    """True if autograd will accumulate into the leaf of this node."""
    try:
        return will_execute(node)
    except RuntimeError:  # `torch.autograd.grad` returns gradients without accumulating
        return False


@dataclass(frozen=True)
class _Reached:
    """Of one autograd graph, by address: the Python nodes, and how often each leaf is reached."""

    nodes: frozenset[int]
    leaves: Counter[int]


class _Known(threading.local):
    """The autograd graphs of running backwards, analysed once for each backward of this thread."""

    _task = -1
    _graphs: Sequence[_Reached] = ()

    def of_graph_with(self, node: Any) -> _Reached | None:
        """None if it is not certain."""
        task = graph_task()
        if self._task != task:
            self._graphs = [_reached(outputs) for outputs in running_backwards()]
            self._task = task
        graphs = [graph for graph in self._graphs if id(node) in graph.nodes]
        return graphs[0] if len(graphs) == 1 else None


_known = _Known()


def _accumulated_by(node: Any) -> dict[int, Any]:
    """The nodes that accumulate into leaves, by address of the leaf, where only this node reaches those.

    node: the current one in this thread's backward.
    """
    graph = _known.of_graph_with(node)
    if graph is None:
        return {}
    found = {}
    for each, _ in node.next_functions:
        leaf = accumulated_leaf(each)
        if leaf is not None and graph.leaves[id(leaf)] == 1:
            found[id(leaf)] = each
    return found


def _reached(outputs: Iterable[Any]) -> _Reached:
    roots: list[Any] = [getattr(each, "grad_fn", None) or getattr(each, "node", None) for each in outputs]
    seen = {node for node in roots if node is not None}
    stack = list(seen)
    leaves: Counter[int] = Counter()
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is None:
                continue
            leaf = accumulated_leaf(node)
            if leaf is not None:
                leaves[id(leaf)] += 1
            elif node not in seen:
                seen.add(node)
                stack.append(node)
    # Other nodes are new Python objects at each access.
    own = frozenset(id(node) for node in seen if isinstance(node, BackwardCFunction))
    return _Reached(own, leaves)
