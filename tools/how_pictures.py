"""Draws the pictures of docs/how_it_works.md from a real plan: `python tools/how_pictures.py`.

`docs/how_lives.svg`: every stored result of a U-Net's training step as a bar over the steps at which it is in
memory, kept and under a plan at half of the memory. `docs/how_order.svg`: the op that each step of that plan
runs. Needs matplotlib.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt  # type: ignore[import-not-found,unused-ignore]
import remat
from remat.bench import look

ROOT = Path(__file__).resolve().parent.parent
KEPT, AGAIN = look.KINDS["parameters"], look.KINDS["computed again"]


class Life(NamedTuple):
    """One instance of a value: in memory at the steps first, ..., last."""

    value: int
    first: int
    last: int
    again: bool  # made by a recomputation


def lives(graph: remat.Graph, steps: list[int]) -> list[Life]:
    """The instances that a plan makes (docs/model.md), by first step."""
    newest: dict[int, Life] = {}
    done: list[Life] = []
    ran: set[int] = set()
    for at, op in enumerate(steps):
        for value in graph.op_inputs(op):
            if value in newest:
                newest[value] = newest[value]._replace(last=at)
        for value in graph.op_outputs(op):
            if value in newest:
                done.append(newest[value])
            newest[value] = Life(value, at, at, op in ran)
        ran.add(op)
    for value, life in newest.items():
        done.append(life._replace(last=len(steps) - 1) if value in graph.outputs else life)
    return sorted(done, key=lambda life: life.first)


def draw_lives(axes: Any, graph: remat.Graph, steps: list[int], title: str) -> None:
    """Bars from the bottom up in the order in which values are first made; thick ones are large. Values below
    half a percent of the largest are left out.
    """
    largest = max(graph.bytes)
    found = [life for life in lives(graph, steps) if graph.bytes[life.value] > largest / 200]
    rows: dict[int, int] = {}
    for life in found:
        rows.setdefault(life.value, len(rows))
    for life in found:
        share = float(graph.bytes[life.value] / largest)
        axes.plot(
            (life.first, life.last + 1),
            (rows[life.value],) * 2,
            color=AGAIN if life.again else KEPT,
            lw=0.4 + 3.5 * share,
            solid_capstyle="butt",
        )
    axes.set(xlabel="step", xlim=(0, None), ylim=(-3, len(rows) + 2))
    axes.set_title(title)


def draw_order(axes: Any, steps: list[int]) -> None:
    """First runs are on the rising line, recomputations below it."""
    ran: set[int] = set()
    first, again = [], []
    for at, op in enumerate(steps):
        (again if op in ran else first).append((at, op))
        ran.add(op)
    for points, colour, label in ((first, KEPT, "first run"), (again, AGAIN, "recomputation")):
        axes.plot(*zip(*points, strict=True), "o", ms=3.2, color=colour, label=label)
    axes.set(xlabel="step", ylabel="op, in the order of the program", xlim=(0, None), ylim=(-3, None))
    axes.legend(loc="upper left")


def main() -> None:
    graph = remat.load_graph(ROOT / "examples/graphs/unet.json")
    # A limit on work, not time: the same plan on every machine.
    plan = remat.plan(graph, "50%", time_limit=None, work_limit=20_000_000, check=True).plan
    assert plan is not None
    plt.rcParams.update(look.settings("remat"))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 4.2), layout="constrained", sharey=True)
    draw_lives(left, graph, list(range(graph.num_ops)), f"keep all: {graph.keep_all_peak / 2**30:.2f} GiB")
    draw_lives(right, graph, plan.steps, f"plan at 50 %: {(plan.peak or 0) / 2**30:.2f} GiB")
    left.set_ylabel("value, by first run")
    figure.savefig(ROOT / "docs/how_lives.svg", metadata={"Date": None})
    figure, axes = plt.subplots(figsize=(9.2, 3.4), layout="constrained")
    draw_order(axes, plan.steps)
    figure.savefig(ROOT / "docs/how_order.svg", metadata={"Date": None})
    print(f"{len(plan.steps)} steps of {graph.num_ops} ops, {plan.overhead:.1%} more time")


if __name__ == "__main__":
    main()
