"""What of a recorded step may go to a host for a while, and when eager mode can copy it there and back.

What leaves is what autograd alone holds when the forward ends. It is copied out after the op that makes it,
and the step waits for that before a later op of the forward, or at its end. Of a backward only is seen what
autograd asks for, in about the opposite sequence of the ops that saved it. So a copy back begins when it asks
for something that the forward saved before a certain op, whatever the loss, or else for the value itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import remat

from ..plan.part import CopyStep
from .recorded import StepGraph
from .recorder import BACKWARD

# Of what comes back when it is asked for itself.
NEVER = -1


@dataclass(frozen=True)
class Route:
    """Of one value to the host and back.

    value: of the graph. op: of the record, after which it is copied out; place: among what that makes, which
    are `results`; bytes: of it at most. wait: the op before which that has ended, or how many ops the forward
    has. asked: it comes back when autograd asks for what was saved with so many ops run, or fewer. out, back:
    numbers of the copies in the plan.
    """

    value: int
    op: int
    place: int
    results: int
    bytes: int
    wait: int
    asked: int
    out: int
    back: int


@dataclass(frozen=True)
class Wish:
    """Of a plan for one value: ops of the graph, before which its copy out has ended and its copy back
    begins. early: rather before that than after it.
    """

    wait: int
    back: int
    early: bool = False


def wishes(plan: remat.Plan) -> dict[int, Wish]:
    """By value of the graph, of a plan that runs ops in the order of the graph for the first time."""
    reached, ran = [], 0
    for op in plan.steps:
        reached.append(ran)
        ran = max(ran, op + 1)
    reached.append(ran)
    out = {value: wait for value, way, _, wait in plan.copies if way == "out"}
    back = {value: issue for value, way, issue, _ in reversed(plan.copies) if way == "in"}
    return {
        value: Wish(reached[wait], reached[back.get(value, len(plan.steps))]) for value, wait in out.items()
    }


def routes(
    step: StepGraph, steps: Sequence[int], wanted: Mapping[int, Wish]
) -> tuple[list[CopyStep], list[Route]]:
    """The copies of a plan of these steps, by value of the graph, as this executor can carry them out."""
    timing = _Timing(step, steps, wanted)
    copies: list[CopyStep] = []
    drafts = [timing.draft(value, wish) for value, wish in wanted.items() if value in timing.first_reads]
    drafts.sort(key=lambda each: (each.issue, each.value))
    copies += [(each.value, "out", each.issue, each.wait) for each in drafts]
    back = sorted(range(len(drafts)), key=lambda i: (drafts[i].back, drafts[i].read, drafts[i].value))
    copies += [(drafts[i].value, "in", drafts[i].back, drafts[i].read) for i in back]
    number = {i: len(drafts) + place for place, i in enumerate(back)}
    return copies, [each.route(step, i, number[i]) for i, each in enumerate(drafts)]


@dataclass(frozen=True)
class _Draft:
    """Of a route: steps of the plan, and `waits` for the op of the record."""

    value: int
    issue: int
    wait: int
    back: int
    read: int
    waits: int
    asked: int

    def route(self, step: StepGraph, out: int, back: int) -> Route:
        made = step.value_of[self.value]
        op = step.record.ops[step.record.values[made].made_by or 0]
        results = list(op.outputs)
        size = int(step.graph.bytes[self.value])
        return Route(
            self.value,
            op.number,
            results.index(made),
            len(results),
            size,
            self.waits,
            self.asked,
            out,
            back,
        )


class _Timing:
    """first_reads: by value, the first step of the backward that reads it."""

    def __init__(self, step: StepGraph, steps: Sequence[int], wanted: Collection[int]) -> None:
        self._step, self._forward = step, len(step.record.functions)
        self._first: dict[int, int] = {}
        for position, op in enumerate(steps):
            self._first.setdefault(op, position)
        self._turn = next((i for i in range(len(step.ops_of)) if self._is_later(i)), len(step.ops_of))
        self._last_reads: dict[int, int] = {}
        self.first_reads: dict[int, int] = {}
        for position, op in enumerate(steps):
            for value in map(int, step.graph.op_inputs(op)):
                if value not in wanted:
                    continue
                if op < self._turn and position == self._first[op]:
                    self._last_reads[value] = op
                else:
                    self.first_reads.setdefault(value, position)
        self._first_step = steps
        self._events = self._asked_for()

    def _is_later(self, index: int) -> bool:
        """Does the op of the graph run after the forward?"""
        members = self._step.ops_of[index]
        return self._step.phases[index] == BACKWARD or (bool(members) and members[0] >= self._forward)

    def _asked_for(self) -> list[tuple[int, int]]:
        """Where a backward has come down to, and the op of the graph before which it is there."""
        ends = [(members[-1], i) for i, members in enumerate(self._step.ops_of) if members]
        numbers = [number for number, _ in ends]
        lowest, found = self._forward + 1, []
        for saved_at, asked_at in self._step.record.asked_for:
            if saved_at < lowest:
                lowest, before = saved_at, bisect_left(numbers, asked_at)
                found.append((saved_at, ends[before - 1][1] + 1 if before else 0))
        return found

    def _event(self, wish: Wish, reader: int) -> tuple[int, int]:
        """Where a value that this op reads comes back."""
        possible = [(at, op) for at, op in self._events if op <= reader]
        if wish.early and (before := [event for event in possible if event[1] <= wish.back]):
            return before[-1]
        return next((event for event in possible if event[1] >= wish.back), (NEVER, reader))

    def draft(self, value: int, wish: Wish) -> _Draft:
        maker = int(self._step.graph.producers[value])
        wait = max(wish.wait, maker + 1, self._last_reads.get(value, maker) + 1)
        while wait < self._turn and not self._step.ops_of[wait]:
            wait += 1
        wait = min(wait, self._turn)
        waits = self._step.ops_of[wait][0] if wait < self._turn else self._forward
        read = self.first_reads[value]
        reader = next(op for op in self._first_step[read:] if self._first[op] >= read)
        asked, before = self._event(wish, reader)
        return _Draft(
            value,
            self._first[maker],
            self._first.get(wait, len(self._first_step)),
            self._first[before - 1] + 1,
            read,
            waits,
            asked,
        )
