"""One file per paper, and one for plans with a host: graphs, planners, budgets and tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remat.bench.lab import Lab
from remat.bench.report import Section
from remat.bench.suites import hiremate, kumar, kusumoto, moccasin, offload


@dataclass(frozen=True)
class Suite:
    """A suite: its function, and its default seconds for each planner except `auto`."""

    measure: Callable[[Lab], Section]
    limit: float


SUITES = {
    "kumar": Suite(kumar.measure, 5),
    "moccasin": Suite(moccasin.measure, 10),
    "hiremate": Suite(hiremate.measure, 10),
    "kusumoto": Suite(kusumoto.measure, 10),
    "offload": Suite(offload.measure, 1),
}
