"""State shared by the graphs of one compiled model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from ..base.errors import log
from ..base.modes import Casts
from ..base.private import replaced
from ..plan.model_report import ModelReport
from ..plan.options import Options
from ..plan.report import PlanReport
from .flight import InFlight
from .pipeline import Pipeline
from .surroundings import Surroundings
from .watch import StepWatch


class Shared:
    """Options, memory beside the graphs, graphs in flight, the planning pipeline, reports.

    is_preparing: calls are those of `fit` itself. is_proving: they are compared with eager mode, and nothing
        is learned from them. is_measuring: gradients go to nobody.
    is_keeping: calls without a plan keep what gradients need: the model asks for some itself.
    before_write: called with each tensor that an op of a graph is about to write to.
    bookkeeping: held by a thread while it notes its call.
    backward_starts: called when the backward of a graph does.
    doubts: called with a reason for which a trace may make other last bits than eager mode.
    """

    def __init__(
        self,
        options: Options,
        surroundings: Surroundings,
        flight: InFlight,
        only_capture: bool,
        backward_starts: Callable[[], None],
        doubts: Callable[[str], None],
    ) -> None:
        """only_capture: steps are only captured, not planned."""
        self.options, self.surroundings, self.flight = options, surroundings, flight
        self.pipeline = Pipeline(options, surroundings, flight, only_capture)
        self.watch = StepWatch()
        self.report = ModelReport()
        self.is_preparing = self.is_proving = self.is_measuring = self.is_keeping = False
        self.before_write: Callable[[torch.Tensor], object] | None = None
        self.bookkeeping = threading.RLock()
        self.backward_starts, self.doubts = backward_starts, doubts
        # Plans may be forgotten.
        self._largest_budget = 0
        self.pipeline.ask_what_is_planned_for(lambda: 0 if self.is_preparing else self._largest_budget)
        self._said: set[str] = set()
        self._casts: list[Casts] = [()]
        self._casts_vary = False

    @property
    def casts(self) -> Casts:
        """The autocast state of backwards: off, unless one ran inside autocast."""
        return self._casts[-1]

    def note_casts(self, casts: Casts) -> str | None:
        """Notes that a backward runs with another autocast state than traced; returns the warning about later
        steps."""
        if casts not in self._casts:
            self._casts.append(casts)
            return "from the next step on they do not"
        if self._casts_vary:
            return None
        self._casts_vary = True
        return "as in later ones, where some run inside and some outside"

    def warn_once(self, text: str, about: str = "") -> None:
        """Once for each matter, which is the text if not named."""
        if (about or text) not in self._said:
            self._said.add(about or text)
            log.warning("%s", text)

    def note_plan(self, report: PlanReport) -> None:
        self.report.add(report)
        self._largest_budget = max(self._largest_budget, report.budget)

    def proving(self) -> AbstractContextManager[None]:
        return replaced(self, "is_proving", True)

    def measuring(self) -> AbstractContextManager[None]:
        return replaced(self, "is_measuring", True)

    def noting_writes(self, note: Callable[[torch.Tensor], object]) -> AbstractContextManager[None]:
        return replaced(self, "before_write", note)

    def keeping(self) -> AbstractContextManager[None]:
        return replaced(self, "is_keeping", True)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        self.is_preparing = True
        self.pipeline.pool.pause()
        try:
            yield
        finally:
            self.is_preparing = False
            self.pipeline.pool.go_on()
            for part in self.report.parts:
                part.traffic.clear()
