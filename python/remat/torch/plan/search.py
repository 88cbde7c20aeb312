"""One search of the core for one graph."""

from __future__ import annotations

import remat

from ..base.progress import ProgressLine
from .options import Options


def seconds_for(graph: remat.Graph) -> float:
    """A time limit by the size of the graph: the search gains little after it (docs/torch.md has numbers)."""
    return min(20.0, 1.0 + graph.num_ops / 400)


def search(
    graph: remat.Graph, target: int, options: Options, progress: ProgressLine | None = None
) -> remat.PlanResult:
    """A plan for one graph within `target` bytes."""
    limited = options.time_limit is not None or options.work_limit is not None
    return remat.plan(
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
