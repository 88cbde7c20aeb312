"""Carries out the copies of a plan: eviction to the host, places there, and fetches.

The state of one call of a plan is in one object, from its forward to the end of its backward. The backward
finds it by a token among the saved tensors: when the token dies, there will be no further backward, and the
call's place on the host is free as soon as no copy uses it.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch

import remat

from ..base.ends import when_gone
from ..base.errors import HostMemoryError
from ..base.private import keeps_graph
from ..base.units import exact_bytes
from ..plan.part import CopyStep
from ..plan.report import Traffic
from .channels import Channels, Copy, Region

# Places on the host begin at multiples of this.
_ALIGNMENT = 64
# Work of their layout: a plan has few copies, and any good layout suffices.
_LAYOUT_WORK = 200_000


@dataclass(frozen=True)
class Places:
    """The layout of values on the host: offsets by value, in `size` bytes."""

    offsets: Mapping[int, int]
    size: int


def lay_out(graph: remat.Graph, copies: Sequence[CopyStep]) -> Places:
    """Lays out the values that a plan copies out; a value's place is free after its last copy."""
    issued = {value: issue for value, way, issue, _ in copies if way == "out"}
    ended: dict[int, int] = {}
    for value, _, _, wait in copies:
        ended[value] = max(ended.get(value, 0), wait + 1)
    values = list(issued)
    found = remat.layout_buffers(
        [issued[v] for v in values],
        [ended[v] for v in values],
        [int(graph.bytes[v]) for v in values],
        alignment=_ALIGNMENT,
        time_limit=None,
        work_limit=_LAYOUT_WORK,
    )
    assert found.offsets is not None
    return Places(dict(zip(values, map(int, found.offsets), strict=True)), found.best_arena)


class HostPool:
    """Regions of the host for the calls of one model, kept for the next ones.

    budget: bytes for all calls in flight together; bytes_used: bytes in use.
    """

    def __init__(self, channels: Channels, budget: int | None) -> None:
        self.channels, self.budget = channels, budget
        self._free: list[Region] = []
        self.bytes_used = 0
        self._process = os.getpid()
        # Garbage collection may return a region while this thread takes one.
        self._lock = threading.RLock()

    def lease(self, size: int) -> Lease:
        """Raises HostMemoryError."""
        with self._lock:
            if self._process != os.getpid():
                self._start_anew()
            region = self._known(size) or self._new(size)
            self.bytes_used += region.size
            process = self._process
        return Lease(region, lambda given: self._give_back(given, process))

    def _start_anew(self) -> None:
        """In the child of a process that forked: a mapped file is the parent's too."""
        self._free.clear()
        self.bytes_used, self._process = 0, os.getpid()

    def _known(self, size: int) -> Region | None:
        fitting = [region for region in self._free if region.size >= size]
        if not fitting:
            return None
        best = min(fitting, key=lambda region: region.size)
        self._free = [region for region in self._free if region is not best]
        return best

    def _new(self, size: int) -> Region:
        # The free regions are too small.
        self._free.clear()
        used = self.bytes_used
        if self.budget is not None and used + size > self.budget:
            beside = f" beside {exact_bytes(used)} of calls in flight" if used else ""
            raise HostMemoryError(
                f"host: this step's copies need {exact_bytes(size)}{beside}, the budget of the host is "
                f"{exact_bytes(self.budget)}"
            )
        return self.channels.reserve(size)

    def _give_back(self, region: Region, process: int) -> None:
        with self._lock:
            if self._process == process:
                self.bytes_used -= region.size
                self._free.append(region)

    def bytes_free(self) -> int:
        """Bytes of regions kept for the next call."""
        with self._lock:
            return sum(region.size for region in self._free)

    def forget(self) -> None:
        """Return free regions to the system."""
        with self._lock:
            self._free.clear()


class Lease:
    """Holds a region as long as this object lives."""

    def __init__(self, region: Region, give_back: Callable[[Region], None]) -> None:
        self.region = region
        when_gone(self, give_back, region)


class _Away(NamedTuple):
    """A tensor on the host: its place, and the data to restore it."""

    lease: Lease
    size: int
    dtype: torch.dtype
    device: torch.device
    shape: torch.Size
    strides: tuple[int, ...]
    start: int


