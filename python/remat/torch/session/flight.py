"""Calls and graphs in flight together: those that hold tensors for a later backward."""

from __future__ import annotations

import gc
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping

log = logging.getLogger("remat.torch")


class InFlight:
    """Tracks which graphs are in flight together, and whether plans allow for it.

    stale: plans were made before the graphs in flight, or the use of outputs, were known.
    """

    def __init__(self, calls: int) -> None:
        """calls: least number of calls of each graph in flight before the first backward."""
        self.stale = False
        self._least = calls
        self._calls: dict[int, int] = {}
        self._together: set[int] = set()
        self._is_news = False
        # By graph: those in flight together with it, and of them those that started before it.
        self._mates: dict[int, set[int]] = defaultdict(set)
        self._before: dict[int, set[int]] = defaultdict(set)

    def calls(self, number: int) -> int:
        """The calls of a graph in flight before the first backward, as seen so far."""
        return max(self._least, self._calls.get(number, 0))

    def take_news(self) -> set[int]:
        """The graphs in flight together with others, if there are more than at the last call."""
        news, self._is_news = self._is_news, False
        return set(self._together) if news else set()

    def mates(self, number: int) -> frozenset[int]:
        """The graphs whose saved tensors are in memory together with those of this one."""
        return frozenset(self._mates[number])

    def before(self, number: int) -> frozenset[int]:
        """Those that already hold tensors when this one starts."""
        return frozenset(self._before[number])

    def plan_anew(self) -> None:
        """Replan as soon as nothing is in flight."""
        self.stale = True

    def forget(self, number: int) -> None:
        """Removes a graph."""
        self._together.discard(number)
        if len(self._together) < 2:
            self._together, self._is_news = set(), False
        for known in (self._mates, self._before):
            known.pop(number, None)
            for others in known.values():
                others.discard(number)

    def planned_anew(self) -> None:
        self.stale = False

    def start(self, number: int, held: Callable[[], Mapping[int, int]]) -> bool:
        """Begins a call of a graph; returns True if it is the only one in flight.

        held: returns the number of calls of each graph in flight.
        """
        own, mates = self._others(number, held())
        news = own >= self.calls(number) or not mates <= self._mates[number]
        if news or not (own or mates <= self._before[number]):
            gc.collect()  # garbage not yet collected will see no backward
            own, mates = self._others(number, held())
        if not mates <= self._mates[number]:
            self._note_break(number, mates)
        if own >= self.calls(number):
            self._note_calls(number, own + 1)
        if not own and not mates <= self._before[number]:
            self._before[number] |= mates
            self.plan_anew()
        return not own and not mates

    def _others(self, number: int, held: Mapping[int, int]) -> tuple[int, set[int]]:
        """The calls of this graph in flight, and the other graphs in flight."""
        return held[number], {other for other, calls in held.items() if calls and other != number}

    def _note_calls(self, number: int, calls: int) -> None:
        # The same code in several places of a model that is broken is one graph.
        if not self._mates[number]:
            log.warning(
                "the model was called %d times before the first backward; the budget is kept for that from "
                "the next step on (option calls=%d keeps it from the first)",
                calls,
                calls,
            )
        self._calls[number] = calls
        self.plan_anew()

    def _note_break(self, number: int, mates: set[int]) -> None:
        self._mates[number] |= mates
        for other in mates:
            self._mates[other].add(number)
        if not self._together >= {number, *mates}:
            self._together |= {number, *mates}
            self._is_news = True
        self.plan_anew()
