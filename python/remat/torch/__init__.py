"""Train PyTorch models within a byte budget."""

from __future__ import annotations

from .api import capture, fit
from .errors import UnsupportedModelError
from .explore import Sweep, SweepRow, measure_costs, report, sweep
from .measure import measure_peak
from .options import Options
from .peak import PeakReport, PeakRow
from .plan_report import ModelReport, PlanReport

__all__ = [
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
