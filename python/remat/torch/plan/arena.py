"""One allocation (pool) for the results of a plan: their offsets, and the memory of the step with it.

The pool exists all the time, and other results are allocated beside it: the step needs the pool plus the peak
beside it. These peaks may be at different times. So if the budget is too small for both, some results are
left out of the pool, preferably those not alive at the peak beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import remat

from ..base.units import format_bytes

# Alignment of offsets, that of PyTorch's CPU allocator, since kernels may be chosen by it.
ALIGNMENT = 64
# Work of layouts: first fit and a short search.
_WORK = 2_000_000
# Work of a layout that is only used to find live ranges.
_LEAST_WORK = 1

Bytes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Placeable:
    """forms: by op, the form that writes its results to given memory. held: values that the program may hold
    longer than planned. random: ops that run differently when recomputed.
    """

    forms: Mapping[int, Any]
    held: frozenset[int]
    random: frozenset[int] = frozenset()

    def describe(self) -> list[list[int]]:
        """As a JSON value."""
        return [sorted(self.forms), sorted(self.held), sorted(self.random)]


@dataclass(frozen=True)
class Arena:
    """The layout of results in one pool. Sizes are bytes.

    places: offset of an instance, by its step and value. pool: size of the allocation; beside: peak outside
    it, graph inputs included. outside: number of instances outside. written: bytes of all instances in it,
    over the whole plan. memory: by step, pool plus memory beside it.
    """

    places: Mapping[tuple[int, int], int]
    pool: int
    beside: int
    outside: int
    written: int
    memory: list[int] = field(repr=False)

    @property
    def peak(self) -> int:
        """Memory of the step."""
        return self.pool + self.beside

    def __str__(self) -> str:
        return (
            f"{format_bytes(self.pool)} for {len(self.places)} results, {self.outside} beside it, which with "
            f"all that is there from the start take up to {format_bytes(self.beside)}"
        )


@dataclass
class _Block:
    """An instance and those written over it. members: step and value of each."""

    members: list[tuple[int, int]]
    first: int
    end: int
    size: int


@dataclass
class _Group:
    """Blocks that are in the pool together or not at all: the results of one step."""

    blocks: list[_Block] = field(default_factory=list)

    def add_to(self, profile: Bytes, sign: int) -> None:
        for block in self.blocks:
            profile[block.first : block.end] += sign * block.size

    @property
    def steps(self) -> int:
        """Length of its live range in steps."""
        return max(block.end for block in self.blocks) - min(block.first for block in self.blocks)

    def at(self, step: int) -> int:
        """Its bytes at a step."""
        return sum(block.size for block in self.blocks if block.first <= step < block.end)

    def would_raise(self, profile: Bytes, top: int) -> bool:
        """True if adding it would exceed `top`."""
        if len(self.blocks) == 1:
            block = self.blocks[0]
            return int(profile[block.first : block.end].max()) + block.size > top
        raised = profile.copy()
        self.add_to(raised, 1)
        return int(raised.max()) > top


def arrange(graph: remat.Graph, plan: remat.Plan, placeable: Placeable, limit: int | None = None) -> Arena:
    """Lays out the results of a plan: all eligible ones, or as large a pool as `limit` bytes for the step
    allow. A plan within the limit without a pool stays within it.

    Results written over others share their places.
    """
    steps = list(plan.steps)
    simulated = remat.simulate(graph, steps)
    groups = _groups(graph, plan, placeable, simulated.overwrites)
    made = len(instances(graph, steps))
    inside = np.zeros(len(steps), np.int64)
    beside = np.array(simulated.memory, np.int64)
    for group in groups:
        group.add_to(inside, 1)
        group.add_to(beside, -1)
    found = _laid_out(groups, beside, made)
    goal = limit
    while limit is not None and goal is not None and found.peak > limit and groups:
        # Also compensates for what the layout needs above the live bytes.
        goal -= found.peak - limit if goal < limit else found.pool - int(inside.max())
        groups = _fill(groups, _shrink(groups, inside, beside, goal), inside, beside)
        found = _laid_out(groups, beside, made)
    return found


def instances(graph: remat.Graph, steps: Sequence[int]) -> list[tuple[int, int]]:
    """All non-empty instances of a plan: step and value."""
    outputs = [graph.op_outputs(op) for op in range(graph.num_ops)]
    sizes = graph.bytes
    return [(at, int(v)) for at, op in enumerate(steps) for v in outputs[op] if sizes[v] > 0]


def _groups(
    graph: remat.Graph, plan: remat.Plan, placeable: Placeable, overwrites: Sequence[tuple[int, int, int]]
) -> list[_Group]:
    """The groups eligible for the pool."""
    steps = list(plan.steps)
    runs = Counter(steps)
    layout = remat.layout(graph, plan, time_limit=None, work_limit=_LEAST_WORK).layout
    assert layout is not None
    lives = {(b.first, b.value): (b.end, b.bytes) for b in layout.buffers if b.value is not None}
    over = {(at, output): value for at, value, output in overwrites}
    newest: dict[int, tuple[int, _Block]] = {}  # by value: its block, and the step of the block's group
    groups: dict[int, _Group] = {}
    barred: set[int] = set()
    for at, value in instances(graph, steps):
        end, size = lives[at, value]
        if (at, value) in over:
            step, block = newest[over[at, value]]
            block.members.append((at, value))
            block.end = end
            barred |= {step} if size != block.size else set()
        else:
            step, block = at, _Block([(at, value)], at, end, size)
            groups.setdefault(step, _Group()).blocks.append(block)
            op = steps[at]
            again = op in placeable.random and runs[op] > 1
            barred |= {step} if op not in placeable.forms or again else set()
        newest[value] = step, block
        barred |= {step} if value in placeable.held else set()
    return [group for step, group in groups.items() if step not in barred]


def _shrink(groups: Sequence[_Group], inside: Bytes, beside: Bytes, goal: int) -> list[_Group]:
    """The groups that stay when others leave the pool until it and the memory beside it need `goal` bytes.
    Changes both profiles.

    Groups alive at the pool's peak leave: the largest of those not alive at the peak beside it; else the one
    with the shortest live range, which changes nothing by itself.
    """
    staying = list(groups)
    while staying:
        at, top = int(inside.argmax()), int(beside.max())
        if int(inside[at]) + top <= goal:
            break
        here = [group for group in staying if group.at(at) > 0]
        free = [group for group in here if not group.would_raise(beside, top)]
        gone = max(free, key=lambda group: group.at(at)) if free else min(here, key=lambda group: group.steps)
        gone.add_to(inside, -1)
        gone.add_to(beside, 1)
        staying = [group for group in staying if group is not gone]
    return staying


def _fill(groups: Sequence[_Group], staying: Sequence[_Group], inside: Bytes, beside: Bytes) -> list[_Group]:
    """The groups that stay, and removed ones that still fit into the pool. Changes both profiles."""
    room, kept = int(inside.max(initial=0)), {id(group) for group in staying}
    filled = list(staying)
    for group in sorted(groups, key=lambda group: -max(block.size for block in group.blocks)):
        if id(group) not in kept and not group.would_raise(inside, room):
            group.add_to(inside, 1)
            group.add_to(beside, -1)
            filled.append(group)
    return filled


def _laid_out(groups: Sequence[_Group], beside: Bytes, made: int) -> Arena:
    blocks = [block for group in groups for block in group.blocks]
    top = int(beside.max(initial=0))
    if not blocks:
        return Arena({}, 0, top, made, 0, beside.tolist())
    found = remat.layout_buffers(
        [block.first for block in blocks],
        [block.end for block in blocks],
        [block.size for block in blocks],
        alignment=ALIGNMENT,
        time_limit=None,
        work_limit=_WORK,
    )
    assert found.offsets is not None
    at = zip(blocks, map(int, found.offsets), strict=True)
    places = {member: offset for block, offset in at for member in block.members}
    pool = int(found.best_arena)
    written = sum(block.size * len(block.members) for block in blocks)
    return Arena(places, pool, top, made - len(places), written, (beside + pool).tolist())
