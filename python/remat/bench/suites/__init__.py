"""One file a paper: which graphs, which planners, which budgets, and how the tables read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remat.bench.lab import Lab
from remat.bench.report import Section
from remat.bench.suites import hiremate, kumar, kusumoto, moccasin


@dataclass(frozen=True)
class Suite:
    """What measures a paper, and the seconds that it suggests for each published planner."""

    measure: Callable[[Lab], Section]
    limit: float


SUITES = {
    "kumar": Suite(kumar.measure, 5),
    "moccasin": Suite(moccasin.measure, 10),
    "hiremate": Suite(hiremate.measure, 10),
    "kusumoto": Suite(kusumoto.measure, 10),
}
