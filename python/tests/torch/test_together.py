"""How a limit is split between parts that are in memory together."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence

import pytest
import remat
from remat.torch.plan.cache import PlanCache
from remat.torch.plan.options import Options
from remat.torch.plan.part import Part
from remat.torch.plan.together import plan_together

WORK = 300_000


def block(draw: random.Random, layers: int) -> tuple[remat.Graph, int]:
    """x -> f0 -> f1 -> ... -> loss | backward: of each layer one op that reads what f read and made."""
    sizes = [1]
    ops = []

    def add(inputs: list[int], size: int, duration: int) -> int:
        sizes.append(size)
        ops.append(remat.Op(f"op{len(ops)}", duration, inputs, [len(sizes) - 1]))
        return len(sizes) - 1

    made = [0]
    for _ in range(layers):
        made.append(add([made[-1]], draw.randint(1, 6), draw.randint(1, 20)))
    last = add([made[-1]], 1, 1)
    loss = len(ops) - 1
    for i in reversed(range(layers)):
        last = add([last, made[i], made[i + 1]], draw.randint(1, 2), draw.randint(1, 9))
    return remat.Graph(sizes, ops, inputs=[0], outputs=[last]), loss


def parts_of(draw: random.Random, count: int) -> list[Part]:
    """One after the other; the last is like the first."""
    blocks = [block(draw, draw.randint(2, 3)) for _ in range(count - 1)]
    blocks.append(blocks[0])
    return [
        Part(graph, loss, draw.choice([0, 1]), number=i, before=frozenset(range(i)))
        for i, (graph, loss) in enumerate(blocks)
    ]


def shortest(part: Part, cap: int, target: int) -> int | None:
    """Duration of the fastest plan with this peak that holds no more than `cap` at the loss: by Dijkstra over
    what has run and what is there.
    """
    graph = part.graph
    kept = frozenset(graph.outputs)
    queue: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    seen = set()
    while queue:
        duration, following, there = heapq.heappop(queue)
        if (following, there) in seen:
            continue
        seen.add((following, there))
        if following == graph.num_ops and kept <= set(there):
            return duration
        for op in range(min(following + 1, graph.num_ops)):
            inputs = set(graph.op_inputs(op)) - set(graph.inputs)
            if not inputs <= set(there):
                continue
            after = set(there) | set(graph.op_outputs(op))
            held = sum(int(graph.bytes[v]) for v in after)
            if held + graph.resident > target or (op == part.loss and held > cap):
                continue
            state = max(following, op + 1), tuple(sorted(after))
            heapq.heappush(queue, (duration + int(graph.durations[op]), *state))
        for value in there:
            heapq.heappush(queue, (duration, following, tuple(v for v in there if v != value)))
    return None


def ways(part: Part) -> set[tuple[int, int, int]]:
    """Bytes held at the loss, peak, duration: of the fastest plans at all of the first two."""
    return {
        (cap, target, duration)
        for target in range(part.graph.floor, part.graph.keep_all_peak + 1)
        for cap in range(part.keep_all_held + 1)
        if (duration := shortest(part, cap, target)) is not None
    }


def fastest(parts: Sequence[Part], all_ways: Sequence[set[tuple[int, int, int]]], limit: int) -> int | None:
    """Over all ways to run all parts."""
    outputs = [part.made_bytes(part.graph.op_outputs(part.loss)) for part in parts]
    least = [outputs[i] + part.made_bytes(part.graph.op_inputs(part.loss)) for i, part in enumerate(parts)]
    resident = max(part.graph.resident for part in parts)
    best: int | None = None
    for chosen in itertools.product(*all_ways):
        for i, (_, peak, _) in enumerate(chosen):
            beside = sum(chosen[j][0] - outputs[j] for j in range(i)) + sum(least[i + 1 :])
            beside += sum(part.new_gradients for j, part in enumerate(parts) if j != i)
            if peak + beside + resident - parts[i].graph.resident > limit:
                break
        else:
            duration = sum(way[2] for way in chosen)
            best = duration if best is None else min(best, duration)
    return best


def test_the_split_is_as_fast_as_the_best_of_all() -> None:
    recomputing = impossible = 0
    for seed in range(8):
        parts = parts_of(random.Random(seed), 3)
        all_ways = [ways(part) for part in parts[:-1]]
        all_ways.append(all_ways[0])
        whole = sum(part.keep_all_held for part in parts) + max(p.graph.keep_all_peak for p in parts)
        for limit in range(whole // 3, whole, max(1, whole // 14)):
            best = fastest(parts, all_ways, limit)
            options = Options(limit, work_limit=WORK)
            if best is None:
                impossible += 1
                with pytest.raises(remat.NoPlanError):
                    plan_together(parts, options, limit, PlanCache())
                continue
            cache = PlanCache()
            plans = [
                plan_together([part, *(p for p in parts if p is not part)], options, limit, cache)
                for part in parts
            ]
            assert sum(plan.duration or 0 for plan, _ in plans) == best, (seed, limit)
            for part, (plan, beside) in zip(parts, plans, strict=True):
                assert plan.plan is not None
                assert (remat.simulate(part.graph, plan.plan.steps).peak or 0) + beside <= limit
            recomputing += best > sum(part.graph.base_duration for part in parts)
    assert recomputing > 10
    assert impossible > 3
