"""Results as Markdown and JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from remat.bench.lab import Graph, Lab, Run, facts_of


@dataclass
class Curve:
    """Points of one line of a figure. missed: x positions without a plan within the budget."""

    name: str
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    steps: bool = False
    missed: list[float] = field(default_factory=list)

    def add(self, x: float, y: float | None) -> None:
        """y: None where there is no plan."""
        if y is None:
            self.missed.append(float(x))
        else:
            self.x.append(float(x))
            self.y.append(y)


@dataclass
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: list[Curve]
    log_x: bool = False
    log_y: bool = False


@dataclass
class Figure:
    """A figure of a paper, measured here: one or several panels side by side."""

    name: str
    caption: str
    panels: list[Panel]


@dataclass
class Table:
    """Rows of texts below a head; `notes` follow as paragraphs."""

    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


@dataclass
class Section:
    """The report of a suite."""

    suite: str
    title: str
    introduction: list[str]
    parts: list[Table | Figure]
    differences: list[str]
    verdict: str = ""
    source: str = ""  # the paper, as a Markdown link

    def figures(self) -> list[Figure]:
        """In order."""
        return [part for part in self.parts if isinstance(part, Figure)]


def figures_to_json(figures: Sequence[Figure]) -> str:
    """Figures as data, from which they can be drawn again."""
    return json.dumps([asdict(figure) for figure in figures], indent=1) + "\n"


def figures_from_json(text: str) -> list[Figure]:
    """Reads the output of `figures_to_json`."""
    return [
        Figure(
            figure["name"],
            figure["caption"],
            [
                Panel(**{**panel, "curves": [Curve(**curve) for curve in panel["curves"]]})
                for panel in figure["panels"]
            ],
        )
        for figure in json.loads(text)
    ]


def percent(ratio: float | None) -> str:
    """0.0123 as "1.23"."""
    if ratio is None:
        return "-"
    value = 100 * ratio
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def gib(amount: int | None) -> str:
    """Bytes as GiB."""
    return "-" if amount is None else f"{amount / 2**30:.2f}"


def times(overhead: float | None) -> str:
    """An overhead as relative length."""
    return "-" if overhead is None else f"{1 + overhead:.2f}"


def cell(run: Run) -> str:
    """An overhead in percent, or the reason in one word."""
    if run.fits:
        return percent(run.overhead)
    if run.status == "infeasible":
        return "infeasible"
    if run.status == "not run":
        return "n/a"
    return "over budget" if run.peak is not None else "none"


# Durations are integers; ratios of them are equal up to rounding.
EQUAL = 1e-12


def beaten_by(auto: Run, others: Sequence[Run]) -> list[Run]:
    """Runs within the budget that are faster than `auto`, the fastest first."""
    worse_than = [
        run
        for run in others
        if run.fits and (not auto.fits or (run.overhead or 0) < (auto.overhead or 0) - EQUAL)
    ]
    return sorted(worse_than, key=lambda run: run.overhead or 0)


class Comparison:
    """Compares planners with `auto` at equal budgets, and counts where `auto` is behind."""

    def __init__(self, title: str, planners: Sequence[str], published: str = "") -> None:
        self.planners, self.published = list(planners), published
        head = ["graph", "budget %", *self.planners, "auto", "auto behind"]
        if published:
            head.insert(2, published)
        self.table = Table(title, head, [])
        self.rows = self.behind = 0

    def measure(self, lab: Lab, graph: Graph, budget: int, label: str = "") -> list[Run]:
        """Adds a row; returns the runs, `auto` last."""
        runs = [lab.plan(graph, planner, budget) for planner in self.planners]
        auto = lab.plan(graph, "auto", budget)
        self.add(graph, budget, runs, auto, label)
        return [*runs, auto]

    def add(
        self, graph: Graph, budget: int, runs: list[Run], auto: Run, label: str = "", published: str = ""
    ) -> None:
        """Adds a row of existing runs."""
        share = label or f"{100 * budget / graph.keep_all_peak:.1f}"
        better = beaten_by(auto, runs)
        # Enough digits to distinguish them.
        behind = ", ".join(f"{run.planner} {100 * (run.overhead or 0):.4f}" for run in better)
        if better and auto.fits:
            behind += f" (auto {100 * (auto.overhead or 0):.4f})"
        row = [graph.name, share, *(cell(run) for run in runs), cell(auto), behind]
        if self.published:
            row.insert(2, published)
        self.table.rows.append(row)
        self.rows += 1
        self.behind += bool(better)

    def verdict(self) -> str:
        """One sentence."""
        level = self.rows - self.behind
        return (
            f"`auto` (1 s, one thread) is at or below every published planner in {level} of {self.rows} rows."
        )


def graph_table(graphs: Sequence[Graph]) -> Table:
    """A table of the graphs and their origins."""
    rows = [
        [g.name, f"{g.ops:,}", f"{g.edges:,}", gib(g.keep_all_peak), gib(g.floor), f"`{g.origin}`"]
        for g in graphs
    ]
    return Table("Graphs", ["graph", "ops", "edges", "keep-all peak GiB", "floor GiB", "origin"], rows)


def machine() -> str:
    """One line about the machine and versions."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    load = os.getloadavg()[0]
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}; "
        f"load {load:.1f} at the end of the measurement"
    )


def _table_lines(table: Table) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", "/") for text in cells) + " |"

    lines = [f"## {table.title}", "", row(table.head), "|" + "---|" * len(table.head)]
    lines += [row(cells) for cells in table.rows]
    for note in table.notes:
        lines += ["", note]
    return [*lines, ""]


def section_lines(section: Section, figures: str | None) -> list[str]:
    """A section as a Markdown page. `figures`: the folder of the figures as the page sees it, or ""."""
    lines = [f"# {section.title}", ""]
    if section.source:
        lines += [f"Paper: {section.source}", ""]
    for paragraph in section.introduction:
        lines += [paragraph, ""]
    if section.verdict:
        lines += [f"**{section.verdict}**", ""]
    for part in section.parts:
        if isinstance(part, Table):
            lines += _table_lines(part)
        elif figures is not None:
            path = f"{figures}/{part.name}.svg" if figures else f"{part.name}.svg"
            lines += [f"![{part.caption}]({path})", "", f"*{part.caption}*", ""]
    if section.differences:
        lines += ["## What differs from the paper, and why", ""]
        lines += [f"- {difference}" for difference in section.differences] + [""]
    return lines


def suite_json(section: Section, graphs: list[Graph], runs: list[Run], limit: float) -> str:
    """Everything that was measured, as one JSON document."""
    document: dict[str, Any] = {
        "suite": section.suite,
        "machine": machine(),
        "limit_seconds": limit,
        "verdict": section.verdict,
        "graphs": facts_of(graphs),
        "tables": [
            {"title": part.title, "head": part.head, "rows": part.rows}
            for part in section.parts
            if isinstance(part, Table)
        ],
        "figures": [
            {
                "name": figure.name,
                "caption": figure.caption,
                "panels": [
                    {"title": panel.title, "curves": [vars(curve) for curve in panel.curves]}
                    for panel in figure.panels
                ],
            }
            for figure in section.figures()
        ],
        "runs": [vars(run) for run in runs],
    }
    return json.dumps(document, indent=1) + "\n"
