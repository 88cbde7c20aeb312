"""Draws docs/picture.svg, the picture of README.md: `python tools/picture.py [FILE ...]`. Needs matplotlib.

Left: memory of each step when everything is kept and under a plan at half of that peak. Right: overhead
against memory for several planners, fixed order.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt  # type: ignore[import-not-found,unused-ignore]
import remat

ROOT = Path(__file__).resolve().parent.parent
GIB = 1 << 30
COLOURS = {"auto": "#0b6e4f", "tw_remat": "#d1811f", "greedy": "#8a6fb0", "keep_all": "#9a9a9a"}


def draw_memory(axes: Any, graph: remat.Graph) -> None:
    keep_all = remat.plan(graph, "100%", planner="keep_all", check=True)
    half = remat.plan(graph, "50%", time_limit=5, check=True)
    for result, label, colour in ((keep_all, "keep all", "keep_all"), (half, "plan at 50 %", "auto")):
        assert result.plan is not None
        memory = result.plan.memory(graph) / GIB
        axes.fill_between(range(len(memory)), memory, step="mid", alpha=0.35, color=COLOURS[colour], lw=0)
        axes.step(range(len(memory)), memory, where="mid", color=COLOURS[colour], lw=1.2, label=label)
    budget = remat.parse_bytes("50%", graph.keep_all_peak) / GIB
    axes.axhline(budget, color="#b3261e", lw=1, ls="--")
    axes.text(1, budget * 1.02, "budget", color="#b3261e", fontsize=8, va="bottom")
    axes.set(xlabel="step", ylabel="memory (GiB)", ylim=(0, None), xlim=(0, None))
    axes.set_title(f"{half.overhead:.1%} more time for half of the memory", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def draw_curves(axes: Any, graph: remat.Graph) -> None:
    for planner in ("greedy", "tw_remat", "auto"):
        curve = remat.sweep(graph, points=16, planner=planner, time_limit=30, work_limit=1 << 60)
        memory = [point.budget / graph.keep_all_peak * 100 for point in curve.points]
        overhead = [100 * (point.overhead or 0.0) for point in curve.points]
        axes.plot(memory, overhead, "o-", ms=3, lw=1.3, color=COLOURS[planner], label=planner)
    axes.axvline(graph.floor / graph.keep_all_peak * 100, color="#b3261e", lw=1, ls="--")
    axes.text(graph.floor / graph.keep_all_peak * 100 + 1, 2, "floor", color="#b3261e", fontsize=8)
    axes.set(xlabel="memory (% of keep-all)", ylabel="overhead (%)", xlim=(0, 101), ylim=(0, 60))
    axes.set_title("overhead against memory", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def main() -> None:
    graph = remat.load_graph(ROOT / "examples/graphs/unet.json")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    plt.rcParams["svg.hashsalt"] = "remat"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.4), layout="constrained")
    draw_memory(left, graph)
    draw_curves(right, graph)
    for path in sys.argv[1:] or [str(ROOT / "docs/picture.svg")]:
        figure.savefig(path, metadata={"Date": None} if path.endswith("svg") else None, dpi=110)


if __name__ == "__main__":
    main()
