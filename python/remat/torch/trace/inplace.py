"""Ops that may write their result over an argument without later readers, and their implementations.

Eager mode does it where gradients are summed and where a program assigns to a slice; tracing makes new
tensors instead. Equal bits are verified: an op may write over an argument if it was compared on this machine,
for its types and layouts (`compared`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx

from ..base.nodes import BUILTIN_NAMESPACES
from ..base.private import OpOverload, builtin, in_place, keeps_graph, schema
from ..base.step import StepGraph
from .compared import Kind, same_over
from .gradients import KINDS
from .kernels import is_own
from .tangents import same_strides

aten = torch.ops.aten

# Metadata key of the argument that an op of a captured step will write over.
OVER = "remat_over"


@dataclass(frozen=True)
class Over:
    """Runs an op and writes over an argument, which is also passed as `out`.

    name: of the op.
    """

    name: str
    write: Callable[..., torch.Tensor]
    kind: Kind = Kind.EACH

    def __call__(self, argument: torch.Tensor, *rest: Any) -> torch.Tensor:
        """Runs the op over its first argument. Raises NotImplementedError if it never does that."""
        if not self.takes(argument):
            raise NotImplementedError(f"{self.name} does not write over {argument.dtype}")
        return self.write(argument, *rest, out=argument)

    def takes(self, argument: torch.Tensor) -> bool:
        """Whether it applies. Excludes products of complex numbers, which round differently in place, but so
        rarely that comparing may miss it.
        """
        return not (self.kind is Kind.EACH and argument.dtype.is_complex)


def _with_out(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda *args, out: function(*args, out=out)


def _in_place(op: OpOverload) -> Callable[..., torch.Tensor]:
    """The in-place form of an op, which writes over its first argument."""
    call = builtin(op)
    return lambda *args, out: call(*args)


def _write_slice(
    x: torch.Tensor,
    source: torch.Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    aten.slice.Tensor(x, dim, start, end, step).copy_(source)
    return x


def _write_selected(
    x: torch.Tensor, source: torch.Tensor, dim: int, index: int, *, out: torch.Tensor
) -> torch.Tensor:
    x.select(dim, index).copy_(source)
    return x


def _threshold_backward(*args: Any, out: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = aten.threshold_backward.grad_input(*args, grad_input=out)
    return result


def _tanh_backward(*args: Any, out: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = aten.tanh_backward.grad_input(*args, grad_input=out)
    return result


def _table() -> dict[Any, tuple[Over, int]]:
    each: dict[Any, tuple[Callable[..., torch.Tensor], int]] = {
        aten.add.Tensor: (torch.add, 2),
        aten.sub.Tensor: (torch.sub, 1),
        aten.mul.Tensor: (torch.mul, 2),
        aten.mul.Scalar: (torch.mul, 1),
        aten.div.Tensor: (torch.div, 1),
        aten.div.Scalar: (torch.div, 1),
        aten.neg.default: (torch.neg, 1),
    }
    found = {op: (Over(str(op), _with_out(function)), count) for op, (function, count) in each.items()}
    others: dict[Any, tuple[Callable[..., torch.Tensor], Kind]] = {
        aten.relu.default: (_in_place(aten.relu_.default), Kind.EACH),
        aten.masked_fill.Scalar: (_in_place(aten.masked_fill_.Scalar), Kind.EACH),
        aten.masked_fill.Tensor: (_in_place(aten.masked_fill_.Tensor), Kind.EACH),
        aten.threshold_backward.default: (_threshold_backward, Kind.EACH),
        aten.tanh_backward.default: (_tanh_backward, Kind.EACH),
        aten.slice_scatter.default: (_write_slice, Kind.SLICE),
        aten.select_scatter.default: (_write_selected, Kind.SELECTED),
        aten.index_put.default: (_in_place(aten.index_put_.default), Kind.SOME),
        aten.index_copy.default: (_in_place(aten.index_copy_.default), Kind.SOME),
        aten.index_fill.int_Scalar: (_in_place(aten.index_fill_.int_Scalar), Kind.SOME),
        aten.index_add.default: (_in_place(aten.index_add_.default), Kind.SOME),
        aten.scatter.src: (_in_place(aten.scatter_.src), Kind.SOME),
        aten.scatter.value: (_in_place(aten.scatter_.value), Kind.SOME),
        aten.scatter_add.default: (_in_place(aten.scatter_add_.default), Kind.SOME),
    }
    return found | {op: (Over(str(op), write, kind), 1) for op, (write, kind) in others.items()}


# The implementations that write over one of an op's first `count` arguments.
_OVER = _table()


class WritesOver:
    """Runs an op over its argument `index` if all arguments have the traced layouts. Real strides may differ
    (batch norm of a transposed tensor), for which it is not verified.

    saved: True if that argument is a saved tensor, which a repeated backward will read again.
    """

    def __init__(self, node: fx.Node, index: int, saved: bool) -> None:
        self.name, self.index, self.saved = str(node.target), index, saved
        self.__name__ = self.name.partition(".")[2].replace(".", "_") + "_over"
        assert isinstance(node.target, OpOverload)
        self.op = node.target
        self.plain = builtin(node.target)
        self.write = _OVER[node.target][0].write
        vals = [arg.meta.get("val") if isinstance(arg, fx.Node) else None for arg in node.args]
        self.strides = [(i, val.stride()) for i, val in enumerate(vals) if isinstance(val, torch.Tensor)]

    def __call__(self, *args: Any) -> Any:
        for i, strides in self.strides:
            if not same_strides(args[i].shape, args[i].stride(), strides):
                return self.plain(*args)
        if self.saved and keeps_graph():
            return self.plain(*args)
        return self.write(*args, out=args[self.index])

    def __repr__(self) -> str:
        return f"{self.name} over its argument {self.index}"


# By op that writes over its second argument, or by a keyword: the overload that does, and the keyword.
_WITH_OUT: dict[Any, tuple[Any, str]] = {
    aten.add.Tensor: (aten.add.out, "out"),
    aten.mul.Tensor: (aten.mul.out, "out"),
    aten.threshold_backward.default: (aten.threshold_backward.grad_input, "grad_input"),
    aten.tanh_backward.default: (aten.tanh_backward.grad_input, "grad_input"),
}
# By op that makes a whole of which a part is new: the view of that part.
_PARTS: dict[Any, Any] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
}


def write_over(graph: fx.Graph, over: WritesOver, args: Sequence[Any], name: str) -> fx.Node:
    """Emit the op over its argument, as ATen ops; returns the node of the result, with this name unless it is
    the argument.
    """
    op, argument = over.op, args[over.index]
    if op in _PARTS:
        part = graph.call_function(_PARTS[op], (argument, *args[2:]))
        graph.call_function(aten.copy_.default, (part, args[1]))
        return cast(fx.Node, argument)
    target, keyword = _WITH_OUT.get(op, (None, ""))
    if target is None or (keyword == "out" and over.index == 0):
        # `mul_.Scalar` rounds 16-bit products in another way.
        target = in_place(aten.mul.Tensor if op is aten.mul.Scalar else op)
        return graph.create_node("call_function", target, tuple(args), name=name)
    return graph.create_node("call_function", target, tuple(args), {keyword: argument}, name)


def list_pairs(step: StepGraph) -> None:
    """List which ops may write their result over which argument, and mark those that do so without
    recomputation, whose costs are then those of the in-place form.
    """
    last = {value: index for index, op in enumerate(step.ops) for value in op.inputs}
    ours = _written_by_ops(step)
    for index, op in enumerate(step.ops):
        node = op.node
        if node is None or node.target not in _OVER or node.kwargs:
            continue
        found = [
            (value, i)
            for i, argument in enumerate(node.args[: _OVER[node.target][1]])
            if isinstance(argument, fx.Node)
            and (value := step.value_of.get(argument)) in ours
            and _can_hold(argument, node)
            and all(step.value_of.get(n) != value for n in node.all_input_nodes if n is not argument)
            and _is_same(node, i)
        ]
        # Arguments that die there without recomputation, preferably made in the same half.
        found.sort(key=lambda pair: (last[pair[0]] != index, ours[pair[0]] is not op.phase))
        for value, i in found[:1]:
            step.write_over(index, value, i)
            if last[value] == index:
                node.meta[OVER] = i


def _written_by_ops(step: StepGraph) -> dict[int, str]:
    """Values whose memory is never shared, with the phase that makes them first."""
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


def over(node: fx.Node, index: int, saved: bool = False) -> WritesOver:
    """The implementation that runs an op over its argument `index`.

    saved: True if that argument comes from the forward half; autograd may keep it for another backward.
    """
    return WritesOver(node, index, saved)


def _is_same(node: fx.Node, index: int) -> bool:
    """True if the op makes the same bits over its argument `index`."""
    form, _ = _OVER[node.target]
    argument = node.args[index]
    assert isinstance(argument, fx.Node)
    return form.takes(argument.meta["val"]) and same_over(node, form.write, index, form.kind)


def _is_ours(owner: fx.Node) -> bool:
    """True if its memory is not shared. Custom ops may hold their results."""
    target = owner.target
    if isinstance(target, OpOverload):
        # Ops that write to an input return it.
        if schema(target).is_mutable:
            return False
        return owner.op == "call_function" and target.namespace in BUILTIN_NAMESPACES
    return owner.op == "call_function" and is_own(target)


def _others_like(node: fx.Node, argument: fx.Node) -> list[torch.Tensor]:
    """The other tensors of the argument's shape that the op reads."""
    others = [n.meta.get("val") for n in node.all_input_nodes if n is not argument]
    shape = argument.meta["val"].shape
    return [val for val in others if isinstance(val, torch.Tensor) and val.shape == shape]


def _can_hold(argument: fx.Node, result: fx.Node) -> bool:
    """True if the argument is a tensor like the result, without overlapping elements."""
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
