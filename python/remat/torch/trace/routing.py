"""Ops that decide which code runs, on which rows, and how many there are: they run once.

With nondeterministic kernels, the numbers that they compare may differ in a recomputation, and near a tie
another expert may be chosen: kept results of the first run then no longer match recomputed ones. So integers
are computed from floating-point numbers only once. Ops on integers alone may be recomputed, with equal
results.
"""

from __future__ import annotations

from ..base.nodes import decides, indices_of
from ..base.step import Op, StepGraph


def route_once(step: StepGraph) -> None:
    """Indices read only by the backward (of a maximum, of max pooling) only decide which of nearly equal
    elements gets the gradient: they may be recomputed.
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
