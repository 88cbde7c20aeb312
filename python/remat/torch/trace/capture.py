"""Capture: converts a joint graph, and circumstances that the trace does not show, to a step graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ..base.choices import chosen_to_run_once
from ..base.errors import UnsupportedModelError
from ..base.nodes import tensors_of
from ..base.origins import EXISTING_GRADIENTS, OUTSIDE
from ..base.step import OutputUse, StepGraph
from .contract import contract
from .dropout import show_dropout
from .gradients import End, take_gradients
from .inplace import list_pairs
from .kernels import correct_sizes
from .origins import name_inputs
from .routing import route_once
from .schedule import tainted_by_tangents
from .tidy import tidy


@dataclass(frozen=True)
class Circumstances:
    """Circumstances of a step besides its trace. Sizes are bytes.

    use: assumptions about its outputs.
    loss_workspace, loss_bytes: of the caller's loss while it is computed, and to the end.
    loss_measured_for: as of `StepGraph.set_loss`.
    existing_gradients: those that the step adds to; outside: bytes in memory that the step does not read.
    ends: by argument of the graph, the use of its gradient in the step.
    never_recompute, always_keep: patterns, see `chosen_to_run_once`.
    routing: "once" if ops that decide what runs must not be recomputed.
    for_compiler: a compiler runs the step, with its own order and without overwrites.
    """

    name: str
    use: OutputUse
    loss_workspace: int = 0
    loss_bytes: int = 0
    loss_measured_for: int = 0
    existing_gradients: int = 0
    outside: int = 0
    ends: Mapping[int, End] = field(default_factory=dict)
    never_recompute: Sequence[str] = ()
    always_keep: Sequence[str] = ()
    routing: str = "once"
    for_compiler: bool = False


def capture_step(
    joint: fx.GraphModule,
    num_forward_outputs: int,
    traced: tuple[fx.GraphModule, Sequence[Any]],
    circumstances: Circumstances,
    run: Callable[[fx.Node], Any],
) -> StepGraph:
    """The step of a joint graph, which is simplified in place.

    traced: Dynamo's graph and its arguments. run: runs a node on synthetic tensors. Raises
    UnsupportedModelError if the step contains something that a plan cannot express.
    """
    given = circumstances
    _require_dense(joint)
    if not given.for_compiler:
        tidy(joint)
        show_dropout(joint)
    correct_sizes(joint, run)
    take_gradients(joint, num_forward_outputs, given.ends)
    step = contract(joint, num_forward_outputs, given.name, given.use)
    step.set_loss(given.loss_workspace, given.loss_bytes, given.loss_measured_for)
    name_inputs(step, *traced)
    if not given.for_compiler:
        list_pairs(step)
    if any(end.writes for end in given.ends.values()):
        _run_backward_once(step)
    if given.routing == "once":
        route_once(step)
    for op in chosen_to_run_once(step.ops, given.never_recompute, given.always_keep, step.name):
        step.run_once(op)
    step.add_resident(EXISTING_GRADIENTS, given.existing_gradients)
    step.add_resident(OUTSIDE, given.outside)
    return step


def _run_backward_once(step: StepGraph) -> None:
    """Readers of a parameter must not be recomputed after an optimizer has written to it; their dependents
    are known in the forward (`take_gradients`), not in the backward.
    """
    tainted = tainted_by_tangents(step.gm.graph.nodes)
    for op in step.ops:
        if op.node in tainted:
            step.run_once(op)


def _require_dense(joint: fx.GraphModule) -> None:
    for node in joint.graph.nodes:
        for tensor in tensors_of(node.meta.get("val")):
            if tensor.layout is not torch.strided:
                kind = str(tensor.layout).removeprefix("torch.")
                raise UnsupportedModelError(
                    f"{node.name} ({node.target}) is a {kind} tensor, whose bytes depend on data; plans need "
                    "dense ones (nn.Embedding and nn.EmbeddingBag make dense gradients with sparse=False)"
                )
