"""A recorded step without a plan: the basis of queries about a model that cannot be traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

import remat

from ..base.given import arguments_in
from ..base.progress import progress_line
from ..base.turns import one_at_a_time
from ..plan.options import Options
from ..plan.report import PlanReport
from .planning import EagerPlan, Missed, plan_record, step_graph, within
from .prepare import Kind, Loss, Preparation, Recorded
from .recorded import StepGraph


@dataclass(frozen=True)
class RecordedStep:
    """A recorded training step of a model, and the means to plan it."""

    preparation: Preparation
    sequence: Recorded
    kind: Kind
    call: Any
    step: StepGraph

    @property
    def graph(self) -> remat.Graph:
        return self.step.graph

    def settled(self) -> Options:
        """The options with the budget in bytes or as a share, and `reserve` with all reserved bytes."""
        return self.preparation.settled(self.call)

    def plan(self) -> PlanReport:
        """A plan for the budget of the options. Raises InfeasibleError, NoPlanError."""
        return self.preparation.plan(self.sequence, self.kind, self.call).report

    def within_budget(self, seconds: float | None) -> EagerPlan | Missed:
        """True if a plan is within the budget, as predicted. seconds: time limit, unless the options have
        one."""
        options = self.settled()
        if options.time_limit is None and options.work_limit is None:
            options = replace(options, time_limit=seconds)
        return plan_record(self.sequence.record, self.step.around, options, self.sequence.once)

    def least(self) -> PlanReport:
        """The least peak that a short search finds."""
        return self.preparation.least(self.sequence, self.kind, self.call).report

    def swept(self, points: int, seconds: float) -> list[PlanReport]:
        """Plans of this executor for several budgets, by falling peak."""
        least, options = self.least(), self.settled()
        step = step_graph(self.sequence.record, self.step.around, options, self.sequence.once)
        if options.work_limit is None:
            options = replace(options, time_limit=seconds / points)
        low, high = least.predicted_peak - least.reserve, self.graph.keep_all_peak
        found = [least]
        # A plan for a smaller budget is valid for a larger one.
        for number in range(1, points):
            plan = within(step, low + (high - low) * number // (points - 1), options)
            if isinstance(plan, EagerPlan) and plan.report.overhead < found[-1].overhead:
                found.append(plan.report)
        return found[::-1]


def recorded_steps(
    model: torch.nn.Module, sample_inputs: Any, loss: Loss | None, options: Mapping[str, Any], both: bool
) -> list[RecordedStep]:
    """A training step of a model, which leaves nothing behind.

    both: also record a step that adds to existing gradients, if the options leave that open.

    Raises UnsupportedModelError where nothing needs a gradient.
    """
    asked = Options.from_mapping({"budget": "100%", **options, "executor": "eager"})
    call = arguments_in(sample_inputs)
    with one_at_a_time(), progress_line():
        preparation = Preparation(model, asked, loss, lambda *_: None)
        sequence = preparation.recorded(call)
        kinds = (False, True) if both and asked.accumulate is None else (bool(asked.accumulate),)
        found = []
        for adds in kinds:
            kind = Kind(adds, sequence.all_outputs() if asked.outputs == "dropped" else frozenset())
            around = preparation.around(sequence, kind, call)
            step = step_graph(sequence.record, around, preparation.settled(call))
            found.append(RecordedStep(preparation, sequence, kind, call, step))
        return found
