"""Plans for graphs whose saved tensors are in memory together: parts of a broken model, several calls of one.

Each part is planned by itself, as if it ran alone, within what the others leave.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import remat

from ..base.progress import ProgressLine
from .cache import PlanCache
from .options import Options
from .part import Part
from .search import search, seconds_for


def plan_together(
    parts: Sequence[Part],
    options: Options,
    limit: int,
    progress: ProgressLine | None = None,
    cache: PlanCache | None = None,
) -> tuple[remat.PlanResult, int]:
    """A plan for the first of several parts, and the bytes that the others hold beside it at its peak.

    Raises NoPlanError.
    """
    found = _Together(parts, options, limit, progress, cache or PlanCache()).best()
    if found is None:
        raise _no_plans(parts, limit)
    return found


# Shares of what keeping everything would hold at the loss, tried for parts that are in flight together.
_SHARES = (1.0, 0.75, 0.55, 0.4, 0.3, 0.2, 0.13, 0.08)
_HALVINGS = 2


class _Together:
    """Each part may hold a share of what it would hold if it kept everything, the same share for all, and its
    peak must leave room for what the others hold meanwhile: those before it what their plans hold, without
    the gradients of their outputs; those after it, whose backward is over when its own begins, their
    outputs.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        options: Options,
        limit: int,
        progress: ProgressLine | None,
        cache: PlanCache,
    ) -> None:
        self.parts, self.limit, self.progress, self.cache = parts, limit, progress, cache
        self.keys = [part.key for part in parts]
        self.resident = max(part.graph.resident for part in parts)
        self.states = sum(part.copies * part.generator_states for part in parts)
        self.whole = [part.keep_all_held for part in parts]
        self.tangents = [part.made_bytes(part.graph.op_outputs(part.loss)) for part in parts]
        self.least = [
            size + part.made_bytes(part.graph.op_inputs(part.loss))
            for part, size in zip(parts, self.tangents, strict=True)
        ]
        self.timed = options.work_limit is None
        self.seconds = options.time_limit or max(seconds_for(part.graph) for part in parts)
        if self.timed:
            options = replace(options, time_limit=self.seconds / (2 * len(set(self.keys))))
        self.options = options

    def best(self) -> tuple[remat.PlanResult, int] | None:
        """With the largest share that leaves room, as far as was tried."""
        start = time.perf_counter()
        results, high = None, 0.0
        for share in _SHARES:
            results = self._plans(share)
            if results is not None:
                break
            high = share
        if results is None:
            return None
        for _ in range(_HALVINGS if high > 0 else 0):
            if self.timed and time.perf_counter() - start > self.seconds:
                break
            middle = (share + high) / 2
            better = self._plans(middle)
            if better is None:
                high = middle
            elif self._duration(better) < self._duration(results):
                results, share = better, middle
        return results[0], self._beside(0, self._held(results))

    def _duration(self, results: Sequence[remat.PlanResult]) -> int:
        return sum(p.copies * (r.duration or 0) for p, r in zip(self.parts, results, strict=True))

    def _plans(self, share: float) -> list[remat.PlanResult] | None:
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
                result = self._capped(i, caps[i], target[key]) if target[key] > 0 else None
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
        return 0 if plan is None else int(remat.simulate(self.parts[index].graph, list(plan.steps)).peak)

    def _held(self, results: Sequence[remat.PlanResult]) -> list[int]:
        plans = [result.plan for result in results]
        return [
            part.held_bytes(list(plan.steps)) if plan is not None else 0
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
        return beside + self.states + self.resident - part.graph.resident

    def _capped(self, index: int, cap: int, target: int) -> remat.PlanResult:
        """Plan a part so that it holds at most `cap` bytes at the loss: by a workspace there that fills the
        rest.
        """
        part = self.parts[index]

        def found() -> remat.PlanResult:
            description = part.graph.to_dict()
            loss = description["ops"][part.loss]
            loss["workspace"] = max(loss.get("workspace", 0), target - cap - part.graph.resident)
            return search(remat.Graph.from_dict(description), target, self.options, self.progress)

        return self.cache.searched((self.keys[index], cap, target), found)


def _no_plans(parts: Sequence[Part], limit: int) -> remat.NoPlanError:
    whole = [part.keep_all_held for part in parts]
    floor = max(part.graph.floor for part in parts)
    together = sum(part.copies * size for part, size in zip(parts, whole, strict=True))
    gradients = sum(part.new_gradients for part in parts)
    resident = max(part.graph.resident for part in parts)
    known = max(p.graph.keep_all_peak - p.graph.resident for p in parts) + together + resident + gradients
    return remat.NoPlanError(
        f"no plans for {sum(p.copies for p in parts)} calls in flight together within {limit} bytes were "
        f"found; none goes below {floor}; smallest budget known to work: {known}",
        floor=floor,
        smallest_known=known,
    )
