"""One allocation for the results of a plan: which lie in it, where, and what the step then needs.

What lies in the pool is there all the time, and what does not comes and goes beside it: the step needs the
pool and the most that is beside it at one time. Their highest moments need not be the same. So where the
budget is too small for both, some results are left out of the pool, best of all those that are not there
when most is beside it.
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

# Of every offset: what PyTorch's allocator on the CPU aligns to, since kernels may choose by it.
ALIGNMENT = 64
# Of layouts, first fit and a short search.
_WORK = 2_000_000
# Of finding lives, whose layout is not used.
_LEAST_WORK = 1

Bytes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Placeable:
    """forms: by op, what writes its results to given places. held: values that somebody may hold longer than
    a plan says. random: ops that run in another way if they run again.
    """

    forms: Mapping[int, Any]
    held: frozenset[int]
    random: frozenset[int] = frozenset()

    def describe(self) -> list[list[int]]:
        """As a JSON value."""
        return [sorted(self.forms), sorted(self.held), sorted(self.random)]


@dataclass(frozen=True)
class Arena:
    """Places of results in one pool. Sizes are bytes.

    places: by the step that makes it and its value, the offset of an instance.
    pool: of the allocation; beside: the most that is outside it at one time, the graph's inputs included.
    outside: instances that do not lie in it. written: bytes of those that do, over the whole plan.
    memory: by step, pool and what is beside it.
    """

    places: Mapping[tuple[int, int], int]
    pool: int
    beside: int
    outside: int
    written: int
    memory: list[int] = field(repr=False)

    @property
    def peak(self) -> int:
        """What the step needs."""
        return self.pool + self.beside

    def __str__(self) -> str:
        return (
            f"{format_bytes(self.pool)} for {len(self.places)} results, {self.outside} beside it, which with "
            f"all that is there from the start take up to {format_bytes(self.beside)}"
        )


@dataclass
class _Block:
    """An instance and what is written over it. members: as the step that makes each, and its value."""

    members: list[tuple[int, int]]
    first: int
    end: int
    size: int


@dataclass
class _Group:
    """Blocks that lie in the pool together or not at all: the results of one step."""

    blocks: list[_Block] = field(default_factory=list)

    def add_to(self, profile: Bytes, sign: int) -> None:
        for block in self.blocks:
            profile[block.first : block.end] += sign * block.size

    @property
    def steps(self) -> int:
        """For how many it lives."""
        return max(block.end for block in self.blocks) - min(block.first for block in self.blocks)

    def at(self, step: int) -> int:
        """Bytes there."""
        return sum(block.size for block in self.blocks if block.first <= step < block.end)

    def would_raise(self, profile: Bytes, top: int) -> bool:
        """Above `top`, if it were added to it."""
        if len(self.blocks) == 1:
            block = self.blocks[0]
            return int(profile[block.first : block.end].max()) + block.size > top
        raised = profile.copy()
        self.add_to(raised, 1)
        return int(raised.max()) > top


def arrange(graph: remat.Graph, plan: remat.Plan, placeable: Placeable, limit: int | None = None) -> Arena:
    """Places for the results of a plan: of all that may have one, or as large a pool as `limit` bytes allow
    for the step. A plan that is within them without a pool is within them with it.

    Results that are written over others are at their places.
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
        # What a layout needs above the live bytes is to be made good, too.
        goal -= found.peak - limit if goal < limit else found.pool - int(inside.max())
        groups = _fill(groups, _shrink(groups, inside, beside, goal), inside, beside)
        found = _laid_out(groups, beside, made)
    return found


def instances(graph: remat.Graph, steps: Sequence[int]) -> list[tuple[int, int]]:
    """All that a plan makes that has bytes: the step, and the value."""
    outputs = [graph.op_outputs(op) for op in range(graph.num_ops)]
    sizes = graph.bytes
    return [(at, int(v)) for at, op in enumerate(steps) for v in outputs[op] if sizes[v] > 0]


def _groups(
    graph: remat.Graph, plan: remat.Plan, placeable: Placeable, overwrites: Sequence[tuple[int, int, int]]
) -> list[_Group]:
    """Those that may lie in the pool."""
    steps = list(plan.steps)
    runs = Counter(steps)
    layout = remat.layout(graph, plan, time_limit=None, work_limit=_LEAST_WORK).layout
    assert layout is not None
    lives = {(b.first, b.value): (b.end, b.bytes) for b in layout.buffers if b.value is not None}
    over = {(at, output): value for at, value, output in overwrites}
    newest: dict[int, tuple[int, _Block]] = {}  # by value: its block, and the step of the group of that
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
    """The groups that stay where others leave the pool until it and what is beside it need `goal` bytes.
    Changes both profiles.

    Those leave that are there when the pool is fullest: the largest of those that are not there when most is
    beside it; else the one that lives shortest, which changes nothing by itself.
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
    """Those that stay, and those that find room beside them in the pool after all. Changes both profiles."""
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
