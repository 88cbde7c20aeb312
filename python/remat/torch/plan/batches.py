"""The largest batch that fits into a budget, and a table of sizes up to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import remat

from ..base.units import exact_bytes, format_bytes

_BAR = 20


def nothing_fits(budget: int, size: int, proved: bool, floor: int, known: int) -> remat.NoPlanError:
    """The error where the least size has no plan. known: a budget that works for it."""
    asked = exact_bytes(budget)
    text = (
        f"largest_batch: the budget of {asked} is impossible at the least size, {size}"
        if proved
        else f"largest_batch: no plan within {asked} was found at the least size, {size}"
    )
    text += f": none goes below {exact_bytes(floor)}; smallest budget known to work: {exact_bytes(known)}"
    kind = remat.InfeasibleError if proved else remat.NoPlanError
    return kind(text, floor=floor, smallest_known=known)


@dataclass(frozen=True)
class BatchRow:
    """One size of the batch. Bytes are those of the whole step, reserve included; None without a plan.

    Attributes:
        size: the argument of `make_inputs`.
        status: "fits": it has a plan; "infeasible": it is proved to have none; "unknown": none was found.
        keep_all_peak: bytes without recomputation.
        floor: lower bound on the peak of every plan of this size, in bytes.
        peak: bytes of the plan; of steps that add to existing gradients, if those need more.
        overhead: extra time as a fraction of the step that keeps everything.
        seconds: of all ops of the step together.
        throughput: `size` / `seconds`.
        traced: the step was traced at this size; otherwise its bytes and times are interpolated.
        plan: of the step that makes its gradients.
        graph: of that.
    """

    size: int
    status: Literal["fits", "infeasible", "unknown"]
    keep_all_peak: int
    floor: int
    peak: int | None
    overhead: float | None
    seconds: float | None
    throughput: float | None
    traced: bool
    plan: remat.Plan | None = field(repr=False, compare=False)
    graph: remat.Graph = field(repr=False, compare=False)


@dataclass(frozen=True)
class LargestBatch:
    """The largest size that fits into a budget, and a table of sizes up to it.

    Attributes:
        budget: bytes.
        largest: the largest size that has a plan.
        impossible: the least size above it that is proved to have none, or None.
        best: the size of the traced row with the highest throughput.
        rows: by rising size.
        multiple: sizes are multiples of it.
        most: the largest size tried.
    """

    budget: int
    largest: int
    impossible: int | None
    best: int
    rows: list[BatchRow]
    multiple: int
    most: int

    @property
    def proved(self) -> bool:
        """True if the next size is proved not to fit. Otherwise sizes up to `impossible` may fit or not."""
        return self.impossible == self.largest + self.multiple

    def row(self, size: int) -> BatchRow:
        """The row of a size. Raises KeyError if the table lacks it."""
        for row in self.rows:
            if row.size == size:
                return row
        raise KeyError(size)

    def to_dict(self) -> dict[str, Any]:
        """Everything but graphs and plans, as a JSON value."""
        rows = [{k: v for k, v in vars(row).items() if k not in ("plan", "graph")} for row in self.rows]
        ends = {name: getattr(self, name) for name in ("budget", "largest", "impossible", "proved", "best")}
        return {**ends, "rows": rows}

    def summary(self) -> str:
        """One line: the answer, and what is proved of it."""
        text = f"largest = {self.largest} within {format_bytes(self.budget)}"
        if self.proved:
            return f"{text}, {self.impossible} is proved impossible"
        if self.impossible is not None:
            return f"{text}, {self.impossible} is proved impossible, between them nothing is known"
        if self.largest + self.multiple > self.most:
            return f"{text}, no larger one was asked for"
        return f"{text}, nothing is proved of larger ones"

    def _repr_html_(self) -> str:
        return f"{self._curve()}<pre>{self}</pre>"

    def _curve(self, width: int = 480, height: int = 160) -> str:
        """Throughput against size, as an SVG: a point for each row that fits, the best one filled."""
        points = [(row.size, row.throughput) for row in self.rows if row.throughput is not None]
        right, top = max(x for x, _ in points), max(y for _, y in points)
        places = [(x, round(width * x / right), round(height * (1 - y / top))) for x, y in points]
        line = " ".join(f"{x},{y}" for _, x, y in places)
        dots = "".join(
            f'<circle cx="{x}" cy="{y}" r="3" fill="{"currentColor" if size == self.best else "none"}" '
            f'stroke="currentColor"><title>{size}</title></circle>'
            for size, x, y in places
        )
        return (
            f'<svg viewBox="-8 -8 {width + 16} {height + 16}" width="{width}" role="img" '
            f'aria-label="samples per second against size"><polyline points="{line}" fill="none" '
            f'stroke="currentColor"/>{dots}</svg>'
        )

    def __str__(self) -> str:
        top = max((row.throughput or 0.0 for row in self.rows), default=0.0) or 1.0
        lines = [
            self.summary(),
            f"{'size':>8} {'peak':>10} {'overhead':>9} {'step s':>10} {'per second':>11}",
        ]
        for row in self.rows:
            if row.peak is None or row.overhead is None or row.throughput is None:
                why = f"{row.status}, none goes below {format_bytes(row.floor)}"
                lines.append(f"{row.size:8} {'-':>10} {'-':>9} {'-':>10} {'-':>11}  {why}")
                continue
            bar = "#" * round(_BAR * row.throughput / top)
            mark = "  <- best" if row.size == self.best else ""
            lines.append(
                f"{row.size:8} {format_bytes(row.peak):>10} {row.overhead:9.2%} {row.seconds:10.4g} "
                f"{row.throughput:11.5g}  {bar}{mark}"
            )
        return "\n".join(lines)
