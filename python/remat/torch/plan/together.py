"""Plans for graphs whose saved tensors are in memory together: parts of a broken model, several calls of one.

Each part is planned by itself, as if it ran alone, within what the others leave.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import remat

from ..base.progress import ProgressLine
from ..base.units import exact_bytes
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

    What is decided for all of them is kept, so that each gets its plan of the same decision.
    Raises NoPlanError.
    """
    ordered = sorted(parts, key=lambda part: part.number)
    decided = cache.found(
        (*(part.identity for part in ordered), limit),
        lambda: _Together(ordered, options, limit, cache, progress).best(),
    )
    if decided is None:
        raise _no_plans(parts, limit, options.size("reserve"))
    return decided[parts[0].number]


# Shares of what keeping everything would hold at the loss, tried for parts that are in flight together.
_SHARES = (1.0, 0.75, 0.55, 0.4, 0.3, 0.2, 0.13, 0.08)
_HALVINGS = 2

_Find = Callable[[remat.Graph, int], "remat.PlanResult | None"]
_Plans = list[remat.PlanResult]


class _Together:
    """Each part may hold a share of what it would hold if it kept everything, the same share for all, and its
    peak must leave room for what the others hold meanwhile: those before it what their plans hold, without
    the gradients of their outputs; those after it, whose backward is over when its own begins, their
    outputs.

    The first plans for all come by work, so that whether there are any does not depend on the clock; then all
    are searched within the limits.
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
        self.resident = max(part.graph.resident for part in parts)
        self.whole = [part.keep_all_held for part in parts]
        self.tangents = [part.made_bytes(part.graph.op_outputs(part.loss)) for part in parts]
        self.least = [
            size + part.made_bytes(part.graph.op_inputs(part.loss))
            for part, size in zip(parts, self.tangents, strict=True)
        ]
        self.timed = options.work_limit is None
        self.seconds = options.time_limit or max(seconds_for(part.graph) for part in parts)
        host = options.settled_host
        if host is not None and host.budget is not None:
            # All calls in flight have theirs there at the same time.
            calls = sum(part.copies for part in parts)
            budget = max(1, host.budget // calls)
            options = replace(options, host=with_budget(host, budget))
        if self.timed:
            options = replace(options, time_limit=self.seconds / (2 * len(set(self.keys))))
        self.options = options

    def best(self) -> dict[int, tuple[remat.PlanResult, int]] | None:
        """By number of a part its plan, and the bytes beside it: with the largest share that leaves room, as
        far as was tried.
        """
        start = time.perf_counter()
        share, results = self._largest(self._first)
        if results is None:
            share, results = self._largest(self._search)
        else:
            share, results = self._raised(share, results, start)
        if results is None:
            return None
        results = self._between(share, results, start)
        held = self._held(results)
        return {
            part.number: (result, self._beside(i, held))
            for i, (part, result) in enumerate(zip(self.parts, results, strict=True))
        }

    def _largest(self, find: _Find) -> tuple[float, _Plans | None]:
        """The largest share that leaves room for plans of a kind, and they."""
        for share in _SHARES:
            results = self._plans(share, find)
            if results is not None:
                return share, results
        return 0.0, None

    def _raised(self, share: float, first: _Plans, start: float) -> tuple[float, _Plans]:
        """The best of the first plans and of those searched for with this share and larger ones, while there
        is time.
        """
        results = first
        for larger in [s for s in reversed(_SHARES) if s >= share]:
            if self._is_late(start):
                break
            found = self._plans(larger, self._search)
            if found is None:
                break
            share, results = larger, self._faster(results, found)
        return share, results

    def _between(self, share: float, results: _Plans, start: float) -> _Plans:
        """Halves the way to the next larger share."""
        high = min((s for s in _SHARES if s > share), default=share)
        for _ in range(_HALVINGS if high > share else 0):
            if self._is_late(start):
                break
            middle = (share + high) / 2
            found = self._plans(middle, self._search)
            if found is None:
                high = middle
            elif self._duration(found) < self._duration(results):
                results, share = found, middle
        return results

    def _is_late(self, start: float) -> bool:
        return self.timed and time.perf_counter() - start > self.seconds

    def _faster(self, known: _Plans, found: _Plans) -> _Plans:
        return found if self._duration(found) <= self._duration(known) else known

    def _first(self, graph: remat.Graph, target: int) -> remat.PlanResult | None:
        return first_plan(graph, target, self.options)

    def _search(self, graph: remat.Graph, target: int) -> remat.PlanResult:
        return search(graph, target, self.options, self.progress)

    def _duration(self, results: Sequence[remat.PlanResult]) -> int:
        return sum(p.copies * (r.duration or 0) for p, r in zip(self.parts, results, strict=True))

    def _plans(self, share: float, find: _Find) -> _Plans | None:
        """Plans for all parts that hold at most this share, or None."""
        caps = [max(int(share * size), low) for size, low in zip(self.whole, self.least, strict=True)]
        held = self.least
        # First with room for the least that others can hold, then for what they do.
        for _ in range(2):
            # Parts that are alike get the same plan, with room for the last of them.
            target: dict[str, int] = {}
            for i, key in enumerate(self.keys):
                target[key] = min(target.get(key, self.limit), self.limit - self._beside(i, held))
            results = []
            for i, key in enumerate(self.keys):
                result = self._capped(i, caps[i], target[key], find) if target[key] > 0 else None
                if result is None or result.plan is None:
                    return None
                results.append(result)
            held = self._held(results)
            if all(
                self._peak(i, result) + self._beside(i, held) <= self.limit
                for i, result in enumerate(results)
            ):
                return results
        return None

    def _peak(self, index: int, result: remat.PlanResult) -> int:
        plan = result.plan
        if plan is None:
            return 0
        return int(remat.simulate(self.parts[index].graph, plan.steps, plan.copies).peak)

    def _held(self, results: Sequence[remat.PlanResult]) -> list[int]:
        plans = [result.plan for result in results]
        return [
            part.held_bytes(plan.steps, plan.copies) if plan is not None else 0
            for part, plan in zip(self.parts, plans, strict=True)
        ]

    def _beside(self, index: int, held: Sequence[int]) -> int:
        """Bytes in memory at the peak of a part besides its own, if each part holds so much."""
        part = self.parts[index]
        others = [j for j in range(len(self.parts)) if j != index]
        beside = sum(
            held[j] - self.tangents[j] if self.parts[j].number in part.before else self.least[j]
            for j in others
        )
        beside += (part.copies - 1) * sum(held)
        beside += sum(p.new_gradients for j, p in enumerate(self.parts) if j != index or p.copies > 1)
        return beside + self.resident - part.graph.resident

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


def _no_plans(parts: Sequence[Part], limit: int, reserve: int) -> remat.NoPlanError:
    """In bytes of the whole step, reserve included."""
    whole = [part.keep_all_held for part in parts]
    floor = max(part.graph.floor for part in parts) + reserve
    together = sum(part.copies * size for part, size in zip(parts, whole, strict=True))
    gradients = sum(part.new_gradients for part in parts)
    resident = max(part.graph.resident for part in parts)
    largest = max(p.graph.keep_all_peak - p.graph.resident for p in parts)
    known = largest + together + resident + gradients + reserve
    calls = sum(part.copies for part in parts)
    return remat.NoPlanError(
        f"no plans for {calls} calls in flight together within {exact_bytes(limit + reserve)} were found; "
        f"none goes below {exact_bytes(floor)}; "
        f"smallest budget known to work: {exact_bytes(known)}",
        floor=floor,
        smallest_known=known,
    )
