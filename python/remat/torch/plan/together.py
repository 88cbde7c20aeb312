"""Plans for graphs whose saved tensors are in memory together: parts of a model with graph breaks, several
calls of one model.

Each part is planned separately within the memory that the others leave; the memory is split between them so
that the total time is least.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import remat
from remat import _core

from ..base.progress import ProgressLine
from ..base.units import exact_bytes
from .beside import Beside
from .cache import PlanCache
from .options import Options, with_budget
from .part import Part
from .search import first_plan, search, seconds_for


def plan_together(
    parts: Sequence[Part],
    options: Options,
    limit: int,
    cache: PlanCache,
    progress: ProgressLine | None = None,
) -> tuple[remat.PlanResult, int]:
    """A plan for the first of several parts, and the bytes that the others hold beside it at its peak.

    The decision for all parts is cached, so that each gets its plan of the same decision. Raises NoPlanError.
    """
    ordered = sorted(parts, key=lambda part: part.number)
    decided = cache.found(
        (*(part.identity for part in ordered), limit),
        lambda: _Together(ordered, options, limit, cache, progress).best(),
    )
    if decided is None:
        known = cache.found(
            ("smallest", *(part.identity for part in ordered), limit),
            lambda: _Together(ordered, options, limit, cache, progress).smallest(),
        )
        raise _no_plans(parts, options, limit, known)
    return decided[parts[0].number]


# Choices of a part: the number of steps down in bytes held at the loss, and in its peak; fewer in a small
# range.
_HELD_STEPS, _PEAK_STEPS = 12, 4
# Fewer if each needs a search with a time limit.
_FEW_HELD_STEPS, _FEW_PEAK_STEPS = 6, 1
# Limit of the split itself, some seconds at most.
_SPLIT_WORK = 20_000_000
# Bisections between a limit that fails and keep-all; and limits tried from there on.
_HALVINGS, _TRIES = 12, 4
# Work to make the keep-all plan.
_KEEP_WORK = 1_000_000
# Rounds of search after a split, each for the new choices.
_ROUNDS = 4

_Find = Callable[[remat.Graph, int], "remat.PlanResult | None"]


@dataclass(frozen=True)
class _Choice:
    """One way to run a part; bytes held at the loss and at its peak. cap, target: the planner's arguments."""

    result: remat.PlanResult
    held: int
    peak: int
    cap: int
    target: int

    @property
    def duration(self) -> int:
        return self.result.duration or 0


