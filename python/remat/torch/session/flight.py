"""What is in flight together: calls and graphs that hold tensors for a backward to come."""

from __future__ import annotations

import gc
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping

log = logging.getLogger("remat.torch")


class InFlight:
    """Notices which graphs are in flight together, and whether plans were made for that.

    calls: how many calls of one graph are in flight before the first backward, as far as was seen.
    stale: the plans were made before it was known what is in flight together, or what becomes of the outputs.
    """

    def __init__(self, calls: int, breaks_are_news: bool) -> None:
        """breaks_are_news: several graphs in flight together are worth a warning."""
        self.calls = calls
        self.stale = False
        self._level = logging.WARNING if breaks_are_news else logging.DEBUG
        # By graph: those that are in flight together with it; of them those that were there before it.
        self._mates: dict[int, set[int]] = defaultdict(set)
        self._before: dict[int, set[int]] = defaultdict(set)

    def mates(self, number: int) -> frozenset[int]:
        """The graphs whose saved tensors are in memory together with those of this one."""
        return frozenset(self._mates[number])

    def before(self, number: int) -> frozenset[int]:
        """Those of them that hold tensors already when this one starts."""
        return frozenset(self._before[number])

    def plan_anew(self) -> None:
        """As soon as nothing is in flight."""
        self.stale = True

    def planned_anew(self) -> None:
        self.stale = False

    def start(self, number: int, held: Callable[[], Mapping[int, int]]) -> bool:
        """A call of a graph begins; is it the only one in flight?

        held: says how many calls of each graph are in flight.
        """
        own, mates = self._others(number, held())
        news = own >= self.calls or not mates <= self._mates[number]
        if news or not (own or mates <= self._before[number]):
            gc.collect()  # what only waits to be collected will see no backward
            own, mates = self._others(number, held())
        if own >= self.calls:
            self._note_calls(own + 1)
        if not mates <= self._mates[number]:
            self._note_break(number, mates)
        if not own and not mates <= self._before[number]:
            self._before[number] |= mates
            self.plan_anew()
        return not own and not mates

    def _others(self, number: int, held: Mapping[int, int]) -> tuple[int, set[int]]:
        """Calls of this graph in flight, and which of the other graphs are."""
        return held[number], {other for other, calls in held.items() if calls and other != number}

    def _note_calls(self, calls: int) -> None:
        log.warning(
            "the model was called %d times before the first backward; the budget is kept for that from the "
            "next step on (option calls=%d keeps it from the first)",
            calls,
            calls,
        )
        self.calls = calls
        self.plan_anew()

    def _note_break(self, number: int, mates: set[int]) -> None:
        log.log(
            self._level,
            "a graph break: graphs %s of the model are in flight together, each planned by itself within the "
            "common budget, nothing recomputed across the break (TORCH_LOGS=graph_breaks says where)",
            ", ".join(str(n) for n in sorted({number, *mates, *self._mates[number]})),
        )
        self._mates[number] |= mates
        for other in mates:
            self._mates[other].add(number)
        self.plan_anew()
