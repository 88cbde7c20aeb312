"""Moments of a recorded step among what the allocator did, and what its ops took in memory from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..base.allocator import AllocatorTrace
from ..base.private import without_dispatch_modes
from .recorder import Recorder

# Of the block that marks where an op begins among the allocator's events; no tensor has such a size.
MARK_BYTES = 61


@dataclass
class Mark:
    """A moment of a step. op: to which belongs what follows; None: to none. away: bytes that autograd waits
    for and that are not there. start: bytes in memory at that moment; top: the most until the next one.
    """

    op: int | None
    away: int
    address: int
    start: int = 0
    top: int = 0

    def start_at(self, level: int) -> None:
        self.start = self.top = level

    def add_level(self, level: int) -> None:
        self.top = max(self.top, level)


def new_mark(op: int | None, away: int) -> Mark:
    """Among the CPU allocator's events."""
    with without_dispatch_modes():
        block = torch.empty(MARK_BYTES, dtype=torch.uint8, device="cpu")
    return Mark(op, away, block.data_ptr())


def find_levels(trace: AllocatorTrace, marks: Sequence[Mark]) -> None:
    """Bytes in memory at each mark, and the most until the next one."""
    level = 0
    alive: dict[int, int] = {}
    pending = iter(marks)
    following = next(pending, None)
    current: Mark | None = None
    for address, size in trace.events:
        if following is not None and (address, size) == (following.address, MARK_BYTES):
            current, following = following, next(pending, None)
            current.start_at(level)
        elif size > 0:
            if size != MARK_BYTES:
                alive[address] = size
                level += size
                if current is not None:
                    current.add_level(level)
        else:
            level -= alive.pop(address, 0)


def set_memory(recorder: Recorder, marks: Sequence[Mark]) -> None:
    """What each op took beside its results, and the most that was there meanwhile, as if all that autograd
    waits for had been.
    """
    workspaces: dict[int, int] = {}
    tops: dict[int, int] = {}
    for mark in marks:
        if mark.op is None:
            continue
        if mark.op not in workspaces:
            made = sum(recorder.values[value].bytes for value in recorder.ops[mark.op].made)
            workspaces[mark.op] = max(0, mark.top - mark.start - made)
        tops[mark.op] = max(tops.get(mark.op, 0), mark.top + mark.away)
    for number, workspace in workspaces.items():
        recorder.ops[number].add_cost(workspace, tops[number])