class _Together:
    """A way to run each part, of several that differ in what it holds at the loss and in its peak, so that
    the time of all is least and the peak of each leaves room for what the others hold meanwhile: those before
    it what their plans hold, without the gradients of their outputs; those after it, whose backward is over
    when its own begins, their outputs. The core chooses (`split_within`), so that a byte has the same price
    in all parts; parts that are alike need not run alike.

    The first plans for all come by work, so that whether there are any does not depend on the clock; then
    what was chosen is searched within the limits, and chosen again.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        options: Options,
        limit: int,
        cache: PlanCache,
        progress: ProgressLine | None,
    ) -> None:
        self.parts, self.limit, self.cache, self.progress = parts, limit, cache, progress
        self.keys = [part.key for part in parts]
        self.beside = Beside(parts)
        self.whole, self.least = self.beside.whole, self.beside.least
        self.timed = options.work_limit is None
        self.seconds = options.time_limit or max(seconds_for(part.graph) for part in parts)
        host = options.settled_host
        if host is not None and host.budget is not None:
            # All calls in flight hold theirs at the same time.
            calls = sum(part.copies for part in parts)
            budget = max(1, host.budget // calls)
            options = replace(options, host=with_budget(host, budget))
        if self.timed:
            options = replace(options, time_limit=self.seconds / (2 * len(set(self.keys))))
        self.options = options

    def best(self) -> dict[int, tuple[remat.PlanResult, int]] | None:
        """By number of a part its plan, and the bytes beside it: the fastest within the limit, of the ways
        that were looked at.
        """
        start = time.perf_counter()
        chosen = self._kept_all()
        if chosen is None:
            curves = self._curves(self._first, _HELD_STEPS, _PEAK_STEPS)
            chosen = self._split(curves)
            if chosen is None:
                curves = self._curves(self._search, _FEW_HELD_STEPS, _FEW_PEAK_STEPS)
                chosen = self._split(curves)
            if chosen is None:
                return None
            chosen = self._searched(curves, chosen, start)
        held = [choice.held for choice in chosen]
        return {
            part.number: (choice.result, self.beside.of(i, held))
            for i, (part, choice) in enumerate(zip(self.parts, chosen, strict=True))
        }

    def smallest(self) -> int:
        """The least limit, of a few tried, that suffices; depends on work limits only."""
        most = max(self.beside.keep_all_peaks())
        wide = self._within(most)
        curves = wide._curves(wide._first, _HELD_STEPS, _PEAK_STEPS)
        low, high = min(self.limit, most), most
        for _ in range(_HALVINGS):
            middle = (low + high) // 2
            low, high = (low, middle) if self._within(middle)._split(curves) else (middle, high)
        for limit in (high, *(high + (most - high) * i // _TRIES for i in range(1, _TRIES))):
            tried = self._within(limit)
            if tried._split(tried._curves(tried._first, _HELD_STEPS, _PEAK_STEPS)):
                return limit
        return most

    def _within(self, limit: int) -> _Together:
        return _Together(self.parts, self.options, limit, self.cache, self.progress)

    def _kept_all(self) -> list[_Choice] | None:
        """All parts without recomputation, if the limit allows that."""
        if max(self.beside.keep_all_peaks()) > self.limit:
            return None
        chosen = [
            self._way(i, self.whole[i], int(part.graph.keep_all_peak), self._kept)
            for i, part in enumerate(self.parts)
        ]
        found = [choice for choice in chosen if choice is not None]
        held = [choice.held for choice in found]
        fits = len(found) == len(chosen) and all(
            choice.peak + self.beside.of(i, held) <= self.limit for i, choice in enumerate(found)
        )
        return found if fits else None

    def _curves(self, find: _Find, held_steps: int, peak_steps: int) -> dict[str, list[_Choice]]:
        """The choices of each part, by its key."""
        curves: dict[str, list[_Choice]] = {}
        for i, key in enumerate(self.keys):
            if key not in curves:
                alike = [j for j, other in enumerate(self.keys) if other == key]
                most = max(self.limit - self.beside.of(j, self.least) for j in alike)
                curves[key] = list(self._ways(i, most, find, held_steps, peak_steps))
        return curves

    def _ways(
        self, index: int, most: int, find: _Find, held_steps: int, peak_steps: int
    ) -> Iterator[_Choice]:
        """Down from a peak of `most`, at each peak down from what keeping everything holds."""
        graph = self.parts[index].graph
        whole, least = self.whole[index], self.least[index]
        peak_step = max(1, (min(most, graph.keep_all_peak) - graph.floor) // peak_steps)
        held_step = max(1, (whole - least) // held_steps)
        target = most
        while target >= graph.floor:
            cap, highest = whole, 0
            while cap >= least:
                choice = self._way(index, cap, target, find)
                if choice is None:
                    break
                yield choice
                highest = max(highest, choice.peak)
                if choice.held == least:
                    break
                cap = max(least, min(cap - held_step, choice.held - 1))
            if highest == 0:
                return
            target = min(target - peak_step, highest - 1)

    def _way(self, index: int, cap: int, target: int, find: _Find) -> _Choice | None:
        result = self._capped(index, cap, target, find) if target > 0 else None
        if result is None or result.plan is None:
            return None
        held = self._held_by(index, result.plan)
        return _Choice(result, held, self._peak(index, result), cap, target)

    def _split(self, curves: Mapping[str, Sequence[_Choice]]) -> list[_Choice] | None:
        """A choice for each part, at the least total duration, or None."""
        count = len(self.parts)
        nothing = [0] * count
        room = [self.limit - self.beside.of(i, nothing) for i in range(count)]
        asked = []
        for j, part in enumerate(self.parts):
            weights = [
                other.copies - 1 + (1 if i != j and part.number in other.before else 0)
                for i, other in enumerate(self.parts)
            ]
            asked.append(
                [
                    (
                        part.copies * choice.duration,
                        [
                            weight * choice.held + (choice.peak if i == j else 0)
                            for i, weight in enumerate(weights)
                        ],
                    )
                    for choice in curves[self.keys[j]]
                ]
            )
        if min(room) < 0:
            return None
        numbers, _, _, _ = _core.split_within(room, asked, _SPLIT_WORK)
        return [curves[key][n] for key, n in zip(self.keys, numbers, strict=True)] if numbers else None

    def _searched(
        self, curves: dict[str, list[_Choice]], chosen: list[_Choice], start: float
    ) -> list[_Choice]:
        """With longer searches for what was chosen, with the room that the others leave, while there is time.
        Parts that run alike are searched once, with room for the last of them.
        """
        seen: set[tuple[str, int, int]] = set()
        for _ in range(_ROUNDS):
            held = [choice.held for choice in chosen]
            wanted: dict[tuple[str, int], tuple[int, int]] = {}
            for i, (key, choice) in enumerate(zip(self.keys, chosen, strict=True)):
                room = self.limit - self.beside.of(i, held)
                wanted[key, choice.held] = min(wanted.get((key, choice.held), (room, i)), (room, i))
            new = {
                (key, cap, room): i
                for (key, cap), (room, i) in wanted.items()
                if (key, cap, room) not in seen
            }
            for (key, cap, room), i in new.items():
                if self._is_late(start):
                    break
                found = self._way(i, cap, room, self._search)
                if found is not None:
                    curves[key].append(found)
            seen.update(new)
            better = self._split(curves) if new else None
            if better is None or self._duration(better) >= self._duration(chosen):
                return chosen
            chosen = better
        return chosen

    def _duration(self, chosen: Sequence[_Choice]) -> int:
        return sum(part.copies * each.duration for part, each in zip(self.parts, chosen, strict=True))

    def _is_late(self, start: float) -> bool:
        return self.timed and time.perf_counter() - start > self.seconds

    def _kept(self, graph: remat.Graph, target: int) -> remat.PlanResult:
        return remat.plan(graph, target, "keep_all", time_limit=None, work_limit=_KEEP_WORK)

    def _first(self, graph: remat.Graph, target: int) -> remat.PlanResult | None:
        return first_plan(graph, target, self.options)

    def _search(self, graph: remat.Graph, target: int) -> remat.PlanResult:
        return search(graph, target, self.options, self.progress)

    def _peak(self, index: int, result: remat.PlanResult) -> int:
        plan = result.plan
        if plan is None:
            return 0
        return int(remat.simulate(self.parts[index].graph, plan.steps, plan.copies).peak)

    def _held_by(self, index: int, plan: remat.Plan) -> int:
        return self.parts[index].held_bytes(plan.steps, plan.copies)

    def _capped(self, index: int, cap: int, target: int, find: _Find) -> remat.PlanResult | None:
        """Plan a part so that it holds at most `cap` bytes at the loss: by a workspace there that fills the
        rest.
        """
        part = self.parts[index]

        def found() -> remat.PlanResult | None:
            description = part.graph.to_dict()
            loss = description["ops"][part.loss]
            loss["workspace"] = max(loss.get("workspace", 0), target - cap - part.graph.resident)
            return find(remat.Graph.from_dict(description), target)

        return self.cache.found((find.__name__, self.keys[index], cap, target), found)


def _no_plans(parts: Sequence[Part], options: Options, limit: int, known: int) -> remat.NoPlanError:
    """In bytes of the whole step, reserve included. Of several graphs no floor is proved: what passes between
    them counts as held for as long as it may be.
    """
    reserve = options.size("reserve")
    calls = sum(part.copies for part in parts)
    return remat.NoPlanError(
        f"no plans for {calls} calls in flight together within {exact_bytes(limit + reserve)} were found; "
        f"smallest budget known to work: {exact_bytes(known + reserve)}",
        smallest_known=known + reserve,
    )
