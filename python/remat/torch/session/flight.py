"""What is in flight together: calls and graphs that hold tensors for a backward to come."""

from __future__ import annotations

import gc
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping

log = logging.getLogger("remat.torch")


class InFlight:
    """Notices which graphs are in flight together, and whether plans were made for that.

    stale: the plans were made before it was known what is in flight together, or what becomes of the outputs.
    """

    def __init__(self, calls: int) -> None:
        """calls: how many calls of each graph will be in flight before the first backward, at the least."""
        self.stale = False
        self._least = calls
        self._calls: dict[int, int] = {}
        self._together: set[int] = set()
        self._is_news = False
        # By graph: those that are in flight together with it; of them those that were there before it.
        self._mates: dict[int, set[int]] = defaultdict(set)
        self._before: dict[int, set[int]] = defaultdict(set)

    def calls(self, number: int) -> int:
        """How many calls of a graph are in flight before the first backward, as far as was seen."""
        return max(self._least, self._calls.get(number, 0))

    def take_news(self) -> set[int]:
        """The graphs that are in flight together with others, if there are more than when last asked."""
        news, self._is_news = self._is_news, False
        return set(self._together) if news else set()

    def mates(self, number: int) -> frozenset[int]:
        """The graphs whose saved tensors are in memory together with those of this one."""
        return frozenset(self._mates[number])

    def before(self, number: int) -> frozenset[int]:
        """Those of them that hold tensors already when this one starts."""
        return frozenset(self._before[number])

    def plan_anew(self) -> None:
        """As soon as nothing is in flight."""
        self.stale = True

    def forget(self, number: int) -> None:
        """This graph is no more."""
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
        """A call of a graph begins; is it the only one in flight?

        held: says how many calls of each graph are in flight.
        """
        own, mates = self._others(number, held())
        news = own >= self.calls(number) or not mates <= self._mates[number]
        if news or not (own or mates <= self._before[number]):
            gc.collect()  # what only waits to be collected will see no backward
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
        """Calls of this graph in flight, and which of the other graphs are."""
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