@dataclass
class _Call:
    """lease: the region of copies out. away: by value. issued: by number of the copy."""

    lease: Lease
    away: dict[int, _Away] = field(default_factory=dict)
    issued: dict[int, Copy] = field(default_factory=dict)


_numbers = itertools.count()


class Copies:
    """Carries out the copies of one plan; its functions are ops of the two halves."""

    def __init__(self, steps: Sequence[CopyStep], places: Places, pool: HostPool, traffic: Traffic) -> None:
        self.steps, self.places, self.pool, self.traffic = list(steps), places, pool, traffic
        self._calls: dict[int, _Call] = {}
        self._at: dict[tuple[str, str, int], list[int]] = {}
        for number, (_, way, issue, wait) in enumerate(self.steps):
            self._at.setdefault((way, "issue", issue), []).append(number)
            self._at.setdefault((way, "wait", wait), []).append(number)

    def at(self, way: Literal["out", "in"], what: Literal["issue", "wait"], position: int) -> list[int]:
        """The numbers of the copies with this event at a step, in the sequence of the plan."""
        return self._at.get((way, what, position), [])

    def begin(self) -> Callable[[], _Call]:
        """The first op of a forward. Raises HostMemoryError before any other op runs."""

        def begin_copies() -> _Call:
            call = _Call(self.pool.lease(self.places.size))
            self.traffic.count_call()
            return call

        return begin_copies

    def token(self) -> Callable[[_Call], torch.Tensor]:
        """The call as a tensor for the backward."""

        def token_of_call(call: _Call) -> torch.Tensor:
            number = next(_numbers)
            # The storage holds the array: both end together.
            array = np.array([number])
            self._calls[number] = call
            when_gone(array, self._calls.pop, number, None)
            return torch.from_numpy(array)

        return token_of_call

    def resume(self) -> Callable[[torch.Tensor], _Call]:
        """The call in a backward. Each backward has its own copy: with `retain_graph` there are several."""

        def resume_copies(token: torch.Tensor) -> _Call:
            call = self._calls.get(int(token))
            if call is None:
                raise HostMemoryError(
                    "host: the saved tensors of this call are copies (saved_tensors_hooks makes such), and "
                    "what was copied to the host for it is gone"
                )
            # Another backward needs the values on the host: this one's copies out use another place.
            lease = self.pool.lease(self.places.size) if keeps_graph() else call.lease
            return _Call(lease, dict(call.away), dict(call.issued))

        return resume_copies

    def issue_out(self, number: int) -> Callable[[_Call, torch.Tensor], None]:
        """Begin to copy a tensor out; it stays as it is until `wait`."""
        value = self.steps[number][0]
        offset = self.places.offsets[value]

        def copy_out(call: _Call, tensor: torch.Tensor) -> None:
            storage = tensor.untyped_storage()
            size = storage.nbytes()
            call.away[value] = _Away(
                call.lease,
                size,
                tensor.dtype,
                tensor.device,
                tensor.shape,
                tensor.stride(),
                tensor.storage_offset(),
            )
            call.issued[number] = self.pool.channels.out(storage, call.lease.region, offset, call.lease)
            self.traffic.count_out(size)

        return copy_out

    def issue_in(self, number: int) -> Callable[[_Call], torch.Tensor]:
        """A new tensor that holds the copied-out values from `wait` on."""
        value = self.steps[number][0]
        offset = self.places.offsets[value]

        def copy_in(call: _Call) -> torch.Tensor:
            away = call.away[value]
            room = torch.empty(away.size, dtype=torch.uint8, device=away.device)
            storage = room.untyped_storage()
            tensor = torch.empty(0, dtype=away.dtype, device=away.device)
            tensor.set_(storage, away.start, away.shape, away.strides)
            call.issued[number] = self.pool.channels.back(away.lease.region, offset, storage, away.lease)
            self.traffic.count_back(away.size)
            return tensor

        return copy_in

    def wait(self, number: int) -> Callable[[_Call, torch.Tensor | None], None]:
        """Later ops run after the copy has ended. Holds the tensor, if given, until then."""

        def wait_for_copy(call: _Call, tensor: torch.Tensor | None) -> None:
            self.traffic.count_stall(call.issued[number].wait())

        return wait_for_copy
