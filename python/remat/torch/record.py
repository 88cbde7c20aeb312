"""Compares a real training step with its plan: measured and predicted memory at every step of the plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import remat

from .base.errors import UnsupportedModelError, errors_stand_alone
from .base.given import check_callable
from .base.units import format_bytes
from .eager.following import steps_seen
from .plan.report import PlanReport
from .session.measure import bytes_beside, device_to_measure, measurable, there_on_the_cpu, warm_up
from .session.moments import Moment, moments_counted, moments_traced
from .session.watch import recorded_steps


@dataclass(frozen=True, eq=False)
class Recording:
    """The result of :func:`record`. Amounts are bytes of the whole step, comparable with the budget.

    Attributes:
        report: of the plan that ran.
        predicted: by step of the plan, an array of integers; the maximum is `report.predicted_peak`.
        measured: by step of the plan, the peak while it ran.
    """

    report: PlanReport
    predicted: np.ndarray[Any, Any] = field(repr=False)
    measured: np.ndarray[Any, Any] = field(repr=False)

    @property
    def predicted_peak(self) -> int:
        return self.report.predicted_peak

    @property
    def measured_peak(self) -> int:
        """Of the planned step, from the first op of its forward to the last one of its backward."""
        return int(self.measured.max())

    @property
    def excess(self) -> int:
        """The largest excess over the prediction, over all steps; negative if every step needed less."""
        return int((self.measured - self.predicted).max())

    def page(self, **options: Any) -> remat.Report:
        """:func:`remat.report` of the plan with what was measured. Amounts are the graph's: both lines are
        without `reserve` and saved generator states. options: those of `remat.report`.
        """
        graph, plan = self.report.graph, self.report.plan
        title = f"{self.report.name}, planned"
        of_graph = plan.memory(graph)
        measured = np.maximum(self.measured - self.predicted + of_graph, 0)
        return remat.report(graph, {title: plan}, measured={title: measured.tolist()}, **options)

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write `page`: a page for the browser, unless `format` says otherwise."""
        self.page(**options).save(path)

    def _repr_html_(self) -> str | None:
        page: Any = self.page(points=0)
        html: str | None = page._repr_html_()
        return html

    def __str__(self) -> str:
        at = int((self.measured - self.predicted).argmax())
        return "\n".join(
            [
                f"graph = {self.report.name}",
                f"steps = {len(self.measured)}",
                f"predicted_peak = {format_bytes(self.predicted_peak)}",
                f"measured_peak = {format_bytes(self.measured_peak)}",
                f"most_above_prediction = {self.excess} bytes, at step {at}",
            ]
        )


@errors_stand_alone
def record(
    step: Callable[[], Any],
    *,
    device: str | torch.device | None = None,
    resident: Any = None,
    warmup: int = 1,
) -> Recording:
    """Run a training step and measure memory at every step of its plan.

    ``remat.torch.record(step).save("report.html")`` draws measured beside predicted memory on one axis. With
    the executor "eager", ops of the backward are matched by their sequence; unplanned ops, such as a loss
    outside the model, count for the step before.

    Args:
        step: calls a model from :func:`fit`, or one that `torch.compile` compiled with the backend "remat",
            and the backward of its loss. Of several planned steps, the last one with the highest predicted
            peak is used.
        warmup: calls of `step` before the measured one; the first one of a compiled model makes its plan.

    Other arguments are those of :func:`measure_peak`: memory beside the model and its inputs also counts,
    unless `resident` is given.

    Raises:
        UsageError: no planned step ran to its end.
        UnsupportedModelError: a model in several graphs, several calls before a backward, or the executor
            "inductor", which does not run the plan's steps one by one.
    """
    check_callable("step", step)
    where = device_to_measure(device)
    runtime = measurable("record", where)
    warm_up(step, warmup, where)

    def seen_step() -> None:
        with steps_seen():
            step()

    with recorded_steps() as windows:
        if runtime.counts_memory:
            moments = moments_counted(seen_step, runtime, bytes_beside(runtime, resident))
        else:
            moments = moments_traced(seen_step, there_on_the_cpu(resident))
    if windows and not moments:
        raise UnsupportedModelError(
            'record: executor="inductor" does not run the steps of its plan one by one, executor="boxed" does'
        )
    steps = _planned_steps(moments)
    most = max(step[0].plan.predicted_peak for step in steps)
    chosen = next(step for step in reversed(steps) if step[0].plan.predicted_peak == most)
    report = chosen[0].plan
    return Recording(
        report, np.array(report.memory, dtype=np.int64), np.array(_by_step(chosen), dtype=np.int64)
    )


def _planned_steps(moments: Sequence[Moment]) -> list[list[Moment]]:
    """From the first moment of each forward to the end of its backward."""
    steps: list[list[Moment]] = []
    ends = 2
    last = -1
    for moment in moments:
        if ends == 2:
            steps.append([])
            ends, last = 0, -1
        elif moment.plan is not steps[-1][0].plan or (moment.position is not None and moment.position < last):
            raise UnsupportedModelError(
                "record: several graphs are in flight together, or several calls of one: the model is broken "
                "(TORCH_LOGS=graph_breaks says where), or called again before its backward; only one call of "
                "a model in one piece can be drawn"
            )
        steps[-1].append(moment)
        ends += moment.position is None
        last = last if moment.position is None else moment.position
    if ends != 2:
        steps.pop()
    if not steps:
        raise remat.UsageError(
            "record: no planned step ran from its forward to the end of its backward; `step` has to call a "
            'model from remat.torch.fit (or one compiled with backend="remat") and the backward of its loss'
        )
    return steps


def _by_step(moments: Sequence[Moment]) -> list[int]:
    """The peak during each step of the plan of these moments."""
    report = moments[0].plan
    steps = list(report.plan.steps)
    # Of what was recorded in eager mode the loss is no step.
    loss = next((i for i, op in enumerate(steps) if report.graph.op(op).phase == "loss"), None)
    measured: list[int | None] = [None] * len(steps)
    # What is in memory when a step begins; those that run nothing have no moment (clones that no step reads,
    # what is kept for a replay, values that Python lets go of).
    begins: list[int | None] = [None] * len(steps)
    for moment, after in pairwise(moments):
        at = (loss if loss is not None else after.position) if moment.position is None else moment.position
        assert at is not None
        begins[at] = moment.level if begins[at] is None else begins[at]
        measured[at] = max(measured[at] or 0, after.highest)
    level, filled = moments[-1].level, []
    for highest, begin in zip(reversed(measured), reversed(begins), strict=True):
        level = level if begin is None else begin
        filled.append(level if highest is None else highest)
    return filled[::-1]
