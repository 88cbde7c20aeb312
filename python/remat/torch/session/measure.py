"""Exact memory of the allocator: what a call really needs at its peak."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import _autograd
from torch._C._profiler import (
    ProfilerActivity,
    ProfilerConfig,
    ProfilerState,
    RecordScope,
    _ExperimentalConfig,
)
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from .watch import compare_all, recorded_steps


class AllocatorTrace:
    """The CPU allocator's events of one window, in order: (address, bytes), bytes negative for a free.

    The profiler reports the frees of blocks that were allocated in this window or in an earlier one; frees of
    other blocks it does not know.
    """

    def __init__(self) -> None:
        self.events: list[tuple[int, int]] = []
        self.times_ns: list[int] = []

    def _collect(self, result: Any) -> None:
        found: list[tuple[int, int, int, int]] = []
        stack = list(result.experimental_event_tree())
        while stack:
            event = stack.pop()
            stack.extend(event.children)
            fields = event.extra_fields
            if isinstance(fields, torch._C._profiler._ExtraFields_Allocation) and fields.device.type == "cpu":
                found.append((event.start_time_ns, len(found), fields.ptr, fields.alloc_size))
        found.sort()
        self.events = [(ptr, size) for _, _, ptr, size in found]
        self.times_ns = [when for when, _, _, _ in found]

    def left(self) -> dict[int, int]:
        """Address and bytes of the blocks that were allocated and not freed."""
        alive: dict[int, int] = {}
        for ptr, size in self.events:
            if size > 0:
                alive[ptr] = size
            else:
                alive.pop(ptr, None)
        return alive

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


@contextmanager
def trace_allocations() -> Iterator[AllocatorTrace]:
    """Record every allocation and free of the CPU allocator while the block runs (all threads)."""
    # The profiler library announces each start on stderr unless told not to, before its first use.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    trace = AllocatorTrace()
    config = ProfilerConfig(ProfilerState.KINETO, False, True, False, False, False, _ExperimentalConfig())
    activities = {ProfilerActivity.CPU}
    profiler: Any = _autograd
    profiler._prepare_profiler(config, activities)
    # Only scopes that nothing here opens: memory events are recorded all the same, ops are not.
    profiler._enable_profiler(config, activities, {RecordScope.USER_SCOPE})
    try:
        yield trace
    finally:
        trace._collect(profiler._disable_profiler())


def tensor_storages(root: Any, device_type: str | None = None) -> dict[int, int]:
    """Address and bytes of every storage in a tensor, module, optimizer or container, gradients included.

    device_type: only storages on such a device; None takes all.
    """
    found: dict[int, int] = {}
    for leaf in tree_leaves(root):
        tensors = [leaf]
        if isinstance(leaf, torch.nn.Module):
            tensors = [*leaf.parameters(), *leaf.buffers()]
        elif isinstance(leaf, torch.optim.Optimizer):
            tensors = [t for t in tree_leaves(dict(leaf.state)) if isinstance(t, torch.Tensor)]
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                _add_storage(found, tensor, device_type)
    return found


def _add_storage(found: dict[int, int], tensor: torch.Tensor, device_type: str | None) -> None:
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        return
    # A tensor that is split between ranks: this rank's part of it.
    local = getattr(tensor, "_local_tensor", tensor)
    if tensor.is_leaf and tensor.grad is not None:
        _add_storage(found, tensor.grad, device_type)
    if device_type is not None and tensor.device.type != device_type:
        return
    try:
        storage = local.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):  # sparse and wrapper tensors have no storage of their own
        return
    if address and size:
        found[address] = max(size, found.get(address, 0))


def live_storages() -> dict[int, int]:
    """Address and bytes of every CPU storage that a live Python tensor (or the gradient of one) shows."""
    gc.collect()
    found: dict[int, int] = {}
    for item in gc.get_objects():
        if issubclass(type(item), torch.Tensor):
            _add_storage(found, item, "cpu")
    return found


def bytes_left(fn: Callable[[], Any], device: torch.device) -> int:
    """Bytes that `fn()` allocates on `device` and that are still in use while its result is held."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        result = fn()
        left = torch.cuda.memory_allocated(device) - before
    else:
        with trace_allocations() as trace:
            result = fn()
        left = trace.rise()[1]
    del result
    return left


def measure_peak(
    fn: Callable[[], Any], *, device: str | torch.device | None = None, resident: Any = None, warmup: int = 0
) -> int:
    """Peak bytes allocated on `device` while `fn()` runs, everything that is alive at the start included.

    On the CPU this follows the allocator's own events and is exact for all memory that PyTorch allocates;
    memory that MKL or oneDNN take for themselves does not show. On CUDA it is
    `torch.cuda.max_memory_allocated`. Planned steps that run inside `fn` are compared with their predictions;
    more than 2 % above is a warning.

    resident: the tensors, modules, optimizers (or containers of them) to count as alive at the start, with
    their
        gradients; None counts every tensor of the process that Python can see. CPU only.
    warmup: calls of `fn` before the measured one. On the CPU, blocks older than the first of them that `fn`
    frees are
        counted to the end, since the allocator does not report their going; with a call before, none is.
    """
    cuda: Any = torch.cuda
    where = torch.device(device or ("cuda" if cuda.is_available() and cuda.is_initialized() else "cpu"))
    if where.type == "cuda":
        if resident is not None:
            raise ValueError(
                "measure_peak: `resident` has no meaning on CUDA, whose allocator counts everything"
            )
        for _ in range(warmup):
            fn()
        torch.cuda.synchronize(where)
        torch.cuda.reset_peak_memory_stats(where)
        fn()
        torch.cuda.synchronize(where)
        return torch.cuda.max_memory_allocated(where)
    if where.type != "cpu":
        raise ValueError(f"measure_peak: device {where} is neither CPU nor CUDA")
    if warmup:
        with trace_allocations():
            for _ in range(warmup):
                fn()
    known = live_storages() if resident is None else tensor_storages(resident, "cpu")
    start = sum(known.values())
    with trace_allocations() as trace, recorded_steps() as windows:
        fn()
    compare_all(windows, trace, known)
    return start + trace.rise(known)[0]
