"""Contents of the peak of a planned step, by module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import remat

from ..base.origins import EXISTING_GRADIENTS, OUTSIDE, category_of_input
from ..base.units import format_bytes
from ..trace.gradients import KINDS
from .part import CopyStep

_ORDER = (
    "parameters",
    "buffers",
    "inputs",
    EXISTING_GRADIENTS,
    OUTSIDE,
    "activations",
    "recomputed activations",
    "gradients of parameters",
    "gradients of activations",
    "loss",
    "workspace",
    "generator states",
    "reserve",
)


@dataclass(frozen=True)
class PeakRow:
    """Bytes of one category in one module; module "" is the model as a whole."""

    module: str
    category: str
    bytes: int


@dataclass(frozen=True)
class PeakReport:
    """Contents of memory at the peak step.

    Attributes:
        peak: bytes, all rows together.
        step: its index in the plan.
        steps: number of steps of the plan.
        op: name of the op that runs there.
        kind: of that op.
        phase: of that op.
        module: of that op.
        rows: by module and category; no row is empty.
        adding: the same for a step that adds to existing gradients, if it differs.
    """

    peak: int
    step: int
    steps: int
    op: str
    kind: str
    phase: str
    module: str
    rows: list[PeakRow]
    adding: PeakReport | None = None

    def by_category(self) -> dict[str, int]:
        """Bytes by category."""
        sums: dict[str, int] = defaultdict(int)
        for row in self.rows:
            sums[row.category] += row.bytes
        return {c: sums[c] for c in sorted(sums, key=_rank)}

    def by_module(self, depth: int | None = None) -> dict[str, int]:
        """Bytes by module, the largest first; with `depth`, modules are merged below this depth."""
        sums: dict[str, int] = defaultdict(int)
        for row in self.rows:
            parts = row.module.split(".")
            sums[".".join(parts if depth is None else parts[:depth])] += row.bytes
        return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))

    def __str__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        lines = [
            f"peak = {format_bytes(self.peak)}",
            f"at = step {self.step} of {self.steps}: {self.kind} ({self.phase}{where})",
            "",
            *_table("what", self.by_category(), self.peak),
            "",
            *_table(
                "module", {name or "(model)": size for name, size in self.by_module().items()}, self.peak
            ),
        ]
        if self.adding is not None:
            lines += ["", "steps that add to existing gradients:", str(self.adding)]
        return "\n".join(lines)


def _rank(category: str) -> int:
    return _ORDER.index(category) if category in _ORDER else len(_ORDER)


_TOP = 20


def _table(title: str, sums: dict[str, int], peak: int) -> list[str]:
    shown = list(sums.items())
    if len(shown) > _TOP:
        rest = sum(size for _, size in shown[_TOP:])
        shown = [*shown[:_TOP], (f"({len(sums) - _TOP} others)", rest)]
    width = max([len(title), *(len(name) for name, _ in shown)])
    lines = [f"{title:{width}}  {'memory':>10}  {'share':>6}"]
    return lines + [f"{name:{width}}  {format_bytes(size):>10}  {size / peak:6.1%}" for name, size in shown]


def peak_report(
    graph: remat.Graph,
    steps: Sequence[int],
    peak: int | None = None,
    copies: Sequence[CopyStep] = (),
) -> PeakReport:
    """The contents of a plan's peak.

    peak: of the whole step, if it counts more than the plan (`reserve`).
    copies: as in `remat.Plan`.
    """
    simulated = remat.simulate(graph, steps, copies)
    top, at = simulated.peak, int(simulated.memory.argmax())
    op = graph.op(steps[at])
    origin = _origins(graph, steps[: at + 1])
    place = {output: int(graph.bytes[old]) for step, old, output in simulated.overwrites if step == at}
    rows = [
        PeakRow(*origin[value], max(0, int(graph.bytes[value]) - place.get(value, 0)))
        for value in _alive(graph, steps, copies, at)
    ]
    rows.append(PeakRow(op.module, "workspace", op.workspace))
    rows.extend(_states(graph, steps, at))
    if peak is not None:
        rows.append(PeakRow("", "reserve", peak - top))
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        sums[row.module, row.category] += row.bytes
    merged = [PeakRow(module, category, size) for (module, category), size in sums.items() if size]
    merged.sort(key=lambda row: (-row.bytes, row.module, row.category))
    return PeakReport(
        peak=sum(row.bytes for row in merged),
        step=at,
        steps=len(steps),
        op=op.name,
        kind=op.kind,
        phase=op.phase,
        module=op.module,
        rows=merged,
    )


def _states(graph: remat.Graph, steps: Sequence[int], at: int) -> list[PeakRow]:
    """Bytes of generator states saved at step `at` (docs/model.md)."""
    earlier, later = set(steps[: at + 1]), set(steps[at:])
    rows = []
    for index in earlier & later:
        op = graph.op(index)
        if op.generator_state and steps.count(index) > 1:
            runs_again = steps[at] == index and index in steps[:at]
            rows.append(PeakRow(op.module, "generator states", op.generator_state * (1 + runs_again)))
    return rows


def _alive(graph: remat.Graph, steps: Sequence[int], copies: Sequence[CopyStep], at: int) -> list[int]:
    """The value of each instance in memory at step `at` (docs/model.md)."""
    lives = [[value, 0, len(steps)] for value in graph.inputs]
    newest: dict[int, list[int]] = {}
    leaving: dict[int, list[int]] = {}

    def begin(value: int, first: int, last: int) -> None:
        newest[value] = [value, first, last]
        lives.append(newest[value])

    for position, step in enumerate(steps):
        for value, way, issue, wait in copies:
            if way == "out" and wait == position:
                leaving[value][2] = max(leaving[value][2], position - 1)
            elif way == "in" and issue == position:
                begin(value, position, max(position, wait - 1))
        for value in graph.op_inputs(step):
            if value in newest:
                newest[value][2] = max(newest[value][2], position)
        for value in graph.op_outputs(step):
            begin(value, position, position)
        for value, way, issue, wait in copies:
            if way == "out" and issue == position:
                leaving[value] = newest[value]
                if wait == len(steps):
                    newest[value][2] = wait
    for value in set(graph.outputs) & newest.keys():
        newest[value][2] = len(steps)
    return sorted(value for value, first, last in lives if first <= at <= last)


def _origins(graph: remat.Graph, steps: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Module and category of every input and of the newest instance of every value that these steps make."""
    origin: dict[int, tuple[str, str]] = {}
    for value in graph.inputs:
        category, module = category_of_input(graph.value_name(value))
        origin[value] = module, category
    kept, ran = set(graph.outputs), set()
    for index in range(graph.num_ops):
        if graph.op(index).kind in KINDS:
            kept.update(graph.op_inputs(index))
    for step in steps:
        op = graph.op(step)
        for value in op.outputs:
            category = "loss" if op.phase == "loss" else "activations"
            if op.phase == "backward":
                category = "gradients of parameters" if value in kept else "gradients of activations"
            elif step in ran:
                category = "recomputed activations"
            origin[value] = op.module, category
        ran.add(step)
    return origin
