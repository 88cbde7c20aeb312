"""Runs one planner in a separate process: reads the run as JSON, writes its outcome as JSON."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

MEMORY_LIMIT = 12 << 30
MOST_POINTS = 200


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    """The planner's result; `note` says why it could not run."""
    import remat
    from remat.bench.own import register_planners

    if "planners" in run:
        register_planners(Path(run["planners"]))
    graph = remat.load_graph(run["path"])
    curve: list[list[Any]] = []

    def progress(planner: str, seconds: float, peak: int | None, duration: int | None, within: bool) -> None:
        if within and duration is not None and (not curve or duration < curve[-1][1]):
            curve.append([round(seconds, 4), duration])

    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        result = remat.plan(
            graph,
            run["budget"],
            planner=run["planner"],
            order=run["order"],
            objective=run["objective"],
            host=run.get("host"),
            time_limit=None if run["work"] else run["limit"],
            work_limit=run["work"],
            gap=None,
            seed=run["seed"],
            options=run["options"],
            progress=progress,
        )
    except (remat.UsageError, remat.PlanError) as error:
        return {"status": "not run", "note": str(error)}
    after = resource.getrusage(resource.RUSAGE_SELF)
    plan = result.plan or result.closest
    if result.duration is not None and (not curve or result.duration < curve[-1][1]):
        curve.append([round(result.seconds, 4), result.duration])
    step = max(1, len(curve) // MOST_POINTS)
    return {
        "status": result.status,
        "stopped_by": result.stopped_by,
        "made_by": result.planner,
        "peak": result.best_peak,
        "duration": plan.duration if plan else None,
        "overhead": plan.overhead if plan else None,
        "fits": result.peak is not None,
        "peak_lower_bound": result.peak_lower_bound,
        "duration_lower_bound": result.duration_lower_bound,
        "counters": dict(result.counters),
        "curve": curve[::step] + ([curve[-1]] if (len(curve) - 1) % step else []),
        "seconds": round(result.seconds, 4),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 4),
        "memory": after.ru_maxrss * 1024,
    }


def main() -> None:
    """Reads the run from standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    run = json.load(sys.stdin)
    try:
        said = outcome(run)
    except MemoryError:
        said = {"status": "not run", "note": f"out of memory ({MEMORY_LIMIT >> 30} GiB)"}
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
