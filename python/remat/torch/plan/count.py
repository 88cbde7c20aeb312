"""What a plan needs: the simulator's bytes, and the generator states that carrying it out adds to them."""

from __future__ import annotations

from collections.abc import Sequence

import remat

from ..base.step import StepGraph

# Value, "out" or "in", step of issue, step of wait.
CopyStep = tuple[int, str, int, int]


def peak_of(step: StepGraph, graph: remat.Graph, steps: Sequence[int]) -> int:
    """Peak of a plan: the most of `memory_of`."""
    return max(memory_of(step, steps, remat.simulate(graph, steps)))


def memory_of(step: StepGraph, steps: Sequence[int], simulated: remat.Simulation) -> list[int]:
    """Bytes at each step of a plan, with the generator states of the random ops that run again: each is held
    from the first run to the last, and every further run holds the state of the moment besides.
    """
    memory = [int(m) for m in simulated.memory]
    runs: dict[int, list[int]] = {}
    for position, index in enumerate(steps):
        if step.ops[index].random:
            runs.setdefault(index, []).append(position)
    for index, positions in runs.items():
        size = step.ops[index].state_bytes
        for again in positions[1:]:
            memory[again] += size
        for position in range(positions[0], positions[-1] + 1) if len(positions) > 1 else ():
            memory[position] += size
    return memory
