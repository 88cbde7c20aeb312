"""A captured step with costs, without a plan: the basis of queries about a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

import remat

from ..base.errors import UnsupportedModelError
from ..base.given import can_run
from ..base.progress import progress_line
from ..base.step import StepGraph
from ..base.turns import one_at_a_time
from ..plan.options import Options
from ..plan.report import PlanReport
from ..trace.fake import with_fake_tensors
from .fitted import compiled
from .pipeline import Captured, Pipeline
from .prepare import Preparation, raise_nothing_planned
from .session import Session


@dataclass(frozen=True)
class CapturedStep:
    """A training step of a model, its graph with costs, and the means to plan it."""

    captured: Captured
    graph: remat.Graph
    pipeline: Pipeline
    device: torch.device

    @property
    def step(self) -> StepGraph:
        return self.captured.step

    def plan(self) -> PlanReport:
        """Plan it for the budget of the options. Raises as `plan_step`."""
        return self.pipeline.plan(self.captured)[0].report

    def settled(self) -> Options:
        """The options with the budget in bytes or as a share, and `reserve` with all reserved bytes."""
        return self.pipeline.surroundings.settle([], self.device)


def captured_step(
    model: torch.nn.Module,
    sample_inputs: Any,
    loss: Callable[[Any], torch.Tensor] | None,
    options: Mapping[str, Any],
) -> CapturedStep:
    """The first of `captured_steps`."""
    return captured_steps(model, sample_inputs, loss, options, both=False)[0]


def captured_steps(
    model: torch.nn.Module,
    sample_inputs: Any,
    loss: Callable[[Any], torch.Tensor] | None,
    options: Mapping[str, Any],
    both: bool = True,
    one_graph: bool = False,
) -> list[CapturedStep]:
    """A training step of a model; of a model without memory, that of its fake copy.

    both: also capture one that adds to existing gradients, if the options leave that open.
    one_graph: give up if it is more than one graph, or takes long to trace.

    Raises UnsupportedModelError if the model is broken into several graphs, or needs no gradient.
    """
    with one_at_a_time(), progress_line() as progress:
        progress.tracing()
        if not can_run(model, sample_inputs):
            model, sample_inputs = with_fake_tensors(model, sample_inputs)
        asked = Options.from_mapping({"budget": "100%", **options})
        session = Session(asked, model, only_capture=True, one_graph=one_graph)
        Preparation(session, model, compiled(model, session), sample_inputs, loss).capture(both)
        pipeline = session.shared.pipeline
        found = pipeline.captured or []
        if not found:
            raise_nothing_planned(model, session.unplanned.where())
        if not session.is_one_graph:
            raise UnsupportedModelError(
                "only a model in one piece can be captured (fit takes others); this one is broken into "
                f"graphs: {session.unplanned.where()}"
            )
        device = found[0].call.device
        distinct = {each.call.existing: each for each in found}.values()
        return [CapturedStep(c, pipeline.cost(c, progress).graph, pipeline, device) for c in distinct]
