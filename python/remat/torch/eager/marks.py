"""Marks moments of a recorded step among the allocator's events, from which memory of its ops is derived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..base.allocator import AllocatorTrace, trace_allocations
from ..base.devices import DeviceRuntime, runtime_of
from ..base.private import without_dispatch_modes
from .recorder import Recorder

# Size of the block that marks the begin of an op among the allocator's events; no tensor has it.
MARK_BYTES = 61


@dataclass
class Mark:
    """A moment of a step. op: the op that begins; None: none. away: evicted bytes that autograd waits for.
    start: bytes in memory at that moment; top: the peak until the next one.
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


def _new_mark(op: int | None, away: int) -> Mark:
    """Among the CPU allocator's events."""
    with without_dispatch_modes():
        block = torch.empty(MARK_BYTES, dtype=torch.uint8, device="cpu")
    return Mark(op, away, block.data_ptr())


def _find_levels(trace: AllocatorTrace, marks: Sequence[Mark]) -> None:
    """Finds the bytes in memory at each mark, and the peak until the next one."""
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


def _set_memory(recorder: Recorder, marks: Sequence[Mark]) -> None:
    """Sets each op's memory beside its results, and its peak, as if nothing had been evicted."""
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


class Levels(Protocol):
    """Memory of a recorded step. Inside its context, marks are set among the allocator's events."""

    def __enter__(self) -> Levels: ...

    def __exit__(self, *_: object) -> None: ...

    def mark(self, op: int | None, away: int) -> None:
        """Marks the begin of this op; see `Mark`."""

    def tell(self, recorder: Recorder) -> None:
        """Tells the ops of the step their memory."""


class _Traced:
    """Levels by the allocator's own events, on the CPU."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        self._tracing = trace_allocations()

    def __enter__(self) -> _Traced:
        self._trace = self._tracing.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._tracing.__exit__(None, None, None)

    def mark(self, op: int | None, away: int) -> None:
        self._marks.append(_new_mark(op, away))

    def tell(self, recorder: Recorder) -> None:
        _find_levels(self._trace, self._marks)
        _set_memory(recorder, self._marks)


class _Counted:
    """Levels by the allocator's counters, whose peak is reset at each mark."""

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._runtime = runtime
        self._marks: list[Mark] = []

    def __enter__(self) -> _Counted:
        self._start = self._runtime.allocated()
        return self

    def __exit__(self, *_: object) -> None:
        self.mark(None, 0)

    def mark(self, op: int | None, away: int) -> None:
        if self._marks:
            self._marks[-1].add_level(self._runtime.highest() - self._start)
        self._runtime.reset_highest()
        self._marks.append(Mark(op, away, 0, self._runtime.allocated() - self._start))

    def tell(self, recorder: Recorder) -> None:
        _set_memory(recorder, self._marks)


def levels_on(device: torch.device) -> Levels:
    return _Traced() if device.type == "cpu" else _Counted(runtime_of(device))
