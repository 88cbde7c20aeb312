"""Strides of the gradients that the caller's loss passes to a backward.

AOTAutograd traces a backward with the strides of the outputs, and copies gradients that have others. Eager
mode uses them unchanged, and kernels that read or sum them then differ in the last bits. The real strides are
known from the loss, or from the first backward, and are traced from then on.

Expanded gradients (of a sum) are traced like the outputs: a kernel for the traced layout could not take any
other gradient later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ..base.nodes import outputs_of
from ..base.private import JointTrace, PlainAOTOutput, base_of, is_tangent, tangent_output

Strides = tuple[int, ...]
UNKNOWN = -1


def strides_to_trace(gradient: torch.Tensor) -> Strides | None:
    """The strides of a gradient; None if they are not dense."""
    if gradient.layout is not torch.strided or not torch.ops.aten.is_non_overlapping_and_dense(gradient):
        return None
    return gradient.stride()


def laid_out_like(size: Sequence[int], strides: Strides) -> Strides:
    """Dense strides of a tensor of any size, whose dimensions stand in memory in the same order."""
    found, step = [1] * len(strides), 1
    for i in sorted(range(len(strides)), key=lambda i: (strides[i], -i)):
        found[i] = step
        step *= max(1, size[i])
    return tuple(found)


def same_strides(size: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """True if strides are equal, as far as they affect the position of elements."""
    return all(n < 2 or x == y for n, x, y in zip(size, a, b, strict=True))


def name_of_output(index: int) -> str:
    """The name under which the strides of its gradient are stored."""
    return str(PlainAOTOutput(index).expr())


def names_of_tangents(joint: fx.GraphModule) -> list[str]:
    """Names of the outputs whose gradients the backward takes, in its order."""
    tangents = [node for node in joint.graph.find_nodes(op="placeholder") if is_tangent(node)]
    outputs = [(node.name, tangent_output(node)) for node in tangents]
    return [name if output is None else str(output.expr()) for name, output in outputs]


def index_of_output(tangent: fx.Node) -> int:
    """The output of which a placeholder of a joint graph is the gradient, or one that views the same; or
    UNKNOWN."""
    output = tangent_output(tangent)
    shown = output if isinstance(output, PlainAOTOutput) else output and base_of(output)
    return UNKNOWN if shown is None else int(shown.idx)


def summed_otherwise(trace: JointTrace) -> list[int]:
    """Outputs of a traced function that view one result with a sum of three or more gradients. Eager mode
    adds gradients of views where the views were made, a trace adds them before all others: the last bits may
    differ.
    """
    found: list[int] = []
    joint = trace.traced[0]
    tangents = [node for node in joint.graph.find_nodes(op="placeholder") if is_tangent(node)]
    for outputs in trace.joined_outputs():
        for tangent in tangents:
            if index_of_output(tangent) in outputs and len(outputs) + _added_to(tangent) > 2:
                found += outputs
    return sorted(set(found))


def _added_to(gradient: fx.Node) -> int:
    """Number of gradients that a gradient is added to."""
    sums = [user for user in gradient.users if user.target is torch.ops.aten.add.Tensor]
    return max((1 + _added_to(each) for each in sums), default=0)


class TangentStrides:
    """The strides with which gradients of a graph's outputs are traced: those seen, by name of the output."""

    def __init__(self, gm: fx.GraphModule, seen: Mapping[str, Strides]) -> None:
        self._gm, self._seen = gm, seen

    def of(self, output: Any, tangent: torch.Tensor) -> Strides | None:
        """output: its description by AOTAutograd; tangent: as that would trace it."""
        seen = self._seen.get(output.expr())
        if seen is None and (shown := base_of(output)) is not None:
            return self._of_base(shown.idx, tangent)
        return laid_out_like(tangent.shape, seen) if seen is not None and len(seen) == tangent.dim() else None

    def _of_base(self, index: int, base: torch.Tensor) -> Strides | None:
        """For an output that is a view: autograd views its gradient alike."""
        seen = self._seen.get(name_of_output(index))
        item = outputs_of(self._gm)[index]
        view = item.meta.get("example_value") if isinstance(item, fx.Node) else None
        if seen is None or not isinstance(view, torch.Tensor) or view.numel() != base.numel():
            return None
        at = laid_out_like(view.shape, seen)
        shown = {(n, s): at for n, s, at in zip(view.shape, view.stride(), at, strict=True) if n > 1}
        places = list(zip(base.shape, base.stride(), strict=True))
        if any(n > 1 and (n, s) not in shown for n, s in places):
            return None
        return tuple(shown[n, s] if n > 1 else 1 for n, s in places)
