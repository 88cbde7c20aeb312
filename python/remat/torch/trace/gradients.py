"""Gradients that end in the step that makes them: ops that add them to existing ones, or pass them to an
optimizer step.

Autograd receives all gradients of a compiled backward at its end. Such an op reads a gradient, which is then
freed, and the backward returns None for it. Only when a backward runs is it known whether autograd will
accumulate into a parameter (session/accumulation.py): if not, the op passes the gradient on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import fx

from ..base.nodes import output_node, outputs_of, tensors_of
from ..base.private import is_primal
from .schedule import tainted_by_tangents

# Takes a gradient; returns False if it declines it.
Taker = Callable[[torch.Tensor], bool]
# Metadata keys of such an op: the use of the gradient, and the parameter, which it reads indirectly.
_END, _OF = "remat_gradient_end", "remat_gradient_of"


@dataclass(frozen=True)
class End:
    """The use of a gradient in the step that makes it.

    kind: of the op. like: which of them cost the same, beside types and shapes. writes: True if it writes to
    the parameter; then it comes after all its readers. alone: from a synthetic gradient and parameter to a
    function that runs it on them.
    """

    kind: str
    like: str
    writes: bool
    alone: Callable[[torch.Tensor, torch.Tensor], Callable[[], None]]


def _add_alone(gradient: torch.Tensor, existing: torch.Tensor) -> Callable[[], None]:
    def add() -> None:
        existing.add_(gradient)

    return add


ADDED = End("remat.add_gradient", "", False, _add_alone)
STEPPED_KIND = "remat.optimizer_step"
KINDS = (ADDED.kind, STEPPED_KIND)


class _Due(threading.local):
    takers: Sequence[Taker | None] | None = None


_due = _Due()


def hand_over(takers: Sequence[Taker | None]) -> None:
    """Sets the takers of gradients for the next backward of this thread, by number."""
    _due.takers = takers


@contextmanager
def handed_over() -> Iterator[None]:
    """Inside the block a backward runs; its takers end with it."""
    try:
        yield
    finally:
        _due.takers = None


def take_gradient(gradient: torch.Tensor, number: int) -> torch.Tensor | None:
    """The op: returns None if the gradient was taken, else the gradient."""
    take = _due.takers[number] if _due.takers is not None else None
    return None if take is not None and take(gradient) else gradient


def takes_gradient(node: fx.Node) -> bool:
    return node.target is take_gradient


def end_of(node: fx.Node) -> End:
    """The use of the gradient that an op takes."""
    end: End = node.meta[_END]
    return end


def touched(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """The gradient that an op takes, and the parameter that it belongs to."""
    gradient = node.args[0]
    assert isinstance(gradient, fx.Node)
    return gradient, node.meta[_OF]


def take_gradients(joint: fx.GraphModule, num_forward_outputs: int, ends: Mapping[int, End]) -> None:
    """Add the ops to a joint graph for its gradients: each right after its gradient is made; those that write
    to a parameter after all its readers, including possible recomputations.

    ends: by argument of the graph; the numbers of the ops are the places in its sorted keys.
    """
    outputs = outputs_of(joint)
    primals = [node for node in joint.graph.find_nodes(op="placeholder") if is_primal(node)]
    if not ends or len(outputs) - num_forward_outputs != len(primals):
        return
    nodes = list(joint.graph.nodes)
    tainted = tainted_by_tangents(nodes)
    last = _last_reads(nodes, tainted, [primals[i] for i, end in ends.items() if end.writes])
    place = {node: i for i, node in enumerate(nodes)}
    for number, (index, end) in enumerate(sorted(ends.items())):
        gradient, parameter = outputs[num_forward_outputs + index], primals[index]
        if gradient not in tainted or gradient.op != "call_function" or not _is_like(gradient, parameter):
            continue
        with joint.graph.inserting_after(max(gradient, last.get(parameter, gradient), key=place.__getitem__)):
            node = joint.graph.call_function(take_gradient, (gradient, number))
        node.meta = {key: gradient.meta[key] for key in _PLACE if key in gradient.meta}
        node.meta[_END], node.meta[_OF] = end, parameter
        outputs[num_forward_outputs + index] = node
    output_node(joint).args = (tuple(outputs),)


def _last_reads(
    nodes: Sequence[fx.Node], tainted: Collection[fx.Node], parameters: Sequence[fx.Node]
) -> dict[fx.Node, fx.Node]:
    """By parameter, the last op of the backward that reads it or a forward result made from it, whose
    recomputation may read it.
    """
    made_from = {parameter: 1 << i for i, parameter in enumerate(parameters)}
    reads = []
    for node in nodes:
        if node.op != "call_function":
            continue
        mask = 0
        for read in node.all_input_nodes:
            mask |= made_from.get(read, 0)
        if mask and node in tainted:
            reads.append((node, mask))
        elif mask:
            made_from[node] = mask
    last: dict[fx.Node, fx.Node] = {}
    seen = 0
    for node, mask in reversed(reads):
        new = mask & ~seen
        seen |= new
        while new:
            last[parameters[(new & -new).bit_length() - 1]] = node
            new &= new - 1
    return last


# Metadata that say which module an op belongs to.
_PLACE = ("nn_module_stack", "fwd_nn_module_stack")


def _is_like(gradient: fx.Node, parameter: fx.Node) -> bool:
    mine, theirs = tensors_of(gradient.meta.get("val")), tensors_of(parameter.meta.get("val"))
    return (
        len(mine) == len(theirs) == 1
        and mine[0].shape == theirs[0].shape
        and mine[0].dtype is theirs[0].dtype
        and mine[0].device == theirs[0].device
    )
