"""Train PyTorch models within a byte budget."""

from __future__ import annotations

from .api import capture, fit
from .errors import UnsupportedModelError
from .measure import measure_peak
from .options import Options
from .report import ModelReport, PlanReport

__all__ = [
    "ModelReport",
    "Options",
    "PlanReport",
    "UnsupportedModelError",
    "capture",
    "fit",
    "measure_peak",
]
