"""What the graphs of one compiled model share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..plan.options import Options
from ..plan.report import ModelReport
from .flight import InFlight
from .pipeline import Pipeline
from .surroundings import Surroundings
from .watch import StepWatch


class Shared:
    """Options, what is in memory beside the graphs, what is in flight together, the way to plans, reports.

    is_preparing: calls are those of `fit` itself.
    """

    def __init__(
        self, options: Options, surroundings: Surroundings, flight: InFlight, only_capture: bool
    ) -> None:
        """only_capture: steps are captured instead of planned."""
        self.options, self.surroundings, self.flight = options, surroundings, flight
        self.pipeline = Pipeline(options, surroundings, flight, only_capture)
        self.watch = StepWatch()
        self.report = ModelReport()
        self.is_preparing = False

    @contextmanager
    def preparing(self) -> Iterator[None]:
        self.is_preparing = True
        try:
            yield
        finally:
            self.is_preparing = False
