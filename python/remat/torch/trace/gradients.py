"""Gradients that end in the step that makes them: ops that add them to those that exist, or let an optimizer
step with them.

Autograd takes all gradients of a compiled backward at its end. So such an op reads a gradient, which dies
there, and the backward returns nothing for it. Whether autograd is going to accumulate into a parameter is
known only when a backward runs (session/accumulation.py): where it is not, the op hands the gradient on.
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

# What takes a gradient; False if it does not want this one after all.
Taker = Callable[[torch.Tensor], bool]
# Where such an op holds what becomes of the gradient, and the parameter, which it reads by another way.
_END, _OF = "remat_gradient_end", "remat_gradient_of"


@dataclass(frozen=True)
class End:
    """What becomes of a gradient in the step that makes it.

    kind: of the op. like: which of them cost the same, beside types and shapes.
    writes: does it write to the parameter? Then it comes after all that reads that.
    alone: from a gradient and a parameter that were made for the purpose to what carries it out on them.
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
    """What takes the gradients of the backward that this thread is about to run, by number."""
    _due.takers = takers


@contextmanager
def handed_over() -> Iterator[None]:
    """While it lasts, a backward runs; what was handed over for it ends with it."""
    try:
        yield
    finally:
        _due.takers = None


def take_gradient(gradient: torch.Tensor, number: int) -> torch.Tensor | None:
    """The op: nothing where the gradient was taken, or the gradient itself."""
    take = _due.takers[number] if _due.takers is not None else None
    return None if take is not None and take(gradient) else gradient


def takes_gradient(node: fx.Node) -> bool:
    return node.target is take_gradient


def end_of(node: fx.Node) -> End:
    """What becomes of the gradient that an op takes."""
    end: End = node.meta[_END]
    return end


def touched(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """The gradient that an op takes, and the parameter that it belongs to."""
    gradient = node.args[0]
    assert isinstance(gradient, fx.Node)
    return gradient, node.meta[_OF]


def take_gradients(joint: fx.GraphModule, num_forward_outputs: int, ends: Mapping[int, End]) -> None:
    """Add the ops to a joint graph, as far as it has such gradients: each right after what makes its
    gradient, those that write to a parameter after all that reads it or could need it to be read again.

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
    """By parameter, the last op of the backward that reads it, or what the forward makes from it: for that it
    may have to be read again.
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
