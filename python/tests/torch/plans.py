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


def with_random_copies(graph: remat.Graph, plan: remat.Plan, seed: int, share: float = 0.6) -> remat.Plan:
    """The plan with copies of so many of the values that may be copied, at random times.

    A value leaves after it was made or later, and is back in time for the next step that reads it; now and
    then it comes back twice. `graph` was captured with a host.
    """
    rng = random.Random(seed)
    steps, values = plan.steps, graph.to_dict()["values"]
    end = len(steps)
    made: dict[int, list[int]] = {}
    read: dict[int, list[int]] = {}
    for position, op in enumerate(steps):
        for value in graph.op_inputs(op):
            read.setdefault(value, []).append(position)
        for value in graph.op_outputs(op):
            made.setdefault(value, []).append(position)
    copies: list[tuple[int, str, int, int]] = []
    for value, positions in made.items():
        if values[value].get("copy") == "never" or rng.random() >= share:
            continue
        # Of one instance: from where it is made to where it is made again.
        which = rng.randrange(len(positions))
        first, last = positions[which], (*positions[which + 1 :], end)[0]
        issue = rng.randrange(first, last)
        free = rng.randint(issue + 1, min(last, issue + 1 + rng.choice([0, 3, end])))
        copies.append((value, "out", issue, free))
        readers = [r for r in read.get(value, []) if free <= r <= last and r < end]
        if last < end:  # what reads there reads it before it is made again
            readers = [r for r in readers if r < last or value not in graph.op_outputs(steps[last])]
        start = free
        while readers:
            back = rng.randint(max(start, readers[0] - rng.choice([0, 2, end])), readers[0])
            copies.append((value, "in", back, rng.randint(back, readers[0])))
            if rng.random() < 0.8:
                break
            start, readers = readers[0] + 1, readers[1:]
    copies.sort(key=lambda copy: copy[2])
    return remat.Plan(graph, steps, copies=copies, host="1GB/s")
