"""Plans that no planner would make: any valid sequence must run."""

from __future__ import annotations

import random

import remat


def random_plan(graph: remat.Graph, seed: int, extra: float = 1.0, forget: float = 0.3) -> remat.Plan:
    """The graph's ops in order, with random recomputation anywhere (in the forward half too).

    Before each op some values are forgotten at random and computed again with whatever that takes; ops that
    may run only once are never forgotten. `extra` bounds the added steps as a fraction of the ops.
    """
    rng = random.Random(seed)
    description = graph.to_dict()
    ops, given = description["ops"], set(description["inputs"])
    producer = {v: i for i, op in enumerate(ops) for v in op["outputs"]}
    once = {i for i, op in enumerate(ops) if op.get("recompute") == "never"}
    present: set[int] = set(given)
    steps: list[int] = []
    left = int(extra * len(ops))

    def run(index: int) -> None:
        stack = [index]
        while stack:
            top = stack[-1]
            missing = [v for v in ops[top]["inputs"] if v not in present]
            if missing:
                stack.extend(producer[v] for v in missing)
                continue
            stack.pop()
            steps.append(top)
            present.update(ops[top]["outputs"])

    for index, op in enumerate(ops):
        for value in op["inputs"]:
            if value in given or producer[value] in once or left <= 0 or rng.random() >= forget:
                continue
            present.discard(value)
            for other in ops[producer[value]]["inputs"]:
                if other not in given and producer[other] not in once and rng.random() < forget:
                    present.discard(other)
        before = len(steps)
        run(index)
        left -= len(steps) - before - 1
        del op
    return remat.Plan(graph, steps)


def segment_plan(graph: remat.Graph, segments: int) -> remat.Plan:
    """Keep what crosses from one of equal segments of the forward to the next, compute all else again when
    needed.
    """
    description = graph.to_dict()
    ops, given = description["ops"], set(description["inputs"])
    producer = {v: i for i, op in enumerate(ops) for v in op["outputs"]}
    loss = next(i for i, op in enumerate(ops) if op["phase"] == "loss")
    segment = [min(segments - 1, i * segments // loss) if i < loss else segments for i in range(len(ops))]
    present = set(given)
    for index in range(loss + 1):
        readers = [r for r in range(loss + 1) for v in ops[r]["inputs"] if producer.get(v) == index]
        if ops[index].get("recompute") == "never" or any(segment[r] != segment[index] for r in readers):
            present.update(ops[index]["outputs"])
    steps = list(range(loss + 1))
    for index in range(loss + 1, len(ops)):
        stack = [index]
        while stack:
            missing = [v for v in ops[stack[-1]]["inputs"] if v not in present]
            if missing:
                stack.extend(producer[v] for v in missing)
                continue
            top = stack.pop()
            steps.append(top)
            present.update(ops[top]["outputs"])
    return remat.Plan(graph, steps)
