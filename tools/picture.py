"""Draws docs/picture.svg, the picture of README.md: `python tools/picture.py [GRAPH]`. Needs matplotlib.

Left: memory of each step when everything is kept and under a plan at half of that peak. Right: overhead against
memory for several planners, fixed order.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import remat

ROOT = Path(__file__).resolve().parent.parent
GIB = 1 << 30
COLOURS = {"auto": "#0b6e4f", "tw_remat": "#d1811f", "greedy": "#8a6fb0", "keep_all": "#9a9a9a"}


def draw_memory(axes: plt.Axes, graph: remat.Graph) -> None:
    keep_all = remat.plan(graph, "100%", planner="keep_all", check=True).plan
    half = remat.plan(graph, "50%", time_limit=5, check=True).plan
    for plan, label, colour in ((keep_all, "keep all", "keep_all"), (half, "plan at 50 %", "auto")):
        memory = plan.memory(graph) / GIB
        axes.fill_between(range(len(memory)), memory, step="mid", alpha=0.35, color=COLOURS[colour], lw=0)
        axes.step(range(len(memory)), memory, where="mid", color=COLOURS[colour], lw=1.2, label=label)
    axes.axhline(half.budget / GIB, color="#b3261e", lw=1, ls="--")
    axes.text(0, half.budget / GIB * 1.02, "budget", color="#b3261e", fontsize=8, va="bottom")
    axes.set(xlabel="step", ylabel="memory (GiB)", ylim=(0, None), xlim=(0, None))
    axes.set_title(f"{half.overhead:.1%} more time for half of the memory", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def draw_curves(axes: plt.Axes, graph: remat.Graph) -> None:
    for planner in ("greedy", "tw_remat", "auto"):
        curve = remat.sweep(graph, points=16, planner=planner, time_limit=30, work_limit=1 << 60)
        memory = [point.budget / graph.keep_all_peak * 100 for point in curve.points]
        overhead = [point.overhead * 100 for point in curve.points]
        axes.plot(memory, overhead, "o-", ms=3, lw=1.3, color=COLOURS[planner], label=planner)
    axes.axvline(graph.floor / graph.keep_all_peak * 100, color="#b3261e", lw=1, ls="--")
    axes.text(graph.floor / graph.keep_all_peak * 100 + 1, 2, "floor", color="#b3261e", fontsize=8)
    axes.set(xlabel="memory (% of keep-all)", ylabel="overhead (%)", xlim=(0, 101), ylim=(0, 60))
    axes.set_title("overhead against memory", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def main() -> None:
    graph = remat.load_graph(sys.argv[1] if len(sys.argv) > 1 else ROOT / "examples/graphs/unet.json")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    plt.rcParams["svg.hashsalt"] = "remat"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.4), layout="constrained")
    draw_memory(left, graph)
    draw_curves(right, graph)
    for suffix in sys.argv[2:] or [ROOT / "docs/picture.svg"]:
        figure.savefig(suffix, metadata={"Date": None} if str(suffix).endswith("svg") else None, dpi=110)


if __name__ == "__main__":
    main()
