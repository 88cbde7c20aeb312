"""Marks moments of a recorded step among the allocator's events, from which memory of its ops is derived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..base.allocator import mark_moment, trace_allocations
from ..base.devices import DeviceRuntime, runtime_of
from .recorder import Recorder


@dataclass
class Mark:
    """A moment of a step. op: the op that begins; None: none. away: evicted bytes that autograd waits for.
    start: bytes in memory at that moment; top: the peak until the next one.
    """

    op: int | None
    away: int
    start: int = 0
    top: int = 0

    def add_level(self, level: int) -> None:
        self.top = max(self.top, level)


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
        self._addresses: list[int] = []
        self._tracing = trace_allocations()

    def __enter__(self) -> _Traced:
        self._trace = self._tracing.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._tracing.__exit__(None, None, None)

    def mark(self, op: int | None, away: int) -> None:
        self._addresses.append(mark_moment())
        self._marks.append(Mark(op, away))

    def tell(self, recorder: Recorder) -> None:
        levels = list(self._trace.levels_at(self._addresses))
        for each, (start, _), (_, top) in zip(self._marks, levels, levels[1:], strict=False):
            each.start, each.top = start, top
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
        self._marks.append(Mark(op, away, self._runtime.allocated() - self._start))

    def tell(self, recorder: Recorder) -> None:
        _set_memory(recorder, self._marks)


def levels_on(device: torch.device) -> Levels:
    return _Traced() if device.type == "cpu" else _Counted(runtime_of(device))
