"""Draws docs/picture.svg, the picture of README.md: `python tools/picture.py [FILE ...]`. Needs matplotlib.

Left: memory of each step under a plan at half of the keep-all peak, by what it is for, below the memory of
keeping everything. Right: overhead against memory for several planners, fixed order.
"""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt  # type: ignore[import-not-found,unused-ignore]
import remat
from remat.bench import look, plots
from remat.bench.report import Curve, Figure, Panel

ROOT = Path(__file__).resolve().parent.parent
GIB = 1 << 30


def draw_memory(axes: Any, graph: remat.Graph) -> None:
    half = remat.plan(graph, "50%", time_limit=5, check=True)
    assert half.plan is not None
    keep_all = remat.plan(graph, "100%", planner="keep_all", check=True).plan
    assert keep_all is not None
    rows = list(csv.DictReader(io.StringIO(remat.report(graph, half, format="csv").content.decode())))
    kinds = [kind for kind in look.KINDS if any(int(row[kind]) for row in rows)]
    columns = [[int(row[kind]) / GIB for row in rows] for kind in kinds]
    colours = [look.KINDS[kind] for kind in kinds]
    axes.stackplot(range(len(rows)), columns, labels=kinds, colors=colours, step="post", lw=0)
    memory = keep_all.memory(graph) / GIB
    axes.step(range(len(memory)), memory, where="post", color=look.TEXT_2, lw=1.2, label="keep all")
    budget = remat.parse_bytes("50%", graph.keep_all_peak) / GIB
    axes.axhline(budget, color=look.BUDGET, lw=1.2, ls="--")
    axes.text(1, budget * 1.02, "budget", color=look.BUDGET, fontsize=8, va="bottom")
    axes.set(xlabel="step", ylabel="memory (GiB)", ylim=(0, None), xlim=(0, None))
    axes.set_title(f"{half.overhead:.1%} more time for half of the memory")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1])


def draw_curves(axes: Any, graph: remat.Graph) -> None:
    curves = []
    for planner in ("greedy", "tw_remat", "auto"):
        found = remat.sweep(graph, points=16, planner=planner, time_limit=30, work_limit=1 << 60)
        memory = [point.budget / graph.keep_all_peak * 100 for point in found.points]
        curves.append(Curve(planner, memory, [100 * (point.overhead or 0.0) for point in found.points]))
    panel = Panel("overhead against memory", "memory (% of keep-all)", "overhead (%)", curves)
    plots.draw_panel(panel, axes, plots.styles_of(Figure("", "", [panel])))
    floor = graph.floor / graph.keep_all_peak * 100
    axes.axvspan(0, floor, color=look.BOUND, lw=0)
    axes.text(floor - 1, 2, "no plan", color=look.TEXT_2, fontsize=8, ha="right")
    axes.set(xlim=(0, 101), ylim=(0, 60))


def main() -> None:
    graph = remat.load_graph(ROOT / "examples/graphs/unet.json")
    plt.rcParams.update(look.settings("remat"))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.4), layout="constrained")
    draw_memory(left, graph)
    draw_curves(right, graph)
    for path in sys.argv[1:] or [str(ROOT / "docs/picture.svg")]:
        figure.savefig(path, metadata={"Date": None} if path.endswith("svg") else None, dpi=110)


if __name__ == "__main__":
    main()
