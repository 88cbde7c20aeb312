"""Gradients that end where they are made: ops of a step that add them to those that exist.

Autograd takes all gradients of a compiled backward at its end. So such an op reads a gradient, which dies
there, and the backward returns nothing for it. Whether autograd is going to accumulate into a parameter is
known only when a backward runs (session/accumulation.py): where it is not, the op hands the gradient on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from ..base.nodes import output_node, outputs_of, tensors_of
from ..base.private import is_primal
from .schedule import tainted_by_tangents

# What takes a gradient; False if it does not want this one after all.
Taker = Callable[[torch.Tensor], bool]
# Where such an op holds the parameter, whose place in memory nobody reads.
_OF = "remat_gradient_of"
# The kind of such ops in graphs.
KIND = "remat.add_gradient"


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


def _add(gradient: torch.Tensor, existing: torch.Tensor) -> None:
    existing.add_(gradient)


def measured_as(node: fx.Node) -> tuple[Callable[..., Any], tuple[fx.Node, ...]]:
    """What the op runs and reads where it takes its gradient: costs are those of that."""
    gradient = node.args[0]
    assert isinstance(gradient, fx.Node)
    return _add, (gradient, node.meta[_OF])


def takes_gradient(node: fx.Node) -> bool:
    return node.target is take_gradient


def take_gradients(joint: fx.GraphModule, num_forward_outputs: int, taken: Collection[int]) -> frozenset[int]:
    """Add the ops to a joint graph, each right after what makes its gradient.

    taken: by argument of the graph, whose gradients; the numbers of the ops are their places in `taken`.
    Returns those of the arguments for which it was possible.
    """
    outputs = outputs_of(joint)
    primals = [node for node in joint.graph.find_nodes(op="placeholder") if is_primal(node)]
    if not taken or len(outputs) - num_forward_outputs != len(primals):
        return frozenset()
    tainted = tainted_by_tangents(joint.graph.nodes)
    done = set()
    for number, index in enumerate(sorted(taken)):
        gradient, parameter = outputs[num_forward_outputs + index], primals[index]
        if gradient not in tainted or gradient.op != "call_function" or not _is_like(gradient, parameter):
            continue
        with joint.graph.inserting_after(gradient):
            node = joint.graph.call_function(take_gradient, (gradient, number))
        node.meta = {key: gradient.meta[key] for key in _PLACE if key in gradient.meta}
        node.meta[_OF] = parameter
        outputs[num_forward_outputs + index] = node
        done.add(index)
    output_node(joint).args = (tuple(outputs),)
    return frozenset(done)


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
