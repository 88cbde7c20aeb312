"""Plans of the core for one graph: a first one by work, and what a search within the limits comes to."""

from __future__ import annotations

import remat

from ..base.progress import ProgressLine
from .options import Options

# Work of a first plan, which takes milliseconds: far more than retention uses before it stops by itself.
_FIRST_WORK = 10_000_000


def seconds_for(graph: remat.Graph) -> float:
    """A time limit by the size of the graph: the search gains little after it (docs/torch.md has numbers)."""
    return min(20.0, 1.0 + graph.num_ops / 400)


def first_plan(graph: remat.Graph, target: int, options: Options) -> remat.PlanResult | None:
    """What `auto` begins with, by work instead of time: the same on a busy machine.

    None where another planner was asked for.
    """
    if options.planner != "auto":
        return None
    return remat.plan(
        graph,
        budget=target,
        planner="retention",
        order="free" if options.order == "free" else "fixed",
        time_limit=None,
        work_limit=_FIRST_WORK,
        seed=options.seed,
    )


def search(
    graph: remat.Graph, target: int, options: Options, progress: ProgressLine | None = None
) -> remat.PlanResult:
    """A plan for one graph within `target` bytes. Where the clock alone stops the search before it has one,
    the first plan.
    """
    limited = options.time_limit is not None or options.work_limit is not None
    result = remat.plan(
        graph,
        budget=target,
        planner=options.planner,
        order="free" if options.order == "free" else "fixed",
        time_limit=options.time_limit if limited else seconds_for(graph),
        work_limit=options.work_limit,
        seed=options.seed,
        threads=options.threads,
        progress=progress.better_plan if progress is not None else None,
    )
    if result.plan is not None or result.stopped_by != "time":
        return result
    first = first_plan(graph, target, options)
    return result if first is None or first.plan is None else first
