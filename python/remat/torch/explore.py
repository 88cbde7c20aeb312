"""Analyses without training: overhead against memory, contents of the peak, costs of ops."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

import remat
from remat import _core
from remat.planning import Effort

from .base.errors import errors_stand_alone
from .base.fitted_module import report_of
from .base.given import check_model, check_step
from .base.progress import ProgressLine, progress_line
from .base.units import format_bytes
from .cost.cost import Cost
from .cost.files import write_costs
from .cost.source import forget_measured
from .eager.captured import RecordedStep
from .plan.model_report import ModelReport
from .plan.options import FitOptions
from .plan.peak import PeakReport, peak_report
from .plan.report import PlanReport
from .session.captured import CapturedStep, captured_step
from .session.loss import Loss
from .steps import steps_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


# Default seconds of a sweep.
_SWEEP_S = 10.0
# As of `remat.sweep`.
_MOST_POINTS = 1000


@dataclass(frozen=True)
class SweepRow:
    """One plan: the smallest budget that allows it, in bytes, and its cost.

    Attributes:
        overhead: extra time as a fraction of the step that keeps everything.
        seconds: of all ops of the step together.
        knee: the row farthest below the chord of the curve.
    """

    budget: int
    overhead: float
    seconds: float
    recomputed_steps: int
    knee: bool
    plan: remat.Plan = field(repr=False)


@dataclass(frozen=True)
class Sweep:
    """Overhead against memory, from keeping everything down to the smallest peak that was found.

    Attributes:
        rows: by falling budget; the overhead never falls.
        keep_all_peak: bytes of the whole step without recomputation.
        floor: lower bound on the peak of every plan, in bytes.
        curve: the result of :func:`remat.sweep`, without reserved memory; None for a recorded step.
        adding: the same for a step that adds to existing gradients, if it differs.
    """

    rows: list[SweepRow]
    keep_all_peak: int
    floor: int
    graph: remat.Graph = field(repr=False)
    curve: remat.SweepResult | None = field(repr=False, compare=False)
    adding: Sweep | None = None

    def _repr_html_(self) -> str:
        if self.curve is None:
            return f"<pre>{self}</pre>"
        return _core.sweep_html(self.curve, self.keep_all_peak - self.graph.keep_all_peak)

    def to_dict(self) -> dict[str, Any]:
        """Everything but graph and plans, as a JSON value."""
        rows = [{k: v for k, v in vars(row).items() if k != "plan"} for row in self.rows]
        adding = {} if self.adding is None else {"adding": self.adding.to_dict()}
        return {"keep_all_peak": self.keep_all_peak, "floor": self.floor, "rows": rows, **adding}

    def __str__(self) -> str:
        lines = [f"{'budget':>10} {'of keep-all':>11} {'overhead':>9} {'step s':>10} {'recomputed':>10}"]
        for row in self.rows:
            lines.append(
                f"{format_bytes(row.budget):>10} {row.budget / self.keep_all_peak:11.1%} {row.overhead:9.2%} "
                f"{row.seconds:10.4g} {row.recomputed_steps:10}{'  <- knee' if row.knee else ''}"
            )
        if self.adding is not None:
            lines += ["", "steps that add to existing gradients:", str(self.adding)]
        return "\n".join(lines)


@errors_stand_alone
def sweep(
    model: torch.nn.Module,
    sample_inputs: Any,
    *,
    points: int = 12,
    loss: Loss | None = None,
    **options: Unpack[FitOptions],
) -> Sweep:
    """Compute the overhead of a training step against its memory.

    Args:
        points: number of budgets, 2 or more, evenly spaced; a plan that several of them share is listed once.
        options: of :func:`fit`, without a budget; `time_limit` is that of the whole sweep.

    The other arguments are those of :func:`fit`. A model of meta tensors is enough.

    Raises:
        UnsupportedModelError: as in :func:`capture`.
    """
    if not isinstance(points, int) or isinstance(points, bool) or not 2 <= points <= _MOST_POINTS:
        raise remat.UsageError(f"sweep: points must be from 2 to {_MOST_POINTS}, not {points!r}")
    with progress_line() as progress:
        steps = steps_of(model, sample_inputs, loss, options)
        seconds = steps[0].settled().time_limit or _SWEEP_S
        progress.planning(seconds)
        swept = [_swept(step, points, seconds / len(steps), progress) for step in steps]
        progress.set_result(f"{sum(len(each.rows) for each in swept)} plans")
    return replace(swept[0], adding=swept[1]) if len(swept) > 1 else swept[0]


def _swept(
    captured: CapturedStep | RecordedStep, points: int, seconds: float, progress: ProgressLine
) -> Sweep:
    if isinstance(captured, RecordedStep):
        return _swept_recorded(captured, points, seconds)
    settled, graph = captured.settled(), captured.graph
    if settled.host is not None:
        raise remat.UsageError("sweep: host= is not swept yet; fit and report take it")
    if settled.budget_on != "peak":
        raise remat.UsageError('sweep: the rows are by peaks: budget_on="reserved" is for fit')
    if settled.arena:
        raise remat.UsageError("sweep: the rows are by peaks of live bytes: arena=True is for fit")
    effort: Effort = {**settled.effort(), "time_limit": seconds, "progress": progress.better_plan}
    found = remat.sweep(graph, points, settled.planner, **effort)
    reserve = settled.size("reserve")
    rows = _distinct([_row(graph, point, reserve) for point in found.points])
    return Sweep(rows, graph.keep_all_peak + reserve, graph.floor + reserve, graph, found)


def _swept_recorded(recorded: RecordedStep, points: int, seconds: float) -> Sweep:
    """The sweep over plans that eager mode can carry out."""
    found, graph = recorded.swept(points, seconds), recorded.graph
    reserve = recorded.settled().size("reserve")
    rows = [
        SweepRow(
            budget=each.predicted_peak,
            overhead=each.overhead,
            seconds=(each.plan.duration or 0) / 1e9,
            recomputed_steps=each.recomputed_steps,
            knee=False,
            plan=each.plan,
        )
        for each in found
    ]
    knee = _knee(rows)
    rows = [replace(row, knee=i == knee) for i, row in enumerate(rows)]
    return Sweep(rows, graph.keep_all_peak + reserve, graph.floor + reserve, graph, None)


def _knee(rows: list[SweepRow]) -> int | None:
    """The row farthest below the chord."""
    first, last = rows[0], rows[-1]
    width, height = first.budget - last.budget, last.overhead - first.overhead
    if not width or not height:
        return None
    below = [(first.budget - r.budget) / width - (r.overhead - first.overhead) / height for r in rows]
    most = max(range(len(rows)), key=below.__getitem__)
    return most if below[most] > 0 else None


def _row(graph: remat.Graph, point: remat.SweepPoint, reserve: int) -> SweepRow:
    steps = list(point.plan.steps)
    return SweepRow(
        budget=(point.plan.peak or 0) + reserve,
        overhead=point.plan.overhead or 0.0,
        seconds=(point.duration or 0) / 1e9,
        recomputed_steps=len(steps) - graph.num_ops,
        knee=point.knee,
        plan=point.plan,
    )


def _distinct(found: list[SweepRow]) -> list[SweepRow]:
    """One row for each plan; the knee stays."""
    rows: list[SweepRow] = []
    for row in found:
        if rows and rows[-1].plan.steps == row.plan.steps:
            rows[-1] = row if row.knee else rows[-1]
        else:
            rows.append(row)
    return rows


@errors_stand_alone
def report(
    model: torch.nn.Module,
    sample_inputs: Any = None,
    budget: int | str | None = None,
    *,
    loss: Loss | None = None,
    **options: Unpack[FitOptions],
) -> PeakReport:
    """Report the contents of a training step's peak, by kind of memory and by module.

    For a model from `fit` without sample inputs, reports its plan with the highest peak. Otherwise the step
    is captured, and planned if there is a budget. The arguments are those of :func:`fit`. `adding` of the
    result is the same for steps that add to existing gradients, if those are planned too.

    Raises:
        UnsupportedModelError: as in :func:`capture`; with a budget also what :func:`fit` raises.
    """
    check_model(model)
    fitted: ModelReport | None = report_of(model)
    if sample_inputs is None:
        if fitted is None:
            raise remat.UsageError("report: a model that was not planned needs sample_inputs")
        return _both([_of_plan(planned) for planned in fitted.largest_of_each()])
    asked = {} if budget is None else {"budget": budget}
    steps = steps_of(model, sample_inputs, loss, {**options, **asked})
    return _both([_of_step(step, budget is not None) for step in steps])


def _both(found: list[PeakReport]) -> PeakReport:
    return replace(found[0], adding=found[1]) if len(found) > 1 else found[0]


def _of_step(captured: CapturedStep | RecordedStep, planned: bool) -> PeakReport:
    if planned:
        return _of_plan(captured.plan())
    graph = captured.graph
    peak = graph.keep_all_peak + captured.settled().size("reserve")
    return peak_report(graph, range(graph.num_ops), peak)


def _of_plan(planned: PlanReport) -> PeakReport:
    plan = planned.plan
    return peak_report(planned.graph, plan.steps, planned.predicted_peak, plan.copies)


@errors_stand_alone
def measure_costs(
    model: torch.nn.Module,
    sample_inputs: Any,
    path: str | os.PathLike[str],
    *,
    loss: Loss | None = None,
    **options: Unpack[FitOptions],
) -> int:
    """Measure all distinct ops of a training step and write the costs to a file, for `costs=path`.

    Returns their number. The arguments are those of :func:`capture`.

    Raises:
        UnsupportedModelError: as in :func:`capture`.
        UsageError: the file cannot be written.
    """
    if options.get("executor") == "eager":
        raise remat.UsageError(
            'measure_costs: executor="eager" records durations with the step; none are read'
        )
    check_step(model, sample_inputs, loss, runs=False)
    forget_measured()
    known: dict[str, Cost] = {}
    # `fit` plans steps that add to gradients, too.
    for accumulate in (False, True):
        captured = captured_step(model, sample_inputs, loss, {**options, "accumulate": accumulate})
        known |= captured.pipeline.costs.of(captured.step)
    try:
        write_costs(path, known)
    except OSError as error:
        raise remat.UsageError(f"{path}: {error.strerror}") from error
    return len(known)
