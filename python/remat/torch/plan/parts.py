"""Plans for graphs whose saved tensors are in memory together: parts of a broken model, several calls of one.

Each part is planned by itself, as if it ran alone, within what the others leave.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import remat

from ..base.progress import ProgressLine
from ..base.step import StepGraph
from .options import Options
from .store import digest


@dataclass
class Part:
    """A graph of the model, as far as planning it together with others needs.

    new_gradients: bytes of gradients that its backward makes and nobody adds to existing ones.
    copies: how many calls of it are in flight at once.
    number, before: which graph it is, and which ones hold tensors already when it starts.
    """

    graph: remat.Graph
    loss: int
    new_gradients: int
    generator_states: int
    copies: int = 1
    number: int = 0
    before: set[int] = field(default_factory=set)

    @property
    def key(self) -> str:
        """Equal for parts of the same ops, sizes and times."""
        return digest([without_names(self.graph), self.loss])


# Results of the core by what they depend on: blocks of a model that are alike are planned once.
Memo = dict[tuple[Any, ...], remat.PlanResult]


def part_of(
    step: StepGraph,
    graph: remat.Graph,
    gradients_counted: bool = False,
    copies: int = 1,
    number: int = 0,
    before: set[int] | None = None,
) -> Part:
    """gradients_counted: memory for the gradients is there already, or counted as resident."""
    loss = step.ops[step.loss]
    gradients = sum(step.values[v].bytes for v in step.kept if v not in {*loss.inputs, *loss.outputs})
    states = sum(op.state_bytes for op in step.ops)
    new_gradients = 0 if gradients_counted else gradients
    return Part(graph, step.loss, new_gradients, states, copies, number, before or set())


def without_names(graph: remat.Graph) -> dict[str, Any]:
    """The graph as an object without names: tracing the same step again may name things differently."""
    described = graph.to_dict()
    for named in (described, *described["ops"], *described["values"]):
        if isinstance(named, dict):
            named.pop("name", None)
            named.pop("module", None)
    return described


def seconds_for(graph: remat.Graph) -> float:
    """A time limit by the size of the graph: the search gains little after it (docs/torch.md has numbers)."""
    return min(20.0, 1.0 + graph.num_ops / 400)


def search(
    graph: remat.Graph, target: int, options: Options, progress: ProgressLine | None = None
) -> remat.PlanResult:
    """A plan for one graph within `target` bytes."""
    limited = options.time_limit is not None or options.work_limit is not None
    return remat.plan(
        graph,
        budget=target,
        planner=options.planner,
        order="free" if options.order == "free" else "fixed",
        time_limit=options.time_limit if limited else seconds_for(graph),
        work_limit=options.work_limit,
        seed=options.seed,
        threads=options.threads,
        progress=progress.better_plan if progress is not None else None,
    )


def held_bytes(part: Part, steps: Sequence[int]) -> int:
    """Bytes alive at the loss boundary besides what is always resident: what a call in flight holds."""
    memory = remat.simulate(part.graph, steps).memory
    position = list(steps).index(part.loss)
    return int(memory[position]) - part.graph.resident - int(part.graph.workspaces[part.loss])


def plan_parts(
    parts: Sequence[Part],
    options: Options,
    limit: int,
    progress: ProgressLine | None = None,
    memo: Memo | None = None,
) -> tuple[remat.PlanResult, int]:
    """A plan for the first of several parts, and the bytes that the others hold beside it at its peak.

    Raises NoPlanError.
    """
    found = _Together(parts, options, limit, progress, {} if memo is None else memo).best()
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
        self, parts: Sequence[Part], options: Options, limit: int, progress: ProgressLine | None, memo: Memo
    ) -> None:
        self.parts, self.limit, self.progress, self.memo = parts, limit, progress, memo
        self.keys = [part.key for part in parts]
        self.resident = max(part.graph.resident for part in parts)
        self.states = sum(part.copies * part.generator_states for part in parts)
        self.whole = [held_bytes(part, range(part.graph.num_ops)) for part in parts]
        self.tangents = [_bytes(part, part.graph.op_outputs(part.loss)) for part in parts]
        self.least = [
            size + _bytes(part, part.graph.op_inputs(part.loss))
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
            held_bytes(part, list(plan.steps)) if plan is not None else 0
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
        key = self.keys[index], cap, target
        if key not in self.memo:
            part = self.parts[index]
            description = part.graph.to_dict()
            loss = description["ops"][part.loss]
            loss["workspace"] = max(loss.get("workspace", 0), target - cap - part.graph.resident)
            self.memo[key] = search(remat.Graph.from_dict(description), target, self.options, self.progress)
        return self.memo[key]


def _bytes(part: Part, values: Sequence[int]) -> int:
    given = set(part.graph.inputs)
    return sum(int(part.graph.bytes[value]) for value in set(values) - given)


def _no_plans(parts: Sequence[Part], limit: int) -> remat.NoPlanError:
    whole = [held_bytes(part, range(part.graph.num_ops)) for part in parts]
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
