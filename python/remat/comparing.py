"""Several planners on one problem, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat import _core
from remat._core import Graph, Host, Plan, PlanResult
from remat.errors import PlanError
from remat.planning import EFFORT_DEFAULTS, Effort, asked
from remat.registering import is_registered
from remat.signatures import keywords_of
from remat.tables import frame_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class ComparisonRow:
    """The result of one planner. Amounts are in bytes, durations in the graph's time unit; None without a
    plan.

    Attributes:
        status: as in :class:`PlanResult`; "not run" if the planner does not support the problem.
        overhead: extra duration as a fraction of running every op once.
        over_budget: True if even the plan with the smallest peak is over the budget; it is for display only.
        gap: (duration - duration_bound) / duration_bound.
        note: why the planner did not run, or which other one made the plan.
        result: all other results, including the plan; None if the planner did not run.
    """

    planner: str
    status: str
    overhead: float | None = None
    peak: int | None = None
    over_budget: bool | None = None
    peak_bound: int | None = None
    duration_bound: int | None = None
    gap: float | None = None
    stopped_by: str | None = None
    seconds: float | None = None
    note: str = ""
    result: PlanResult | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """All of it but `result`, by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "result"}


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`compare`: a row for each planner, in the sequence of the runs."""

    graph: str
    budget: int | None
    order: str
    keep_all_peak: int
    base_duration: int
    rows: list[ComparisonRow] = field(repr=False)

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, planner: str | int) -> ComparisonRow:
        """The row of a planner, or by its place. Raises KeyError, IndexError."""
        if isinstance(planner, int):
            return self.rows[planner]
        for row in self.rows:
            if row.planner == planner:
                return row
        raise KeyError(planner)

    @property
    def best(self) -> ComparisonRow | None:
        """The row with the least overhead within the budget; None if no planner found a plan."""
        within = [row for row in self.rows if row.overhead is not None and not row.over_budget]
        return min(within, key=lambda row: row.overhead or 0.0, default=None)

    def to_dicts(self) -> list[dict[str, Any]]:
        """`to_dict` of every row."""
        return [row.to_dict() for row in self.rows]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a line for each row. Raises RematError where pandas is not installed."""
        return frame_of(self.to_dicts())


@keywords_of(Effort, defaults=EFFORT_DEFAULTS)
def compare(
    graph: Graph,
    budget: int | str | None,
    planners: Iterable[str] | None = None,
    *,
    plans: Mapping[str, Plan] | None = None,
    host: Host | float | str | None = None,
    **effort: Unpack[Effort],
) -> Comparison:
    """Runs several planners on one problem, one after the other, as ``remat compare`` does.

    Args:
        graph: what to plan.
        budget: as of :func:`plan`.
        planners: their names, or one name; None: all of :func:`planners`.
        plans: plans of other programs, by name: validated, simulated and compared with the bounds as ours.
        host: as of :func:`plan`.

    The limits hold for each planner separately; other keywords are those of :func:`plan`. No planner starts
    from another one's plan. `note` holds the reason why a planner does not support the problem, or the rule
    that an invalid plan breaks.

    Raises:
        BudgetError: a budget that is not a positive amount of bytes.
        UsageError: an unknown planner, or a limit that is not 0 or more.
    """
    if isinstance(planners, str):
        planners = [planners]
    names = [planner.name for planner in _core.planners()] if planners is None else list(planners)
    question, limits, progress = asked("compare", graph, budget, effort, host=host)
    # An unknown planner is an error before any runs.
    reasons = [_core.unsupported(question, name) for name in names]
    rows = [
        ComparisonRow(name, "not run", note=reason) if reason else _row(name, question, limits, progress)
        for name, reason in zip(names, reasons, strict=True)
    ]
    rows += [_judged(name, plan, question, limits) for name, plan in (plans or {}).items()]
    bytes_of_budget = None
    if budget is not None:
        bytes_of_budget = _core.parse_bytes(budget, graph.keep_all_peak, graph.floor)
    return Comparison(
        graph.name,
        bytes_of_budget,
        effort.get("order", "fixed"),
        graph.keep_all_peak,
        graph.base_duration,
        rows,
    )


def _judged(name: str, plan: Plan, question: _core.Question, limits: _core.Effort) -> ComparisonRow:
    try:
        return _shown(name, _core.judge(question, name, plan, limits))
    except PlanError as error:
        return ComparisonRow(name, "not run", note=f"not valid: {error}")


def _row(name: str, question: _core.Question, limits: _core.Effort, progress: Any) -> ComparisonRow:
    try:
        return _shown(name, _core.plan_alone(question, name, limits, progress))
    except Exception as error:
        # A faulty user's planner does not end the comparison.
        if not is_registered(name):
            raise
        fault = "not valid" if isinstance(error, PlanError) else type(error).__name__
        return ComparisonRow(name, "not run", note=f"{fault}: {error}")


def _shown(name: str, result: PlanResult) -> ComparisonRow:
    shown = result.plan or result.closest
    return ComparisonRow(
        planner=name,
        status=result.status,
        overhead=None if shown is None else shown.overhead,
        peak=result.best_peak,
        over_budget=None if shown is None else result.plan is None,
        peak_bound=result.peak_lower_bound,
        duration_bound=result.duration_lower_bound,
        gap=result.gap,
        stopped_by=result.stopped_by,
        seconds=result.seconds,
        note="" if result.planner == name else f"plan by {result.planner}",
        result=result,
    )
