"""Plans of the core for one graph: a first one under a work limit, and the result of a search within the
limits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

import remat
from remat.planning import Effort

from ..base.progress import ProgressLine
from .options import Options

# Work limit of a first plan (milliseconds): far more than retention uses before it stops.
_FIRST_WORK = 10_000_000
# The same with a host, per op: slightly more than the linear programs of a first joint plan need.
_FIRST_WORK_WITH_HOST = 300


# Work of a search for the least peak: about two seconds.
_LEAST_WORK = 10_000_000
# What is proved to be so near to the fastest plan is left as it is after a short search, where nobody says
# how long or how near: longer ones gain a hundredth of a percent of the step (docs/torch_results.md).
_NEAR = 0.0025
_SHORT_S, _SHORT_S_FOR_EACH_OP = 0.1, 0.0002
# And so is what comes as near as this in a longer one. Of 32 steps
# (14 models of the tests, GPT-2 of 8 layers, a U-Net, at 60 and 50 %) none whose gap was smaller was made
# faster by 0.1 % of the step by a search four times as long; four whose gap was larger were, by up to 5.7 %.
_RATHER_NEAR = 0.01
_LONGER_S, _LONGER_S_FOR_EACH_OP = 0.3, 0.0008
# So is what comes as near as the long search of the same step at other sizes did, at about the same share of
# its memory. The process's plans of that step are where the short search starts.
_NOT_WORSE, _ABOUT = 0.001, 0.05
_MOST_STEPS = 64


class _Reached:
    """Gaps that long searches reached, by step and share of its memory."""

    def __init__(self) -> None:
        self._gaps: OrderedDict[Hashable, list[tuple[float, float]]] = OrderedDict()

    def add(self, step: Hashable, share: float, gap: float) -> None:
        self._gaps.setdefault(step, []).append((share, gap))
        self._gaps.move_to_end(step)
        while len(self._gaps) > _MOST_STEPS:
            self._gaps.popitem(last=False)

    def near(self, step: Hashable, share: float) -> float | None:
        """The gap reached before; None if the step was not searched at length at about this share."""
        gaps = [gap for other, gap in self._gaps.get(step, ()) if abs(other - share) <= _ABOUT]
        return max(_NEAR, gaps[-1] + _NOT_WORSE) if gaps else None


_reached = _Reached()


def _step_of(graph: remat.Graph, options: Options) -> Hashable:
    """A key that is equal, practically only, for the same step at other sizes."""
    return (
        graph.producers.tobytes(),
        graph.num_ops,
        options.planner,
        options.order,
        repr(options.settled_host),
    )


def seconds_for(graph: remat.Graph) -> float:
    """A time limit by the size of the graph; the search gains little beyond (docs/torch_results.md)."""
    return min(20.0, 1.0 + graph.num_ops / 400)


def first_plan(graph: remat.Graph, target: int, options: Options) -> remat.PlanResult | None:
    """The first plan of `auto`, under a work limit: independent of the machine's load.

    None if another planner was requested.
    """
    if options.planner != "auto":
        return None
    host = options.settled_host
    work = _FIRST_WORK if host is None else _FIRST_WORK_WITH_HOST * max(100, graph.num_ops)
    effort: Effort = {**options.effort(), "time_limit": None, "work_limit": work}
    return remat.plan(graph, target, "retention" if host is None else "auto", host=host, **effort)


def search(
    graph: remat.Graph,
    target: int,
    options: Options,
    progress: ProgressLine | None = None,
    allocator: str | None = None,
) -> remat.PlanResult:
    """A plan for one graph within `target` bytes, of live memory or of memory reserved by an allocator.

    If limits stop the search before it finds one, the first plan, or that of least peak; with a host, also
    one without copies.
    """
    if allocator is not None:
        return remat.plan(
            graph,
            target,
            options.planner,
            budget_on="reserved",
            allocator=allocator,
            **_effort(graph, options, progress),
        )
    found = _search(graph, target, options, progress)
    if options.host is None or found.plan is not None or found.status == "infeasible":
        return found
    without = _search(graph, target, replace(options, host=None), progress)
    return found if without.plan is None else without


def _effort(graph: remat.Graph, options: Options, progress: ProgressLine | None) -> Effort:
    effort = options.effort()
    if options.time_limit is None and options.work_limit is None:
        effort["time_limit"] = seconds_for(graph)
    if progress is not None:
        effort["progress"] = progress.better_plan
    return effort


def _briefly(
    graph: remat.Graph, target: int, options: Options, effort: Effort, reached: float | None
) -> remat.PlanResult | None:
    """The result of short searches, if its gap is small enough; their time counts towards the limit.

    reached: gap at which to stop.
    """
    limit, near = float(effort["time_limit"] or 0.0), _NEAR if reached is None else reached
    for seconds, for_each_op, enough in (
        (_SHORT_S, _SHORT_S_FOR_EACH_OP, near),
        (_LONGER_S, _LONGER_S_FOR_EACH_OP, max(near, _RATHER_NEAR)),
    ):
        share: Effort = {**effort, "time_limit": min(limit, seconds + for_each_op * graph.num_ops)}
        if reached is not None:
            share["gap"] = f"{100 * reached:.6f}%"
        result = remat.plan(graph, target, options.planner, host=options.settled_host, **share)
        is_near = result.plan is not None and result.gap is not None and result.gap <= enough
        if is_near or result.status == "infeasible":
            return result
        limit = max(limit - result.seconds, limit / 2)
    effort["time_limit"] = limit
    return None


def _search(
    graph: remat.Graph, target: int, options: Options, progress: ProgressLine | None
) -> remat.PlanResult:
    effort = _effort(graph, options, progress)
    host = options.settled_host
    by_gap = options.time_limit is None and options.work_limit is None and options.gap is None
    step, share = _step_of(graph, options), target / max(1, graph.keep_all_peak)
    if by_gap:
        near = _reached.near(step, share)
        brief = _briefly(graph, target, options, effort, near)
        if brief is not None:
            if brief.gap is not None and brief.gap > (_NEAR if near is None else near):
                _reached.add(step, share, brief.gap)
            return brief
    result = remat.plan(graph, target, options.planner, host=host, **effort)
    if by_gap and result.plan is not None and result.gap is not None:
        _reached.add(step, share, result.gap)
    if result.plan is not None:
        return result
    first = first_plan(graph, target, options)
    if first is not None and first.plan is not None:
        return first
    if result.status == "infeasible":
        return result
    if host is None:
        least = least_plan(graph, options)
        return least if least.plan is not None and (least.peak or 0) <= target else result
    if result.smallest_known_budget() <= target:
        # The search for the least peak stored its plan in the process's store, and planning starts from it.
        return remat.plan(graph, target, options.planner, host=host, **effort)
    return result


def least_plan(graph: remat.Graph, options: Options) -> remat.PlanResult:
    """The plan of least peak found with this much work, the same in every process."""
    effort: Effort = {"order": options.order, "time_limit": None, "work_limit": _LEAST_WORK}
    return remat.plan(graph, objective="peak", **effort)
