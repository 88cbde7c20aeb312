"""Which values of a recorded step may be offloaded to a host, and when eager mode can copy them out and back.

Values held only by autograd at the end of the forward may be offloaded. Such a value is copied out after the
op that makes it, and the step waits for the copy before a later op of the forward, or at its end. During the
backward, only autograd's requests for saved tensors are visible, roughly in the reverse sequence of the ops
that saved them. So a copy back begins when autograd requests something that the forward saved before a
certain op, whatever the loss, or else the value itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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
    """The route of one value to the host and back.

    value: in the graph. op: of the record, after which it is copied out; place: its index among `results`,
    the op's results; bytes: upper bound. wait: the op before which the copy out has ended, or the number of
    ops in the forward. asked: the copy back begins when autograd requests a tensor saved after at most this
    many ops. out, back: numbers of the copies in the plan.
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
    """A plan's copies of one value: ops of the graph before which its copy out has ended and its copy back
    begins. early: begin rather before that op than after it.
    """

    wait: int
    back: int
    early: bool = False


def wishes(plan: remat.Plan) -> dict[int, Wish]:
    """Wishes by value of the graph, for a plan with first runs in the graph's order."""
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


class Timing:
    """The possible times of copies in a plan with these steps."""

    def __init__(self, step: StepGraph, steps: Sequence[int], wanted: Collection[int]) -> None:
        """wanted: values of the graph."""
        self._step, self._forward = step, len(step.record.functions)
        self._end = len(steps)
        # By op of the graph, its first step.
        self._first: dict[int, int] = {}
        for position, op in enumerate(steps):
            self._first.setdefault(op, position)
        self._turn = next((i for i in range(len(step.ops_of)) if self._is_later(i)), len(step.ops_of))
        # By value: the last op of the forward that reads it; and the first step of the backward that does,
        # with the op that runs there for the first time, or after what runs again.
        self._last_reads: dict[int, int] = {}
        self._first_reads: dict[int, tuple[int, int]] = {}
        ran = 0
        for position, op in enumerate(steps):
            is_first = position == self._first[op]
            ran += is_first
            for value in map(int, step.graph.op_inputs(op)):
                if value not in wanted:
                    continue
                if is_first and op < self._turn:
                    self._last_reads[value] = op
                else:
                    self._first_reads.setdefault(value, (position, op if is_first else ran))
        self._events = self._asked_for()
        self._event_ops = [op for op, _ in self._events]

    def _is_later(self, index: int) -> bool:
        """True if the op of the graph runs after the forward."""
        members = self._step.ops_of[index]
        return self._step.phases[index] == BACKWARD or (bool(members) and members[0] >= self._forward)

    def _asked_for(self) -> list[tuple[int, int]]:
        """The op of the graph before which a backward reaches tensors saved after this many ops."""
        ends = [(members[-1], i) for i, members in enumerate(self._step.ops_of) if members]
        numbers = [number for number, _ in ends]
        lowest, found = self._forward + 1, []
        for saved_at, asked_at in self._step.record.asked_for:
            if saved_at < lowest:
                lowest, before = saved_at, bisect_left(numbers, asked_at)
                found.append((ends[before - 1][1] + 1 if before else 0, saved_at))
        return found

    def routes(self, wanted: Mapping[int, Wish]) -> tuple[list[CopyStep], list[Route]]:
        """The plan's copies that this executor can carry out, by value of the graph."""
        drafts = [self._draft(value, wish) for value, wish in wanted.items() if value in self._first_reads]
        drafts.sort(key=lambda each: (each.issue, each.value))
        copies: list[CopyStep] = [(each.value, "out", each.issue, each.wait) for each in drafts]
        back = sorted(range(len(drafts)), key=lambda i: (drafts[i].back, drafts[i].read, drafts[i].value))
        copies += [(drafts[i].value, "in", drafts[i].back, drafts[i].read) for i in back]
        number = {i: len(drafts) + place for place, i in enumerate(back)}
        return copies, [each.route(self._step, i, number[i]) for i, each in enumerate(drafts)]

    def _event(self, wish: Wish, reader: int) -> tuple[int, int]:
        """The op of the graph before which a value that this op reads comes back, and the request that
        triggers it."""
        ops, end = self._event_ops, bisect_right(self._event_ops, reader)
        before, after = bisect_right(ops, wish.back, 0, end), bisect_left(ops, wish.back, 0, end)
        if wish.early and before:
            return self._events[before - 1]
        return self._events[after] if after < end else (reader, NEVER)

    def _draft(self, value: int, wish: Wish) -> _Draft:
        maker = int(self._step.graph.producers[value])
        wait = max(wish.wait, maker + 1, self._last_reads.get(value, maker) + 1)
        while wait < self._turn and not self._step.ops_of[wait]:
            wait += 1
        wait = min(wait, self._turn)
        waits = self._step.ops_of[wait][0] if wait < self._turn else self._forward
        read, reader = self._first_reads[value]
        before, asked = self._event(wish, reader)
        return _Draft(
            value,
            self._first[maker],
            self._first.get(wait, self._end),
            self._first[before - 1] + 1,
            read,
            waits,
            asked,
        )
