"""Tracks the position of an eager step in its plan, for observers (run/follow.py).

Ops of the forward and recomputations are identified as they run. Ops of the backward are matched with the
record only when the step is over, since the user's loss may be another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from typing import Any

from ..base.private import OpsMode, without_dispatch_modes
from ..run.follow import Mark, Place, mark_of
from .ledger import Ledger
from .planning import EagerPlan

# Share of the record's backward ops that must be found in a step.
_LEAST = 0.5

_seen: _Steps | None = None


@contextmanager
def steps_seen() -> Iterator[None]:
    """Inside the block, observers of plans are also called for eager steps."""
    global _seen
    before, seen = _seen, _Steps()
    _seen = seen
    try:
        yield
    finally:
        seen.end()
        _seen = before


def through(ledger: Ledger, plan: EagerPlan, call: Callable[[], Any]) -> Any:
    """Runs the forward of a call by a ledger that follows this plan, for the observer."""
    mark = mark_of(lambda: plan.report)
    return ledger.through(call) if _seen is None or mark is None else _seen.through(ledger, plan, mark, call)


def is_followed() -> bool:
    return _seen is not None


class _Steps:
    """One after the other."""

    def __init__(self) -> None:
        # The current step, and the mode that sees the ops after its forward.
        self._under_way: tuple[_Step, _Ops] | None = None

    def through(self, ledger: Ledger, plan: EagerPlan, mark: Mark, call: Callable[[], Any]) -> Any:
        self.end()
        step = _Step(plan, mark)
        ledger.call_before_second_runs(step.runs_again)

        def forward() -> Any:
            with _Ops(step.runs):  # before the ledger
                return call()

        outputs = ledger.through(forward)
        if ledger.left_at is None and ledger.plan is plan:
            step.end_forward()
            # Only now: under a mode, traced steps take a few more bytes.
            after = _Ops(step.see)
            after.__enter__()
            self._under_way = step, after
        return outputs

    def end(self) -> None:
        """Ends the current step."""
        if self._under_way is not None:
            (step, after), self._under_way = self._under_way, None
            after.__exit__(None, None, None)
            step.end()


class _Ops(OpsMode):
    """Sees ops before they run."""

    def __init__(self, see: Callable[[Any], object]) -> None:
        super().__init__()
        self._see = see

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self._see(func)
        return func(*args, **(kwargs or {}))


class _Step:
    """Of a plan that is followed."""

    def __init__(self, plan: EagerPlan, mark: Mark) -> None:
        self._plan, self._mark = plan, mark
        self._first: dict[int, int] = {}
        self._second: dict[int, int] = {}
        for position, op in enumerate(plan.report.plan.steps):
            (self._second if op in self._first else self._first)[op] = position
        self._number = 0
        # Of the backward: recomputations, and ops with their keys.
        self._seen: list[tuple[Any, Place]] = []
        self._again: dict[int, int] = {}

    def runs(self, _: Any) -> None:
        """The next op of the forward."""
        op = self._plan.op_of.get(self._number)
        self._number += 1
        if op is not None:
            self._say(self._first[op])

    def end_forward(self) -> None:
        self._say(None)

    def runs_again(self, number: int) -> None:
        """A recomputation: an op of the forward, in the backward."""
        op = self._plan.op_of.get(number)
        if op in self._second:
            place = Place()
            self._again[len(self._seen)] = self._second[op]
            self._seen.append((None, place))
            self._say(place)

    def see(self, func: Any) -> None:
        """An op after the forward."""
        place = Place()
        self._seen.append((func, place))
        self._say(place)

    def end(self) -> None:
        """Match the ops of the backward with steps of the plan: unmatched ops belong to the step before,
        those of the loss to the first one.
        """
        functions = [None if at in self._again else func for at, (func, _) in enumerate(self._seen)]
        numbers, recorded = self._plan.backward()
        blocks = SequenceMatcher(
            None, [*map(str, functions)], [*map(str, recorded)], False
        ).get_matching_blocks()
        found = dict(self._again)
        for block in blocks:
            for i in range(block.size):
                op = self._plan.op_of.get(numbers[block.b + i])
                if op is not None:
                    found[block.a + i] = self._first[op]
        if not found or sum(block.size for block in blocks) < _LEAST * len(recorded):
            return
        last = max(block.a + block.size - 1 for block in blocks if block.size)
        before = min(found.values())
        for at, (_, place) in enumerate(self._seen[: last + 1]):
            before = max(before, found.get(at, before))
            place.settle(before)
        if last + 1 == len(self._seen):
            self.see(None)
        self._seen[last + 1][1].settle(None)

    def _say(self, position: int | Place | None) -> None:
        with without_dispatch_modes():
            self._mark(position)
