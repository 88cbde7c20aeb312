"""Ops that decide which code runs, on which rows, and how many there are: they run once.

On devices whose kernels are not deterministic the numbers that they compare may come out otherwise the next
time, and near a tie another expert is chosen: what was kept of the first run then no longer fits what is made
again. Integers are therefore made from other numbers once. Whatever is made of integers alone may run again,
and comes out the same.
"""

from __future__ import annotations

from ..base.nodes import decides, indices_of
from ..base.step import Op, StepGraph


def route_once(step: StepGraph) -> None:
    """Indices that only the backward reads (of a maximum, of max pooling) say which of nearly equal elements
    gets the gradient, and decide no more than that: they may be made again.
    """
    read = {value for op in step.ops if op.phase == "forward" for value in op.inputs}
    for op in step.ops:
        if op.node is None:
            continue
        if decides(op.node.target) or any(value in read for value in _index_values(step, op)):
            step.run_once(op)


def _index_values(step: StepGraph, op: Op) -> list[int]:
    assert op.node is not None
    return [step.value_of[node] for node in indices_of(op.node) if node in step.value_of]
