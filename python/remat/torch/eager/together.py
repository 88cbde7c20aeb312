"""Plans steps of a training loop as a whole: several models, or several calls, before one backward.

The first steps run as in eager mode: one is recorded, the next one is compared with the results that its plan
would recompute. Later steps follow the plan.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import torch

import remat

from ..base.errors import log
from ..base.private import OpsMode, graph_task, without_dispatch_modes
from ..base.products import EagerProducts
from ..base.saved import watched_saves
from ..base.units import exact_bytes
from ..plan.model_report import ModelReport
from ..plan.options import Options
from ..run.copies import HostPool
from ..session.pipeline import device_of
from .entries import Comparing, Entry, Following, Recording, Token
from .once import chosen_once, named_ops, runs_once
from .planning import EagerPlan, Missed, least_plan, plan_record
from .prepare import reserved, with_host, with_spare
from .recorded import Around, Record
from .session import MOST_SEQUENCES, no_plans
from .together_active import entered, is_active

# Most plans measured for one sequence until one is within the budget.
_TRIES = 4
# Steps after a recorded one in which a similar one may still be compared and measured.
_PATIENCE = 8


@dataclass
class _Sequence:
    """A recorded step. once: ops that must run once. compared: True if it was compared with its plan.
    measured: True if its plan is known to be within the budget. less: bytes to stay below the budget.
    """

    tokens: list[Token]
    record: Record
    around: Around
    once: set[int]
    plan: EagerPlan | None = None
    compared: bool = False
    measured: bool = False
    less: int = 0
    tries: int = 0

    def compare(self, entry: Comparing) -> None:
        self.compared, self.plan = True, None
        self.once |= entry.differing
        if len(entry.durations) == len(self.record.ops):
            for op, duration in zip(self.record.ops, entry.durations, strict=True):
                op.timed_again(duration)

    def measure(self, peak: int, budget: int) -> None:
        """Replans if its step needed more than the budget."""
        self.tries += 1
        if peak <= budget or self.tries >= _TRIES:
            self.measured = True
        else:
            self.plan, self.less = None, self.less + peak - budget + budget // 1000

    def follow(self, plan: EagerPlan) -> None:
        self.plan = plan


@dataclass
class _Place:
    """The place of a step in a context. unknown: the last step was not a recorded one. patience: number of
    steps to inspect closely after a recorded one.
    """

    sequences: list[_Sequence] = field(default_factory=list)
    unknown: bool = True
    patience: int = 0

    def note_recorded(self) -> None:
        self.patience = _PATIENCE

    def look(self) -> bool:
        """True if a closer look is still needed and allowed."""
        self.patience -= 1
        return self.patience >= 0 and not all(each.compared and each.measured for each in self.sequences)

    def plans(self, compared: bool) -> list[tuple[list[Token], EagerPlan]]:
        """compared: only compared ones."""
        known = [each for each in self.sequences if each.compared or not compared]
        return [(each.tokens, each.plan) for each in known if each.plan is not None]

    def know(self, known: bool) -> None:
        self.unknown = not known

    def found(self, tokens: list[Token]) -> _Sequence | None:
        return next((each for each in self.sequences if each.tokens == tokens), None)


class PlannedSteps:
    """Returned by :func:`remat.torch.planned`: a context for one or more steps of a training loop, each from
    its first op to the end of its backward. Enter it again for each.

    Attributes:
        remat: the report: plans, predicted and measured peaks.
    """

    def __init__(self, models: Sequence[torch.nn.Module], options: Options) -> None:
        self.remat = ModelReport()
        self._models, self._options = list(models), options
        self._device = device_of([p for model in models for p in model.parameters()])
        self._places: dict[Hashable, _Place] = {}
        self._said: set[str] = set()
        self._stack = ExitStack()
        self._steps: _Steps | None = None
        self._settled: Options | None = None
        self._pool: HostPool | None = None

    def __enter__(self) -> PlannedSteps:
        if is_active():
            raise remat.UsageError("planned: contexts do not nest")
        with ExitStack() as stack:
            stack.enter_context(entered())
            self._steps = _Steps(self)
            stack.callback(self._steps.end)
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(EagerProducts())
            stack.enter_context(self._steps)
            stack.enter_context(watched_saves(self._steps.pack, self._steps.unpack))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Raises InfeasibleError, NoPlanError if there is no plan for a recorded step."""
        steps, self._steps = self._steps, None
        self._stack.close()
        if error is None and steps is not None:
            self._plan_what_was_recorded()

    def _plan_what_was_recorded(self) -> None:
        missed: list[remat.NoPlanError] = []
        sequences = [each for place in self._places.values() for each in place.sequences]
        for sequence in sequences:
            if sequence.plan is None:
                try:
                    self._plan(sequence)
                except remat.NoPlanError as error:
                    missed.append(error)
        if missed:
            found = [each.plan.report.predicted_peak for each in sequences if each.plan is not None]
            raise no_plans(missed, found)

    def entry(self, number: int) -> tuple[_Place, Entry]:
        """The entry of the step with this number in the context."""
        key = number, self._adds(), tuple(model.training for model in self._models)
        place = self._places.setdefault(key, _Place())
        if place.unknown and len(place.sequences) < MOST_SEQUENCES:
            self._say("recorded", "planned: the first steps run as in eager mode, with its memory")
            return place, Recording(self._models, self._device)
        looks = place.look()
        if looks and not all(each.compared for each in place.sequences) and place.plans(False):
            return place, Comparing(place.plans(False), self._device)
        plans = place.plans(True)
        return place, Following(plans, self._device, self._models if looks else ()) if plans else Entry()

    def take(self, place: _Place, entry: Entry) -> None:
        """Takes over a step that has ended."""
        if not entry.is_over:  # it had no backward
            place.know(not place.sequences)
            if entry.saves:
                self._say(
                    "no backward",
                    "planned: a context was left before the backward of what ran in it: nothing is planned, "
                    "call backward() inside",
                )
        elif isinstance(entry, Recording):
            record, around, later = entry.record()
            later |= chosen_once(record, self._options)
            if place.found(entry.tokens) is None:
                place.sequences.insert(0, _Sequence(entry.tokens, record, around, later))
            place.know(True)
            place.note_recorded()
        elif isinstance(entry, Following):
            sequence = place.found(entry.tokens)
            place.know(sequence is not None)
            if sequence is None:
                self._note_other_ops(place)
            elif isinstance(entry, Comparing):
                self._note_compared(sequence, entry)
            elif entry.peak and sequence.plan is not None and not sequence.measured:
                self._note_measured(sequence, sequence.plan, entry.peak)
        else:
            place.know(False)

    def _note_compared(self, sequence: _Sequence, entry: Comparing) -> None:
        if entry.differing:
            self._say("differing", runs_once(named_ops(sequence.record, entry.differing)))
        self._forget(sequence)
        sequence.compare(entry)

    def _note_measured(self, sequence: _Sequence, plan: EagerPlan, peak: int) -> None:
        needs, budget = peak + sequence.record.beside + plan.report.reserve, plan.report.budget
        sequence.measure(needs, budget)
        if sequence.plan is None:
            self.remat.forget(plan.report)
            return
        plan.report.measure(needs)
        if needs > budget:
            self._say("over", f"a planned step needs {exact_bytes(needs)}, above {exact_bytes(budget)}")

    def _note_other_ops(self, place: _Place) -> None:
        more = len(place.sequences) < MOST_SEQUENCES
        self._say(
            "other ops" if more else "too many ops",
            "a step has other ops or sizes than those that were recorded: what comes after the first such op "
            "is kept for the backward, beyond the budget if need be; "
            + ("the next step is recorded" if more else "no more plans are made"),
        )

    def _plan(self, sequence: _Sequence) -> None:
        options = self._options_with_reserve()
        record, around = sequence.record, sequence.around
        found = plan_record(record, around, options, sequence.once, sequence.less, self._pool)
        if isinstance(found, Missed):
            least = least_plan(record, around, options, sequence.once, pool=self._pool)
            if least.report.predicted_peak > found.budget:
                raise found.error(with_spare(least.report.predicted_peak))
            found = replace(least, report=replace(least.report, budget=found.budget))
        sequence.follow(found)
        self.remat.add(found.report)
        log.info("%s", found.report.summary())

    def _forget(self, sequence: _Sequence) -> None:
        if sequence.plan is not None:
            self.remat.forget(sequence.plan.report)

    def _adds(self) -> bool:
        return any(p.grad is not None for model in self._models for p in model.parameters())

    def _options_with_reserve(self) -> Options:
        if self._settled is None:
            reserve = reserved(self._options, self._device)
            options, self._pool = with_host(self._options, self._device)
            self._settled = replace(options, reserve=reserve)
        return self._settled

    def _say(self, about: str, text: str) -> None:
        """A warning, once for each matter; with strict=True an error, every time except for recorded
        steps."""
        if self._options.strict and about != "recorded":
            raise remat.UsageError(f"strict=True: {text}")
        if about not in self._said:
            self._said.add(about)
            log.warning("%s", text)


class _Steps(OpsMode):
    """The steps while a context lasts."""

    def __init__(self, context: PlannedSteps) -> None:
        super().__init__()
        self._context, self._number = context, 0
        self._thread = threading.get_ident()
        self._place, self._entry = context.entry(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        entry, kwargs = self._entry, kwargs or {}
        # A backward that is itself differentiated belongs to the forward.
        backward = graph_task() >= 0 and (entry.is_over or not torch.is_grad_enabled())
        if backward:
            if not entry.is_over:
                entry.begin_backward()
            return entry.backward(func, types, args, kwargs)
        if entry.is_over:
            self._next()
        return self._entry.forward(func, types, args, kwargs)

    def _next(self) -> None:
        """The first op after a backward."""
        with without_dispatch_modes():
            self.end()
            self._number += 1
            self._place, self._entry = self._context.entry(self._number)

    def end(self) -> None:
        self._entry.end()
        self._context.take(self._place, self._entry)

    def pack(self, tensor: torch.Tensor) -> Any:
        entry = self._entry
        entry.note_saved()
        return entry, entry.pack(tensor)

    def unpack(self, held: Any) -> torch.Tensor:
        entry, item = held
        unpacked: torch.Tensor = entry.unpack(item)
        return unpacked
