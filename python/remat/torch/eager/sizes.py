"""The largest size of a recorded step: each size tried is recorded and planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

import remat

from ..plan.batches import BatchRow, LargestBatch, nothing_fits
from ..plan.report import PlanReport
from .captured import RecordedStep, recorded_steps
from .planning import EagerPlan
from .prepare import Loss

# Of the steps between a size that fits and one that does not, how many bisect.
_MIDDLE = 3


class RecordedSizes:
    """A model's step at the recorded sizes."""

    def __init__(
        self,
        model: torch.nn.Module,
        make_inputs: Callable[[int], Any],
        loss: Loss | None,
        options: Mapping[str, Any],
        seconds: float | None,
    ) -> None:
        """options: with the budget. seconds: for each plan."""
        self._model, self._make_inputs, self._loss, self._options = model, make_inputs, loss, options
        self._seconds = seconds
        self._rows: dict[int, BatchRow] = {}
        # By size, the least bytes known to suffice.
        self._needs: dict[int, int] = {}
        self.budget = 0

    def largest(self, least: int, most: int, multiple: int) -> LargestBatch:
        """Raises InfeasibleError, NoPlanError if the least size does not fit."""
        fits, high = -(-max(least, 1) // multiple) * multiple, None
        row = self._row(fits)
        if row.status != "fits":
            raise nothing_fits(self.budget, fits, row.status == "infeasible", row.floor, self._needs[fits])
        for number in range(2 * most.bit_length() + 64):
            size = self._next(fits, high, multiple, most, number)
            if size is None:
                break
            if self._row(size).status == "fits":
                fits = size
            else:
                high = size
        rows = [self._rows[size] for size in sorted(self._rows)]
        impossible = [row.size for row in rows if row.size > fits and row.status == "infeasible"]
        fitting = [row for row in rows if row.status == "fits"]
        return LargestBatch(
            budget=self.budget,
            largest=fits,
            impossible=min(impossible, default=None),
            best=max(fitting, key=lambda row: row.throughput or 0.0).size,
            rows=rows,
            multiple=multiple,
            most=most,
        )

    def _next(self, fits: int, high: int | None, multiple: int, most: int, number: int) -> int | None:
        """The next size to try; None if the answer is known."""
        if high is None:
            last = min(2 * fits, most // multiple * multiple)
            if fits + multiple > most:
                return None
            return max(fits + multiple, min(last, self._guess(fits, multiple) or last))
        if high - fits <= multiple:
            return None
        guess = self._guess(fits, multiple)
        if guess is None or number % _MIDDLE == 0:
            guess = (fits + high) // 2 // multiple * multiple
        return min(max(guess, fits + multiple), high - multiple)

    def _guess(self, fits: int, multiple: int) -> int | None:
        """The size at the budget, on the line through the two sizes nearest to the largest that fits."""
        near = sorted(self._needs, key=lambda size: abs(size - fits))[:2]
        if len(near) < 2:
            return None
        (one, other), needs = sorted(near), self._needs
        slope = (needs[other] - needs[one]) / (other - one)
        if slope <= 0:
            return None
        size = one + (self.budget - needs[one]) / slope
        return int(min(size, 2.0**40)) // multiple * multiple

    def _row(self, size: int) -> BatchRow:
        if size not in self._rows:
            self._rows[size] = self._looked_at(size)
        return self._rows[size]

    def _looked_at(self, size: int) -> BatchRow:
        inputs = self._make_inputs(size)
        steps = recorded_steps(self._model, inputs, self._loss, self._options, both=True)
        self.budget = remat.parse_bytes(steps[0].settled().budget)
        least = [step.least() for step in steps]
        self._needs[size] = max(each.predicted_peak for each in least)
        plans, proved = self._plans(steps, least)
        first, graph = plans[0], steps[0].graph
        seconds = None if first is None else (first.plan.duration or 0) / 1e9
        fits = all(plan is not None for plan in plans)
        return BatchRow(
            size=size,
            status="fits" if fits else "infeasible" if proved else "unknown",
            keep_all_peak=max(each.keep_all_peak for each in least),
            floor=max(each.peak_lower_bound for each in least),
            peak=max(plan.predicted_peak for plan in plans if plan is not None) if fits else None,
            overhead=first.overhead if fits and first is not None else None,
            seconds=seconds if fits else None,
            throughput=size / max(seconds, 1e-9) if fits and seconds is not None else None,
            traced=True,
            plan=first.plan if fits and first is not None else None,
            graph=graph,
        )

    def _plans(
        self, steps: list[RecordedStep], least: list[PlanReport]
    ) -> tuple[list[PlanReport | None], bool]:
        """The plans of all kinds of steps, and whether one is proved to have none."""
        plans: list[PlanReport | None] = []
        proved = False
        for step, smallest in zip(steps, least, strict=True):
            found = step.within_budget(self._seconds)
            if isinstance(found, EagerPlan):
                plans.append(found.report)
            elif smallest.predicted_peak <= self.budget:
                plans.append(replace(smallest, budget=self.budget))
            else:
                plans.append(None)
                proved = proved or found.result.status == "infeasible"
        return plans, proved
