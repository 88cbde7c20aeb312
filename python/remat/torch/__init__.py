"""Train PyTorch models within a byte budget."""

from __future__ import annotations

from .api import FittedModel, capture, fit
from .base.errors import UnsupportedModelError
from .explore import Sweep, SweepRow, measure_costs, report, sweep
from .plan.options import CompileOptions, FitOptions, Options
from .plan.peak import PeakReport, PeakRow
from .plan.report import ModelReport, PlanReport
from .session.measure import measure_peak

__all__ = [
    "CompileOptions",
    "FitOptions",
    "FittedModel",
    "ModelReport",
    "Options",
    "PeakReport",
    "PeakRow",
    "PlanReport",
    "Sweep",
    "SweepRow",
    "UnsupportedModelError",
    "capture",
    "fit",
    "measure_costs",
    "measure_peak",
    "report",
    "sweep",
]


def __dir__() -> list[str]:
    return sorted(__all__)
