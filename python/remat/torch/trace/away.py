"""Values of a captured step that may be offloaded: copied to a host, freed, fetched back."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx

from ..base.nodes import may_run_twice
from ..base.step import StepGraph
from .gradients import KINDS


def copyable_values(step: StepGraph, device: torch.device) -> dict[int, fx.Node]:
    """By value, the node that makes it, for values held only by ops of the step.

    Excludes values that the caller holds or receives (inputs, outputs, gradients and gradients of outputs),
    values shared by several results, and results of custom ops, which may hold them.
    """
    held = {*step.inputs, *step.kept, *_shown(step, [*step.forward_outputs, *step.backward_outputs])}
    for index, op in enumerate(step.ops):
        if index == step.loss or op.kind in KINDS:
            held.update(op.inputs, op.outputs)
    found: dict[int, fx.Node] = {}
    several: set[int] = set()
    for node, index in step.op_of.items():
        value, made_by = step.value_of.get(node), step.ops[index].node
        if value is None or value in held or made_by is None or not may_run_twice(made_by):
            continue
        if value in found:
            several.add(value)
        elif _is_plain(node.meta.get("val"), device):
            found[value] = node
    return {value: node for value, node in sorted(found.items()) if value not in several}


def _shown(step: StepGraph, nodes: Iterable[object]) -> set[int]:
    return {step.value_of[n] for n in nodes if isinstance(n, fx.Node) and n in step.value_of}


def _is_plain(val: object, device: torch.device) -> bool:
    """True for a tensor defined by its bytes, sizes and strides alone."""
    return (
        isinstance(val, torch.Tensor)
        and val.layout is torch.strided
        and val.device.type == device.type
        and not val.is_conj()
        and not val.is_neg()
        and not val.is_quantized
        and val.untyped_storage().nbytes() > 0
    )
