"""Let ops of a rewritten graph write their result over an argument that nobody reads after them.

Eager mode does it where gradients are summed and where a program assigns to a slice; tracing makes new
tensors of both. The values are the same bit for bit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import fx

from ..base.nodes import BUILTIN_NAMESPACES
from ..base.private import OpOverload, builtin, schema
from ..base.step import StepGraph
from .gradients import KINDS
from .kernels import is_own

aten = torch.ops.aten

# Where an op marks its result, for the memory it saves.
MARK = "remat_in_place"
# Where an op of a captured step marks which argument it will write over.
OVER = "remat_over"

# The op that writes over one of its first `count` arguments.
_OVER: dict[Any, tuple[Any, int]] = {
    aten.add.Tensor: (aten.add_.Tensor, 2),
    aten.sub.Tensor: (aten.sub_.Tensor, 1),
    aten.mul.Tensor: (aten.mul_.Tensor, 2),
    aten.mul.Scalar: (aten.mul_.Scalar, 1),
    aten.div.Tensor: (aten.div_.Tensor, 1),
    aten.div.Scalar: (aten.div_.Scalar, 1),
    aten.neg.default: (aten.neg_.default, 1),
    aten.relu.default: (aten.relu_.default, 1),
    aten.masked_fill.Scalar: (aten.masked_fill_.Scalar, 1),
}


def write_slice(
    x: torch.Tensor,
    source: torch.Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> torch.Tensor:
    """`slice_scatter` over its first argument."""
    aten.slice.Tensor(x, dim, start, end, step).copy_(source)
    return x


def threshold_backward_over(gradient: torch.Tensor, x: torch.Tensor, threshold: float) -> torch.Tensor:
    """`threshold_backward` over the gradient."""
    result: torch.Tensor = aten.threshold_backward.grad_input(gradient, x, threshold, grad_input=gradient)
    return result


def tanh_backward_over(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """`tanh_backward` over the gradient."""
    result: torch.Tensor = aten.tanh_backward.grad_input(gradient, output, grad_input=gradient)
    return result


_OVER |= {
    aten.slice_scatter.default: (write_slice, 1),
    aten.threshold_backward.default: (threshold_backward_over, 1),
    aten.tanh_backward.default: (tanh_backward_over, 1),
}


@cache
def _over_if_alike(over: Any, op: Any, position: int) -> Callable[..., Any]:
    """What writes over an argument where all that have its shape have its strides; then the result of eager
    mode has them too. Real strides are not always the traced ones (batch norm of a transposed tensor), and
    what a later sum comes to depends on them in the last bits.

    op: what runs otherwise, with the argument at `position`.
    """
    over, op = (builtin(f) if isinstance(f, OpOverload) else f for f in (over, op))

    def write_over(argument: torch.Tensor, *rest: Any) -> Any:
        shape, strides = argument.shape, argument.stride()
        for other in rest:
            if isinstance(other, torch.Tensor) and other.shape == shape and other.stride() != strides:
                return op(*rest[:position], argument, *rest[position:])
        return over(argument, *rest)

    return write_over


def write_over_dying(graph: fx.Graph, root: dict[fx.Node, fx.Node]) -> None:
    """Rewrite a graph in place.

    root: for every node that is a view, getitem or the result of writing over another, the node whose result
    holds its memory; nodes that are not there hold their own.
    """
    nodes = list(graph.nodes)
    last: dict[fx.Node, int] = {}
    for position, node in enumerate(nodes):
        for read in node.all_input_nodes:
            last[_root(root, read)] = position
    for position, node in enumerate(nodes):
        if node.op != "call_function" or node.target not in _OVER or not _commutes(node):
            continue
        target, count = _OVER[node.target]
        for i, argument in enumerate(node.args[:count]):
            if not isinstance(argument, fx.Node) or not _can_hold(argument, node):
                continue
            owner = _root(root, argument)
            others = [n for n in node.all_input_nodes if n is not argument]
            if (
                _is_ours(owner)
                and last[owner] == position
                and all(_root(root, other) is not owner for other in others)
            ):
                rest = [a for j, a in enumerate(node.args) if j != i]
                if _has_another(node, argument):
                    target = _over_if_alike(target, node.target, i)
                node.args, node.target = (argument, *rest), target
                node.meta[MARK] = True
                root[node] = owner
                last[owner] = max(position, last.get(node, position))
                break


def mark_last_readers(step: StepGraph) -> None:
    """Mark the ops that will write over an argument where nothing runs again, with its position: their costs
    are those of the ops that do.
    """
    last = {value: index for index, op in enumerate(step.ops) for value in op.inputs}
    made_by = {value: index for index, op in enumerate(step.ops) for value in op.outputs}
    # Gradients that may leave after all are like those that are kept.
    taken = {value for op in step.ops if op.kind in KINDS for value in op.inputs}
    lasting = {*step.inputs, *step.kept, *taken}

    def dies_in_its_half(value: int, index: int) -> bool:
        made = made_by.get(value, step.loss)
        producer = step.ops[made].node
        same_half = (made < step.loss) == (index < step.loss)
        return last[value] == index and same_half and producer is not None and _is_ours(producer)

    for index, op in enumerate(step.ops):
        node = op.node
        if node is None or node.target not in _OVER or not _commutes(node):
            continue
        for i, argument in enumerate(node.args[: _OVER[node.target][1]]):
            value = step.value_of.get(argument) if isinstance(argument, fx.Node) else None
            if value is None or value in lasting or not dies_in_its_half(value, index):
                continue
            if not _can_hold(argument, node):
                continue
            if all(step.value_of.get(n) != value for n in node.all_input_nodes if n is not argument):
                node.meta[OVER] = i
                step.write_over(index)
                break


def over_argument(node: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    """What a marked op runs, and its arguments."""
    i = node.meta[OVER]
    return _OVER[node.target][0], (node.args[i], *(a for j, a in enumerate(node.args) if j != i))


def _root(root: dict[fx.Node, fx.Node], node: fx.Node) -> fx.Node:
    while node in root:
        node = root[node]
    return node


def _is_ours(owner: fx.Node) -> bool:
    """Is its memory nobody else's? Who knows what a custom op keeps of what it returns."""
    if owner.target is operator.getitem and isinstance(owner.args[0], fx.Node):
        owner = owner.args[0]
    target = owner.target
    if isinstance(target, OpOverload):
        # What writes to an input returns that.
        if schema(target).is_mutable:
            return False
        return owner.op == "call_function" and target.namespace in BUILTIN_NAMESPACES
    return owner.op == "call_function" and is_own(target)


def _commutes(node: fx.Node) -> bool:
    """Has it no factor (`alpha`), whose argument would be another one if they changed places?"""
    return not node.kwargs


def _has_another(node: fx.Node, argument: fx.Node) -> bool:
    """Does the op read another tensor of the argument's shape?"""
    shape = argument.meta["val"].shape
    others = [n.meta.get("val") for n in node.all_input_nodes if n is not argument]
    return any(isinstance(val, torch.Tensor) and val.shape == shape for val in others)


def _can_hold(argument: fx.Node, result: fx.Node) -> bool:
    """Is the argument a tensor just like the result, each element at a place of its own?"""
    mine, theirs = argument.meta.get("val"), result.meta.get("val")
    return (
        isinstance(mine, torch.Tensor)
        and isinstance(theirs, torch.Tensor)
        and mine.dtype is theirs.dtype
        and mine.device == theirs.device
        and mine.shape == theirs.shape
        and mine.stride() == theirs.stride()
        and not mine.is_conj()
        and not mine.is_neg()
        and mine.untyped_storage().nbytes() == theirs.untyped_storage().nbytes()
        and bool(torch.ops.aten.is_non_overlapping_and_dense(mine))
    )
