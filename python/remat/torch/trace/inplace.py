"""Which ops may write their result over an argument that nobody reads after them, and how they do it.

Eager mode does it where gradients are summed and where a program assigns to a slice; tracing makes new
tensors of both. The values are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import fx

from ..base.nodes import BUILTIN_NAMESPACES
from ..base.private import OpOverload, builtin, keeps_graph, schema
from ..base.step import StepGraph
from .gradients import KINDS
from .kernels import is_own

aten = torch.ops.aten

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
def _over_where_it_may(over: Any, op: Any, position: int, saved: bool) -> Callable[..., Any]:
    """What writes over an argument where all that have its shape have its strides; then the result of eager
    mode has them too. Real strides are not always the traced ones (batch norm of a transposed tensor), and
    what a later sum comes to depends on them in the last bits.

    op: what runs otherwise, with the argument at `position`.
    saved: is it a saved tensor, which a backward that is to come again will read?
    """
    over, op = (builtin(f) if isinstance(f, OpOverload) else f for f in (over, op))

    def write_over(argument: torch.Tensor, *rest: Any) -> Any:
        shape, strides = argument.shape, argument.stride()
        for other in rest:
            if isinstance(other, torch.Tensor) and other.shape == shape and other.stride() != strides:
                return op(*rest[:position], argument, *rest[position:])
        if saved and keeps_graph():
            return op(*rest[:position], argument, *rest[position:])
        return over(argument, *rest)

    return write_over


def list_pairs(step: StepGraph) -> None:
    """Say which ops may write their result over which argument, and mark those that will where nothing runs
    again: their costs are those of what writes over it.
    """
    last = {value: index for index, op in enumerate(step.ops) for value in op.inputs}
    ours = _written_by_ops(step)
    for index, op in enumerate(step.ops):
        node = op.node
        if node is None or node.target not in _OVER or not _commutes(node):
            continue
        found = [
            (value, i)
            for i, argument in enumerate(node.args[: _OVER[node.target][1]])
            if isinstance(argument, fx.Node)
            and (value := step.value_of.get(argument)) in ours
            and _can_hold(argument, node)
            and all(step.value_of.get(n) != value for n in node.all_input_nodes if n is not argument)
        ]
        # What dies there if nothing runs again, best of all in the half that made it.
        found.sort(key=lambda pair: (last[pair[0]] != index, ours[pair[0]] is not op.phase))
        for value, i in found[:1]:
            step.write_over(index, value, i)
            if last[value] == index:
                node.meta[OVER] = i


def _written_by_ops(step: StepGraph) -> dict[int, str]:
    """Values whose memory is nobody else's at any time, with the phase that makes them first."""
    # Gradients that may leave after all are like those that are kept.
    taken = {value for op in step.ops if op.kind in KINDS for value in op.inputs}
    returned = {step.value_of[n] for n in step.forward_outputs if n in step.value_of}
    lasting = {*step.inputs, *step.kept, *taken, *returned}
    return {
        value: op.phase
        for op in step.ops
        for value in op.outputs
        if op.node is not None and value not in lasting and _is_ours(op.node)
    }


def over(node: fx.Node, args: tuple[Any, ...], index: int, saved: bool) -> tuple[Any, tuple[Any, ...]]:
    """What runs an op over its argument `index`, and the arguments for that.

    saved: does that argument come from the forward half? Autograd may keep it for another backward.
    """
    target, _ = _OVER[node.target]
    argument = node.args[index]
    assert isinstance(argument, fx.Node)
    if saved or _others_like(node, argument):
        target = _over_where_it_may(target, node.target, index, saved)
    return target, (args[index], *args[:index], *args[index + 1 :])


def over_argument(node: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    """What a marked op runs, and its arguments."""
    i = node.meta[OVER]
    return _OVER[node.target][0], (node.args[i], *(a for j, a in enumerate(node.args) if j != i))


def _is_ours(owner: fx.Node) -> bool:
    """Is its memory nobody else's? Who knows what a custom op keeps of what it returns."""
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


def _others_like(node: fx.Node, argument: fx.Node) -> list[torch.Tensor]:
    """The other tensors of the argument's shape that the op reads."""
    others = [n.meta.get("val") for n in node.all_input_nodes if n is not argument]
    shape = argument.meta["val"].shape
    return [val for val in others if isinstance(val, torch.Tensor) and val.shape == shape]


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
        and all(other.stride() == mine.stride() for other in _others_like(result, argument))
    )
