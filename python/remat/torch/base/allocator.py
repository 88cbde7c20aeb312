"""Traces of the allocator's own events, exact to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .devices import runtime_of
from .private import AllocationFields, start_profiler, stop_profiler, without_dispatch_modes
from .turns import one_at_a_time

# Size of a block that marks a moment among the events, whose times are too coarse. No tensor has it.
_MARK_BYTES = 61


def mark_moment() -> int:
    """Marks this moment among the events of the CPU allocator, by a block whose address is returned."""
    with without_dispatch_modes():
        return torch.empty(_MARK_BYTES, dtype=torch.uint8, device="cpu").data_ptr()


class AllocatorTrace:
    """The CPU allocator's events of one window, in order: (address, bytes), bytes negative for a free.

    The profiler reports frees of blocks allocated in this or an earlier window; it does not know other
    blocks.
    """

    def __init__(self) -> None:
        self.events: list[tuple[int, int]] = []
        self.times_ns: list[int] = []

    def add(self, found: list[tuple[int, int, int]]) -> None:
        """Adds later events: (time, address, bytes)."""
        self.times_ns += [when for when, _, _ in found]
        self.events += [(ptr, size) for _, ptr, size in found]

    def left(self) -> dict[int, int]:
        """Address and bytes of the blocks that were allocated and not freed."""
        alive: dict[int, int] = {}
        for ptr, size in self.events:
            if size > 0:
                alive[ptr] = size
            else:
                alive.pop(ptr, None)
        return alive

    def levels_at(
        self, marks: Sequence[int], known: Mapping[int, int] | None = None
    ) -> Iterator[tuple[int, int]]:
        """Bytes in memory at each of these addresses of `mark_moment`, and the peak since the one before;
        then at the end. known: as in `rise`, all counted.
        """
        alive = dict(known or {})
        level = highest = sum(alive.values())
        left = list(reversed(marks))
        for address, size in self.events:
            if left and (address, size) == (left[-1], _MARK_BYTES):
                left.pop()
                yield level, highest
                highest = level
            elif size > 0:
                alive[address] = size
                level += size
                highest = max(highest, level)
            else:
                level -= alive.pop(address, 0)
        yield level, highest

    def rise(
        self, known: dict[int, int] | None = None, start_ns: int = 0, end_ns: int | None = None
    ) -> tuple[int, int]:
        """Highest and last level of the allocated bytes relative to the start.

        `known` maps the addresses of blocks that were alive and counted at the start to their bytes: their
        frees are subtracted, frees of all other earlier blocks are ignored.
        start_ns, end_ns: a part of the window, in times of `time.time_ns`.
        """
        alive = dict(known or {})
        level = top = 0
        started = False
        for when, (ptr, size) in zip(self.times_ns, self.events, strict=True):
            if end_ns is not None and when > end_ns:
                break
            if not started and when >= start_ns:
                started, level, top = True, 0, 0
            if size > 0:
                alive[ptr] = size
                level += size
                top = max(top, level)
            elif ptr in alive:
                level -= alive.pop(ptr)
        return top, level


def _stop() -> list[tuple[int, int, int]]:
    """The events since the start, in order: (time, address, bytes)."""
    found: list[tuple[int, int, int, int]] = []
    stack = stop_profiler()
    while stack:
        event = stack.pop()
        stack.extend(event.children)
        fields = event.extra_fields
        if isinstance(fields, AllocationFields) and fields.device.type == "cpu":
            found.append((event.start_time_ns, len(found), fields.ptr, fields.alloc_size))
    return [(when, ptr, size) for when, _, ptr, size in sorted(found)]


# PyTorch has one profiler: a trace that begins inside others interrupts it, and all get the events.
_open: list[AllocatorTrace] = []


def _hand_out() -> None:
    found = _stop()
    for trace in _open:
        trace.add(found)


@contextmanager
def trace_allocations() -> Iterator[AllocatorTrace]:
    """Record every allocation and free of the CPU allocator while the block runs, of this thread and of
    PyTorch's workers for it. Other threads that trace have to wait.
    """
    with one_at_a_time():
        if _open:
            _hand_out()
        start_profiler()
        trace = AllocatorTrace()
        _open.append(trace)
        try:
            yield trace
        finally:
            _hand_out()
            _open.remove(trace)
            if _open:
                start_profiler()


def is_traced() -> bool:
    """True while a trace records. A nested one inside autograd would disturb it."""
    return bool(_open)


def bytes_left(fn: Callable[[], Any], device: torch.device) -> int:
    """Bytes that `fn()` allocates on `device` and that are still in use while its result is held."""
    runtime = runtime_of(device)
    if runtime.counts_memory:
        before = runtime.requested()
        result = fn()
        left = runtime.requested() - before
    else:
        with trace_allocations() as trace:
            result = fn()
        left = trace.rise()[1]
    del result
    return left


def most_bytes(fn: Callable[[], Any], device: torch.device) -> tuple[Any, int]:
    """The result of `fn()`, and the peak of its allocated bytes on `device`."""
    runtime = runtime_of(device)
    if runtime.counts_memory:
        before = runtime.allocated()
        runtime.reset_highest()
        result = fn()
        return result, runtime.highest() - before
    with trace_allocations() as trace:
        result = fn()
    return result, trace.rise()[0]
