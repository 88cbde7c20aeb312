"""Reports on plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from remat import _core
from remat._core import Graph, Plan, PlanResult, Report, SweepPoint, SweepResult
from remat.errors import UsageError
from remat.planning import EFFORT_DEFAULTS, Effort, asked
from remat.signatures import keywords_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Shown = Plan | PlanResult | SweepPoint
Format = Literal["html", "json", "csv", "dot", "perfetto", "memory_viz"]

# Default seconds for the curve: viewing a plan should not take as long as planning.
_CURVE_S = 5.0


@keywords_of(Effort, defaults={**EFFORT_DEFAULTS, "time_limit": None})
def report(
    graph: Graph,
    plans: Shown | Iterable[Shown] | Mapping[str, Shown] = (),
    *,
    format: Format = "html",
    sweeps: SweepResult | Iterable[SweepResult] = (),
    measured: Mapping[str, Sequence[int]] | None = None,
    points: int = 12,
    planner: str = "auto",
    planners: Iterable[str] = (),
    allocator: str | None = None,
    **effort: Unpack[Effort],
) -> Report:
    """Report memory at every step, what plans keep and recompute, and their distance to the bounds.

    A :class:`Report` holds a whole file: a self-contained HTML page, or a file for another viewer
    (docs/report.md). ``report(graph, plan).save("r.html")`` writes it; a notebook shows it.

    Args:
        graph: the graph of the plans. The keep-all plan is always shown.
        plans: plans, results of :func:`plan` (without a plan within the budget: the closest one) or points of
            a sweep; a mapping gives them titles. "csv", "dot" and "memory_viz" take at most one.
        format: ``"html"``; ``"json"``: the same numbers; ``"csv"``: a row for each step; ``"dot"``: a node
            for each, for Graphviz; ``"perfetto"``: for ui.perfetto.dev; ``"memory_viz"``: a snapshot
            for PyTorch's viewer of memory.
        sweeps: existing curves: the first is drawn with its bound, the others for comparison.
        measured: by title of a plan, the measured peak of each of its steps in bytes, drawn beside the
            prediction. :func:`remat.torch.record` measures it.
        points: budgets of the curve made if no `sweeps` are given; 0: no curve.
        planner: planner of that curve.
        planners: planners of further curves.
        allocator: also report what PyTorch's caching allocator takes for each plan: ``"cuda"`` and the like,
            as of :class:`CachingAllocator`. Only for "html" and "json".

    Other keywords are those of :func:`sweep`; without a limit, a curve takes five seconds.

    Raises:
        PlanError: a plan of another graph, or one that breaks a rule, misstates its costs, or was measured
            with another number of steps.
        UsageError: more plans than the format takes, a result without a plan, an unknown format, planner or
            allocator.
    """
    if allocator is not None and format not in ("html", "json"):
        raise UsageError("an allocator goes with the formats html and json")
    titled = _titled(plans)
    known = [sweeps] if isinstance(sweeps, SweepResult) else list(sweeps)
    others = [planners] if isinstance(planners, str) else list(planners)
    amounts = {str(title): [int(each) for each in column] for title, column in (measured or {}).items()}
    _core.check_report(graph, titled, amounts)
    if not known and points > 0 and format in ("html", "json"):
        if effort.get("time_limit") is None and effort.get("work_limit") is None:
            effort["time_limit"] = _CURVE_S
        if titled and "order" not in effort:
            effort["order"] = "free" if titled[0][1].order == "free" else "fixed"
        order = effort.get("order", "fixed")
        around = [plan.budget for _, plan in titled if plan.budget is not None and plan.order == order]
        for name in (planner, *others):
            question, limits, progress = asked("report", graph, None, effort)
            beside = [] if known else around
            known.append(_core.sweep(question, points, name, limits, progress, beside))
    return _core.report(graph, titled, known, format, amounts, allocator)


def _titled(plans: Shown | Iterable[Shown] | Mapping[str, Shown]) -> list[tuple[str, Plan]]:
    if isinstance(plans, Mapping):
        return [(str(title), _plan_of(shown)) for title, shown in plans.items()]
    # A plan is iterable too (its steps).
    is_one = isinstance(plans, Plan) or not isinstance(plans, Iterable)
    several: list[Any] = [plans] if is_one else list(plans)  # type: ignore[arg-type]
    titled: dict[str, Plan] = {}
    for shown in several:
        plan = _plan_of(shown)
        name = plan.planner or "plan"
        title = name if plan.budget is None else f"{name}, {_core.format_bytes(plan.budget)}"
        count = sum(known == title or known.startswith(f"{title} (") for known in titled)
        titled[f"{title} ({count + 1})" if count else title] = plan
    return list(titled.items())


def _plan_of(shown: Shown) -> Plan:
    if isinstance(shown, Plan):
        return shown
    if isinstance(shown, SweepPoint):
        return shown.plan
    if not isinstance(shown, PlanResult):
        raise UsageError(f"plans are Plan, PlanResult or SweepPoint, not {type(shown).__name__}")
    plan = shown.plan or shown.closest
    if plan is None:
        raise UsageError(f"a result that is {shown.status} has no plan to show")
    return plan
